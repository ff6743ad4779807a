//! Spellings of one name: those that servers fold to the same, and those that programs before a server may read as another path.

/// How a pattern and a path are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Byte by byte.
    Exact,
    /// Without regard to case. Vault and OpenBao fold the names of policies, of users and of roles of most auth methods, Consul
    /// folds namespaces and ids. As mounts have any names, no path shows which of them fold.
    Folded,
}

impl Spelling {
    /// Returns true if `text` starts with `start`.
    pub(super) fn starts_with(self, text: &[u8], start: &[u8]) -> bool {
        match self {
            Self::Exact => begins_with(text, start),
            Self::Folded => fold_prefix(text, start).is_some(),
        }
    }

    /// Returns true if names that begin with these bytes cannot begin with the same character.
    pub(super) fn differs(self, one: Option<&u8>, other: Option<&u8>) -> bool {
        let (Some(one), Some(other)) = (one, other) else { return false };
        match self {
            Self::Exact => one != other,
            // Other letters may fold to ASCII.
            Self::Folded => one.is_ascii() && other.is_ascii() && !one.eq_ignore_ascii_case(other),
        }
    }

    /// Returns true if the two are the same name.
    pub(super) fn equals(self, one: &[u8], other: &[u8]) -> bool {
        match self {
            Self::Exact => one.len() == other.len() && begins_with(one, other),
            Self::Folded => fold_prefix(one, other).is_some_and(<[u8]>::is_empty),
        }
    }
}

/// Compares byte by byte. The C library's `memcmp` reads whole vectors: where a short pattern ends a page of memory and the next
/// page is unmapped, the processor takes hundreds of cycles for the bytes beyond.
fn begins_with(text: &[u8], start: &[u8]) -> bool {
    text.len() >= start.len() && text.iter().zip(start).all(|(a, b)| a == b)
}

/// Returns the rest of `text` behind `start`, in any case.
fn fold_prefix<'a>(text: &'a [u8], start: &[u8]) -> Option<&'a [u8]> {
    // The same byte first, as most are: a conversion to lower case costs three times as much.
    let is_same = |(a, b): (&u8, &u8)| a.is_ascii() && (a == b || a.eq_ignore_ascii_case(b));
    let same = text.iter().zip(start).take_while(|pair| is_same(*pair)).count();
    if same == start.len() {
        return text.get(same..);
    }
    // Other letters are rare: two that differ in ASCII never fold to the same.
    match (text.get(same), start.get(same)) {
        (Some(a), Some(b)) if !(a.is_ascii() && b.is_ascii()) => {}
        _ => return None,
    }
    // The bytes before are ASCII, so that both rests begin with a character.
    let mut rest = std::str::from_utf8(text.get(same..)?).ok()?.chars();
    for expected in std::str::from_utf8(start.get(same..)?).ok()?.chars() {
        if fold(rest.next()?) != fold(expected) {
            return None;
        }
    }
    Some(rest.as_str().as_bytes())
}

/// Folds a character as Go's `strings.ToLower` does: one for one, so that U+212A is `k` and U+0130 is `i`.
fn fold(char: char) -> char {
    char.to_lowercase().next().unwrap_or(char)
}

/// Returns true if a program before the server may read `path` as `covered`, or as a path below it where `covered` ends in `/*`:
/// letters in another case, `_` for `-`, or segments with more behind a space, `#`, `?` or `;`.
pub(super) fn resembles(path: &str, covered: &str) -> bool {
    let (covered, is_below) = covered.strip_suffix("/*").map_or((covered, false), |parent| (parent, true));
    let mut segments = path.split('/');
    let is_prefix = covered.split('/').all(|expected| segments.next().is_some_and(|name| is_like(name, expected)));
    is_prefix && segments.next().is_some() == is_below
}

/// Returns true if a segment may be read as `expected`.
pub(super) fn is_like(segment: &str, expected: &str) -> bool {
    let name = segment.bytes().take_while(|byte| !matches!(byte, b' ' | b'#' | b'?' | b';'));
    let plain = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.map(plain).eq(expected.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_in_any_case_as_go_folds_them() {
        let check = |one: &str, other: &str, expected: bool| {
            assert_eq!(Spelling::Folded.equals(one.as_bytes(), other.as_bytes()), expected, "{one} {other}");
            assert_eq!(Spelling::Exact.equals(one.as_bytes(), other.as_bytes()), one == other, "{one} {other}");
        };
        for (one, other) in
            [("", ""), ("Web", "wEB"), ("\u{212a}ube", "kube"), ("kube", "\u{212a}ube"), ("TÉAM", "téam")]
        {
            check(one, other, true);
        }
        check("\u{130}d", "ID", true);
        check("ΛΌΓΟΣ", "λόγοσ", true);
        for (one, other) in [("web", "webs"), ("webs", "web"), ("wéb", "web"), ("téa", "téam"), ("a_b", "a-b")] {
            check(one, other, false);
        }
        let starts = |text: &str, start: &str| Spelling::Folded.starts_with(text.as_bytes(), start.as_bytes());
        assert!(starts("Admin-1", "admin") && starts("\u{212a}ube/x", "KUBE/") && !starts("adm", "admin"));
    }

    #[test]
    fn a_path_resembles_a_covered_one_in_every_odd_spelling() {
        let check = |path: &str, covered: &str, expected: bool| {
            assert_eq!(resembles(path, covered), expected, "{path} {covered}");
        };
        for path in ["sys/seal", "SYS/Seal", "sys/seal#", "sys/seal x", "sys#a/seal?b", "sys/seal;c"] {
            check(path, "sys/seal", true);
        }
        check("auth/token/renew_self", "auth/token/renew-self", true);
        check("auth/token/create#x/role", "auth/token/create/*", true);
        for (path, covered) in [
            ("sys/seal-status", "sys/seal"),
            ("sys/seal/x", "sys/seal"),
            ("sys", "sys/seal"),
            ("sys/sealed", "sys/seal"),
            ("sys/wrapping", "sys/wrapping/*"),
            ("sys/wrappings/x", "sys/wrapping/*"),
        ] {
            check(path, covered, false);
        }
    }
}
