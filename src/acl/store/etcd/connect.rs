//! Connection to one etcd member, and its authentication.

use std::path::Path;
use std::sync::Arc;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use keyward_http::tls::{CertificateError, FileBacked, certificates, verify_pair};
use keyward_machine::secret;
use keyward_telemetry::error_chain;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::error::{FailureKind, MemberError};
use super::options::{self, EtcdOptions};
use crate::store::OpenError;

/// A dead member is detected after the sum of both. etcd closes connections that ping more often than every 5 s, or
/// without active calls.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// True if calls require that the member knows a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaderRequirement {
    /// A partitioned member fails fast.
    Required,
    /// A partitioned member may answer from its own data.
    NotRequired,
}

/// TLS settings of connections, from the certificate files as they are now; `None` for plain connections.
#[derive(Debug, Clone)]
pub(super) struct EtcdTls(Option<FileBacked<Arc<TlsOptions>>>);

impl EtcdTls {
    /// Reads the certificate files.
    pub(super) fn new(options: &Arc<EtcdOptions>) -> Result<Self, OpenError> {
        let Some(ca_file) = options.ca_file.clone() else { return Ok(Self(None)) };
        let identity = options.identity.iter().flat_map(|identity| [&identity.certificate, &identity.key]);
        let paths = std::iter::once(&ca_file).chain(identity).cloned().collect();
        let options = Arc::clone(options);
        Ok(Self(Some(FileBacked::new(paths, move || read_tls(&options, &ca_file).map(Arc::new))?)))
    }

    fn current(&self) -> Option<Arc<TlsOptions>> {
        self.0.as_ref().map(FileBacked::current)
    }
}

/// Lazy connection that reconnects when it breaks.
pub(super) struct Connection {
    member: Arc<str>,
    client: Client,
    tls: Option<Arc<TlsOptions>>,
    login: Option<options::EtcdLogin>,
    /// Locked during a login, so that concurrent calls share it.
    last_login: Mutex<LastLogin>,
}

/// Last login of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LastLogin {
    /// Number of logins so far.
    pub(super) number: u64,
    /// True if etcd had authentication disabled: calls have no token.
    auth_disabled: bool,
}

impl LastLogin {
    /// Returns true if another login may prevent the error. No such call was executed.
    pub(super) fn may_have_caused(self, error: &MemberError) -> bool {
        // Authentication was enabled since: without a token the user is empty, or the one that the client certificate names.
        let is_denied = ["user name is empty", "permission denied"].iter().any(|denial| error.text.contains(denial));
        error.kind == FailureKind::Unauthenticated || (self.auth_disabled && is_denied)
    }
}

impl Connection {
    /// Creates a connection to `member`.
    pub(super) async fn new(
        member: &Arc<str>,
        options: &EtcdOptions,
        tls: &EtcdTls,
        leader: LeaderRequirement,
    ) -> Result<Self, OpenError> {
        let tls = tls.current();
        let mut connect_options = ConnectOptions::new()
            .with_connect_timeout(options.connect_timeout)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(false)
            .with_require_leader(leader == LeaderRequirement::Required);
        if let Some(tls) = &tls {
            connect_options = connect_options.with_tls(TlsOptions::clone(tls));
        }
        let client = Client::connect([&**member], Some(connect_options)).await.map_err(|error| {
            let path = options.identity.as_ref().map(|identity| &identity.key).or(options.ca_file.as_ref());
            let path = path.map_or(Path::new(""), |path| path).to_owned();
            OpenError::File { path, source: std::io::Error::other(error_chain::format_chain(&error)) }
        })?;
        Ok(Self { member: Arc::clone(member), client, tls, login: options.login.clone(), last_login: Mutex::default() })
    }

    /// Returns true if the certificate files have not changed since the connection was created.
    pub(super) fn is_current(&self, tls: &EtcdTls) -> bool {
        self.tls.as_ref().map(Arc::as_ptr) == tls.current().as_ref().map(Arc::as_ptr)
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns whether a user is configured.
    pub(super) fn has_login(&self) -> bool {
        self.login.is_some()
    }

    /// Logs in if the last login is still number `known_login`; returns the valid login.
    pub(super) async fn log_in(&self, known_login: u64, end: Instant) -> Result<LastLogin, MemberError> {
        let Some(login) = &self.login else { return Ok(LastLogin::default()) };
        let attempt = async {
            let mut last = self.last_login.lock().await;
            if last.number > known_login {
                return Ok(*last);
            }
            let password = secret::read_file(&login.password_file)
                .map_err(|error| MemberError::not_executed(&self.member, error_chain::format_chain(&error)))?;
            let credentials = (login.user.clone(), password.expose_secret().to_owned());
            let mut auth_disabled = false;
            if let Err(error) = self.client().update_user(Some(credentials)).await {
                let error = MemberError::from_client(&self.member, &error);
                if !error.text.contains("authentication is not enabled") {
                    // The operation that needs the login was not started.
                    let kind = if error.kind == FailureKind::Unknown { FailureKind::NotExecuted } else { error.kind };
                    return Err(MemberError {
                        text: format!("login as {}: {}", login.user, error.text),
                        kind,
                        ..error
                    });
                }
                let etcd = &*self.member;
                tracing::warn!(
                    event = "acl.store.open",
                    etcd,
                    "authentication is disabled in etcd: every client has full access"
                );
                auth_disabled = true;
            }
            *last = LastLogin { number: last.number + 1, auth_disabled };
            Ok(*last)
        };
        timeout_at(end, attempt).await.unwrap_or_else(|_| Err(MemberError::login_timed_out(&self.member)))
    }
}

/// Reads the certificate files. Each block must be good, as in all certificate files.
fn read_tls(options: &EtcdOptions, ca_file: &Path) -> Result<TlsOptions, CertificateError> {
    certificates(ca_file)?;
    let tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca_file)?));
    let tls = tls.timeout(options.connect_timeout);
    let Some(identity) = &options.identity else { return Ok(tls) };
    verify_pair(&identity.certificate, &identity.key)?;
    Ok(tls.identity(Identity::from_pem(read(&identity.certificate)?, read(&identity.key)?)))
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let fail = |source| CertificateError::Read { path: path.to_owned(), source };
    std::fs::read(path).map_err(fail)
}
