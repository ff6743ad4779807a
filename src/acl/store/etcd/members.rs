//! Members of the etcd cluster, and failover between them.

use std::hash::{BuildHasher as _, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, Error as ClientError};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::connect::{Connection, EtcdTls, LeaderRequirement};
use super::error::{FailureKind, MemberError, MemberErrors};
use super::options::{EtcdOptions, display_url};
use crate::store::OpenError;

/// All members. One is used until it fails, then the next.
#[derive(Debug)]
pub(super) struct Members {
    all: Vec<Member>,
    preferred: AtomicUsize,
    request_timeout: Duration,
}

/// One member of the cluster.
pub(super) struct Member {
    pub(super) address: Arc<str>,
    options: Arc<EtcdOptions>,
    tls: EtcdTls,
    leader: LeaderRequirement,
    connection: Mutex<Arc<Connection>>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Member({})", self.address)
    }
}

/// Pause between rounds through all members: a leader election takes about a second.
const ROUND_PAUSE: Duration = Duration::from_millis(100);

impl Members {
    /// Creates the configured members without connecting.
    pub(super) async fn new(
        options: &Arc<EtcdOptions>,
        tls: &EtcdTls,
        leader: LeaderRequirement,
    ) -> Result<Self, OpenError> {
        let mut all = Vec::new();
        for url in &options.endpoints {
            let address: Arc<str> = display_url(url).into();
            let connection = Mutex::new(Arc::new(Connection::new(&address, options, tls, leader).await?));
            all.push(Member { address, options: Arc::clone(options), tls: tls.clone(), leader, connection });
        }
        // Random start, to spread servers over the members.
        let index = RandomState::new().hash_one(0_u8) % all.len().max(1) as u64;
        let preferred = AtomicUsize::new(usize::try_from(index).unwrap_or_default());
        Ok(Self { all, preferred, request_timeout: options.request_timeout })
    }

    /// Returns the deadline of a call that starts now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.request_timeout
    }

    /// Executes an idempotent call: retries on other members until `end`, each attempt limited to half of the request
    /// timeout.
    pub(super) async fn read<T, F>(&self, end: Instant, request: impl Fn(Client) -> F) -> Result<T, MemberErrors>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let retriable = |kind| !matches!(kind, FailureKind::Refused | FailureKind::TooLarge | FailureKind::Compacted);
        self.call(end, self.request_timeout / 2, &request, retriable).await
    }

    /// Executes a write: retries on other members only if it was certainly not executed.
    pub(super) async fn write<T, F>(&self, request: impl Fn(Client) -> F) -> Result<T, MemberErrors>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let retriable =
            |kind| matches!(kind, FailureKind::Unreachable | FailureKind::NotExecuted | FailureKind::LoginTimedOut);
        self.call(self.deadline(), self.request_timeout, &request, retriable).await
    }

    async fn call<T, F>(
        &self,
        end: Instant,
        attempt_timeout: Duration,
        request: &impl Fn(Client) -> F,
        retriable: impl Fn(FailureKind) -> bool,
    ) -> Result<T, MemberErrors>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut errors = MemberErrors::default();
        loop {
            for _ in 0..self.all.len() {
                let (index, member) = self.preferred();
                match member.call(end.min(Instant::now() + attempt_timeout), request).await {
                    Ok(response) => return Ok(response),
                    Err(error) => errors.add(error),
                }
                // A member that refuses a call is healthy, and others would refuse it too.
                if errors.kind() != FailureKind::Refused {
                    self.prefer_next_after(index);
                }
                if !retriable(errors.kind()) || Instant::now() >= end {
                    return Err(errors);
                }
            }
            if Instant::now() + ROUND_PAUSE >= end {
                return Err(errors);
            }
            sleep(ROUND_PAUSE).await;
        }
    }

    /// Returns the preferred member and its index.
    pub(super) fn preferred(&self) -> (usize, &Member) {
        let index = self.preferred.load(Ordering::Relaxed);
        (index, &self.all[index])
    }

    /// Prefers the next member, unless another task already switched.
    pub(super) fn prefer_next_after(&self, index: usize) {
        let next = (index + 1) % self.all.len();
        let _ = self.preferred.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Member {
    /// Executes one call, after a login if configured.
    pub(super) async fn call<T, F>(&self, end: Instant, request: &impl Fn(Client) -> F) -> Result<T, MemberError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let connection = self.connection().await;
        let attempt = async || match timeout_at(end, pin!(request(connection.client()))).await {
            Ok(response) => response.map_err(|error| MemberError::from_client(&self.address, &error)),
            Err(_) => Err(MemberError::timed_out(&self.address)),
        };
        let login = connection.log_in(0, end).await?;
        let mut response = attempt().await;
        if response.as_ref().is_err_and(|error| login.may_have_caused(error)) && connection.has_login() {
            connection.log_in(login.number, end).await?;
            response = attempt().await;
        }
        // The peer may be dead, which TCP detects only after about 15 minutes.
        if response.as_ref().is_err_and(|error| error.kind == FailureKind::TimedOut) {
            self.reconnect(&connection).await;
        }
        response
    }

    /// Forces a new login.
    pub(super) async fn log_in_again(&self, end: Instant) -> Result<(), MemberError> {
        let connection = self.connection().await;
        let last = connection.log_in(0, end).await?;
        connection.log_in(last.number, end).await.map(drop)
    }

    /// Returns the connection, a new one if the certificate files have changed. Calls on the old one end there.
    async fn connection(&self) -> Arc<Connection> {
        let current = || Arc::clone(&self.connection.lock());
        let connection = current();
        if connection.is_current(&self.tls) {
            return connection;
        }
        self.reconnect(&connection).await;
        current()
    }

    /// Replaces a connection that failed or has old certificates.
    async fn reconnect(&self, failed: &Arc<Connection>) {
        match Connection::new(&self.address, &self.options, &self.tls, self.leader).await {
            Ok(renewed) => {
                let mut connection = self.connection.lock();
                if Arc::ptr_eq(&connection, failed) {
                    *connection = Arc::new(renewed);
                }
            }
            Err(error) => {
                let etcd = &*self.address;
                let error = keyward_telemetry::error_chain::format_chain(&error);
                tracing::warn!(event = "acl.store.connect", etcd, error, "cannot use the new certificates for etcd");
            }
        }
    }
}
