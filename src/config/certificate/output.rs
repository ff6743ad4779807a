//! Place and form of the files of a certificate.

use std::path::{Path, PathBuf};

use keyward_agent::certificates::OutputForm;

use crate::PathUse;
use crate::diagnostic::Location;
use crate::reader::Reader;
use crate::references::Text;
use crate::sink::file_path;

/// Place of the files of a certificate, and the key that says so.
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) form: OutputForm,
    pub(super) at: Location,
    pub(super) key: &'static str,
}

/// Reads `folder`, `bundle` or `pkcs12`, of which one is needed.
pub(super) fn read(reader: &mut Reader<'_>, name: &str) -> Place {
    let password_file = reader.key_file("password_file");
    let Some((key, at, text)) = read_one(reader, &["folder", "bundle", "pkcs12"]) else {
        let forms =
            "a path such as \"/etc/web/tls\", or bundle = \"/etc/web/tls.pem\", or pkcs12 = \"/etc/web/tls.p12\"";
        reader.missing("folder", forms);
        return Place { path: PathBuf::new(), form: OutputForm::Folder, at: reader.at, key: "folder" };
    };
    let form = match key {
        "folder" => OutputForm::Folder,
        "bundle" => OutputForm::Bundle,
        _ => {
            if reader.locate("password_file").is_none() {
                reader.missing("password_file", "the file that holds the password of the PKCS#12 file");
            }
            let password_file = password_file.unwrap_or_default();
            OutputForm::Pkcs12 { password_file, alias: name.to_owned() }
        }
    };
    if !matches!(form, OutputForm::Pkcs12 { .. })
        && let Some(at) = reader.locate("password_file")
    {
        reader.error(at, "password_file", "has no effect without pkcs12", "set pkcs12, or leave it out");
    }
    place(reader, text, form, at, key)
}

/// Reads the first of several keys that is given; the others conflict with it.
pub(super) fn read_one(
    reader: &mut Reader<'_>,
    keys: &[&'static str],
) -> Option<(&'static str, Location, Option<Text>)> {
    let mut first: Option<(&'static str, Location, Option<Text>)> = None;
    for key in keys {
        let Some(at) = reader.locate(key) else { continue };
        let text = reader.text(key);
        match &first {
            None => first = Some((*key, at, text)),
            Some((first, ..)) => {
                reader.conflict(key, first, "a certificate has one form");
                text.map(|text| reader.parse(&text, file_path));
            }
        }
    }
    first
}

/// Checks the path of an output.
pub(super) fn place(
    reader: &Reader<'_>,
    text: Option<Text>,
    form: OutputForm,
    at: Location,
    key: &'static str,
) -> Place {
    let path = text.and_then(|text| {
        let path = reader.parse(&text, file_path)?;
        if matches!(form, OutputForm::Folder | OutputForm::SshFolder) {
            check_versioned_folder(reader, &text, &path);
        } else {
            reader.check_parent_folder(&text, &path);
        }
        reader.check_folder_not_shared(&text, &path);
        Some(path)
    });
    Place { path: path.unwrap_or_default(), form, at, key }
}

/// Reports a path at which something is that is no symlink, and that keyward does not replace.
fn check_versioned_folder(reader: &Reader<'_>, text: &Text, path: &Path) {
    // The folder above it is the one that is written.
    reader.check_folder_above(text, path, PathUse::Replace);
    let is_other = path.symlink_metadata().is_ok_and(|metadata| !metadata.is_symlink());
    if is_other && !text.unknown {
        let message = format!("{} is there already, and is not a symlink that keyward has made", text.display());
        let advice = "remove it, or choose another path: keyward makes a symlink there, to folders beside it";
        reader.scope.diagnostics.optional_on_host(text.at, &text.key, message, advice);
    }
}
