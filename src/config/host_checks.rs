//! Checks of files, folders and users on this machine. A missing one is an error under [`Purpose::Run`](super::Purpose) and a
//! note under `Purpose::Check`.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use keyward_machine::os;
use keyward_machine::posix_acl;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_machine::secure_dir::{self, Dir, DirError};
use keyward_telemetry::error_code::ErrorCode;
use rustix::thread::CapabilitySet;

use super::need::{Need, NeedKind, PathUse};
use super::permissions::permission_issue;
use super::reader::Reader;
use super::references::Text;
use super::unit_groups;
use super::values;

/// Id that the kernel gives no process.
const UNKNOWN_ID: u32 = u32::MAX;

/// The bits of a mode that let others than the owner at a file.
#[cfg(feature = "acl")]
const OTHER_BITS: u32 = 0o077;

impl Reader<'_> {
    /// Records a need whose value came from no reference.
    pub(super) fn record(&self, key: String, kind: NeedKind) {
        self.scope.needs.borrow_mut().push(Need { key, is_hidden: false, kind });
    }

    /// Records a need by the value of a key. A placeholder is skipped.
    pub(super) fn record_value(&self, text: &Text, kind: NeedKind) {
        if !text.unknown {
            self.scope.needs.borrow_mut().push(Need { key: text.key.clone(), is_hidden: text.written.is_some(), kind });
        }
    }

    /// Records the use of a path.
    pub(super) fn record_path(&self, text: &Text, path: &Path, usage: PathUse) {
        self.record_value(text, NeedKind::Path(path.to_owned(), usage));
    }

    /// Reads the path of a file that must exist.
    pub(super) fn file(&mut self, name: &'static str) -> Option<PathBuf> {
        let text = self.text(name)?;
        self.file_at(&text)
    }

    /// The same, for a text that was already read.
    pub(super) fn file_at(&self, text: &Text) -> Option<PathBuf> {
        let path = self.parse(text, values::secret_file_path)?;
        self.require_kind(text, &path, false);
        self.record_path(text, &path, PathUse::Read);
        Some(path)
    }

    /// Reads the path of a folder that must exist.
    pub(super) fn folder(&mut self, name: &'static str, usage: PathUse) -> Option<PathBuf> {
        let text = self.text(name)?;
        let path = self.parse(&text, values::path)?;
        self.require_kind(&text, &path, true);
        self.record_path(&text, &path, usage);
        Some(path)
    }

    /// Reads the path of the folder for saved state, which must exist. It may lead through symlinks of root and the agent's user,
    /// of which systemd makes one: from 254 on, a user's `StateDirectory=` of the name of a folder in `~/.config` is a symlink to
    /// that. They are resolved here and followed for no other path: a program of the same user in another container, which shares
    /// a volume with the agent, could make one that leads tokens to a folder of the agent's container.
    pub(super) fn state_folder(&mut self, name: &'static str) -> Option<PathBuf> {
        let text = self.text(name)?;
        let path = self.parse(&text, values::path)?;
        self.require_kind(&text, &path, true);
        self.record_path(&text, &path, PathUse::WriteFolder);
        if text.unknown || !matches!(Dir::open(&path), Err(DirError::Symlink { .. })) {
            return Some(path);
        }
        if let Ok(resolved) = secure_dir::resolve(&path, self.scope.environment.user) {
            return Some(resolved);
        }
        let message = format!(
            "{} leads through a symlink that users other than root and the agent's could have made, so that no state is saved",
            display_path(&text, &path)
        );
        let message = (ErrorCode::StateNotSaved, message);
        self.scope.diagnostics.optional_on_host(text.at, &text.key, message, "name the folder that it points to");
        Some(path)
    }

    /// Reports a path to create whose folder does not exist, or at which something is that the agent does not replace.
    pub(super) fn check_parent_folder(&self, text: &Text, path: &Path) {
        self.check_folder_above(text, path, PathUse::Replace);
        let Some(metadata) = path.metadata().ok().filter(|_| !text.unknown) else { return };
        let kind = metadata.file_type();
        let (message, advice) = if kind.is_dir() {
            ("is a folder", "name a file in it")
        } else if kind.is_char_device() || kind.is_block_device() {
            ("is a device, which the agent does not replace", "name a regular file")
        } else {
            return;
        };
        let message = format!("{} {message}", display_path(text, path));
        self.scope.diagnostics.optional_on_host(text.at, &text.key, message, advice);
    }

    /// Reports a path whose folder does not exist, and records its use.
    pub(super) fn check_folder_above(&self, text: &Text, path: &Path, usage: PathUse) {
        self.record_path(text, path, usage);
        if let Some(folder) = path.parent() {
            self.require_kind(text, folder, true);
        }
    }

    /// Reports the path of a socket to create: as a file's, and where others could put a socket of their own in its place,
    /// to which callers would send keys and from which they would take tokens.
    pub(super) fn check_socket_folder(&self, text: &Text, path: &Path, shared_folder: bool) {
        self.check_parent_folder(text, path);
        if !shared_folder {
            self.check_folder_not_shared(text, path);
        }
    }

    /// The same of several sockets.
    #[cfg(feature = "gateway")]
    pub(super) fn check_socket_folders(&self, sockets: &[(Text, PathBuf)], shared_folder: bool) {
        for (text, path) in sockets {
            self.check_socket_folder(text, path, shared_folder);
        }
    }

    /// Reports an output folder that users other than root and the agent's user own or may write: they could replace the
    /// file.
    pub(super) fn check_folder_not_shared(&self, text: &Text, path: &Path) {
        let Some(folder) = path.parent() else { return };
        let Ok(metadata) = std::fs::metadata(folder) else { return };
        if text.unknown || !metadata.is_dir() {
            return;
        }
        let path_text = if text.written.is_some() { text.display() } else { folder.display().to_string() };
        let acl = posix_acl::writers_of_path(folder);
        let user = self.scope.environment.user;
        if let Some((message, mut advice)) = permission_issue("its folder", &path_text, &metadata, acl.as_deref(), user)
        {
            // Other files have no such key.
            if ["sink.", "listener."].iter().any(|start| text.key.starts_with(start)) || text.key == "gateway.listen" {
                advice.push_str(", or set shared_folder = true if everyone who can write there may replace the file");
            }
            self.scope.diagnostics.missing_on_host(text.at, &text.key, (ErrorCode::UnsafePermissions, message), advice);
        }
    }

    /// Warns of files that others can read in one of keyward's folders.
    #[cfg(feature = "acl")]
    pub(super) fn warn_of_readable_files_in(&self, text: &Text, folder: &Path, names: &[&str]) {
        for name in names.iter().filter(|_| !text.unknown) {
            let Ok(metadata) = std::fs::metadata(folder.join(name)) else { continue };
            let mode = metadata.mode() & 0o7777;
            if mode & OTHER_BITS != 0 {
                let message = format!("other users can access {name} in this folder (mode {mode:04o})");
                let message = (ErrorCode::UnsafePermissions, message);
                self.scope.diagnostics.warning(text.at, &text.key, message, "set mode 0600");
            }
        }
    }

    /// Reports a folder that the service creates if its parent is missing or something else has its path.
    #[cfg(feature = "acl")]
    pub(super) fn check_future_folder(&self, text: &Text, path: &Path) {
        self.record_path(text, path, PathUse::CreateFolder);
        if path.exists() {
            self.require_kind(text, path, true);
        } else if let Some(folder) = path.parent() {
            self.require_kind(text, folder, true);
        }
    }

    fn require_kind(&self, text: &Text, path: &Path, folder: bool) {
        if text.unknown {
            return;
        }
        let path_text = display_path(text, path);
        let kind = if folder { "folder" } else { "file" };
        let message = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() == folder => return,
            Ok(_) => format!("{path_text} is not a {kind}"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                format!("the {kind} {path_text} does not exist")
            }
            Err(error) => format!("cannot check the {kind} {path_text}: {error}"),
        };
        self.scope.diagnostics.missing_on_host(text.at, &text.key, message, "create it before the agent starts");
    }

    /// Reads the secret in a key file of at least `min_bytes` bytes. Returns a placeholder that no caller can send if this
    /// machine lacks the file.
    pub(super) fn secret(&mut self, name: &'static str, min_bytes: usize) -> Option<SecretString> {
        let text = self.text(name)?;
        let path = self.parse(&text, values::secret_file_path)?;
        if text.unknown {
            return Some(SecretString::from("\0"));
        }
        let mut advice = "create one with: openssl rand -hex 32";
        let message = match secret::read_file(&path) {
            Ok(secret) if secret.expose_secret().len() >= min_bytes => {
                self.warn_if_readable_by_others(&text, &path);
                return Some(secret);
            }
            Ok(_) => format!("the secret in this file is shorter than {min_bytes} characters"),
            Err(error) => {
                self.record_path(&text, &path, PathUse::ReadSecret);
                if error.is_permission_denied() {
                    // No fallback to another secret: it would not decrypt or verify existing data.
                    advice = "let the agent's user read it, by its group and mode";
                }
                let why = error.source().map(ToString::to_string).unwrap_or_default();
                format!("cannot read the secret in {}: {why}", display_path(&text, &path))
            }
        };
        self.scope.diagnostics.unknown(text.at, &text.key, message, advice);
        Some(SecretString::from("\0"))
    }

    /// Reads the path of a file that must exist and be unreadable for others.
    pub(super) fn key_file(&mut self, name: &'static str) -> Option<PathBuf> {
        let text = self.text(name)?;
        self.key_file_at(&text)
    }

    /// The same, for a text that was already read.
    pub(super) fn key_file_at(&self, text: &Text) -> Option<PathBuf> {
        let path = self.parse(text, values::secret_file_path)?;
        self.require_kind(text, &path, false);
        self.warn_if_readable_by_others(text, &path);
        Some(path)
    }

    /// Warns of a secret file that others can read. The group may read it if root owns the file, as systemd and kubelet
    /// set it up.
    pub(super) fn warn_if_readable_by_others(&self, text: &Text, path: &Path) {
        self.record_path(text, path, PathUse::ReadSecret);
        let Ok(metadata) = std::fs::metadata(path) else { return };
        let mode = metadata.mode() & 0o7777;
        let roots = metadata.uid() == 0;
        if text.unknown || mode & if roots { 0o037 } else { 0o077 } == 0 {
            return;
        }
        let message = format!("other users can access this file (mode {mode:04o})");
        let advice = "set mode 0600, or 0640 if root owns it and the agent is in its group";
        self.scope.diagnostics.warning(text.at, &text.key, (ErrorCode::UnsafePermissions, message), advice);
    }

    /// Reads a user name or id; returns the id.
    pub(super) fn user(&mut self, name: &'static str) -> Option<u32> {
        self.id(name, "user", os::user_id, NeedKind::Owner)
    }

    /// Reads a group name or id; returns the id.
    pub(super) fn group(&mut self, name: &'static str) -> Option<u32> {
        let group = self.id(name, "group", os::group_id, NeedKind::Group)?;
        self.warn_if_not_member(name, group);
        Some(group)
    }

    /// Warns of a group that this process cannot give a file or socket to. The groups of another user are not known here:
    /// its unit may add some. So may the unit of this user, of which a command such as `keyward check` is no part.
    fn warn_if_not_member(&mut self, name: &'static str, group: u32) {
        let diagnostics = self.scope.diagnostics;
        let user = self.scope.environment.user;
        let is_own = user == rustix::process::geteuid().as_raw();
        if !diagnostics.is_for_host() || !is_own || os::is_in_group(group) || may_change_owners() {
            return;
        }
        let Some(at) = self.locate(name) else { return };
        let user = os::user_name(user).unwrap_or_else(|| user.to_string());
        let names = [os::group_name(group), Some(group.to_string())];
        // The unit's own process knows its groups.
        let is_unit = self.scope.environment.variables.contains_key("NOTIFY_SOCKET");
        let groups = if is_unit { BTreeSet::new() } else { unit_groups::read() };
        if names.iter().flatten().any(|name| groups.contains(name)) {
            return;
        }
        let group = os::group_name(group).unwrap_or_else(|| group.to_string());
        let message = format!("user {user} is not in the group {group}, and cannot give it a file or socket");
        let advice = format!("set SupplementaryGroups={group} in the unit, or add the user to the group");
        diagnostics.warning(at, &self.key(name), (ErrorCode::SandboxCapability, message), advice);
    }

    fn id(
        &mut self,
        name: &'static str,
        kind: &str,
        look_up: impl FnOnce(&str) -> std::io::Result<Option<u32>>,
        need: impl FnOnce(String, Option<u32>) -> NeedKind,
    ) -> Option<u32> {
        let text = self.text(name)?;
        let id = self.id_of(&text, kind, look_up);
        self.record_value(&text, need(text.value.clone(), id));
        id
    }

    /// Reads one or more callers' user ids. An unknown user becomes an id that no process has.
    pub(super) fn users(&mut self, name: &'static str) -> Vec<u32> {
        let texts = self.one_or_more(name);
        texts.iter().map(|text| self.id_of(text, "user", os::user_id).unwrap_or(UNKNOWN_ID)).collect()
    }

    /// The ids of the groups that a key names, as [`Reader::users`].
    pub(super) fn groups(&mut self, name: &'static str) -> Vec<u32> {
        let texts = self.one_or_more(name);
        texts.iter().map(|text| self.id_of(text, "group", os::group_id).unwrap_or(UNKNOWN_ID)).collect()
    }

    fn id_of(
        &self,
        text: &Text,
        kind: &str,
        look_up: impl FnOnce(&str) -> std::io::Result<Option<u32>>,
    ) -> Option<u32> {
        if text.unknown {
            return None;
        }
        let id_text = text.display();
        let (message, advice) = match look_up(&text.value) {
            // The kernel takes the last id as "leave it".
            Ok(Some(u32::MAX)) => {
                self.scope.diagnostics.error(
                    text.at,
                    &text.key,
                    format!("{id_text} is not an id"),
                    "write a name or another id",
                );
                return None;
            }
            Ok(Some(id)) => return Some(id),
            Ok(None) => {
                (format!("this machine has no {kind} {id_text}"), format!("create the {kind}, or write its id"))
            }
            Err(error) => (format!("the {kind} {id_text} cannot be looked up: {error}"), "write its id".to_owned()),
        };
        self.scope.diagnostics.unknown(text.at, &text.key, (ErrorCode::UnknownUser, message), advice);
        None
    }
}

/// Returns true if this process has `CAP_CHOWN`.
fn may_change_owners() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::CHOWN))
}

/// Formats a path for an error. One that came from a reference may hold a secret.
fn display_path(text: &Text, path: &Path) -> String {
    if text.written.is_some() { text.display() } else { path.display().to_string() }
}
