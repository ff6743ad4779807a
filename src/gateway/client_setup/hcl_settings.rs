//! Shared settings in a text of HCL: they are cut out, and all else of the text stays as it is.

use std::ops::Range;
use std::path::Path;

use keyward_hcl::{Attribute, Node, Object, Position};
use serde_json::Value;

use super::hcl_value::to_hcl;
use super::shared_settings::{FileSettings, OCI_BLOCK, OCI_PATHS, Setting, absolute, shared_name};

/// Replacement of a part of the text.
type Edit = (Range<usize>, String);

/// Returns the text without its shared settings and with absolute paths, and the settings. A text that is no HCL stays as it
/// is: the program that reads it says what is wrong.
pub(super) fn take(text: &str, folder: &Path) -> (String, FileSettings) {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let mut settings = FileSettings::new();
    let Ok(object) = keyward_hcl::read(&text) else { return (text, settings) };
    let mut edits: Vec<Edit> = Vec::new();
    for attribute in &object.attributes {
        if let Some(name) = shared_name(&attribute.key) {
            if let Some((range, setting)) = find_setting(&text, attribute) {
                edits.push((range, String::new()));
                settings.insert(name, setting);
            }
        } else if attribute.key == OCI_BLOCK
            && let keyward_hcl::Value::Object(block) = &attribute.value.value
        {
            edits.extend(paths(block).filter_map(|path| absolute_path(&text, path, folder)));
        }
    }
    let mut edited = text;
    for (range, replacement) in edits.into_iter().rev() {
        edited.replace_range(range, &replacement);
    }
    (edited, settings)
}

/// Returns the part of the text from the key to the end of its value, and the value.
fn find_setting(text: &str, attribute: &Attribute) -> Option<(Range<usize>, Setting)> {
    let value = match &attribute.value.value {
        keyward_hcl::Value::Text(value) => Value::from(value.as_str()),
        keyward_hcl::Value::Bool(on) => Value::from(*on),
        keyward_hcl::Value::Number(number) => Value::from(number.as_str()),
        _ => return None,
    };
    let literal = literal(text, attribute.value.at)?;
    let range = offset(text, attribute.at)?..literal.end;
    Some((range, Setting { value, literal: Some(text[literal].to_owned()) }))
}

/// Returns the paths of the block that are relative to its file.
fn paths(block: &Object) -> impl Iterator<Item = &Node> {
    let lists = block.attributes.iter().filter(|attribute| attribute.key == OCI_PATHS);
    lists.flat_map(|attribute| match &attribute.value.value {
        keyward_hcl::Value::List(paths) => paths.as_slice(),
        _ => &[],
    })
}

fn absolute_path(text: &str, path: &Node, folder: &Path) -> Option<Edit> {
    let keyward_hcl::Value::Text(relative) = &path.value else { return None };
    Some((literal(text, path.at)?, to_hcl(&absolute(relative, folder)?.into())?))
}

/// Returns the range of a string in quotes, a number or a boolean; `None` for a heredoc.
fn literal(text: &str, at: Position) -> Option<Range<usize>> {
    let start = offset(text, at)?;
    let rest = text.get(start..)?;
    if !rest.starts_with('"') {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-' | '+' | '.'))?;
        return (end > 0).then_some(start..start + end);
    }
    let (mut braces, mut escaped, mut previous) = (0_usize, false, ' ');
    for (index, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '{' if braces > 0 || previous == '$' => braces += 1,
            '}' if braces > 0 => braces -= 1,
            _ if braces > 0 => {}
            '\\' => escaped = true,
            '"' => return Some(start..start + index + 1),
            _ => {}
        }
        previous = c;
    }
    None
}

/// Returns the offset of a position in bytes.
fn offset(text: &str, at: Position) -> Option<usize> {
    let start: usize = text.split_inclusive('\n').take(at.line.checked_sub(1)?).map(str::len).sum();
    let line = text.get(start..)?;
    let column = line.char_indices().nth(at.column.checked_sub(1)?);
    Some(start + column.map_or(line.len(), |(index, _)| index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_cut_out_and_paths_become_absolute() {
        let check = |text: &str, expected: &str, settings: &[(&str, &str)]| {
            let (rest, found) = take(text, Path::new("/home/me"));
            assert_eq!(rest.as_str(), expected, "{text}");
            let found: Vec<(&str, &str)> =
                found.iter().map(|(name, setting)| (*name, setting.literal.as_deref().unwrap())).collect();
            assert_eq!(found, settings, "{text}");
        };
        check("plugin_cache_dir = \"$HOME/c\"\n# mine\n", "\n# mine\n", &[("plugin_cache_dir", "\"$HOME/c\"")]);
        check(
            "# \u{e9}\r\n  disable_checkpoint=true\r\nhost \"a\" { disable_checkpoint = \"x\" }",
            "# \u{e9}\n  \nhost \"a\" { disable_checkpoint = \"x\" }",
            &[("disable_checkpoint", "true")],
        );
        check(
            "\"plugin_cache_dir\" = \"a\\\"b${x(\"y\")}\" disable_checkpoint = 1\n",
            " \n",
            &[("disable_checkpoint", "1"), ("plugin_cache_dir", "\"a\\\"b${x(\"y\")}\"")],
        );
        // The last of one file counts, as for Terraform.
        check("plugin_cache_dir=\"a\"\nplugin_cache_dir=\"b\"\n", "\n\n", &[("plugin_cache_dir", "\"b\"")]);
        check(
            "oci_default_credentials {\n  docker_style_config_files = [\"a.json\", \"/b.json\", \"../c\"]\n}\n",
            "oci_default_credentials {\n  docker_style_config_files = [\"/home/me/a.json\", \"/b.json\", \"/home/me/../c\"]\n}\n",
            &[],
        );
        for unchanged in [
            "disable_checkpoint = {",
            "plugin_cache_dir = \"${x(\"}\")}\"\n",
            "plugin_cache_dir = <<E\n/c\nE\n",
            "credentials \"a\" { token = \"t\" }\n",
        ] {
            check(unchanged, unchanged, &[]);
        }
    }
}
