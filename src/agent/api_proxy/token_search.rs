//! Searches bytes for a token: all of them, or few bytes of a long text.

use http::HeaderMap;
use memchr::memmem::{self, Finder};

use crate::token::Token;

/// Searches for one token. Finds its first bytes by vector instructions, which the library does not use for longer patterns.
pub(super) struct TokenFinder<'a> {
    token: &'a [u8],
    prefix: Finder<'a>,
}

/// Returns the bytes of a token.
pub(super) fn token_bytes(token: &Token) -> &[u8] {
    token.secret.secret().expose_secret().as_bytes()
}

impl<'a> TokenFinder<'a> {
    pub(super) fn new(token: &'a Token) -> Self {
        Self::from_bytes(token_bytes(token))
    }

    fn from_bytes(token: &'a [u8]) -> Self {
        Self { token, prefix: Finder::new(token.get(..VECTOR_SEARCH_LEN).unwrap_or(token)) }
    }

    /// Returns true if `text` contains the token.
    pub(super) fn is_in(&self, text: &[u8]) -> bool {
        let mut rest = text;
        // Skips most headers, which are shorter.
        while rest.len() >= self.token.len() {
            let Some(candidate) = self.prefix.find(rest).and_then(|at| rest.get(at..)) else { return false };
            if candidate.starts_with(self.token) {
                return true;
            }
            // The next match may overlap with this one.
            rest = candidate.get(1..).unwrap_or_default();
        }
        false
    }

    pub(super) fn is_in_headers(&self, headers: &HeaderMap) -> bool {
        headers.values().any(|value| self.is_in(value.as_bytes()))
    }
}

/// Returns the length of the longest suffix of `text` that is a proper prefix of the token.
pub(super) fn partial_match_len(token: &[u8], text: &[u8]) -> usize {
    let (Some(first), max) = (token.first(), token.len().saturating_sub(1)) else { return 0 };
    let end = text.get(text.len().saturating_sub(max)..).unwrap_or_default();
    let starts = memchr::memchr_iter(*first, end).filter_map(|at| end.get(at..));
    starts.into_iter().find(|end| token.starts_with(end)).map_or(0, <[u8]>::len)
}

/// The longest pattern that `memchr` searches by only vector instructions, in bytes.
const VECTOR_SEARCH_LEN: usize = 32;

/// Search for one token by samples. A window is four consecutive bytes, and a token of `L` bytes has `L - 3` of them, so that each
/// occurrence has one of its windows at a multiple of `L - 3`. Only those places are read.
pub(super) struct SampledSearch {
    stride: usize,
    /// A bit for each hash of a window of the token. They reveal much of the token: the table is freed with the stream, and zeroed by the allocator.
    windows: Box<[u64; HASHES / 64]>,
}

impl SampledSearch {
    /// Returns `None` for a token that is too short to gain by this.
    pub(super) fn new(token: &[u8]) -> Option<Self> {
        let mut windows = Box::new([0; HASHES / 64]);
        for window in token.array_windows() {
            let (word, bit) = bit_position(*window);
            windows[word] |= 1 << bit;
        }
        let stride = token.len().checked_sub(WINDOW - 1)?;
        (stride >= MIN_STRIDE).then_some(Self { stride, windows })
    }

    /// Returns true if `text` contains the token, which is the one of [`SampledSearch::new`].
    pub(super) fn is_in(&self, token: &[u8], text: &[u8]) -> bool {
        let stride = self.stride;
        let overlap = token.len();
        let mut start = 0;
        while let Some(samples) = text.get(start..start + (SAMPLES - 1) * stride + WINDOW) {
            let end = start + SAMPLES * stride;
            if self.may_match(samples) {
                let around = text.get(start.saturating_sub(overlap)..text.len().min(end + overlap));
                if around.is_some_and(|around| memmem::find(around, token).is_some()) {
                    return true;
                }
            }
            start = end;
        }
        memmem::find(text.get(start.saturating_sub(stride)..).unwrap_or_default(), token).is_some()
    }

    /// Returns true if one of the samples is a window of the token, and seldom otherwise.
    fn may_match(&self, samples: &[u8]) -> bool {
        // One branch for all of them: it is hardly ever taken.
        let bits = (0..SAMPLES).fold(0, |bits, number| {
            let sample = samples.get(number * self.stride..).and_then(<[u8]>::first_chunk);
            let (word, bit) = bit_position(sample.copied().unwrap_or_default());
            bits | self.windows[word] >> bit
        });
        bits & 1 == 1
    }
}

/// Returns the place of a window in the table: its word, and the bit in that.
const fn bit_position(window: [u8; WINDOW]) -> (usize, usize) {
    // Fibonacci hashing: the upper bits of the product depend on all bytes.
    let hash = (u32::from_le_bytes(window).wrapping_mul(0x9E37_79B1) >> 16) as usize;
    (hash / 64, hash % 64)
}

/// Bytes of a window.
const WINDOW: usize = 4;

/// Hashes of windows: 16 bits.
const HASHES: usize = 1 << 16;

/// Samples that are looked at together.
const SAMPLES: usize = 8;

/// In bytes. With shorter strides, reading every byte by vector instructions is as fast.
const MIN_STRIDE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_at_any_offset_and_a_partial_match_at_the_end_is_measured() {
        let token = b"hvs.hvs.CAESIJ-a-token-that-is-longer-than-32-bytes";
        let finder = TokenFinder::from_bytes(token);
        let check = |text: &[u8], expected: (bool, usize)| {
            let found = (finder.is_in(text), partial_match_len(token, text));
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(text));
        };
        check(b"", (false, 0));
        check(b"hvs.other", (false, 0));
        check(token, (true, 0));
        check(&[b"hvs.".as_slice(), token, b"x"].concat(), (true, 0));
        check(b"a body ends with h", (false, 1));
        check(b"a body ends with hvs.hvs.", (false, 8));
        check(b"a body ends with hvs.hvs.hvs.", (false, 8));
        check(b"hvs.hvs.CAESIJ-a-token-that-is-longer-than-33-bytes", (false, 0));
        for split in 1..token.len() {
            check(&token[..split], (false, split));
            check(&[b"hvs.", &token[..split]].concat(), (false, if split <= 4 { split + 4 } else { split }));
        }
    }

    #[test]
    fn a_sampled_search_finds_a_token_at_every_offset_of_a_long_text_and_nothing_that_differs_in_a_byte() {
        let token: Vec<u8> = (0..95_u8).map(|at| b'!' + at % 90).collect();
        let search = SampledSearch::new(&token).unwrap();
        for length in [0, 1, 94, 95, 96, 700, 740, 2300] {
            for offset in 0..=length {
                let mut text = vec![b'~'; length];
                text.splice(offset..offset, token.clone());
                assert!(search.is_in(&token, &text), "{length} {offset}");
                text[offset + length % 95] ^= 1;
                assert!(!search.is_in(&token, &text), "{length} {offset}");
                assert!(!search.is_in(&token, &text[..offset]), "{length} {offset}");
            }
        }
        assert!(SampledSearch::new(&token[..36]).is_none(), "a short token");
        assert!(SampledSearch::new(b"hv").is_none(), "one without a window");
    }
}
