//! Rules for request paths: a path must read the same to every server on the way.
//!
//! The gateway's list of served paths and the platform must read a path alike. A path with a second reading is refused, so
//! that the platform token reaches nothing outside of that list. The rules hold for the paths of callers and for the names
//! from documents that become a segment of a path.

use std::borrow::Cow;

/// Checks a raw path, or a part of one.
///
/// A segment that climbs is refused in every form: plain, encoded once or more, with a parameter behind it, or between
/// backslashes. Doubled slashes pass: clients of the platform send them, and it reads them as they are.
///
/// # Errors
/// The path has a second reading: why, in words.
pub fn check_path(path: &str) -> Result<(), &'static str> {
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.contains('\\') {
        return Err("the path holds characters that must be percent-encoded");
    }
    let mut encoded = path.bytes().enumerate().filter(|(_, byte)| *byte == b'%');
    let hex = |at: usize| path.as_bytes().get(at).is_some_and(u8::is_ascii_hexdigit);
    if !encoded.all(|(at, _)| hex(at + 1) && hex(at + 2)) {
        return Err("the path holds a percent sign that encodes nothing");
    }
    let mut decoded = Cow::Borrowed(path.as_bytes());
    for _ in 0..MAX_DECODES {
        if decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(is_dot_segment) {
            return Err("the path climbs out of itself with . or ..");
        }
        if decoded.iter().any(u8::is_ascii_control) {
            return Err("the path holds an encoded control character");
        }
        if !decoded.contains(&b'%') {
            break;
        }
        decoded = Cow::Owned(percent_encoding::percent_decode(&decoded).collect());
    }
    Ok(())
}

/// As often as a server on the way may take the encoding off.
const MAX_DECODES: u32 = 4;

fn is_dot_segment(segment: &[u8]) -> bool {
    let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
    matches!(name, b"." | b"..")
}
