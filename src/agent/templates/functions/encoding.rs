//! Encodings and hashes: base64, JSON, SHA-256, HMAC.

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use gotmpl::Value;
use keyward_telemetry::hex::encode_hex;
use serde_json::Value as Json;
use zeroize::Zeroizing;

use super::arguments::Arguments;
use super::{FunctionResult, NamedFunction};
use crate::templates::value::{ZeroizingJson, from_json, map, text, to_json};

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("base64Decode", |args| decode_base64("base64Decode", args, [&STANDARD, &STANDARD_NO_PAD])),
    ("base64Encode", |args| Ok(text(STANDARD.encode(Arguments::exactly("base64Encode", args, 1)?.text(0)?)))),
    ("base64URLDecode", |args| decode_base64("base64URLDecode", args, [&URL_SAFE, &URL_SAFE_NO_PAD])),
    ("base64URLEncode", |args| Ok(text(URL_SAFE.encode(Arguments::exactly("base64URLEncode", args, 1)?.text(0)?)))),
    ("hmacSHA256Hex", |args| {
        let args = Arguments::exactly("hmacSHA256Hex", args, 2)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, args.text(1)?.as_bytes());
        Ok(text(encode_hex(hmac::sign(&key, args.text(0)?.as_bytes()).as_ref())))
    }),
    ("parseJSON", |args| {
        let args = Arguments::exactly("parseJSON", args, 1)?;
        match args.text(0)? {
            "" => Ok(map::<&str>([])),
            // The parser's message contains characters of the string.
            json => serde_json::from_str::<Json>(json).map(|json| from_json(&ZeroizingJson(json).0)).map_err(|error| {
                args.fail(&format!("invalid JSON at line {} column {}", error.line(), error.column()))
            }),
        }
    }),
    ("sha256Hex", |args| sha256("sha256Hex", args)),
    ("sprig_b64dec", |args| decode_base64("sprig_b64dec", args, [&STANDARD, &STANDARD_NO_PAD])),
    ("sprig_b64enc", |args| Ok(text(STANDARD.encode(Arguments::exactly("sprig_b64enc", args, 1)?.text(0)?)))),
    ("sprig_sha256sum", |args| sha256("sprig_sha256sum", args)),
    ("toJSON", |args| to_json_text("toJSON", args, false).map(|json| text(escape_html(&json).as_str()))),
    ("toJSONPretty", |args| to_json_text("toJSONPretty", args, true).map(|json| text(escape_html(&json).as_str()))),
    ("toUnescapedJSON", |args| {
        to_json_text("toUnescapedJSON", args, false).map(|json| text(escape_line_ends(&json).as_str()))
    }),
    ("toUnescapedJSONPretty", |args| {
        to_json_text("toUnescapedJSONPretty", args, true).map(|json| text(escape_line_ends(&json).as_str()))
    }),
];

fn decode_base64(name: &str, args: &[Value], engines: [&GeneralPurpose; 2]) -> FunctionResult {
    let args = Arguments::exactly(name, args, 1)?;
    let coded = args.text(0)?;
    let bytes = engines.iter().find_map(|engine| engine.decode(coded).ok());
    let bytes = Zeroizing::new(bytes.ok_or_else(|| args.fail("the string is not base64"))?);
    std::str::from_utf8(&bytes).map(text).map_err(|_| {
        args.fail("the decoded text is not UTF-8; for a binary file, leave it in base64, and set encoding = \"base64\" of the template")
    })
}

fn sha256(name: &str, args: &[Value]) -> FunctionResult {
    let args = Arguments::exactly(name, args, 1)?;
    Ok(text(encode_hex(digest::digest(&digest::SHA256, args.text(0)?.as_bytes()).as_ref())))
}

fn to_json_text(name: &str, args: &[Value], pretty: bool) -> Result<Zeroizing<String>, gotmpl::TemplateError> {
    let args = Arguments::exactly(name, args, 1)?;
    let json = ZeroizingJson(to_json(args.value(0)?)?);
    let written = if pretty { serde_json::to_string_pretty(&json.0) } else { serde_json::to_string(&json.0) };
    written.map(Zeroizing::new).map_err(|_| args.fail("the value has no JSON form"))
}

/// Escapes characters with a meaning in HTML as Go does. In JSON they occur only within strings.
fn escape_html(json: &str) -> Zeroizing<String> {
    replace_chars(json, |c| match c {
        '<' => Some("\\u003c"),
        '>' => Some("\\u003e"),
        '&' => Some("\\u0026"),
        other => line_end(other),
    })
}

/// Escapes characters that end a line in JavaScript, as Go does in any case.
fn escape_line_ends(json: &str) -> Zeroizing<String> {
    replace_chars(json, line_end)
}

const fn line_end(c: char) -> Option<&'static str> {
    match c {
        '\u{2028}' => Some("\\u2028"),
        '\u{2029}' => Some("\\u2029"),
        _ => None,
    }
}

fn replace_chars(json: &str, by: impl Fn(char) -> Option<&'static str>) -> Zeroizing<String> {
    // Large enough not to grow: a string that grows leaves a copy behind.
    let mut text = Zeroizing::new(String::with_capacity(json.len() * 6));
    for c in json.chars() {
        match by(c) {
            Some(escape) => text.push_str(escape),
            None => text.push(c),
        }
    }
    text
}
