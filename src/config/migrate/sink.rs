//! `auto_auth { sink "file" {} }` -> `[sink.NAME]`.

use std::time::Duration;

use keyward_hcl::Value;

use super::input::{Block, InputValue, format_span};
use super::method::{self, Wrapping};
use super::output::{Document, Outcome, Section};

pub(super) fn read(document: &mut Document, auto_auth: Option<method::MigratedMethod<'_>>) {
    let Some(method::MigratedMethod { wrapping, sinks: mut auto_auth }) = auto_auth else { return };
    for (number, (kind, mut sink)) in auto_auth.labelled_blocks("sink").into_iter().enumerate() {
        if kind != "file" {
            sink.drop_all(Outcome::Action, &format!("{kind:?} is not supported: write a [sink.NAME] for a file"));
            continue;
        }
        let name = format!("sink.file-{}", number + 1);
        sink.record(Outcome::Kept, format!("[{name}]"));
        let section = document.section(&name);
        section.begin(sink.origin());
        match wrapping {
            Wrapping::None => {}
            Wrapping::Session => drop(section.text("format", "json")),
            Wrapping::CannotWrap => {
                section.disable();
                sink.record(Outcome::Action, "the sink is written commented out, as its token would not be wrapped");
            }
        }
        if let Some(wrap) = sink.take("wrap_ttl") {
            match wrap.span() {
                Some(Duration::ZERO) => wrap.record_kept("zero: not wrapped"),
                Some(span) => {
                    section.at(wrap.origin()).text("wrap_ttl", &format_span(span)).text("format", "json");
                    wrap.record_changed("wrap_ttl; a new one is made after two thirds of it, and with each new token");
                }
                None => {
                    section.disable();
                    wrap.action("not a duration: the sink is written commented out, as its token would not be wrapped");
                }
            }
        }
        let origin = sink.origin();
        let encrypted = encrypted(&mut sink, section);
        if let Some(mut config) = sink.block("config") {
            file(&mut config, section);
            config.finish();
        } else {
            // The other agents also accept the path next to the type.
            file(&mut sink, section);
        }
        sink.finish();
        if let Some(Encrypted { public_key_file, derive_key, aad }) = encrypted {
            let section = document.section(&format!("{name}.encrypt"));
            section.begin(origin);
            section.text("public_key_file", &public_key_file).flag("derive_key", derive_key);
            match aad {
                Some(Aad::Text(text)) => drop(section.text("aad", &text)),
                Some(Aad::Variable(name)) => drop(section.variable("aad", &name)),
                None => {}
            }
        }
    }
    auto_auth.finish();
}

/// Contents of `[sink.NAME.encrypt]`.
struct Encrypted {
    public_key_file: String,
    derive_key: bool,
    aad: Option<Aad>,
}

/// Additional authenticated data of an encrypted sink.
enum Aad {
    Text(String),
    /// Name of the variable that holds it.
    Variable(String),
}

fn encrypted(sink: &mut Block<'_>, section: &mut Section) -> Option<Encrypted> {
    let [kind, path, derive, aad, variable] =
        ["dh_type", "dh_path", "derive_key", "aad", "aad_env_var"].map(|key| sink.take(key));
    let kind = kind.filter(|kind| {
        let is_supported = kind.text() == Some("curve25519");
        if is_supported {
            kind.record_kept("[sink.NAME.encrypt]");
        } else {
            section.disable();
            kind.action(
                "only \"curve25519\" is supported: the sink is written commented out, as it would not be encrypted",
            );
        }
        is_supported
    });
    let path = path.filter(|path| path.required_text().is_some());
    if let (Some(_), Some(path)) = (&kind, &path) {
        path.record_kept("encrypt.public_key_file; a new key in the file is used after a reload");
        let derive_key = derive.as_ref().and_then(InputValue::flag).unwrap_or(false);
        if let Some(derive) = derive {
            derive.record_kept("encrypt.derive_key");
        }
        // The other agents use the variable if both are given.
        let aad = match (aad, variable.as_ref().and_then(InputValue::text)) {
            (aad, Some(name)) => {
                if let Some(aad) = aad {
                    aad.not_supported("aad_env_var takes precedence");
                }
                Some(Aad::Variable(name.to_owned()))
            }
            (Some(aad), None) => {
                aad.record_kept("encrypt.aad");
                aad.text().map(|text| Aad::Text(text.to_owned()))
            }
            (None, None) => None,
        };
        if let Some(variable) = variable {
            variable.record_changed("encrypt.aad, as ${env:NAME}");
        }
        return path.text().map(|path| Encrypted { public_key_file: path.to_owned(), derive_key, aad });
    }
    for half in [&kind, &path].into_iter().flatten() {
        section.disable();
        half.action(
            "dh_type and dh_path are both required: the sink is written commented out, as it would not be encrypted",
        );
    }
    for option in [derive, aad, variable].into_iter().flatten() {
        option.not_supported("has no effect without dh_type and dh_path");
    }
    None
}

fn file(config: &mut Block<'_>, section: &mut Section) {
    if let Some(path) = config.take("path")
        && let Some(text) = path.required_text()
    {
        section.at(path.origin()).text("path", text);
        path.record_kept("path");
    }
    if let Some(input) = config.take("mode") {
        mode(&input, section);
    }
    for (source_key, key) in [("owner", "owner"), ("group", "group"), ("uid", "owner"), ("gid", "group")] {
        let Some(input) = config.take(source_key) else { continue };
        match input.value {
            Value::Number(text) | Value::Text(text) if text == "-1" => input.record_kept("-1: the agent's own"),
            Value::Number(text) | Value::Text(text) if !text.is_empty() => {
                section.at(input.origin()).text(key, text);
                input.record_kept(key);
            }
            _ => input.not_supported("not an id"),
        }
    }
}

/// Converts a file mode. A number is what HCL and JSON say, so that `0640` and 416 are the same; a text is octal.
pub(super) fn mode(input: &InputValue<'_>, section: &mut Section) {
    let mode = match input.value {
        Value::Number(text) => numeric_mode(text),
        Value::Text(text) => octal_mode(text.strip_prefix("0o").unwrap_or(text)).map(FileMode::Stated),
        _ => return input.not_supported(format!("expected a file mode, found {}", input.value.kind())),
    };
    match mode {
        None => input.not_supported("not a file mode"),
        Some(FileMode::Stated(mode)) => {
            section.at(input.origin()).text("mode", &format!("{mode:04o}"));
            input.record_kept(format!("mode = \"{mode:04o}\""));
        }
        Some(FileMode::Guessed { mode, effective }) => {
            let owner = mode & 0o700;
            section.at(input.origin()).text("mode", &format!("{owner:04o}"));
            input.action(format!(
                "{mode:o} without a leading zero is a decimal number, by which the file had mode {effective:04o}: written for the \
                 owner alone, \"{owner:04o}\"; set \"{mode:04o}\" if that was meant"
            ));
        }
    }
}

/// Mode that a number gives a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileMode {
    /// The number is a mode.
    Stated(u32),
    /// The number is too large for a mode; its digits were probably meant as octal. `effective` is what the file had.
    Guessed { mode: u32, effective: u32 },
}

fn numeric_mode(text: &str) -> Option<FileMode> {
    let digits = text.strip_prefix("0o").or_else(|| text.strip_prefix('0').filter(|rest| !rest.is_empty()));
    if let Some(digits) = digits {
        return octal_mode(digits).map(FileMode::Stated);
    }
    match text.parse::<u32>().ok()? {
        mode @ 0..=0o777 => Some(FileMode::Stated(mode)),
        number => octal_mode(text).map(|mode| FileMode::Guessed { mode, effective: number & 0o777 }),
    }
}

fn octal_mode(digits: &str) -> Option<u32> {
    u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777)
}

#[cfg(test)]
mod tests {
    use super::FileMode::{Guessed, Stated};
    use super::{numeric_mode, octal_mode};

    #[test]
    fn a_number_is_a_mode_or_its_digits_are() {
        for (text, expected) in [
            ("0640", Some(Stated(0o640))),
            ("0o600", Some(Stated(0o600))),
            ("416", Some(Stated(0o640))),
            ("640", Some(Guessed { mode: 0o640, effective: 0o200 })),
            ("0", Some(Stated(0))),
            ("01777", None),
            ("888", None),
            ("-1", None),
        ] {
            assert_eq!(numeric_mode(text), expected, "{text}");
        }
        assert_eq!(
            [octal_mode("640"), octal_mode("416"), octal_mode("888"), octal_mode("rw")],
            [Some(0o640), Some(0o416), None, None]
        );
    }
}
