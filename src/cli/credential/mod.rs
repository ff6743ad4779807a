//! The executable under three other names: the credential helpers of Docker and git, and the kubelet's. The secret of `[credential.NAME]` is
//! read through the running agent each time; nothing is stored.

mod docker;
mod git;
mod kubelet;

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Parser;
use keyward_agent::server_client::{CallError, TokenVerdict};
use keyward_app::one_shot_render::OneShotReader;
use keyward_config::{self as config, Config, Credential, Environment, LoadOutcome, Purpose};
use keyward_machine::secret_string::SecretString;

use super::agent_listener::ProxyEndpoint;
use super::command_config::require_values;
use super::{Exit, print_error};

/// Protocol of the calling program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HelperProtocol {
    Docker,
    Git,
    Kubelet,
}

const NAMES: [(&str, HelperProtocol); 3] = [
    ("docker-credential-keyward", HelperProtocol::Docker),
    ("git-credential-keyward", HelperProtocol::Git),
    ("kubelet-credential-keyward", HelperProtocol::Kubelet),
];

/// Credential helper of Docker, git and the kubelet: returns the secret of `[credential.NAME]`. They pass a verb as argument, and the host on standard input.
#[derive(Debug, Parser)]
#[command(version)]
struct HelperRequest {
    /// Configuration file, or folder of *.toml files; repeatable [env: `KEYWARD_CONFIG`; default: /etc/keyward/keyward.toml]
    #[arg(short, long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// get, store, erase; of Docker also list and version
    verb: String,
}

/// Returns the protocol and the arguments if this process was started by the name of a credential helper.
pub(super) fn parse_invocation(
    mut arguments: impl Iterator<Item = OsString>,
) -> Option<(HelperProtocol, Vec<OsString>)> {
    let program = arguments.next()?;
    let called = Path::new(&program).file_name()?.to_owned();
    let (_, by) = NAMES.iter().find(|(name, _)| called == *name)?;
    Some((*by, std::iter::once(program).chain(arguments).collect()))
}

/// Answers a request. Failures are printed to standard error, which Docker and git show.
pub(super) fn respond(by: HelperProtocol, arguments: &[OsString]) -> Exit {
    let request = match HelperRequest::try_parse_from(arguments) {
        Ok(request) => request,
        Err(error) => {
            let code = if error.use_stderr() { Exit::Failed } else { Exit::Ok };
            let _ = error.print();
            return code;
        }
    };
    if let Err(error) = keyward_machine::os::forbid_core_dumps() {
        print_error(&error.to_string());
        return Exit::Failed;
    }
    match by {
        HelperProtocol::Docker => docker::respond(&request),
        HelperProtocol::Git => git::respond(&request),
        HelperProtocol::Kubelet => kubelet::respond(&request),
    }
}

/// Credential of a host.
struct HostCredential {
    username: SecretString,
    password: SecretString,
    /// Expiry, for a leased credential.
    expires: Option<SystemTime>,
}

/// The configuration, as it was read.
struct LoadedConfig {
    outcome: LoadOutcome,
}

impl HelperRequest {
    fn load(&self) -> Result<LoadedConfig, Exit> {
        let environment = Environment::current();
        let files = match (self.config.as_slice(), environment.variables.get("KEYWARD_CONFIG")) {
            ([], Some(file)) => vec![PathBuf::from(file)],
            ([], None) => vec![PathBuf::from("/etc/keyward/keyward.toml")],
            (files, _) => files.to_vec(),
        };
        let outcome = config::load(&files, &environment, Purpose::Check);
        if outcome.config.is_none() {
            for error in &outcome.errors {
                print_error(&error.to_string());
            }
            return Err(Exit::ConfigInvalid);
        }
        Ok(LoadedConfig { outcome })
    }
}

impl LoadedConfig {
    fn config(&self) -> impl Iterator<Item = &Config> {
        self.outcome.config.iter()
    }

    fn credentials(&self) -> impl Iterator<Item = &Credential> {
        self.config().flat_map(|config| &config.credentials)
    }

    /// The credential for a host, which is compared without case.
    fn find_for_host(&self, host: &str) -> Option<&Credential> {
        self.credentials().find(|credential| credential.hosts.iter().any(|name| name.eq_ignore_ascii_case(host)))
    }

    /// Reads a credential through the running agent; prints the error if that fails.
    fn read(&self, credential: &Credential) -> Result<HostCredential, Exit> {
        let Some(session) =
            self.config().flat_map(|config| &config.sessions).find(|session| session.name == credential.session)
        else {
            return Err(Exit::Failed);
        };
        require_values(&self.outcome, &[format!("credential.{}", credential.name)])?;
        let proxy = ProxyEndpoint::find(&self.outcome, &session.name)?;
        let failed = |reason: String| {
            print_error(&format!("credential {}: {reason}", credential.name));
            Exit::Failed
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(error.to_string()))?;
        let read = runtime.block_on(async {
            let reader = OneShotReader::via_api_proxy(session, proxy.address, proxy.key)?;
            anyhow::Ok(reader.read(&credential.path).await)
        });
        let response = match read.map_err(|error| failed(format!("{error:#}")))? {
            Ok(response) => response,
            Err(error) => {
                let exit = match (&error, error.verdict()) {
                    (CallError::Unreachable { .. }, _) => Exit::NotRunning,
                    (_, TokenVerdict::Unavailable) => Exit::TryLater,
                    _ => Exit::Failed,
                };
                failed(format!("the secret {} cannot be read: {error}", credential.path));
                return Err(exit);
            }
        };
        let field = |name: &str| {
            let no_field =
                || failed(format!("the secret {} has no string or integer in its field {name}", credential.path));
            response.data.text(name).ok_or_else(no_field)
        };
        let username = match &credential.username {
            Some(name) => SecretString::from(name.as_str()),
            None => field(&credential.username_field)?,
        };
        let expires = response.lease.as_ref().map(|lease| lease.lease.ttl).filter(|ttl| !ttl.is_zero());
        let expires = expires.and_then(|ttl| SystemTime::now().checked_add(ttl));
        Ok(HostCredential { username, password: field(&credential.password_field)?, expires })
    }
}

/// Standard input, which names a host: a few lines.
fn read_input() -> Result<String, Exit> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MAX_INPUT_BYTES as u64).read_to_string(&mut text);
    read.map(|_| text).map_err(|error| {
        print_error(&format!("standard input cannot be read: {error}"));
        Exit::Failed
    })
}

/// The most that is read of standard input, in bytes.
const MAX_INPUT_BYTES: usize = 64 * 1024;

/// Prints the answer, with the secret that was requested.
fn print_response(text: &str) -> Exit {
    let mut output = std::io::stdout();
    let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    if written.is_ok() { Exit::Ok } else { Exit::Failed }
}
