//! Searches long texts for a token, and reads few of their bytes.

use memchr::memmem;

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
