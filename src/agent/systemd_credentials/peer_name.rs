//! Parses the abstract name of the socket that systemd connects from. Pure.

/// Unit and credential that a peer's socket name asks for. It proves nothing: every process can bind such a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerName<'a> {
    /// Full name of the unit, such as `app.service`.
    pub(crate) unit: &'a str,
    /// Id of the credential.
    pub(crate) credential: &'a str,
}

/// Reason why a name is none of systemd's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PeerNameError {
    /// The peer's socket has no abstract name.
    #[error("its socket has no abstract name")]
    Unnamed,
    /// The name is longer than systemd's can be.
    #[error("its socket's name is longer than {MAX_NAME} bytes")]
    TooLong,
    /// The random part is missing, or has characters other than letters and digits.
    #[error("its socket's name does not begin with letters and digits")]
    Random,
    /// The fixed part is missing.
    #[error("its socket's name lacks /unit/")]
    Format,
    /// The unit's name is not valid.
    #[error("its socket's name has no valid name of a unit")]
    Unit,
    /// The credential's id is not valid.
    #[error("its socket's name has no valid id of a credential")]
    Credential,
}

impl<'a> PeerName<'a> {
    /// Longest sum of the lengths of unit and credential that systemd can ask for: a longer name fits no socket address.
    pub const MAX_BOTH: usize = MAX_NAME - RANDOM_DIGITS - "/unit/".len() - "/".len();

    /// Parses the bytes after the leading NUL of an abstract name: `RANDOM/unit/UNIT/CREDENTIAL`.
    ///
    /// The random part has any length: systemd prints a number in base 16 without leading zeros, so that one name of
    /// sixteen has fewer than 16 digits (`load_credential` in `src/core/exec-credential.c`).
    pub(crate) fn parse(name: &'a [u8]) -> Result<Self, PeerNameError> {
        if name.is_empty() {
            return Err(PeerNameError::Unnamed);
        }
        if name.len() > MAX_NAME {
            return Err(PeerNameError::TooLong);
        }
        let slash = name.iter().position(|byte| *byte == b'/').ok_or(PeerNameError::Format)?;
        let (random, rest) = name.split_at(slash);
        if random.is_empty() || !random.iter().all(u8::is_ascii_alphanumeric) {
            return Err(PeerNameError::Random);
        }
        let rest = rest.strip_prefix(b"/unit/").ok_or(PeerNameError::Format)?;
        let slash = rest.iter().position(|byte| *byte == b'/').ok_or(PeerNameError::Format)?;
        let unit = &rest[..slash];
        let credential = &rest[slash + 1..];
        let unit = std::str::from_utf8(unit).ok().filter(|unit| is_unit_name(unit)).ok_or(PeerNameError::Unit)?;
        let credential = std::str::from_utf8(credential).ok().filter(|id| is_credential_name(id));
        Ok(Self { unit, credential: credential.ok_or(PeerNameError::Credential)? })
    }
}

/// Returns true for a full name of a unit: `unit_name_is_valid` in systemd, without the check of the suffix.
pub(super) fn is_unit_name(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    let (start, suffix) = text.rsplit_once('.').unwrap_or_default();
    text.len() <= 255 && text.bytes().all(is_name) && !start.is_empty() && !start.starts_with('@') && !suffix.is_empty()
}

/// Returns true for a credential id: systemd's `credential_name_valid`, a file name without a colon.
pub fn is_credential_name(text: &str) -> bool {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && !b":/".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(is_plain) && text != "." && text != ".."
}

/// Longest name: `sun_path` has 108 bytes (unix(7)), the first is NUL, and systemd keeps the last one NUL too
/// (`sockaddr_un_set_path`).
const MAX_NAME: usize = 106;

/// Most digits of the random part: a number of 64 bits in base 16.
const RANDOM_DIGITS: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_of_systemds_form_gives_unit_and_credential() {
        let check = |name: &[u8], expected: Result<(&str, &str), PeerNameError>| {
            let found = PeerName::parse(name).map(|found| (found.unit, found.credential));
            assert_eq!(found, expected, "{}", name.escape_ascii());
        };
        check(b"adf9d86b6eda275e/unit/foobar.service/credx", Ok(("foobar.service", "credx")));
        check(b"0/unit/a.service/b", Ok(("a.service", "b")));
        check(b"adf9/unit/worker@eu-1.service/tls.key", Ok(("worker@eu-1.service", "tls.key")));
        check(b"adf9/unit/dev-disk\\x2dby.swap/a b", Ok(("dev-disk\\x2dby.swap", "a b")));
        check(b"", Err(PeerNameError::Unnamed));
        check(&[b'a'; MAX_NAME + 1], Err(PeerNameError::TooLong));
        check(b"adf9", Err(PeerNameError::Format));
        check(b"/unit/a.service/b", Err(PeerNameError::Random));
        check(b"ad-9/unit/a.service/b", Err(PeerNameError::Random));
        check(b"@adf9/unit/a.service/b", Err(PeerNameError::Random));
        check(b"\0adf9/unit/a.service/b", Err(PeerNameError::Random));
        check(b"adf9/user/a.service/b", Err(PeerNameError::Format));
        check(b"adf9//unit/a.service/b", Err(PeerNameError::Format));
        check(b"adf9/unit/a.service", Err(PeerNameError::Format));
        check(b"adf9/unit//b", Err(PeerNameError::Unit));
        check(b"adf9/unit/../b", Err(PeerNameError::Unit));
        check(b"adf9/unit/a/b", Err(PeerNameError::Unit));
        check(b"adf9/unit/@.service/b", Err(PeerNameError::Unit));
        check(b"adf9/unit/a*.service/b", Err(PeerNameError::Unit));
        check(b"adf9/unit/a.service\0/b", Err(PeerNameError::Unit));
        check("adf9/unit/ä.service/b".as_bytes(), Err(PeerNameError::Unit));
        check(b"adf9/unit/a.service/", Err(PeerNameError::Credential));
        check(b"adf9/unit/a.service/..", Err(PeerNameError::Credential));
        check(b"adf9/unit/a.service/b/c", Err(PeerNameError::Credential));
        check(b"adf9/unit/a.service/b:c", Err(PeerNameError::Credential));
        check(b"adf9/unit/a.service/b\0", Err(PeerNameError::Credential));
        check(b"adf9/unit/a.service/b\n", Err(PeerNameError::Credential));
    }

    proptest! {
        #[test]
        fn a_name_is_read_back_as_systemd_writes_it(
            random in any::<u64>(),
            unit in "[a-zA-Z0-9:_.@-]{1,40}[.]service",
            credential in "[ -.0-9;-~]{1,30}",
        ) {
            prop_assume!(!unit.starts_with('@') && credential != "." && credential != "..");
            let name = format!("{random:x}/unit/{unit}/{credential}");
            let parsed = PeerName::parse(name.as_bytes());
            prop_assert_eq!(parsed, Ok(PeerName { unit: &unit, credential: &credential }));
        }

        #[test]
        fn any_bytes_are_refused_or_written_back_alike(name in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Ok(parsed) = PeerName::parse(&name) {
                let tail = format!("/unit/{}/{}", parsed.unit, parsed.credential);
                prop_assert!(name.ends_with(tail.as_bytes()));
                prop_assert!(name[..name.len() - tail.len()].iter().all(u8::is_ascii_alphanumeric));
            }
        }
    }
}
