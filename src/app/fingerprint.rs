//! A digest of a session's login settings: when it changes, earlier failures do not count any more.

use std::fmt::Write as _;
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::agent::identity::IdentityMethod;
use crate::config;

/// Returns the digest of a session's server, login, identity, certificates and provider variables. It is stored in the
/// state file.
///
/// Each secret contributes 16 bits: enough to detect a change, too few to guess it. The content of a federated token is
/// excluded, as it changes every hour.
pub(super) fn fingerprint(session: &config::Session) -> String {
    let tls = &session.upstream.client.tls;
    let mut text = format!("{:?}\n{:?}\n{:?}\n", session.upstream, session.login, session.identity);
    let certificates = tls.ca_file.iter().chain(tls.identity.iter().map(|identity| &identity.certificate));
    let mut files: Vec<_> = certificates.cloned().collect();
    let folder = tls.ca_dir.iter().flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
    files.extend(folder.map(|entry| entry.path()));
    files.sort();
    for file in files {
        let _ = writeln!(text, "{} {}", file.display(), content(&file, WHOLE));
    }
    match &session.identity {
        IdentityMethod::Cloud(options) => {
            for (name, value) in options.variables.pairs() {
                // The host gives each process a different one.
                if name.contains("HEADER") || name == "MSI_SECRET" {
                    continue;
                }
                let secret = ["SECRET", "PASSWORD"].iter().any(|word| name.contains(word));
                let length = if secret { HINT } else { WHOLE };
                let _ = writeln!(text, "{name} {}", encoded(value.as_bytes(), length));
            }
            if let Some(certificate) = options.variables.get("AZURE_CLIENT_CERTIFICATE_PATH") {
                text.push_str(&content(Path::new(certificate), HINT));
            }
        }
        IdentityMethod::AppRole(options) => {
            text.push_str(&content(&options.role_id_file, WHOLE));
            if let Some(secret) = &options.secret_id_file {
                text.push_str(&content(secret, HINT));
            }
        }
        IdentityMethod::TokenFile(file) => text.push_str(&content(file, HINT)),
        IdentityMethod::Jwt(_) | IdentityMethod::Certificate => {}
    }
    encoded(text.as_bytes(), WHOLE)
}

/// Number of bytes of a digest that are used.
const WHOLE: usize = 16;
const HINT: usize = 2;

fn content(file: &Path, length: usize) -> String {
    std::fs::read(file).map_or_else(|_| "-".to_owned(), |bytes| encoded(&zeroize::Zeroizing::new(bytes), length))
}

fn encoded(bytes: &[u8], length: usize) -> String {
    URL_SAFE_NO_PAD.encode(&digest(&SHA256, bytes).as_ref()[..length])
}
