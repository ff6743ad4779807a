//! Headers that a caller may have dropped on the way by naming them in `Connection` (RFC 9110, 7.6.1).

/// True if a header decides something about a request: who asks, for what, in which namespace, and under which condition. A
/// proxy that dropped it because `Connection` names it would judge one request and send another.
pub fn is_end_to_end(name: &[u8]) -> bool {
    let starts_with =
        |prefix: &&str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()));
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())) || PREFIXES.iter().any(starts_with)
}

/// True if a value of `Connection` names such a header.
pub(super) fn names_end_to_end(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|option| is_end_to_end(option.trim_ascii()))
}

const NAMES: [&str; 6] = ["accept", "accept-encoding", "authorization", "cache-control", "host", "range"];

const PREFIXES: [&str; 6] = ["content-", "if-", "x-consul-", "x-keyward-", "x-service-", "x-vault-"];
