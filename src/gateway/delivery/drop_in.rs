//! A configuration file of Terraform's that belongs to the gateway: it leads a host's services here, and brings the local
//! token. It stands in `~/.terraform.d/`, where Terraform reads every `*.tfrc.json` beside the user's own files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::ServiceHost;
use crate::atomic_file::{self, Attributes, ReplaceError};
use crate::feed::{Feed, State};
use crate::gateway::local_token::Accepted;
use crate::health::Reporter;
use crate::words::chain;

/// Which file, for which host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The file; its name ends in `.tfrc.json`.
    pub file: PathBuf,
    /// Its owner and group, where the gateway runs as another user.
    pub attributes: Attributes,
    /// The host that is led to the gateway.
    pub host: ServiceHost,
}

/// Keeps the file.
#[derive(Debug)]
pub struct DropIn {
    options: Options,
    /// Where the gateway is: `http://HOST:PORT`.
    address: String,
    local: Feed<Accepted>,
    health: Reporter,
}

impl DropIn {
    /// Nothing is written yet.
    pub const fn new(options: Options, address: String, local: Feed<Accepted>, health: Reporter) -> Self {
        Self { options, address, local, health }
    }

    /// Writes the file with each new local token, until `stop`. It stays there after that: whoever runs while the gateway
    /// restarts finds its way.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            if let State::Serving(accepted) = self.local.current().state {
                let (options, address) = (self.options.clone(), self.address.clone());
                let write = move || write(&options, &address, &accepted);
                match tokio::task::spawn_blocking(write).await {
                    Ok(Ok(())) => self.health.ready(),
                    Ok(Err(error)) => self.failed(&chain(&error)),
                    Err(error) => self.failed(&error.to_string()),
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = self.local.changed() => if changed.is_err() {
                    return stop.cancelled().await;
                },
            }
        }
    }

    fn failed(&self, cause: &str) {
        tracing::error!(event = "gateway.drop_in.failed", cause, "Terraform's file for the gateway was not written");
        self.health.not_ready(cause);
    }
}

fn write(options: &Options, address: &str, accepted: &Arc<Accepted>) -> Result<(), DropInError> {
    let Options { file, attributes, host } = options;
    if let Some(text) = there(file)? {
        // What someone else wrote is theirs.
        let ours = serde_json::from_str(&text).is_ok_and(|found: Value| is_ours(&found));
        if !ours {
            return Err(DropInError::Theirs { file: file.clone() });
        }
    }
    let host = host.to_string();
    let document = json!({
        "host": { &host: { "services": ServiceHost::services(address) } },
        "credentials": { &host: { "token": accepted.current.expose_secret() } },
    });
    let text = Zeroizing::new(format!("{document:#}\n"));
    atomic_file::replace(file, text.as_bytes(), attributes)?;
    Ok(())
}

/// What stands in the file's place, if it is a text of a moderate size.
fn there(file: &Path) -> Result<Option<Zeroizing<String>>, DropInError> {
    let unreadable = |source| DropInError::Read { file: file.to_owned(), source };
    match std::fs::symlink_metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
        // Something else than a file is refused when it is written.
        Ok(found) if !found.is_file() => return Ok(None),
        Ok(found) if found.len() > LARGEST => return Err(DropInError::Theirs { file: file.to_owned() }),
        Ok(_) => {}
    }
    std::fs::read_to_string(file).map(|text| Some(Zeroizing::new(text))).map_err(unreadable)
}

const LARGEST: u64 = 64 * 1024;

/// Whether a document is one that [`write()`] made: one host, with services and a local token, and nothing else.
fn is_ours(found: &Value) -> bool {
    let one = |part: &str| found[part].as_object().filter(|members| members.len() == 1).and_then(|it| it.iter().next());
    let (Some((host, way)), Some((named, brought))) = (one("host"), one("credentials")) else { return false };
    let only =
        |value: &Value, member: &str| value.as_object().is_some_and(|it| it.len() == 1 && it.contains_key(member));
    found.as_object().is_some_and(|members| members.len() == 2)
        && host == named
        && only(way, "services")
        && only(brought, "token")
}

/// Why the file was not written.
#[derive(Debug, thiserror::Error)]
pub enum DropInError {
    /// Someone else's file stands there.
    #[error("{} was not written by keyward and stays as it is; name another file, or remove it", file.display())]
    Theirs {
        /// Which.
        file: PathBuf,
    },
    /// What stands there cannot be read.
    #[error("cannot look at {}", file.display())]
    Read {
        /// Which.
        file: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] ReplaceError),
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use secrecy::SecretString;

    use super::*;

    #[test]
    fn the_file_is_written_over_its_own_kind_and_over_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            file: folder.path().join("zz-keyward.tfrc.json"),
            attributes: Attributes { mode: 0o600, owner: None, group: None },
            host: ServiceHost::parse("app.terraform.io").unwrap(),
        };
        let accepted = |token: &str| {
            Arc::new(Accepted { current: SecretString::from(token), made: SystemTime::now(), previous: None })
        };
        let read = || -> Value { serde_json::from_str(&std::fs::read_to_string(&options.file).unwrap()).unwrap() };
        for token in ["one", "two"] {
            write(&options, "http://127.0.0.1:8800", &accepted(token)).unwrap();
            assert_eq!(read()["credentials"]["app.terraform.io"]["token"], token);
        }
        assert_eq!(read()["host"]["app.terraform.io"]["services"]["tfe.v2"], "http://127.0.0.1:8800/api/v2/");
        let other = Options { host: ServiceHost::parse("tfe.example.com").unwrap(), ..options.clone() };
        write(&other, "http://127.0.0.1:8800", &accepted("three")).unwrap();
        for theirs in [
            r#"{"credentials":{"app.terraform.io":{"token":"mine"}}}"#,
            r#"{"host":{"a":{"services":{}}},"credentials":{"b":{"token":"mine"}}}"#,
            r#"{"host":{"a":{"services":{}}},"credentials":{"a":{"token":"mine"},"b":{"token":"mine"}}}"#,
            "plugin_cache_dir = \"x\"",
            "",
        ] {
            std::fs::write(&options.file, theirs).unwrap();
            let error = write(&options, "http://127.0.0.1:8800", &accepted("four")).unwrap_err();
            assert!(matches!(error, DropInError::Theirs { .. }), "{error}");
            assert_eq!(std::fs::read_to_string(&options.file).unwrap(), theirs);
        }
    }
}
