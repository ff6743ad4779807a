//! Content hash that shows clients whether a token or role has changed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Returns BLAKE2b-256 of the concatenated texts, in base64. The texts of each kind of record and their order are those
/// of Consul's `Hash` field.
pub(crate) fn content_hash(texts: impl IntoIterator<Item = String>) -> String {
    let mut state = blake2b_simd::Params::new().hash_length(32).to_state();
    for text in texts {
        state.update(text.as_bytes());
    }
    STANDARD.encode(state.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_hashes_equal_those_of_consul() {
        let check = |texts: &[&str], expected: &str| {
            assert_eq!(content_hash(texts.iter().map(ToString::to_string)), expected, "{texts:?}");
        };
        check(&["Anonymous Token", "global"], "RNVFSWnfd5DUOuB8vplp+imivlIna3fKQVnkUHh21cA=");
        let policies = ["165d4317-e379-f732-ce70-86278c4558f7", "e359bd81-baca-903e-7e64-1ccd9fdc78f5"];
        check(
            &["Agent token for 'my-agent'", "global", policies[0], policies[1]],
            "UuiRkOQPRCvoRZHRtUxxbrmwZ5crYrOdZ0Z1FTFbTbA=",
        );
    }
}
