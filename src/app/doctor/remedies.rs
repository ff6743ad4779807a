//! Remedies: the narrowest change that lets the agent in, and none that takes rights from others.

use std::path::Path;

use keyward_config::systemd::is_system_folder;

use super::rights::{FileOperation, PathNode};

/// Path that the agent's user may not use, and the node on the way that denies it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeniedPath<'a> {
    /// Key of the configuration that names the path.
    pub key: &'a str,
    /// The path.
    pub path: &'a Path,
    /// Operation on it.
    pub operation: FileOperation,
    /// File or folder that denies the operation.
    pub node: &'a PathNode,
    /// True if the node is the path itself, or the deepest part of it that exists.
    pub is_last: bool,
    /// True if the path does not exist.
    pub is_missing: bool,
}

impl DeniedPath<'_> {
    /// Returns the command or the change by which the user may do the operation. It takes nothing from the owner and the
    /// group of what exists: they could lose access, and programs such as sshd refuse a folder that others own.
    pub(crate) fn remedy(&self, user: &str) -> String {
        let path = self.path.display();
        let node_path = self.node.path.display();
        if !self.is_last {
            return format!("setfacl -m u:{user}:x {node_path}");
        }
        match self.operation {
            FileOperation::Read => format!("setfacl -m u:{user}:r {node_path}"),
            FileOperation::List | FileOperation::Execute => format!("setfacl -m u:{user}:rx {node_path}"),
            FileOperation::WriteDirectory if self.is_missing => format!("install -d -o {user} -m 0755 {path}"),
            // A token goes only to a folder that no other user owns or can write; the ACL server's store refuses group bits.
            FileOperation::WriteDirectory
                if is_system_folder(&self.node.path) || self.key.starts_with("sink.") || self.key == "acl.data_dir" =>
            {
                name_own_folder(self.key)
            }
            FileOperation::WriteDirectory => {
                format!("{}; or setfacl -m u:{user}:rwx {node_path}", name_own_folder(self.key))
            }
        }
    }
}

/// Advises a path in a folder that the unit makes for keyward. The service manager empties `/run/keyward` when the service
/// stops.
pub(crate) fn name_own_folder(key: &str) -> String {
    let is_kept = matches!(key, "agent.state_dir" | "acl.data_dir") || key.starts_with("audit.");
    format!("name a path below {}", if is_kept { "/var/lib/keyward" } else { "/run/keyward" })
}

/// Advises settings for a drop-in of the unit. Several are several lines, as a unit file has them.
pub(crate) fn edit_unit(unit: &str, settings: &[String]) -> String {
    let edit = format!("systemctl edit {unit}, and add under [Service]:");
    match settings {
        [setting] => format!("{edit} {setting}"),
        _ => format!("{edit}\n{}", settings.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_lets_one_user_in_and_leaves_owner_and_mode_of_what_exists() {
        let remedy = |key: &str, operation, node: &str, is_last: bool, is_missing: bool| {
            let uid = 1000;
            let gid = 1000;
            let mode = 0o700;
            let is_folder = true;
            let has_acl = false;
            let node = PathNode { path: node.into(), uid, gid, mode, is_folder, has_acl };
            let path = Path::new("/srv/app/secrets");
            DeniedPath { key, path, operation, node: &node, is_last, is_missing }.remedy("keyward")
        };
        for operation in [FileOperation::Read, FileOperation::List, FileOperation::WriteDirectory] {
            assert_eq!(remedy("sink.a.path", operation, "/home/ci", false, false), "setfacl -m u:keyward:x /home/ci");
        }
        assert_eq!(
            remedy("a", FileOperation::Read, "/etc/ssl/private/a", true, false),
            "setfacl -m u:keyward:r /etc/ssl/private/a"
        );
        assert_eq!(remedy("a", FileOperation::List, "/srv/b", true, false), "setfacl -m u:keyward:rx /srv/b");
        assert_eq!(
            remedy("sink.a.path", FileOperation::WriteDirectory, "/srv", true, true),
            "install -d -o keyward -m 0755 /srv/app/secrets"
        );
        assert_eq!(
            remedy("template.a.destination", FileOperation::WriteDirectory, "/srv/app", true, false),
            "name a path below /run/keyward; or setfacl -m u:keyward:rwx /srv/app"
        );
        assert_eq!(
            remedy("sink.a.path", FileOperation::WriteDirectory, "/srv/app", true, false),
            "name a path below /run/keyward"
        );
        for folder in ["/", "/etc", "/home/ci", "/usr/lib", "/var/lib"] {
            assert_eq!(
                remedy("sink.a.path", FileOperation::WriteDirectory, folder, true, false),
                "name a path below /run/keyward"
            );
        }
        assert_eq!(
            remedy("acl.data_dir", FileOperation::WriteDirectory, "/var", true, false),
            "name a path below /var/lib/keyward"
        );
        assert_eq!(
            remedy("acl.data_dir", FileOperation::WriteDirectory, "/srv/app", true, false),
            "name a path below /var/lib/keyward"
        );
    }
}
