//! Names of things, and texts that nobody guesses.

use std::time::SystemTime;

use aws_lc_rs::{digest, rand};
use http::HeaderValue;
use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};

/// The id of a new thing, such as `ws-` and sixteen letters and digits.
pub(super) fn id(prefix: &str) -> String {
    format!("{prefix}-{}", text(16))
}

/// A token in the platform's form. It says what it is, so that one that strays into a log or a real server is known.
pub(super) fn token() -> String {
    format!("emulated{}.atlasv1.{}", text(6), text(67))
}

/// What stands at the end of a URL that needs no other secret.
pub(super) fn url_secret() -> String {
    text(64)
}

/// What a token is known by, without the token.
pub(super) fn fingerprint(token: &[u8]) -> [u8; 32] {
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest::digest(&digest::SHA256, token).as_ref());
    fingerprint
}

/// The platform's form of a time: UTC, with milliseconds.
pub(super) fn timestamp(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    time.replace_millisecond(time.millisecond()).unwrap_or(time).format(&Rfc3339).unwrap_or_default()
}

/// The form that a time has in `Date` (RFC 9110, 5.6.7).
pub(super) fn http_date(time: SystemTime) -> Option<HeaderValue> {
    let text = OffsetDateTime::from(time).format(&Rfc2822).ok()?;
    HeaderValue::from_str(&text.replace("+0000", "GMT")).ok()
}

/// A failing system generator leaves nothing safe to go on with.
#[expect(clippy::expect_used, reason = "no secret can be made without the system's generator")]
fn text(length: usize) -> String {
    const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut bytes = vec![0_u8; length];
    rand::fill(&mut bytes).expect("the system's random generator works");
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}
