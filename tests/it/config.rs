//! Configuration files: the examples are clean, and every kind of error has its text here.

#[cfg(feature = "acl")]
mod acl;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "gateway")]
mod gateway;
mod api_proxy;
mod callers;
mod examples;
mod files;
mod method;
mod diagnostics;
mod other_methods;
#[cfg(all(feature = "etcd", feature = "gateway"))]
mod reference;
mod references;
#[cfg(all(feature = "etcd", feature = "gateway"))]
mod schema;
mod sinks;
mod systemd;
mod templates;

use std::path::{Path, PathBuf};

use keyward_config::{Config, Diagnostic, Environment, LoadOutcome, Purpose, load};

/// A server and a session without a mistake.
const BASE: &str = r#"[server.main]
kind = "vault"
address = "https://secrets.example.com:8200"
[session.main]
server = "main"
[session.main.cloud]
role = "web"
resource = "https://management.azure.com/"
"#;

/// A folder with configuration files, which only its owner can write.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            folder.put(name, text);
        }
        folder
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        chmod(&path, 0o644);
        chmod(path.parent().unwrap(), 0o700);
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Messages without the folder's name and the error code.
    fn short(&self, diagnostics: &[Diagnostic]) -> Vec<String> {
        let folder = format!("{}/", self.0.path().display());
        let text = |diagnostic: &Diagnostic| {
            let text = diagnostic.to_string();
            text.strip_suffix(&format!(" [{}]", diagnostic.code)).unwrap().to_owned()
        };
        diagnostics.iter().map(|diagnostic| text(diagnostic).replace(&folder, "")).collect()
    }
}

fn chmod(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Environment { variables, user: Environment::current().user }
}

/// Parses a text as the only file, as `keyward check` does.
fn check(text: &str) -> (Folder, LoadOutcome) {
    let folder = Folder::with(&[("a.toml", text)]);
    let outcome = load(&[folder.path("a.toml")], &environment(&[]), Purpose::Check);
    (folder, outcome)
}

/// The same of a text that has no mistake.
fn clean(text: &str) -> Config {
    let (folder, outcome) = check(text);
    assert_eq!(folder.short(&outcome.errors), [""; 0], "{text}");
    outcome.config.unwrap()
}
