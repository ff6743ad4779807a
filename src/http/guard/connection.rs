//! Protects headers against removal by `Connection` (RFC 9110, 7.6.1).

/// Returns true if a header identifies the caller, the resource, the namespace or a condition. A proxy that dropped it
/// because `Connection` names it would check one request and forward another.
pub(crate) fn is_end_to_end(name: &[u8]) -> bool {
    let starts_with =
        |prefix: &&str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()));
    NAMES.iter().any(|candidate| name.eq_ignore_ascii_case(candidate.as_bytes())) || PREFIXES.iter().any(starts_with)
}

/// Returns true if a value of `Connection` names such a header.
pub(super) fn names_protected_header(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|option| is_end_to_end(option.trim_ascii()))
}

const NAMES: [&str; 6] = ["accept", "accept-encoding", "authorization", "cache-control", "host", "range"];

const PREFIXES: [&str; 6] = ["content-", "if-", "x-consul-", "x-keyward-", "x-service-", "x-vault-"];
