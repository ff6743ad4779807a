//! Connection to one etcd member, and its authentication.

use std::path::Path;
use std::sync::Arc;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::ExposeSecret as _;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use super::error::{FailureKind, MemberError};
use super::options::{self, EtcdOptions};
use crate::acl::store::OpenError;
use crate::error_chain;
use crate::secret;

/// A dead member is detected after the sum of both. etcd closes connections that ping more often than every 5 s, or
/// without active calls.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// True if calls require that the member knows a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaderRequirement {
    /// A partitioned member fails fast.
    Required,
    /// A partitioned member may answer from its own data.
    NotRequired,
}

/// Lazy connection that reconnects when it breaks.
pub(super) struct Connection {
    member: Arc<str>,
    client: Client,
    login: Option<options::EtcdLogin>,
    /// Number of logins; locked during a login, so that concurrent calls share it.
    logins: Mutex<u64>,
}

impl Connection {
    /// Creates a connection to `member` and reads the certificate files.
    ///
    /// # Errors
    /// A file is unreadable or invalid.
    pub(super) async fn new(
        member: &Arc<str>,
        options: &EtcdOptions,
        leader: LeaderRequirement,
    ) -> Result<Self, OpenError> {
        let mut connect_options = ConnectOptions::new()
            .with_connect_timeout(options.connect_timeout)
            .with_keep_alive(PING_EVERY, PING_ANSWERED_WITHIN)
            .with_keep_alive_while_idle(false)
            .with_require_leader(leader == LeaderRequirement::Required);
        if let Some(ca_file) = &options.ca_file {
            connect_options = connect_options.with_tls(tls(options, ca_file)?);
        }
        let client = Client::connect([&**member], Some(connect_options)).await.map_err(|error| {
            let path = options.identity.as_ref().map(|identity| &identity.key).or(options.ca_file.as_ref());
            unusable(path.map_or(Path::new(""), |path| path), error_chain::format_chain(&error))
        })?;
        Ok(Self { member: Arc::clone(member), client, login: options.login.clone(), logins: Mutex::new(0) })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns whether a user is configured.
    pub(super) fn has_login(&self) -> bool {
        self.login.is_some()
    }

    /// Logs in if the last login is still number `seen`; returns the number of the valid login.
    ///
    /// # Errors
    /// The password file cannot be read, or the member rejects the login or does not answer by `end`.
    pub(super) async fn log_in(&self, seen: u64, end: Instant) -> Result<u64, MemberError> {
        let Some(login) = &self.login else { return Ok(seen) };
        let attempt = async {
            let mut logins = self.logins.lock().await;
            if *logins > seen {
                return Ok(*logins);
            }
            let password = secret::read_file(&login.password_file)
                .map_err(|error| MemberError::not_executed(&self.member, error_chain::format_chain(&error)))?;
            let credentials = (login.user.clone(), password.expose_secret().to_owned());
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
            }
            *logins += 1;
            Ok(*logins)
        };
        timeout_at(end, attempt)
            .await
            .unwrap_or_else(|_| Err(MemberError::not_executed(&self.member, "no answer to the login in time")))
    }
}

fn tls(options: &EtcdOptions, ca_file: &Path) -> Result<TlsOptions, OpenError> {
    let authorities = read(ca_file)?;
    let certificates = CertificateDer::pem_slice_iter(&authorities).collect::<Result<Vec<_>, _>>();
    if certificates.is_ok_and(|found| !found.is_empty()) {
        let mut tls =
            TlsOptions::new().ca_certificate(Certificate::from_pem(&*authorities)).timeout(options.connect_timeout);
        if let Some(identity) = &options.identity {
            tls = tls.identity(Identity::from_pem(&*read(&identity.certificate)?, &*read(&identity.key)?));
        }
        Ok(tls)
    } else {
        Err(unusable(ca_file, "no PEM certificate found".to_owned()))
    }
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let bytes = std::fs::read(path).map_err(|source| OpenError::File { path: path.to_owned(), source })?;
    Ok(Zeroizing::new(bytes))
}

fn unusable(path: &Path, why: String) -> OpenError {
    OpenError::File { path: path.to_owned(), source: std::io::Error::other(why) }
}
