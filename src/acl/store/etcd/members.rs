//! The members of the cluster, and which of them is asked.

use std::hash::{BuildHasher as _, RandomState};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Client, Error as ClientError};
use tokio::time::{Instant, sleep, timeout_at};

use super::connect::{Connection, Leader};
use super::error::{Kind, Trouble, Troubles};
use super::options::{Options, told};
use crate::acl::store::OpenError;

/// All members. One of them is asked until it fails, then the next.
#[derive(Debug)]
pub(super) struct Members {
    all: Vec<Member>,
    preferred: AtomicUsize,
    within: Duration,
}

/// One member.
pub(super) struct Member {
    pub(super) address: Arc<str>,
    options: Arc<Options>,
    leader: Leader,
    connection: Mutex<Arc<Connection>>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Member({})", self.address)
    }
}

/// Between two rounds through all members: an election takes a second.
const PAUSE: Duration = Duration::from_millis(100);

impl Members {
    /// The members that the options name. Nothing is sent yet.
    ///
    /// # Errors
    /// A file of certificates cannot be used.
    pub(super) async fn new(options: &Arc<Options>, leader: Leader) -> Result<Self, OpenError> {
        let mut all = Vec::new();
        for url in &options.endpoints {
            let address: Arc<str> = told(url).into();
            let connection = Mutex::new(Arc::new(Connection::new(&address, options, leader).await?));
            all.push(Member { address, options: Arc::clone(options), leader, connection });
        }
        // Several servers on one cluster spread over its members.
        let place = RandomState::new().hash_one(0_u8) % all.len().max(1) as u64;
        let preferred = AtomicUsize::new(usize::try_from(place).unwrap_or_default());
        Ok(Self { all, preferred, within: options.request_timeout })
    }

    /// The end of a call that begins now.
    pub(super) fn end(&self) -> Instant {
        Instant::now() + self.within
    }

    /// Asks what may be asked twice: until a member answers, or until `end`, each for half of the whole time at most.
    pub(super) async fn read<T, F>(&self, end: Instant, call: impl Fn(Client) -> F) -> Result<T, Troubles>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let again = |kind| !matches!(kind, Kind::Refused | Kind::TooMuch | Kind::Compacted);
        self.ask(end, self.within / 2, &call, again).await
    }

    /// Asks for what must not be done twice: only what was surely not done is asked of another member.
    pub(super) async fn write<T, F>(&self, call: impl Fn(Client) -> F) -> Result<T, Troubles>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let again = |kind| matches!(kind, Kind::NotReached | Kind::NotDone);
        self.ask(self.end(), self.within, &call, again).await
    }

    async fn ask<T, F>(
        &self,
        end: Instant,
        each: Duration,
        call: &impl Fn(Client) -> F,
        again: impl Fn(Kind) -> bool,
    ) -> Result<T, Troubles>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut troubles = Troubles::default();
        loop {
            for _ in 0..self.all.len() {
                let (place, member) = self.preferred();
                match member.ask(end.min(Instant::now() + each), call).await {
                    Ok(answer) => return Ok(answer),
                    Err(trouble) => troubles.add(trouble),
                }
                if troubles.kind() != Kind::Refused {
                    self.avoid(place);
                }
                if !again(troubles.kind()) || Instant::now() >= end {
                    return Err(troubles);
                }
            }
            if Instant::now() + PAUSE >= end {
                return Err(troubles);
            }
            sleep(PAUSE).await;
        }
    }

    /// The member that is asked next, and its place.
    pub(super) fn preferred(&self) -> (usize, &Member) {
        let place = self.preferred.load(Ordering::Relaxed);
        (place, &self.all[place])
    }

    /// Has the next one asked from now on, unless someone did that already.
    pub(super) fn avoid(&self, place: usize) {
        let next = (place + 1) % self.all.len();
        let _ = self.preferred.compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Member {
    /// Makes one call, logged in.
    pub(super) async fn ask<T, F>(&self, end: Instant, call: &impl Fn(Client) -> F) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let connection = self.connection();
        let attempt = async || match timeout_at(end, pin!(call(connection.client()))).await {
            Ok(answer) => answer.map_err(|error| Trouble::told(&self.address, &error)),
            Err(_) => Err(Trouble::silent(&self.address)),
        };
        let logins = connection.log_in(0, end).await?;
        let mut answer = attempt().await;
        if answer.as_ref().is_err_and(|trouble| trouble.kind == Kind::LoggedOut) && connection.has_login() {
            connection.log_in(logins, end).await?;
            answer = attempt().await;
        }
        match answer.as_ref().map_err(|trouble| trouble.kind) {
            // Its certificates may have been renewed.
            Err(Kind::NotReached) if self.options.ca_file.is_some() => self.renew(&connection).await,
            // The other end may be gone for good, which TCP would find out in a quarter of an hour.
            Err(Kind::Silent) => self.renew(&connection).await,
            _ => {}
        }
        answer
    }

    /// Logs in, whatever the last login was worth.
    pub(super) async fn log_in_anew(&self, end: Instant) -> Result<(), Trouble> {
        let connection = self.connection();
        let last = connection.log_in(0, end).await?;
        connection.log_in(last, end).await.map(drop)
    }

    fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another connection in the place of one that failed.
    async fn renew(&self, failed: &Arc<Connection>) {
        match Connection::new(&self.address, &self.options, self.leader).await {
            Ok(renewed) => {
                let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
                if Arc::ptr_eq(&connection, failed) {
                    *connection = Arc::new(renewed);
                }
            }
            Err(error) => {
                let (etcd, error) = (&*self.address, crate::error_chain::format_chain(&error));
                tracing::warn!(event = "acl.store.connect", etcd, error, "cannot take the certificates for etcd anew");
            }
        }
    }
}
