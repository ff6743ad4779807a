//! Descriptions that identify the gateway's tokens: `keyward HOST TAG NONCE`. `HOST` is for people; `TAG` is the same
//! for all tokens of one gateway on one machine, so that it finds its orphans; `NONCE` is unique.

use std::path::Path;

use aws_lc_rs::{digest, rand};
use keyward_telemetry::hex::encode_hex;

/// Common prefix of the descriptions of one gateway's tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DescriptionPrefix {
    host: String,
    tag: String,
}

impl DescriptionPrefix {
    /// Derives the prefix of the gateway on this machine whose local token is in `file`. Reads the machine's name and
    /// id.
    pub(super) fn for_gateway(file: &Path) -> Self {
        // Cloned machines share an id, containers have none: the host name is hashed too.
        let machine = std::fs::read("/etc/machine-id").unwrap_or_default();
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self::new(&machine, &name, file)
    }

    fn new(machine: &[u8], name: &str, file: &Path) -> Self {
        let mut hasher = digest::Context::new(&digest::SHA256);
        for part in [machine, name.as_bytes(), file.as_os_str().as_encoded_bytes()] {
            hasher.update(&part.len().to_be_bytes());
            hasher.update(part);
        }
        let tag = encode_hex(hasher.finish().as_ref().get(..6).unwrap_or_default());
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
        let host: String = name.chars().take(64).map(plain).collect();
        Self { host: if host.is_empty() { "-".to_owned() } else { host }, tag }
    }

    /// Creates the description of a new token; `None` if the kernel returns no random bytes.
    pub(super) fn next_description(&self) -> Option<String> {
        let mut nonce = [0_u8; 8];
        rand::fill(&mut nonce).ok()?;
        Some(format!("keyward {} {} {}", self.host, self.tag, encode_hex(&nonce)))
    }

    /// Returns true for a description of a token of this gateway.
    pub(super) fn matches(&self, description: &str) -> bool {
        let mut words = description.split(' ');
        words.next() == Some("keyward")
            && words.next() == Some(&self.host)
            && words.next() == Some(&self.tag)
            && words.next().is_some_and(|nonce| nonce.len() == 16 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit()))
            && words.next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_identify_tokens_of_one_gateway() {
        let of =
            |machine: &str, name: &str, file: &str| DescriptionPrefix::new(machine.as_bytes(), name, Path::new(file));
        let ours = of("m1", "build 7", "/a/token");
        let one = ours.next_description().unwrap();
        let two = ours.next_description().unwrap();
        assert!(one.starts_with("keyward build-7 ") && one != two, "{one}");
        assert!(ours.matches(&one) && of("m1", "build 7", "/a/token").matches(&two));
        for other in [of("m2", "build 7", "/a/token"), of("m1", "build 8", "/a/token"), of("m1", "build 7", "/b/token")]
        {
            assert!(!other.matches(&one), "{other:?}");
        }
        for text in ["", "keyward", "ci", &one[..one.len() - 1], &format!("{one} x"), &one.replace("keyward", "other")]
        {
            assert!(!ours.matches(text), "{text}");
        }
    }
}
