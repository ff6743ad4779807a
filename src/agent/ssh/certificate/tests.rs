use proptest::prelude::*;
use rcgen::KeyPair;

use super::*;
use crate::ssh::{PrivateKeyFile, encode_private_key};

/// Certificates that `ssh-keygen -s` has signed for [`KEY`] with keys of all types, the last one with SHA-1.
const CERTIFICATES: &str = include_str!("ssh_keygen.txt");

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPbPh2DzbqKF5YIGvF1wbTTD0c0+3bZ8vR2FMBssNNje";

#[test]
fn certificates_of_ssh_keygen_are_read_and_their_signatures_checked() {
    let all: Vec<_> = CERTIFICATES.lines().map(|line| SshCertificate::parse(line).unwrap()).collect();
    let (old, users) = all.split_last().unwrap();
    for certificate in users {
        assert!(certificate.is_signed(), "{}", certificate.authority.kind());
        assert_eq!(certificate.key, SshPublicKey::parse(KEY).unwrap());
        assert_eq!((certificate.serial, certificate.kind), (42, SshCertificateKind::User));
        assert_eq!(certificate.principals, ["deploy", "admin"]);
        let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(
            (seconds(certificate.begins()), certificate.ends().map(seconds)),
            (1_767_225_600, Some(1_893_456_000))
        );
    }
    assert_eq!(users.len(), 5);
    assert_eq!((old.kind, old.ends()), (SshCertificateKind::Host, None));
    assert!(!old.is_signed(), "OpenSSH accepts no SHA-1");
    for (line, certificate) in CERTIFICATES.lines().zip(&all) {
        assert_eq!(certificate.to_line(), line);
    }
}

#[test]
fn a_changed_certificate_is_not_signed_and_a_truncated_one_is_none() {
    let line = CERTIFICATES.lines().next().unwrap();
    let (kind, base64) = line.split_once(' ').unwrap();
    let blob = STANDARD.decode(base64).unwrap();
    let parse = |blob: &[u8]| SshCertificate::parse(&format!("{kind} {}", STANDARD.encode(blob)));
    for index in 0..blob.len() {
        let mut changed = blob.clone();
        changed[index] ^= 1;
        assert!(parse(&changed).is_none_or(|certificate| !certificate.is_signed()), "{index}");
        assert!(parse(&blob[..index]).is_none(), "{index}");
    }
    assert!(parse(&[&blob[..], &[0]].concat()).is_none());
    assert!(SshCertificate::parse(KEY).is_none() && SshCertificate::parse("").is_none());
    assert!(SshCertificate::parse(&line.replace("ssh-ed25519-cert", "ssh-rsa-cert")).is_none());
}

#[test]
fn the_file_of_a_private_key_holds_its_public_key() {
    for algorithm in [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
        let pair = KeyPair::generate_for(algorithm).unwrap();
        let public = SshPublicKey::from_pair(&pair).unwrap();
        let file = encode_private_key(&pair).unwrap();
        let expected = PrivateKeyFile { public: public.clone(), is_encrypted: false };
        assert_eq!(PrivateKeyFile::parse(&file), Some(expected));
        assert_eq!(SshPublicKey::parse(&format!("{} comment", public.to_line())), Some(public));
        assert_eq!(PrivateKeyFile::parse(&file[..60]), None);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(
        kind in prop::sample::select(vec!["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "sk-ssh-ed25519"]),
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        lengths in prop::collection::vec(0_u8..40, 0..16),
    ) {
        // Fields of small lengths, so that the parser gets beyond the first one.
        let mut blob = Vec::new();
        put_text(&mut blob, format!("{kind}{SUFFIX}").as_bytes());
        let mut rest = bytes.as_slice();
        for length in lengths {
            let (field, after) = rest.split_at(usize::from(length).min(rest.len()));
            put_text(&mut blob, field);
            rest = after;
        }
        blob.extend(rest);
        let _ = SshCertificate::parse(&format!("{kind}{SUFFIX} {}", STANDARD.encode(&blob))).map(|found| found.is_signed());
        let _ = PrivateKeyFile::parse(&[b"openssh-key-v1\0", bytes.as_slice()].concat());
        if let Some(key) = SshPublicKey::from_blob(&bytes) {
            prop_assert_eq!(SshPublicKey::parse(&key.to_line()), Some(key));
        }
    }
}
