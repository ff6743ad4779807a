//! Rules for request paths: a path must mean the same to every server on the way.
//!
//! The gateway and the platform must interpret a path alike. An ambiguous path is refused, so that the platform token
//! is used only for the paths that the gateway serves. The rules hold for callers' paths, and for names from documents
//! that become a path segment.

use std::borrow::Cow;

/// Checks a raw path, or a part of one.
///
/// A dot segment is refused in every form: plain, percent-encoded once or more, followed by a parameter, or between
/// backslashes. Double slashes are allowed: clients of the platform send them, and it accepts them.
pub(crate) fn check_path(path: &str) -> Result<(), &'static str> {
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.contains('\\') {
        return Err("the path contains characters that must be percent-encoded");
    }
    let mut encoded = path.bytes().enumerate().filter(|(_, byte)| *byte == b'%');
    let hex = |at: usize| path.as_bytes().get(at).is_some_and(u8::is_ascii_hexdigit);
    if !encoded.all(|(at, _)| hex(at + 1) && hex(at + 2)) {
        return Err("the path contains an invalid percent-encoding");
    }
    let mut decoded = Cow::Borrowed(path.as_bytes());
    for _ in 0..MAX_DECODES {
        if decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(is_dot_segment) {
            return Err("the path contains a . or .. segment");
        }
        if decoded.iter().any(u8::is_ascii_control) {
            return Err("the path contains an encoded control character");
        }
        if !decoded.contains(&b'%') {
            break;
        }
        decoded = Cow::Owned(percent_encoding::percent_decode(&decoded).collect());
    }
    Ok(())
}

/// Rounds of percent-decoding that servers on the way may do.
const MAX_DECODES: u32 = 4;

fn is_dot_segment(segment: &[u8]) -> bool {
    let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
    matches!(name, b"." | b"..")
}
