//! `writeToFile`: records a file that the template's task writes beside its own.

use std::path::{Component, Path, PathBuf};

use super::FunctionResult;
use super::arguments::Arguments;
use super::inputs::Inputs;
use crate::templates::engine::Value;
use crate::templates::evaluation::WrittenFile;

pub(super) const NAME: &str = "writeToFile";

/// The function: `writeToFile "PATH" "USER" "GROUP" "MODE" ["FLAGS"] CONTENT`.
pub(super) fn record(inputs: &mut Inputs<'_>, args: &Arguments<'_>) -> FunctionResult {
    let path = check_path(args.text(0)?, &inputs.source.write_folders).map_err(|problem| args.fail(&problem))?;
    let name = |at: usize| args.text(at).map(|name| Some(name.to_owned()).filter(|name| !name.is_empty()));
    let mode = args.text(3)?;
    let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777);
    let mode = mode.ok_or_else(|| args.fail("argument 4 is not a mode such as \"0640\""))?;
    let flags = if args.len() == 6 { args.text(4)? } else { "" };
    let mut content = args.text(args.len() - 1)?.to_owned();
    if flags.contains("newline") {
        content.push('\n');
    }
    let file = WrittenFile { mode, owner: name(1)?, group: name(2)?, content };
    inputs.evaluation.write_file(path, file, flags.contains("append")).map_err(|problem| args.fail(problem))?;
    Ok(Value::text(""))
}

/// Checks that a path is below one of the folders.
pub(in crate::templates) fn check_path(path: &str, folders: &[PathBuf]) -> Result<PathBuf, String> {
    let path = Path::new(path);
    let is_plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
    let is_below = folders.iter().any(|folder| path != folder && path.starts_with(folder));
    if is_plain && is_below {
        return Ok(path.to_owned());
    }
    if folders.is_empty() {
        return Err(
            "it writes below the template's write_folders, of which there are none here; only [template.NAME] has them"
                .to_owned(),
        );
    }
    Err("the path is below none of the template's write_folders, or not absolute, or has .. in it".to_owned())
}
