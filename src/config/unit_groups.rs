//! Groups that the unit's files give the service: another process of its user, such as `keyward check`, is not a member of them.

use std::collections::BTreeSet;
use std::path::Path;

/// Folders of unit files, in which those of the service and of its instances have drop-ins.
const FOLDERS: [&str; 3] = ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"];

/// Returns the names and ids of `SupplementaryGroups=` in keyward's units and their drop-ins.
pub(super) fn read() -> BTreeSet<String> {
    FOLDERS.iter().flat_map(|folder| read_folder(Path::new(folder))).collect()
}

fn read_folder(folder: &Path) -> BTreeSet<String> {
    let mut groups = BTreeSet::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("keyward") {
            continue;
        }
        if name.ends_with(".service.d") {
            let drop_ins = std::fs::read_dir(entry.path()).into_iter().flatten().flatten().map(|entry| entry.path());
            let drop_ins = drop_ins.filter(|path| path.extension().is_some_and(|extension| extension == "conf"));
            groups.extend(drop_ins.filter_map(|path| std::fs::read_to_string(path).ok()).flat_map(|text| parse(&text)));
        } else if name.ends_with(".service") {
            groups.extend(std::fs::read_to_string(entry.path()).into_iter().flat_map(|text| parse(&text)));
        }
    }
    groups
}

fn parse(text: &str) -> Vec<String> {
    let values = text.lines().filter_map(|line| line.trim().strip_prefix("SupplementaryGroups="));
    values.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_stand_in_the_lines_of_a_unit_or_a_drop_in() {
        for (text, expected) in [
            ("[Service]\nSupplementaryGroups=himds\n", &["himds"][..]),
            ("[Service]\n# SupplementaryGroups=no\n SupplementaryGroups=app 1234\nGroup=no\n", &["app", "1234"]),
            ("SupplementaryGroups=a\nSupplementaryGroups=b", &["a", "b"]),
            ("", &[]),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
        assert!(read_folder(Path::new("/nowhere/at/all")).is_empty());
    }
}
