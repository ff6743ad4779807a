use keyward_machine::secret_string::SecretString;
use serde_json::json;

use super::*;
use crate::certificates::key::KeyType;

/// A certificate of `ssh-keygen -s` for users `deploy` and `admin`, from 2026 to 2030, and its key.
const CERTIFICATES: &str = include_str!("../../ssh/certificate/ssh_keygen.txt");
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPbPh2DzbqKF5YIGvF1wbTTD0c0+3bZ8vR2FMBssNNje";
const IN_2027: u64 = 1_800_000_000;

fn subject() -> SshSubject {
    SshSubject {
        kind: SshCertificateKind::User,
        principals: vec!["admin".to_owned(), "deploy".to_owned()],
        key_id: Some("deploy@web".to_owned()),
        critical_options: BTreeMap::new(),
        extensions: BTreeMap::from([("permit-pty".to_owned(), String::new())]),
        writes_key: true,
    }
}

fn body(op: &SecretOp) -> Value {
    let SecretOp::WriteObject(body) = op else { panic!() };
    serde_json::from_str(body).unwrap()
}

#[test]
fn a_request_has_the_public_key_and_names_and_only_what_is_set() {
    let origin = KeyOrigin::Generated(KeyType::Ed25519);
    let (op, key) = subject().prepare(&origin, Some("3600s".to_owned())).unwrap();
    let expected = json!({
        "public_key": key.public.to_line(), "cert_type": "user", "valid_principals": "admin,deploy", "ttl": "3600s",
        "key_id": "deploy@web", "extensions": { "permit-pty": "" },
    });
    assert_eq!(body(&op), expected);
    let private = key.private.as_ref().unwrap().expose_secret();
    assert!(private.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n"));
    assert!(!format!("{op:?}{key:?}").contains(private.lines().nth(1).unwrap()));
    let bare = SshSubject {
        kind: SshCertificateKind::Host,
        principals: Vec::new(),
        key_id: None,
        extensions: BTreeMap::new(),
        ..subject()
    };
    let (op, key) = bare.prepare(&origin, None).unwrap();
    assert_eq!(body(&op), json!({ "public_key": key.public.to_line(), "cert_type": "host" }));
}

#[test]
fn every_type_of_key_has_a_form_of_openssh() {
    for (name, key_type) in KeyType::ALL {
        let (_, key) = subject().prepare(&KeyOrigin::Generated(key_type), None).unwrap();
        let private = key.private.unwrap();
        let read = SshKey::parse(private.expose_secret()).unwrap();
        assert_eq!(read.public, key.public, "{name}");
        assert_eq!(read.private.unwrap().expose_secret(), private.expose_secret());
    }
}

#[test]
fn a_key_of_a_file_may_be_private_or_public() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let origin = KeyOrigin::File(path.clone());
    let alone = SshSubject { writes_key: false, ..subject() };
    assert!(matches!(alone.prepare(&origin, None), Err(PrepareError::Read { .. })));
    std::fs::write(&path, "no key").unwrap();
    assert!(matches!(alone.prepare(&origin, None), Err(PrepareError::NoSshKeyFile { .. })));
    std::fs::write(&path, format!("{KEY} comment\n")).unwrap();
    assert_eq!(alone.prepare(&origin, None).unwrap().1.public, SshPublicKey::parse(KEY).unwrap());
    assert!(matches!(subject().prepare(&origin, None), Err(PrepareError::NoKey { .. })), "there is nothing to write");
    let pair = KeyType::EcP256.generate().unwrap();
    std::fs::write(&path, pair.serialize_pem()).unwrap();
    let key = subject().prepare(&origin, None).unwrap().1;
    assert_eq!(Some(&key.public), SshPublicKey::from_pair(&pair).as_ref());
    assert!(key.private.is_some());
    assert!(alone.prepare(&origin, None).unwrap().1.private.is_none(), "it is not kept without need");
}

#[test]
fn an_answer_must_be_what_was_requested() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(IN_2027);
    let key = || SshKey { public: SshPublicKey::parse(KEY).unwrap(), private: Some(SecretString::from("secret")) };
    let accept = |subject: &SshSubject, key: SshKey, line: &str, now: SystemTime| {
        let data = json!({ "serial_number": "2a", "signed_key": line });
        let fields = SecretFields::from(data.as_object().unwrap().clone());
        subject.accept(&fields, key, now).map(|(facts, _)| facts.serial)
    };
    let line = CERTIFICATES.lines().next().unwrap();
    assert_eq!(accept(&subject(), key(), &format!("{line}\n"), now), Ok("42".to_owned()));
    let of_role = SshSubject { principals: Vec::new(), ..subject() };
    assert_eq!(accept(&of_role, key(), line, now), Ok("42".to_owned()));
    let host = SshSubject { kind: SshCertificateKind::Host, ..subject() };
    assert_eq!(accept(&host, key(), line, now), Err(Unusable::OtherKind));
    let others = SshSubject { principals: vec!["deploy".to_owned()], ..subject() };
    assert_eq!(accept(&others, key(), line, now), Err(Unusable::OtherPrincipals));
    let other = SshKey::from_pair(&KeyType::Ed25519.generate().unwrap()).unwrap();
    assert_eq!(accept(&subject(), other, line, now), Err(Unusable::OtherKey));
    assert_eq!(accept(&subject(), key(), line, now + Duration::from_hours(87_600)), Err(Unusable::Expired));
    assert_eq!(accept(&subject(), key(), KEY, now), Err(Unusable::NoSshCertificate));
    assert_eq!(accept(&subject(), key(), "", now), Err(Unusable::NoSshCertificate));
    let old = CERTIFICATES.lines().next_back().unwrap();
    let host = SshSubject { principals: vec!["web.example.com".to_owned()], ..host };
    assert_eq!(accept(&host, key(), old, now), Err(Unusable::NotSigned), "with SHA-1");
}
