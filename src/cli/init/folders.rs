//! Commands that let the service write a folder. In one that exists, others keep their rights: they rely on them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use keyward_config::Need;
use keyward_config::systemd::{UnitNeeds, is_system_folder};
use keyward_machine::os;

use super::shell::quote;

/// Comment behind a command with `setfacl`.
const ACL_NOTE: &str = "# setfacl comes with the package acl; others keep the rights that they have";

/// Formats the commands that make a folder for user keyward, with this mode and group, or let it write in one that exists. `root`
/// is the machine's root folder, `None` for a machine elsewhere.
pub(in crate::cli) fn folder_commands(folder: &Path, mode: &str, group: &str, root: Option<&Path>) -> String {
    let quoted = quote(&folder.display().to_string());
    let grant = format!("sudo setfacl -m u:keyward:rwx {quoted}");
    let open = format!("{grant}   {ACL_NOTE}\n");
    let existing = root.and_then(|root| find(root, folder));
    match (existing, home_user(folder)) {
        (Some(metadata), _) if may_write(&metadata) => String::new(),
        (Some(_), _) => open,
        // Of other users' rights in a home folder nothing is known, so they stay as they are.
        (None, Some(user)) => format!("sudo -u {} mkdir -p {quoted}\n{open}", quote(&user)),
        (None, None) => {
            let make = format!("sudo install -d -m {mode} -o keyward -g {} {quoted}", quote(group));
            match root {
                // On another machine, or in what an image gets later, the folder may be somebody's.
                Some(root) if root == Path::new("/") => format!("{make}\n"),
                _ => format!("if test -d {quoted}; then {grant}; else {make}; fi   {ACL_NOTE}\n"),
            }
        }
    }
}

/// Returns why folders that would have to be writable are refused, each with its keys. `root` is as for [`folder_commands`].
pub(super) fn find_refused(unit: &UnitNeeds, needs: &[Need], root: Option<&Path>) -> Vec<String> {
    let mut errors = Vec::new();
    for folder in &unit.writable {
        let path_text = folder.display();
        let uses = |need: &Need| need.path().is_some_and(|(path, _)| path == folder || path.parent() == Some(folder));
        let keys = needs.iter().filter(|need| uses(need)).map(|need| need.key.as_str());
        if is_system_folder(folder) {
            let keys = keys.collect::<Vec<_>>().join(", ");
            errors
                .push(format!("{keys}: keyward would have to write all of {path_text}, which other programs use too"));
            continue;
        }
        let is_foreign = root.and_then(|root| find(root, folder)).is_some_and(|metadata| !may_write(&metadata));
        for key in keys.filter(|key| is_foreign && key.starts_with("sink.")) {
            errors.push(format!(
                "{key}: {path_text} exists and is not user keyward's, so that others could replace the token"
            ));
        }
    }
    errors
}

/// Looks a folder up below the machine's root.
fn find(root: &Path, folder: &Path) -> Option<Metadata> {
    root.join(folder.strip_prefix("/").unwrap_or(folder)).metadata().ok()
}

/// True if user keyward may write a folder: as its owner, or because everybody may.
fn may_write(metadata: &Metadata) -> bool {
    let is_owner = os::user_id("keyward").is_ok_and(|user| user == Some(metadata.uid()));
    metadata.mode() & 0o003 == 0o003 || (is_owner && metadata.mode() & 0o300 == 0o300)
}

/// The user whose home folder a path is below.
fn home_user(folder: &Path) -> Option<String> {
    let mut parts = folder.strip_prefix("/home").ok()?.components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(user)), Some(_)) => Some(user.to_string_lossy().into_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_exists_keeps_its_owner_and_its_mode() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("etc/app")).unwrap();
        let open = |path: &str| format!("sudo setfacl -m u:keyward:rwx {path}   {ACL_NOTE}\n");
        let here = Some(root.path());
        let make = "sudo install -d -m 750 -o keyward -g app";
        let conditional = |path: &str| {
            format!(
                "if test -d {path}; then sudo setfacl -m u:keyward:rwx {path}; else {make} {path}; fi   {ACL_NOTE}\n"
            )
        };
        for (path, root, expected) in [
            ("/etc/app", here, open("/etc/app")),
            ("/etc/app/new", here, conditional("/etc/app/new")),
            ("/etc/keyward-test-only", Some(Path::new("/")), format!("{make} /etc/keyward-test-only\n")),
            (
                "/home/ci/.terraform.d",
                here,
                format!("sudo -u ci mkdir -p /home/ci/.terraform.d\n{}", open("/home/ci/.terraform.d")),
            ),
            ("/etc/app", None, conditional("/etc/app")),
        ] {
            assert_eq!(folder_commands(Path::new(path), "750", "app", root), expected, "{path} {root:?}");
        }
    }

    #[test]
    fn nothing_is_done_to_a_folder_that_everybody_may_write() {
        assert_eq!(folder_commands(Path::new("/tmp"), "750", "app", Some(Path::new("/"))), "");
    }
}
