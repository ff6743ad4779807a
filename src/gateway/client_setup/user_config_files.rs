//! Configuration files that a user's Terraform or OpenTofu reads.
//!
//! Terraform reads the one file named by `TF_CLI_CONFIG_FILE`, or `~/.terraformrc` and the files of `~/.terraform.d/`.
//! OpenTofu reads the same variable, and prefers its own names: `~/.tofurc` to `~/.terraformrc`, and if neither
//! exists `$XDG_CONFIG_HOME/opentofu/tofurc`; the folder is `~/.terraform.d/`, or if that does not exist
//! `$XDG_CONFIG_HOME/opentofu/`.

use std::io;
use std::path::{Path, PathBuf};

use keyward_machine::command::EnvVars;

/// Variable that makes Terraform and OpenTofu read another file than the user's own.
pub(super) const VARIABLE: &str = "TF_CLI_CONFIG_FILE";

/// Candidate paths of a program's Terraform or OpenTofu configuration; their existence is checked when they are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserConfigFiles {
    override_file: Option<PathBuf>,
    home: Option<PathBuf>,
    config_home: Option<PathBuf>,
    reader: ConfigReader,
}

/// Program that reads the files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ConfigReader {
    Terraform,
    OpenTofu,
    /// A script or a wrapper, which may run either: Terraform's names come first, then OpenTofu's.
    #[default]
    Either,
}

impl UserConfigFiles {
    /// Derives the paths from a program's variables and command. `config_home` is the user's `XDG_CONFIG_HOME`, for a
    /// program without that variable.
    pub fn new(variables: &EnvVars, command: &[String], config_home: Option<PathBuf>) -> Self {
        let path = |name: &str| {
            let value = variables.get(name).map(|value| PathBuf::from(value.expose_secret()));
            value.filter(|path| !path.as_os_str().is_empty())
        };
        let config_home = path("XDG_CONFIG_HOME").or_else(|| config_home.filter(|path| path.is_absolute()));
        Self {
            override_file: path(VARIABLE).or_else(|| path("TERRAFORM_CONFIG")),
            home: path("HOME"),
            config_home,
            reader: ConfigReader::from_command(command),
        }
    }

    /// Returns every file and folder that may be read, whether it exists or not.
    pub fn candidates(&self) -> Vec<PathBuf> {
        if let Some(file) = &self.override_file {
            return vec![file.clone()];
        }
        let in_home = [".terraformrc", ".tofurc", ".terraform.d"];
        let in_home = self.home.iter().flat_map(|home| in_home.map(|name| home.join(name)));
        in_home.chain(self.config_home.iter().map(|folder| folder.join("opentofu"))).collect()
    }

    /// Returns the main file, which may not exist.
    pub(super) fn main(&self) -> Option<PathBuf> {
        if self.override_file.is_some() {
            return self.override_file.clone();
        }
        let home = self.home.as_ref()?;
        let terraform = home.join(".terraformrc");
        let tofu = home.join(".tofurc");
        let fresh = || self.config_home.as_ref().map(|folder| folder.join("opentofu/tofurc"));
        Some(match self.reader {
            ConfigReader::Terraform => terraform,
            ConfigReader::Either if terraform.exists() => terraform,
            _ if tofu.exists() => tofu,
            _ if terraform.exists() => terraform,
            ConfigReader::OpenTofu => fresh().unwrap_or(tofu),
            ConfigReader::Either => fresh().filter(|file| file.exists()).unwrap_or(terraform),
        })
    }

    /// Returns the folder whose files are read besides the main one; it may not exist.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        if self.override_file.is_some() {
            return None;
        }
        let terraform = self.home.as_ref()?.join(".terraform.d");
        let tofu = self.config_home.as_ref().filter(|_| self.reader != ConfigReader::Terraform && !terraform.exists());
        Some(tofu.map_or(terraform, |folder| folder.join("opentofu")))
    }

    /// Returns all files in reading order; the main one may not exist.
    pub(super) fn all(&self) -> Result<Vec<PathBuf>, (PathBuf, io::Error)> {
        let mut all: Vec<PathBuf> = self.main().into_iter().collect();
        if let Some(folder) = self.folder().filter(|folder| folder.is_dir()) {
            all.append(&mut list_config_files(&folder).map_err(|error| (folder, error))?);
        }
        Ok(all)
    }
}

impl ConfigReader {
    fn from_command(command: &[String]) -> Self {
        let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        if program.starts_with("terraform") {
            Self::Terraform
        } else if program.starts_with("tofu") || program.starts_with("opentofu") {
            Self::OpenTofu
        } else {
            Self::Either
        }
    }
}

fn list_config_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Terraform's patterns are `*.tfrc` and `*.tfrc.json`, in which Go's `*` matches a leading dot too.
        if name.ends_with(".tfrc") || name.ends_with(".tfrc.json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use keyward_machine::secret_string::SecretString;

    use super::*;

    #[test]
    fn each_program_reads_its_own_files() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        let config = folder.path().join("config");
        let mut variables = EnvVars::default();
        variables.set("HOME", SecretString::from(home.display().to_string()));
        // Existing files, and the ones that each program reads.
        let check = |there: &[&str], command: &str, expected: &[&str]| {
            let _ = (std::fs::remove_dir_all(&home), std::fs::remove_dir_all(&config));
            for path in there {
                let path = folder.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "").unwrap();
            }
            let files = UserConfigFiles::new(&variables, &[command.to_owned()], Some(config.clone())).all().unwrap();
            let short = |path: &PathBuf| path.strip_prefix(folder.path()).unwrap().display().to_string();
            let found: Vec<String> = files.iter().filter(|path| path.exists()).map(short).collect();
            assert_eq!(found, expected, "{command} {there:?}");
        };
        let both = ["home/.terraformrc", "home/.tofurc", "config/opentofu/tofurc"];
        check(&both, "terraform", &["home/.terraformrc"]);
        check(&both, "/usr/bin/tofu", &["home/.tofurc"]);
        check(&both, "make", &["home/.terraformrc"]);
        for command in ["tofu", "opentofu-1.12", "sh"] {
            check(&both[1..], command, &["home/.tofurc"]);
            check(&["config/opentofu/tofurc"], command, &["config/opentofu/tofurc"]);
            check(&["home/.terraformrc"], command, &["home/.terraformrc"]);
            let folders = ["config/opentofu/a.tfrc", "home/.terraform.d/b.tfrc.json"];
            check(&folders, command, &["home/.terraform.d/b.tfrc.json"]);
            check(&folders[..1], command, &["config/opentofu/a.tfrc"]);
            let hidden = ["home/.terraform.d/.a.tfrc", "home/.terraform.d/b.tfrc", "home/.terraform.d/c.tfrc~"];
            check(&hidden, command, &hidden[..2]);
        }
        check(&["home/.terraformrc", "config/opentofu/tofurc"], "tofu", &["home/.terraformrc"]);
        for command in ["terraform", "terraform-1.11"] {
            check(&["home/.tofurc", "config/opentofu/tofurc", "config/opentofu/a.tfrc"], command, &[]);
        }
        check(&[], "tofu", &[]);
        // The program's own variables take precedence.
        variables.set("XDG_CONFIG_HOME", SecretString::from("/other".to_owned()));
        let files = UserConfigFiles::new(&variables, &["tofu".to_owned()], Some(config));
        assert_eq!(files.main(), Some(PathBuf::from("/other/opentofu/tofurc")));
        variables.set(VARIABLE, SecretString::from("/named".to_owned()));
        assert_eq!(
            UserConfigFiles::new(&variables, &["tofu".to_owned()], None).all().unwrap(),
            [PathBuf::from("/named")]
        );
    }
}
