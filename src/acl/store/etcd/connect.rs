//! A connection to one member, and the login on it.

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

use super::error::{Kind, Trouble};
use super::options::{self, Options};
use crate::acl::store::OpenError;
use crate::error_chain;
use crate::secret;

/// A member whose machine is gone is noticed after the two together. etcd closes a connection where pings come more often
/// than each 5 s, or where nothing is asked.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Whether a member must know the cluster's leader to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leader {
    /// It must: a member that is cut off from the others says so, soon.
    Needed,
    /// It need not.
    NotNeeded,
}

/// A connection, made when it is first used, and made again when it breaks.
pub(super) struct Connection {
    member: Arc<str>,
    client: Client,
    login: Option<options::Login>,
    /// How often it was logged in; held while that is being done, so that all who need it share one login.
    logins: Mutex<u64>,
}

impl Connection {
    /// To `member`; the files of the certificates are read.
    ///
    /// # Errors
    /// A file cannot be used.
    pub(super) async fn new(member: &Arc<str>, options: &Options, leader: Leader) -> Result<Self, OpenError> {
        let mut how = ConnectOptions::new()
            .with_connect_timeout(options.connect_timeout)
            .with_keep_alive(PING_EVERY, PING_ANSWERED_WITHIN)
            .with_keep_alive_while_idle(false)
            .with_require_leader(leader == Leader::Needed);
        if let Some(ca_file) = &options.ca_file {
            how = how.with_tls(tls(options, ca_file)?);
        }
        let client = Client::connect([&**member], Some(how)).await.map_err(|error| {
            let path = options.identity.as_ref().map(|identity| &identity.key).or(options.ca_file.as_ref());
            unusable(path.map_or(Path::new(""), |path| path), error_chain::format_chain(&error))
        })?;
        Ok(Self { member: Arc::clone(member), client, login: options.login.clone(), logins: Mutex::new(0) })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Whether there is a user to log in as.
    pub(super) fn has_login(&self) -> bool {
        self.login.is_some()
    }

    /// Logs in where the last login is the one with the number `seen`, and gives the number of the one that counts now.
    ///
    /// # Errors
    /// The password cannot be read, or the member refuses it or does not answer until `end`.
    pub(super) async fn log_in(&self, seen: u64, end: Instant) -> Result<u64, Trouble> {
        let Some(login) = &self.login else { return Ok(seen) };
        let attempt = async {
            let mut logins = self.logins.lock().await;
            if *logins > seen {
                return Ok(*logins);
            }
            let password = secret::read_file(&login.password_file)
                .map_err(|error| Trouble::not_done(&self.member, error_chain::format_chain(&error)))?;
            let credentials = (login.user.clone(), password.expose_secret().to_owned());
            if let Err(error) = self.client().update_user(Some(credentials)).await {
                let trouble = Trouble::told(&self.member, &error);
                if !trouble.text.contains("authentication is not enabled") {
                    // What the login is for was not begun.
                    let kind = if trouble.kind == Kind::Unclear { Kind::NotDone } else { trouble.kind };
                    return Err(Trouble {
                        text: format!("login as {}: {}", login.user, trouble.text),
                        kind,
                        ..trouble
                    });
                }
                let etcd = &*self.member;
                tracing::warn!(event = "acl.store.open", etcd, "etcd has its authentication off: everyone is let in");
            }
            *logins += 1;
            Ok(*logins)
        };
        timeout_at(end, attempt)
            .await
            .unwrap_or_else(|_| Err(Trouble::not_done(&self.member, "no answer to the login in time")))
    }
}

fn tls(options: &Options, ca_file: &Path) -> Result<TlsOptions, OpenError> {
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
        Err(unusable(ca_file, "it holds no certificate in PEM".to_owned()))
    }
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, OpenError> {
    let bytes = std::fs::read(path).map_err(|source| OpenError::File { path: path.to_owned(), source })?;
    Ok(Zeroizing::new(bytes))
}

fn unusable(path: &Path, why: String) -> OpenError {
    OpenError::File { path: path.to_owned(), source: std::io::Error::other(why) }
}
