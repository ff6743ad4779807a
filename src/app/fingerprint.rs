//! Digests of a session's login settings: when they change, earlier failures do not count any more, and a saved token is replaced.

use std::fmt::Write as _;
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyward_agent::identity::{GcpOrigin, IdentityMethod};
use keyward_config as config;

/// Returns the digest of a session's server, login, identity and provider variables, a dot, and the digest of the other files
/// of its login. They are stored in the state file.
///
/// A change of the first makes the saved token outdated. The second has files that may change or vanish from one start to the next,
/// though the identity stays: CA files, and secret ids that a login consumes.
///
/// Each secret contributes 16 bits: enough to detect a change, too few to guess it. The content of a federated token is
/// excluded, as it changes every hour.
pub(super) fn fingerprint(session: &config::Session) -> String {
    let tls = &session.upstream.client.tls;
    let mut settings = format!("{:?}\n{:?}\n{:?}\n", session.upstream, session.login, session.identity);
    let mut files = String::new();
    let mut authorities: Vec<_> = tls.ca_file.iter().cloned().collect();
    let folder = tls.ca_dir.iter().flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
    authorities.extend(folder.map(|entry| entry.path()));
    authorities.sort();
    for file in authorities {
        let _ = writeln!(files, "{} {}", file.display(), content(&file, WHOLE));
    }
    if let Some(identity) = &tls.identity {
        // With other methods the certificate only opens the connection.
        // One that the agent writes itself follows from the settings, as a cloud's token does.
        let is_identity = matches!(session.identity, IdentityMethod::Certificate { .. }) && !identity.is_awaited;
        let text = if is_identity { &mut settings } else { &mut files };
        let _ = writeln!(text, "{} {}", identity.certificate.display(), content(&identity.certificate, WHOLE));
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
                let _ = writeln!(settings, "{name} {}", encoded(value.as_bytes(), length));
            }
            if let Some(certificate) = options.variables.get("AZURE_CLIENT_CERTIFICATE_PATH") {
                settings.push_str(&content(Path::new(certificate), HINT));
            }
        }
        IdentityMethod::Aws(options) => {
            // Keys of the environment; temporary ones of other origins change by themselves.
            if let Some(key) = options.variables.get("AWS_ACCESS_KEY_ID") {
                settings.push_str(&encoded(key.as_bytes(), WHOLE));
            }
            for name in ["AWS_ROLE_ARN", "AWS_PROFILE"] {
                settings.push_str(&encoded(options.variables.get(name).unwrap_or_default().as_bytes(), WHOLE));
            }
        }
        IdentityMethod::Gcp(options) => {
            if let GcpOrigin::Key { file } = &options.origin {
                settings.push_str(&content(file, HINT));
            }
        }
        IdentityMethod::AppRole(options) => {
            settings.push_str(&content(&options.role_id_file, WHOLE));
            if let Some(secret) = &options.secret_id_file {
                files.push_str(&content(secret, HINT));
            }
        }
        IdentityMethod::TokenFile(file) => files.push_str(&content(file, HINT)),
        // Each job has other variables.
        IdentityMethod::CiJob(_)
        | IdentityMethod::WorkloadApi(_)
        | IdentityMethod::Jwt(_)
        | IdentityMethod::Certificate { .. } => {}
    }
    format!("{}.{}", encoded(settings.as_bytes(), WHOLE), encoded(files.as_bytes(), WHOLE))
}

/// Number of bytes of a digest that are used.
const WHOLE: usize = 16;
const HINT: usize = 2;

fn content(file: &Path, length: usize) -> String {
    std::fs::read(file).map_or_else(|_| "-".to_owned(), |bytes| encoded(&bytes, length))
}

fn encoded(bytes: &[u8], length: usize) -> String {
    URL_SAFE_NO_PAD.encode(&digest(&SHA256, bytes).as_ref()[..length])
}
