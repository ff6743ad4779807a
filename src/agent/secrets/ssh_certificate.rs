//! End of an OpenSSH certificate, read from its public form (PROTOCOL.certkeys of OpenSSH).

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Returns the end of the certificate in a line `TYPE BASE64 [COMMENT]`; `None` for another text, and for one without end.
pub(super) fn ssh_certificate_end(line: &str) -> Option<SystemTime> {
    let mut words = line.split_ascii_whitespace();
    let kind = words.next().filter(|kind| kind.ends_with(SUFFIX))?;
    let blob = STANDARD.decode(words.next()?).ok()?;
    let mut fields = Fields(&blob);
    if fields.text()? != kind.as_bytes() {
        return None;
    }
    let key_fields = match kind.trim_end_matches(SUFFIX) {
        "ssh-ed25519" => 1,
        "ssh-rsa" | "rsa-sha2-256" | "rsa-sha2-512" | "sk-ssh-ed25519" => 2,
        "sk-ecdsa-sha2-nistp256" => 3,
        "ssh-dss" => 4,
        ecdsa if ecdsa.starts_with("ecdsa-sha2-") => 2,
        _ => return None,
    };
    // The nonce, and the public key.
    for _ in 0..=key_fields {
        fields.text()?;
    }
    let _serial = fields.take(8)?;
    let _type = fields.take(4)?;
    let _key_id = fields.text()?;
    let _principals = fields.text()?;
    let _valid_after = fields.take(8)?;
    let ends = u64::from_be_bytes(fields.take(8)?.try_into().ok()?);
    // All ones mean no end.
    (ends != u64::MAX).then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(ends.min(YEAR_9999)))
}

/// In seconds since 1970. Bounds times from the server, so that sums with them do not overflow.
pub(super) const YEAR_9999: u64 = 253_402_300_799;

const SUFFIX: &str = "-cert-v01@openssh.com";

/// The rest of a blob.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(field)
    }

    /// Takes a field with its length before it.
    fn text(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_be_bytes(self.take(4)?.try_into().ok()?);
        self.take(usize::try_from(length).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(kind: &str, key_fields: usize, valid_before: u64) -> String {
        let text = |text: &[u8]| [&u32::try_from(text.len()).unwrap().to_be_bytes(), text].concat();
        let mut blob = text(kind.as_bytes());
        for _ in 0..=key_fields {
            blob.extend(text(b"key"));
        }
        blob.extend([0; 12]);
        blob.extend([text(b"id"), text(&text(b"me"))].concat());
        blob.extend([0; 8]);
        blob.extend(valid_before.to_be_bytes());
        blob.extend(text(b"signature"));
        format!("{kind} {}", STANDARD.encode(blob))
    }

    #[test]
    fn every_kind_of_key_shows_its_end() {
        let end = |line: &str| {
            ssh_certificate_end(line).map(|end| end.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
        };
        for (kind, key_fields) in [
            ("ssh-ed25519-cert-v01@openssh.com", 1),
            ("ssh-rsa-cert-v01@openssh.com", 2),
            ("ecdsa-sha2-nistp256-cert-v01@openssh.com", 2),
            ("sk-ssh-ed25519-cert-v01@openssh.com", 2),
            ("sk-ecdsa-sha2-nistp256-cert-v01@openssh.com", 3),
        ] {
            assert_eq!(end(&certificate(kind, key_fields, 1_800_000_000)), Some(1_800_000_000), "{kind}");
        }
        let forever = certificate("ssh-ed25519-cert-v01@openssh.com", 1, u64::MAX);
        assert_eq!(end(&forever), None);
        let plain = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINu71a2gLOgVhFQmZlvhwHHANDCZoTY1bIJ5zU6B8zVB";
        assert_eq!([end(plain), end(""), end("x-cert-v01@openssh.com AAAA")], [None; 3]);
        let line = certificate("ssh-ed25519-cert-v01@openssh.com", 1, 1);
        assert!((0..line.len() - 24).all(|length| end(&line[..length]).is_none()), "a truncated one");
    }
}
