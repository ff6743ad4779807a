//! Other commands beside a running `keyward dev`: they find it by the state file in its folder.

use std::fmt::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use keyward_agent::identity::{IdentityMethod, ProviderVariables};
use keyward_config::{Config, Environment};
use keyward_machine::atomic_file;
use keyward_machine::secure_dir;

use super::DevEndpoints;

/// Variable with the folder of a running `keyward dev`.
pub(crate) const DIR_VARIABLE: &str = "KEYWARD_DEV_DIR";

/// Name of the state file.
const STATE_FILE: &str = "dev.json";

impl DevEndpoints {
    /// Writes the state file, and the file of variables.
    pub(super) fn publish(&self) -> anyhow::Result<()> {
        atomic_file::replace(&self.dir.join(STATE_FILE), &serde_json::to_vec_pretty(self)?, &super::PRIVATE)?;
        atomic_file::replace(&self.dir.join("env"), self.exports().as_bytes(), &super::PRIVATE)?;
        Ok(())
    }

    /// Finds the running `keyward dev` in a folder.
    pub fn find(dir: &Path) -> anyhow::Result<Self> {
        let nothing = || format!("no `keyward dev` runs in {}; start it, or pass --dir", dir.display());
        anyhow::ensure!(dir.is_dir(), nothing());
        // Whoever can write there could name servers of their own.
        let dir = secure_dir::create_private(dir, 0o077)?;
        let text = std::fs::read_to_string(dir.join(STATE_FILE)).with_context(nothing)?;
        let endpoints: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} was not written by this release", dir.join(STATE_FILE).display()))?;
        TcpStream::connect(endpoints.health).with_context(nothing)?;
        Ok(endpoints)
    }

    /// Formats the shell variables that point other commands at it.
    pub fn exports(&self) -> String {
        let program = std::env::current_exe().unwrap_or_default();
        let folder = program.parent().unwrap_or(Path::new("")).display().to_string();
        let vault = format!("unix://{}", self.vault.display());
        let variables = [
            (DIR_VARIABLE, self.dir.display().to_string()),
            ("KEYWARD_CONFIG", self.config.display().to_string()),
            ("KEYWARD_ACL_ADDR", self.acl.clone()),
            ("KEYWARD_ACL_TOKEN_FILE", self.acl_token.display().to_string()),
            ("VAULT_ADDR", vault.clone()),
            ("BAO_ADDR", vault),
            ("TF_CLI_CONFIG_FILE", self.terraform.display().to_string()),
        ];
        let quote = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        let mut text =
            "# For commands with the configuration of keyward dev; another one meets the real cloud\n".to_owned();
        for (name, value) in variables {
            let _ = writeln!(text, "export {name}={}", quote(&value));
        }
        let folder = quote(&folder);
        let _ = writeln!(text, "case \":$PATH:\" in *:{folder}:*) ;; *) export PATH={folder}:\"$PATH\" ;; esac");
        text
    }

    /// Returns the environment of the emulated machine: the cloud's variables, and none of this process's.
    pub fn environment(&self) -> Environment {
        Environment { variables: self.cloud_variables.clone(), user: rustix::process::geteuid().as_raw() }
    }

    /// Replaces the cloud's endpoints of a configuration by the emulated ones: the only difference from a real machine. No
    /// configuration key can do this.
    pub fn move_endpoints(&self, config: &mut Config) -> anyhow::Result<()> {
        for session in &mut config.sessions {
            let metadata = || self.metadata.parse().context("the emulated metadata service has no address");
            let variables = self.cloud_variables.clone();
            match &mut session.identity {
                IdentityMethod::Cloud(identity) => {
                    let endpoints = &mut identity.endpoints;
                    endpoints.metadata = metadata()?;
                    endpoints.arc_agent = self.dir.join("no-arc-agent-here");
                    endpoints.authority_ca = Some(self.authority_ca.clone());
                    endpoints.authority_is_local = true;
                    identity.variables = ProviderVariables::of_azure(variables);
                }
                IdentityMethod::Aws(identity) => {
                    let endpoints = &mut identity.endpoints;
                    endpoints.metadata = metadata()?;
                    endpoints.sts_ca = Some(self.authority_ca.clone());
                    endpoints.sts_is_local = true;
                    identity.variables = ProviderVariables::of_aws(variables);
                }
                IdentityMethod::Gcp(identity) => {
                    let endpoints = &mut identity.endpoints;
                    endpoints.metadata = metadata()?;
                    endpoints.credentials = self.authority.parse().context("the emulated APIs have no address")?;
                    endpoints.credentials_ca = Some(self.authority_ca.clone());
                    endpoints.credentials_is_local = true;
                    identity.variables = ProviderVariables::of_gcp(variables);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the running `keyward dev` whose configuration is the only one of `files`, if `KEYWARD_DEV_DIR` names one. Other
/// configurations stay with the real cloud.
///
/// # Errors
/// The variable names a folder in which none runs.
pub fn find_running(files: &[PathBuf], environment: &Environment) -> anyhow::Result<Option<DevEndpoints>> {
    let Some(dir) = environment.variables.get(DIR_VARIABLE).filter(|dir| !dir.is_empty()) else { return Ok(None) };
    let [file] = files else { return Ok(None) };
    let is_its = |dir: &Path| file.canonicalize().is_ok_and(|file| file == dir.join("keyward.toml"));
    if !Path::new(dir).canonicalize().is_ok_and(|dir| is_its(&dir)) {
        return Ok(None);
    }
    DevEndpoints::find(Path::new(dir)).map(Some)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{SocketAddr, TcpListener};

    use serde_json::{Value, json};

    use super::*;
    use crate::dev::DevCloud;

    /// Writes what a `keyward dev` in this folder would, with these health checks.
    fn publish(dir: &Path, health: SocketAddr) {
        let texts = [
            "metadata",
            "authority",
            "acl",
            "secrets",
            "socket",
            "vault",
            "local_key",
            "pages_key",
            "cloud_faults",
            "secrets_faults",
            "platform",
            "platform_faults",
            "platform_token",
            "gateway_token",
            "terraform",
            "faults_key",
            "acl_token",
            "authority_ca",
        ];
        let mut endpoints: serde_json::Map<String, Value> =
            texts.iter().map(|name| ((*name).to_owned(), json!(format!("/{name}")))).collect();
        for name in ["local_api", "pages", "health", "gateway"] {
            endpoints.insert(name.to_owned(), json!(health));
        }
        endpoints.insert("dir".to_owned(), json!(dir));
        endpoints.insert("config".to_owned(), json!(dir.join("keyward.toml")));
        endpoints.insert("cloud".to_owned(), json!(DevCloud::Azure));
        endpoints.insert("cloud_variables".to_owned(), json!({}));
        serde_json::from_value::<DevEndpoints>(endpoints.into()).unwrap().publish().unwrap();
    }

    #[test]
    fn a_command_is_attached_by_the_variable_with_the_configuration_of_a_running_dev_alone() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("dev");
        let dir = secure_dir::create_private(&dir, 0o077).unwrap();
        let config_file = dir.join("keyward.toml");
        let other = folder.path().join("other.toml");
        for file in [&config_file, &other] {
            std::fs::write(file, "").unwrap();
        }
        let attach = |value: Option<&Path>, files: &[&PathBuf]| {
            let variables = value.map(|dir| (DIR_VARIABLE.to_owned(), dir.display().to_string()));
            let environment = Environment { variables: variables.into_iter().collect::<BTreeMap<_, _>>(), user: 0 };
            let files: Vec<PathBuf> = files.iter().map(|file| (*file).clone()).collect();
            let endpoints = find_running(&files, &environment);
            endpoints.map(|endpoints| endpoints.map(|endpoints| endpoints.dir)).map_err(|error| format!("{error:#}"))
        };
        let nothing_runs = attach(Some(&dir), &[&config_file]).unwrap_err();
        assert!(nothing_runs.starts_with("no `keyward dev` runs in "), "{nothing_runs}");

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let health = listener.local_addr().unwrap();
        publish(&dir, health);
        assert_eq!(attach(Some(&dir), &[&config_file]), Ok(Some(dir.clone())));
        // Falls back to the real cloud: without the variable, for another configuration, or for several files.
        assert_eq!(attach(None, &[&config_file]), Ok(None));
        assert_eq!(attach(Some(Path::new("")), &[&config_file]), Ok(None));
        assert_eq!(attach(Some(&dir), &[&other]), Ok(None));
        assert_eq!(attach(Some(&dir), &[&config_file, &other]), Ok(None));
        assert_eq!(attach(Some(&folder.path().join("missing")), &[&config_file]), Ok(None));

        // The state file outlives a killed process, and others could write into an open folder.
        drop(listener);
        assert!(attach(Some(&dir), &[&config_file]).unwrap_err().starts_with("no `keyward dev` runs in "));
        std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let open = attach(Some(&dir), &[&config_file]).unwrap_err();
        assert!(open.contains("is accessible to other users"), "{open}");
    }
}
