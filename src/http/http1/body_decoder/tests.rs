use proptest::prelude::*;

use super::*;

/// Decodes a body received in these chunks: its bytes, its trailers, the bytes left over, and if it is complete.
fn pass(mut expected: BodyDecoder, pieces: &[&[u8]]) -> Result<(Vec<u8>, HeaderMap, Vec<u8>, bool), ChunkError> {
    let mut body = Vec::new();
    let mut trailers = HeaderMap::new();
    let mut received = Bytes::new();
    for piece in pieces {
        received = [received.as_ref(), piece].concat().into();
        while let Some(piece) = expected.take(&mut received)? {
            match piece {
                BodyFrame::Bytes(bytes) => body.extend_from_slice(&bytes),
                BodyFrame::Trailers(found) => trailers = found,
            }
        }
    }
    Ok((body, trailers, received.to_vec(), expected == BodyDecoder::Nothing))
}

const CHUNKS: BodyDecoder = BodyDecoder::Chunks(ChunkState::Size);

#[test]
fn a_body_ends_as_its_framing_says() {
    let check = |decoder, text: &str, expected: (&str, &str, bool)| {
        let (body, _, rest, over) = pass(decoder, &[text.as_bytes()]).unwrap();
        let (expected_body, expected_rest, expected_over) = expected;
        assert_eq!((body.as_slice(), rest.as_slice()), (expected_body.as_bytes(), expected_rest.as_bytes()));
        assert_eq!(over, expected_over);
    };
    check(BodyDecoder::Length(3), "abcd", ("abc", "d", true));
    check(BodyDecoder::Length(3), "ab", ("ab", "", false));
    check(BodyDecoder::All, "abc", ("abc", "", false));
    check(BodyDecoder::Nothing, "a", ("", "a", true));
    check(CHUNKS, "3\r\nabc\r\n0\r\n\r\nd", ("abc", "d", true));
    check(CHUNKS, "A;x=y\r\n0123456789\r\n1\r\na\r\n0\r\n\r\n", ("0123456789a", "", true));
    check(CHUNKS, "3\r\nabc\r\n0\r\n", ("abc", "", false));
}

#[test]
fn invalid_chunks_are_rejected() {
    for text in [
        "x\r\n",
        "\r\n",
        ";x\r\n",
        " 1\r\n",
        "3\r\nabcd\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "-1\r\n",
        "10000000000000000\r\n",
        "0\r\na\r\n\r\n",
        "2;a\nb\r\nok\r\n0\r\n\r\n",
        "0\r\nA: b\n\n",
        "0\r\nA: b\nC: d\r\n\r\n",
    ] {
        assert_eq!(pass(CHUNKS, &[text.as_bytes()]), Err(ChunkError::Invalid), "{text:?}");
    }
    for start in ["1;", "0\r\nA: "] {
        // The longest line, which is not complete yet, and one byte more.
        let line = |more| format!("{start}{}", "a".repeat(16 * 1024 - start.trim_start_matches("0\r\n").len() + more));
        assert_eq!(pass(CHUNKS, &[line(0).as_bytes()]).map(|found| found.3), Ok(false), "{start:?}");
        assert_eq!(pass(CHUNKS, &[line(1).as_bytes()]), Err(ChunkError::TooLong), "{start:?}");
    }
}

proptest! {
    #[test]
    fn a_body_decodes_the_same_in_any_chunks(
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
        trailer in any::<bool>(),
        cuts in proptest::collection::vec(1..20_usize, 0..80),
    ) {
        let mut wire = Vec::new();
        for part in &parts {
            wire.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            wire.extend_from_slice(part);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(if trailer { b"0\r\nX-Sum: 42\r\n\r\nHTTP" } else { b"0\r\n\r\nHTTP" });
        let mut pieces = Vec::new();
        let mut rest = wire.as_slice();
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces.push(rest);
        let (body, trailers, rest, over) = pass(CHUNKS, &pieces).unwrap();
        prop_assert_eq!(body, parts.concat());
        prop_assert_eq!(trailers.get("x-sum").is_some(), trailer);
        prop_assert_eq!((rest.as_slice(), over), (b"HTTP".as_slice(), true));
    }

    #[test]
    fn no_bytes_panic_or_decode_to_more_than_was_received(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((body, _, rest, _)) = pass(CHUNKS, &[&bytes]) {
            prop_assert!(body.len() + rest.len() <= bytes.len());
        }
    }
}
