//! What each session is doing, in words and times that an operator can read. Never a secret.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::health::{Component, Health};

/// Where the parts post what they are doing. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Posted>>);

#[derive(Debug, Default)]
struct Posted {
    /// By name, oldest posting first: while one session takes another's place both may be there, and the newest speaks.
    sessions: BTreeMap<String, Vec<(u64, Session)>>,
    /// How many postings were made so far.
    made: u64,
    reload_error: Option<String>,
    platform: Option<Platform>,
}

/// What is known of the platform that the gateway leads to: each part once the platform has told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Platform {
    /// Its origin, such as `https://app.terraform.io`.
    pub upstream: String,
    /// `hosted` or `self-managed`.
    pub product: Option<&'static str>,
    /// The release of a self-managed one.
    pub release: Option<String>,
    /// The version of its API, such as `2.6`.
    pub api_version: Option<String>,
}

/// What one session is doing. Times are RFC 3339, in UTC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Session {
    /// Where the machine's identity comes from, such as `metadata service (system-assigned)`.
    pub identity: String,
    /// The secrets server's address.
    pub server: String,
    /// The role that it logs in to.
    pub role: String,
    /// Whether there is a token to serve.
    pub serving: bool,
    /// Names that the server gave the token.
    pub policies: Vec<String>,
    /// Whether the token can be renewed.
    pub renewable: bool,
    /// When the token ends; absent for one that never does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// What comes next: `renew`, `login`, `wait`.
    pub next_step: String,
    /// When that is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step_at: Option<String>,
    /// When the server was last asked about the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checked: Option<String>,
    /// Failures in a row.
    pub failures: u32,
    /// The last failure, with its cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The status of the process, as `GET /agent/v1/status` tells it.
#[derive(Debug, Serialize)]
pub struct Status {
    version: &'static str,
    ready: bool,
    /// The sessions that the caller may see.
    sessions: BTreeMap<String, Session>,
    components: BTreeMap<String, Component>,
    /// The platform of the gateway; absent where there is no gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<Platform>,
    /// Why the last reload of the configuration failed; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reload_error: Option<String>,
}

impl Status {
    /// The status now, with these sessions.
    pub fn of(board: &Board, health: &Health, sessions: BTreeMap<String, Session>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            ready: health.ready(),
            sessions,
            components: health.components(),
            platform: board.platform(),
            reload_error: board.reload_error(),
        }
    }
}

impl Board {
    /// A place for one session of this name. It shows nothing before its first post, and then stands before those that
    /// were made earlier under the same name.
    pub fn posting(&self, name: impl Into<String>) -> Posting {
        let mut posted = self.lock();
        posted.made += 1;
        Posting { name: name.into(), id: posted.made, board: self.clone() }
    }

    /// Every session, by name.
    pub fn sessions(&self) -> BTreeMap<String, Session> {
        let posted = self.lock();
        posted.sessions.iter().filter_map(|(name, all)| Some((name.clone(), all.last()?.1.clone()))).collect()
    }

    /// Posts how the last reload of the configuration went: why it failed, or that it did not.
    pub fn reloaded(&self, error: Option<String>) {
        self.lock().reload_error = error;
    }

    /// Why the last reload failed, if it did.
    pub fn reload_error(&self) -> Option<String> {
        self.lock().reload_error.clone()
    }

    /// Posts what is known of the gateway's platform; `None` where there is no gateway.
    pub fn platform_is(&self, platform: Option<Platform>) {
        self.lock().platform = platform;
    }

    /// What is known of the gateway's platform, if there is a gateway.
    pub fn platform(&self) -> Option<Platform> {
        self.lock().platform.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Posted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One session's place on a board.
#[derive(Debug)]
pub struct Posting {
    name: String,
    id: u64,
    board: Board,
}

impl Posting {
    /// Posts what the session is doing, in place of what it posted before. Says whether that is what the board shows.
    pub fn post(&self, session: Session) -> bool {
        let mut posted = self.board.lock();
        let all = posted.sessions.entry(self.name.clone()).or_default();
        match all.binary_search_by_key(&self.id, |(id, _)| *id) {
            Ok(at) => all[at].1 = session,
            Err(at) => all.insert(at, (self.id, session)),
        }
        all.last().is_some_and(|(id, _)| *id == self.id)
    }

    /// Takes the session off the board. Says whether none of its name is left there.
    pub fn remove(&self) -> bool {
        let mut posted = self.board.lock();
        let Some(all) = posted.sessions.get_mut(&self.name) else { return true };
        all.retain(|(id, _)| *id != self.id);
        let none = all.is_empty();
        if none {
            posted.sessions.remove(&self.name);
        }
        none
    }
}

impl Drop for Posting {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_name_the_newest_that_has_posted_speaks_and_the_older_one_takes_only_its_own_away() {
        let board = Board::default();
        let said = || board.sessions().get("web").map(|session| session.role.clone());
        let post =
            |posting: &Posting, role: &str| posting.post(Session { role: role.to_owned(), ..Session::default() });
        let (old, new) = (board.posting("web"), board.posting("web"));
        assert_eq!(said(), None);
        assert!(post(&old, "old"));
        drop(board.posting("web"));
        assert_eq!(said().as_deref(), Some("old"));
        assert!(post(&new, "new"));
        assert!(!post(&old, "old again"));
        assert_eq!(said().as_deref(), Some("new"));
        assert!(!old.remove());
        assert_eq!(said().as_deref(), Some("new"));
        assert!(new.remove());
        assert_eq!(said(), None);
    }
}
