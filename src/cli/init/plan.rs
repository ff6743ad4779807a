//! Files and commands that a kind of setup needs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use keyward_config::systemd::UnitNeeds;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::hex::encode_hex;

use super::folders::folder_commands;
use super::shell::quote;
use crate::cli::setup_files::{Content, SetupFile, SetupFileAccess};

/// Files and commands for one machine or pod.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) target: Target,
    /// Configuration, as `keyward check` reads it.
    pub(super) config: String,
    /// Path of the file that holds the configuration.
    pub(super) main_path: PathBuf,
    /// Text of that file if it is more than the configuration: a manifest.
    pub(super) manifest: Option<String>,
    pub(super) keys: Vec<KeyFile>,
    /// Group that may use the files and sockets.
    pub(super) group: Option<String>,
    /// Commands for the other side, under titles.
    pub(super) commands: Vec<(&'static str, String)>,
    /// Commands that finish the work, after those of the service.
    pub(super) last: String,
}

/// Place where keyward runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The packaged systemd unit.
    Unit,
    /// A pod.
    Pod,
}

/// A file with a new key.
#[derive(Debug)]
pub(super) struct KeyFile {
    pub(super) path: &'static str,
    pub(super) access: SetupFileAccess,
}

/// Path of the packaged configuration.
pub(super) const CONFIG_PATH: &str = "/etc/keyward/keyward.toml";

impl KeyFile {
    /// Makes the file with a key of 256 bits from the kernel, in hexadecimal digits.
    pub(super) fn make(&self) -> anyhow::Result<SetupFile> {
        let mut bytes = zeroize::Zeroizing::new([0_u8; 32]);
        aws_lc_rs::rand::fill(bytes.as_mut()).map_err(|_| anyhow::anyhow!("the kernel returned no random bytes"))?;
        let key = SecretString::from(encode_hex(bytes.as_ref()));
        Ok(SetupFile { path: self.path.into(), content: Content::Key(key), access: self.access.clone() })
    }
}

impl Plan {
    /// Text of the file that holds the configuration.
    pub(super) fn main_text(&self) -> &str {
        self.manifest.as_ref().unwrap_or(&self.config)
    }

    /// Returns the titles and commands to print, in the order in which they are run. `root` is the machine's root folder, `None`
    /// for a machine elsewhere.
    pub(super) fn sections(&self, needs: &UnitNeeds, root: Option<&Path>) -> Vec<(&str, String)> {
        let mut sections: Vec<(&str, String)> =
            self.commands.iter().map(|(title, commands)| (*title, commands.clone())).collect();
        if self.target == Target::Unit {
            sections.push(("On the machine, with keyward installed", self.machine_commands(needs, root)));
        } else {
            sections.push(("In the cluster", self.last.clone()));
        }
        sections
    }

    fn machine_commands(&self, needs: &UnitNeeds, root: Option<&Path>) -> String {
        let mut text = String::new();
        let group = self.group.as_deref().unwrap_or("keyward");
        if self.group.is_some() {
            let _ = writeln!(text, "sudo groupadd --force {}   # does nothing if it is there", quote(group));
        }
        for folder in &needs.writable {
            text.push_str(&folder_commands(folder, "750", group, root));
        }
        for (key, group) in self.keys.iter().filter_map(|key| Some((key, key.access.reading_group()?))) {
            // Only root and keyward may use the folder that the package makes.
            let folder = Path::new(key.path).parent().unwrap_or(Path::new("/")).display();
            let _ = writeln!(
                text,
                "sudo setfacl -m {} {folder}   # setfacl comes with the package acl; lets the group reach {}",
                quote(&format!("g:{group}:x")),
                key.path
            );
        }
        if needs.polkit_rule().is_some() {
            text.push_str("sudo apt-get install polkitd   # unless it is there; it reads the rule\n");
        }
        text.push_str("sudo systemctl daemon-reload\n");
        text.push_str("sudo -u keyward keyward check\n");
        if self.config.lines().all(|line| line != "[acl]") {
            let has_login = self.config.lines().any(|line| line.starts_with("[session."));
            let tries =
                if has_login { "a login that is revoked at once" } else { "the platform, and the owner of the token" };
            let _ = writeln!(text, "sudo -u keyward keyward check --online   # {tries}");
        }
        text.push_str("sudo systemctl enable --now keyward\n");
        text.push_str(&self.last);
        text
    }
}
