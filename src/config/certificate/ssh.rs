//! Keys of a certificate of OpenSSH (`kind = "ssh"`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use keyward_agent::certificates::{
    CertificateRequest, CertificateSubject, KeyOrigin, KeyType, OutputForm, SshCertificateKind, SshSubject,
};

use super::output::{Place, place, read_one};
use super::{DEFAULT_SSH_MOUNT, parse_list, read_role, read_ttl};
use crate::reader::Reader;
use crate::references::Text;
use crate::values::{ValueError, invalid};

/// Reads the request and the place of its files.
pub(super) fn read(reader: &mut Reader<'_>) -> (CertificateRequest, Place) {
    let (mount, role) = read_role(reader, DEFAULT_SSH_MOUNT);
    let kinds = [SshCertificateKind::User, SshCertificateKind::Host].map(|kind| (kind.name(), kind));
    let kind = reader.choice("cert_type", &kinds).unwrap_or(SshCertificateKind::User);
    if kind == SshCertificateKind::Host && reader.locate("valid_principals").is_none() {
        reader.missing("valid_principals", "the names of the host that its clients use");
    }
    let principals = parse_list(reader, "valid_principals", principal);
    let key_id = reader.value("key_id");
    let critical_options = read_options(reader, "critical_options");
    let extensions = read_options(reader, "extensions");
    let ttl = read_ttl(reader);
    let key_type = reader.choice("key_type", &KeyType::ALL);
    let file = read_key_file(reader);
    if file.is_some() && reader.locate("key_type").is_some() {
        reader.conflict("key_type", "key_file", "a key has one origin");
    }
    let place = read_place(reader, file.as_ref());
    let subject = SshSubject {
        kind,
        principals,
        key_id,
        critical_options,
        extensions,
        writes_key: place.form == OutputForm::SshFolder,
    };
    let key = match file {
        Some((path, _)) => KeyOrigin::File(path),
        None => KeyOrigin::Generated(key_type.unwrap_or(KeyType::Ed25519)),
    };
    (CertificateRequest { mount, role, ttl, key, subject: CertificateSubject::Ssh(subject) }, place)
}

/// Reads `key_file`: a private key, or a public key by its name.
fn read_key_file(reader: &mut Reader<'_>) -> Option<(PathBuf, Text)> {
    let text = reader.text("key_file")?;
    let path = if text.value.ends_with(PUBLIC) { reader.file_at(&text) } else { reader.key_file_at(&text) };
    Some((path?, text))
}

/// Reads `folder`, or `cert_file`, which is beside the key by default.
fn read_place(reader: &mut Reader<'_>, key_file: Option<&(PathBuf, Text)>) -> Place {
    match (read_one(reader, &["folder", "cert_file"]), key_file) {
        (Some(("folder", at, text)), key_file) => {
            if let (Some((_, key)), Some(at)) = (key_file, reader.locate("key_file"))
                && key.value.ends_with(PUBLIC)
            {
                let advice = "name the private key, or set cert_file in place of folder";
                reader.error(at, "key_file", "is a public key, and the folder holds the private one too", advice);
            }
            place(reader, text, OutputForm::SshFolder, at, "folder")
        }
        (Some((key, at, text)), Some(_)) => place(reader, text, OutputForm::SshCertificate, at, key),
        (Some((key, at, text)), None) => {
            if reader.locate("key_file").is_none() {
                reader.missing("key_file", "the key that the certificate is for; or set folder for a new key");
            }
            place(reader, text, OutputForm::SshCertificate, at, key)
        }
        (None, Some((_, text))) => {
            let name = text.value.strip_suffix(PUBLIC).unwrap_or(&text.value);
            let beside = Text { value: format!("{name}{CERTIFICATE}"), ..text.clone() };
            place(reader, Some(beside), OutputForm::SshCertificate, text.at, "key_file")
        }
        (None, None) => {
            if reader.locate("key_file").is_none() {
                reader.missing(
                    "folder",
                    "a path such as \"/etc/ssh/keyward\" for a new key, or key_file for one that stays",
                );
            }
            Place { path: PathBuf::new(), form: OutputForm::SshFolder, at: reader.at, key: "folder" }
        }
    }
}

const PUBLIC: &str = ".pub";

/// As `ssh-keygen -s` and `ssh` name it.
const CERTIFICATE: &str = "-cert.pub";

fn principal(text: &str) -> Result<String, ValueError> {
    if text.contains(|character: char| character == ',' || character.is_whitespace()) {
        return invalid("is not the name of a user or host", "write each name as a string of its own");
    }
    Ok(text.to_owned())
}

/// Reads a list of options, `NAME` or `NAME=VALUE`.
fn read_options(reader: &mut Reader<'_>, name: &'static str) -> BTreeMap<String, String> {
    parse_list(reader, name, option).into_iter().collect()
}

fn option(text: &str) -> Result<(String, String), ValueError> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_name) {
        return invalid("is not an option", "write its name, such as \"permit-pty\", or NAME=VALUE");
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_has_a_name_and_may_have_a_value() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let found = option(text).ok();
            assert_eq!(found.as_ref().map(|(name, value)| (name.as_str(), value.as_str())), expected, "{text}");
        };
        check("permit-pty", Some(("permit-pty", "")));
        check("force-command=/bin/echo a=b", Some(("force-command", "/bin/echo a=b")));
        check("login@example.com=me", Some(("login@example.com", "me")));
        check("=x", None);
        check("a b", None);
        assert!(principal("root").is_ok() && principal("a,b").is_err() && principal("a b").is_err());
    }
}
