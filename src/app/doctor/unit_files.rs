//! Finds the files of the service's unit: the unit itself and its drop-ins, as systemd does (`systemd.unit(5)`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Folders of unit files, the one that counts first.
const FOLDERS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Folders of polkit's rules.
const RULES: [&str; 4] = [
    "/etc/polkit-1/rules.d",
    "/run/polkit-1/rules.d",
    "/usr/local/share/polkit-1/rules.d",
    "/usr/share/polkit-1/rules.d",
];

/// Files of one unit, the unit's own first, then its drop-ins in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitFiles {
    /// Name with suffix, such as `keyward.service`.
    pub name: String,
    /// Path and text of each file.
    pub(crate) files: Vec<(PathBuf, String)>,
    /// Files that could not be read, with the system's error.
    pub(crate) unreadable: Vec<String>,
}

impl UnitFiles {
    /// Reads a unit by its name, or by the path of its file, whose drop-ins are then those beside it.
    pub(crate) fn read(unit: &str) -> Self {
        let path = Path::new(unit);
        let by_path = unit.contains('/');
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = if name.contains('.') { name } else { format!("{name}.service") };
        let folders: Vec<PathBuf> = if by_path {
            vec![path.parent().map(Path::to_owned).unwrap_or_default()]
        } else {
            FOLDERS.iter().map(PathBuf::from).collect()
        };
        let mut files = Self { name, ..Self::default() };
        let Some(main) = files.main_file(&folders) else { return files };
        files.read_file(&main);
        for drop_in in files.drop_ins(&folders) {
            files.read_file(&drop_in);
        }
        files
    }

    /// Returns the file of the unit, or of the template that it is an instance of.
    fn main_file(&self, folders: &[PathBuf]) -> Option<PathBuf> {
        let names = [Some(self.name.clone()), template_name(&self.name)];
        names.into_iter().flatten().find_map(|name| {
            folders.iter().map(|folder| folder.join(&name)).find(|path| path.symlink_metadata().is_ok())
        })
    }

    /// Lists the drop-ins by file name; of two with one name, the one in the first folder counts.
    fn drop_ins(&self, folders: &[PathBuf]) -> Vec<PathBuf> {
        let mut by_name = BTreeMap::new();
        let names = [Some("service".to_owned()), template_name(&self.name), Some(self.name.clone())];
        for folder in folders.iter().rev() {
            for name in names.iter().flatten() {
                let entries = std::fs::read_dir(folder.join(format!("{name}.d")));
                let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
                for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "conf")) {
                    by_name.insert(path.file_name().map(ToOwned::to_owned), path);
                }
            }
        }
        by_name.into_values().collect()
    }

    fn read_file(&mut self, path: &Path) {
        match std::fs::read_to_string(path) {
            Ok(text) => self.files.push((path.to_owned(), text)),
            Err(error) => self.unreadable.push(format!("{}: {error}", path.display())),
        }
    }

    /// Returns the contents of all files.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(_, text)| text.as_str())
    }

    /// Replaces the specifiers of `systemd.unit(5)` that paths have.
    pub(crate) fn expand(&self, text: &str) -> String {
        let unit_name = self.name.rsplit_once('.').map_or(self.name.as_str(), |(name, _)| name);
        let (prefix, instance) = unit_name.split_once('@').unwrap_or((unit_name, ""));
        let mut expanded = String::with_capacity(text.len());
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            if character != '%' {
                expanded.push(character);
                continue;
            }
            match characters.next() {
                Some('t') => expanded.push_str("/run"),
                Some('S') => expanded.push_str("/var/lib"),
                Some('C') => expanded.push_str("/var/cache"),
                Some('L') => expanded.push_str("/var/log"),
                Some('E') => expanded.push_str("/etc"),
                Some('d') => expanded.extend(["/run/credentials/", &self.name]),
                Some('n') => expanded.push_str(&self.name),
                Some('N') => expanded.push_str(unit_name),
                Some('p') => expanded.push_str(prefix),
                Some('i' | 'I') => expanded.push_str(instance),
                Some('%') | None => expanded.push('%'),
                Some(other) => expanded.extend(['%', other]),
            }
        }
        expanded
    }
}

/// Returns `NAME@.service` for `NAME@INSTANCE.service`.
fn template_name(name: &str) -> Option<String> {
    let (prefix, rest) = name.split_once('@')?;
    let (_, suffix) = rest.rsplit_once('.')?;
    Some(format!("{prefix}@.{suffix}"))
}

/// Names of the sockets that socket units of the service pass to it (`FileDescriptorName=`).
pub(crate) fn passed_sockets(service: &UnitFiles) -> Vec<String> {
    let mut names = Vec::new();
    let unit_folder = service.files.first().and_then(|(path, _)| path.parent().map(Path::to_owned));
    for folder in FOLDERS.iter().map(PathBuf::from).chain(unit_folder) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "socket") {
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let unit = super::unit_parser::Unit::parse("Socket", [text.as_str()]);
            let default_service = path.with_extension("service");
            let served = unit
                .last("Service")
                .map(str::to_owned)
                .or_else(|| Some(default_service.file_name()?.to_str()?.to_owned()));
            if served.as_deref() == Some(service.name.as_str()) {
                let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                names.push(unit.last("FileDescriptorName").unwrap_or(file).to_owned());
            }
        }
    }
    names
}

/// Texts of polkit's rule files. `None` if a folder may not be read: polkit keeps its rules from other users.
pub(crate) fn polkit_rules() -> Option<Vec<String>> {
    let mut texts = Vec::new();
    for folder in RULES {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(_) => return None,
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "rules") {
                texts.push(std::fs::read_to_string(path).ok()?);
            }
        }
    }
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_by_its_path_has_the_drop_ins_beside_it_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let drop_ins = folder.path().join("site.service.d");
        std::fs::create_dir(&drop_ins).unwrap();
        for (name, text) in [("20-b.conf", "b"), ("10-a.conf", "a"), ("notes.txt", "c")] {
            std::fs::write(drop_ins.join(name), text).unwrap();
        }
        let path = folder.path().join("site.service");
        assert!(UnitFiles::read(path.to_str().unwrap()).files.is_empty(), "drop-ins without a unit are not a unit");
        std::fs::write(&path, "unit").unwrap();
        let unit = UnitFiles::read(path.to_str().unwrap());
        assert_eq!((unit.name.as_str(), unit.texts().collect::<Vec<_>>()), ("site.service", vec!["unit", "a", "b"]));
    }

    #[test]
    fn an_instance_is_read_from_its_template_and_its_specifiers_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("keyward@.service"), "template").unwrap();
        let unit = UnitFiles::read(folder.path().join("keyward@web.service").to_str().unwrap());
        assert_eq!(unit.texts().collect::<Vec<_>>(), ["template"]);
        assert_eq!(unit.expand("%t/%p-%i %N %n 100%% %h"), "/run/keyward-web keyward@web keyward@web.service 100% %h");
    }
}
