//! Ids and random secrets.

use std::time::SystemTime;

use aws_lc_rs::{digest, rand};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Generates an id such as `ws-` and sixteen letters and digits.
pub(super) fn id(prefix: &str) -> String {
    format!("{prefix}-{}", text(16))
}

/// Generates a token in the platform's format. Its text says that it is emulated, so that a leaked one is recognised.
pub(super) fn token() -> String {
    format!("emulated{}.atlasv1.{}", text(6), text(67))
}

/// Generates the secret part of a URL.
pub(super) fn url_secret() -> String {
    text(64)
}

/// Hashes a token, for lookups without storing it.
pub(super) fn fingerprint(token: &[u8]) -> [u8; 32] {
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(digest::digest(&digest::SHA256, token).as_ref());
    fingerprint
}

/// Formats a time as the platform does: UTC with milliseconds.
pub(super) fn timestamp(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    time.replace_millisecond(time.millisecond()).unwrap_or(time).format(&Rfc3339).unwrap_or_default()
}

/// Panics without random bytes: nothing safe can follow.
#[expect(clippy::expect_used, reason = "no secret can be made without the system's generator")]
fn text(length: usize) -> String {
    const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut bytes = vec![0_u8; length];
    rand::fill(&mut bytes).expect("the system's random generator works");
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}
