//! Encodings and hashes: base64, base32, SHA, MD5, HMAC.

mod md5;

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use keyward_telemetry::hex::encode_hex;

use super::arguments::Arguments;
use super::{FunctionResult, NamedFunction};
use crate::templates::engine::Value;

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("base64Decode", 1, 1, |args| decode_base64(args, Alphabet::Standard)),
    ("base64Encode", 1, 1, |args| Ok(Value::text(STANDARD.encode(args.text(0)?)))),
    ("base64URLDecode", 1, 1, |args| decode_base64(args, Alphabet::Url)),
    ("base64URLEncode", 1, 1, |args| Ok(Value::text(URL_SAFE.encode(args.text(0)?)))),
    ("hmacSHA256Hex", 2, 2, |args| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, args.text(1)?.as_bytes());
        Ok(Value::text(encode_hex(hmac::sign(&key, args.text(0)?.as_bytes()).as_ref())))
    }),
    ("md5sum", 1, 1, |args| Ok(Value::text(encode_hex(&md5::hash(args.text(0)?.as_bytes()))))),
    ("sha256Hex", 1, 1, |args| hash(args, &digest::SHA256)),
    ("sprig_adler32sum", 1, 1, |args| {
        let step = |(a, b): (u32, u32), byte| {
            let a = (a + u32::from(byte)) % 65521;
            (a, (b + a) % 65521)
        };
        let (a, b) = args.text(0)?.bytes().fold((1, 0), step);
        Ok(Value::text((b << 16 | a).to_string()))
    }),
    ("sprig_b32dec", 1, 1, decode_base32),
    ("sprig_b32enc", 1, 1, |args| Ok(Value::text(encode_base32(args.text(0)?.as_bytes())))),
    ("sprig_b64dec", 1, 1, |args| decode_base64(args, Alphabet::Standard)),
    ("sprig_b64enc", 1, 1, |args| Ok(Value::text(STANDARD.encode(args.text(0)?)))),
    ("sprig_sha1sum", 1, 1, |args| hash(args, &digest::SHA1_FOR_LEGACY_USE_ONLY)),
    ("sprig_sha256sum", 1, 1, |args| hash(args, &digest::SHA256)),
    ("sprig_sha512sum", 1, 1, |args| hash(args, &digest::SHA512)),
];

fn hash(args: &Arguments<'_>, algorithm: &'static digest::Algorithm) -> FunctionResult {
    Ok(Value::text(encode_hex(digest::digest(algorithm, args.text(0)?.as_bytes()).as_ref())))
}

fn to_text(args: &Arguments<'_>, bytes: &[u8]) -> FunctionResult {
    std::str::from_utf8(bytes).map(Value::text).map_err(|_| {
        args.fail(
            "the decoded text is not UTF-8; for a binary file, leave it in base64, and set encoding = \"base64\" of the template",
        )
    })
}

#[derive(Clone, Copy)]
enum Alphabet {
    Standard,
    Url,
}

/// Decodes base64 as Go does: line breaks are skipped, and bits after the last byte may be set.
fn decode_base64(args: &Arguments<'_>, alphabet: Alphabet) -> FunctionResult {
    let coded = args.text(0)?;
    let error = || args.fail("the string is not base64");
    let plain: String = coded.chars().filter(|c| !['\r', '\n'].contains(c)).collect();
    // Texts without padding are decoded too, unlike there.
    let padding = plain.len() - plain.trim_end_matches('=').len();
    if padding > 2 || padding > 0 && !plain.len().is_multiple_of(4) {
        return Err(error());
    }
    let config = base64::engine::GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent);
    let alphabet = match alphabet {
        Alphabet::Standard => &base64::alphabet::STANDARD,
        Alphabet::Url => &base64::alphabet::URL_SAFE,
    };
    let engine = base64::engine::GeneralPurpose::new(alphabet, config);
    to_text(args, &engine.decode(plain.as_bytes()).map_err(|_| error())?)
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn encode_base32(bytes: &[u8]) -> String {
    let mut coded = String::with_capacity(bytes.len().div_ceil(5) * 8);
    for group in bytes.chunks(5) {
        let mut bits = [0; 8];
        bits[3..3 + group.len()].copy_from_slice(group);
        let bits = u64::from_be_bytes(bits);
        let used = (group.len() * 8).div_ceil(5);
        for at in 0..8 {
            let index = usize::try_from(bits >> (35 - 5 * at) & 31).unwrap_or_default();
            coded.push(if at < used { char::from(BASE32[index]) } else { '=' });
        }
    }
    coded
}

fn decode_base32(args: &Arguments<'_>) -> FunctionResult {
    let error = || args.fail("the string is not base32");
    let coded: String = args.text(0)?.chars().filter(|c| !['\r', '\n'].contains(c)).collect();
    let digits = coded.trim_end_matches('=');
    if !coded.len().is_multiple_of(8) || coded.len() - digits.len() > 6 {
        return Err(error());
    }
    let mut bytes = Vec::with_capacity(digits.len());
    let (mut bits, mut count) = (0_u32, 0);
    for digit in digits.bytes() {
        let value = BASE32.iter().position(|known| *known == digit).ok_or_else(error)?;
        bits = bits << 5 | u32::try_from(value).unwrap_or_default();
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 255).unwrap_or_default());
        }
    }
    to_text(args, &bytes)
}
