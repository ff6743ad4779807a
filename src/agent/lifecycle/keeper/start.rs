//! How a keeper starts: with what the last process left, or with nothing.

use std::sync::Arc;
use std::time::Duration;

use super::TokenKeeper;
use crate::agent::lifecycle::attempt;
use crate::agent::lifecycle::held::Held;
use crate::agent::lifecycle::pace::Pace;
use crate::agent::lifecycle::resume::Kept;
use crate::agent::lifecycle::schedule::{Last, Step};
use crate::backoff::random_unit;
use crate::words::chain;

impl TokenKeeper {
    /// Takes up what the last process left; if that is no token, plans the first login.
    pub(super) async fn start(&mut self) {
        let Kept { pace, held, refused } = self.load().await;
        let now = self.clock.now();
        if let Some(record) = pace {
            self.pace = Pace::resume(&record, now);
        }
        if let Some(refused) = refused {
            let (session, error) = (&self.options.name, chain(&refused));
            tracing::warn!(event = "state.refused", session, error, "what the last process left is not taken");
        }
        if let Some(held) = held {
            self.resume(held).await;
        }
        self.plan(if self.pace.failures() > 0 { Last::Failed } else { Last::Well });
        if self.held.is_none() {
            let splayed = now + self.options.first_login_splay.mul_f64(random_unit());
            if let Step::LoginAt(at) = self.next
                && splayed.boot > at.boot
            {
                self.next = Step::LoginAt(splayed);
            }
            self.publish();
        }
    }

    async fn load(&mut self) -> Kept {
        let Some(archive) = self.archive.take() else { return Kept::default() };
        let now = self.clock.now();
        let read = tokio::task::spawn_blocking(move || {
            let kept = archive.load(now);
            (archive, kept)
        });
        match tokio::time::timeout(LOAD_LIMIT, read).await {
            Ok(Ok((archive, kept))) => {
                self.archive = Some(archive);
                kept
            }
            // A disk that does not answer now will not do so later; the session lives without it.
            _ => Kept::default(),
        }
    }

    /// Asks the server about a token that the last process left. If it is slow or away, the token is good to its end.
    async fn resume(&mut self, held: Held) {
        let may_look = held.can_be_looked_up() && self.pace.spare(self.clock.now());
        let session = self.options.name.clone();
        tracing::info!(event = "state.resumed", session, "a token of the last process is taken up");
        let mut look = may_look.then(|| attempt::look(self.login.clone(), Arc::clone(&held.token)));
        self.take(held);
        self.save();
        if let Ok((generation, result)) = tokio::time::timeout(RESUME_WAIT, attempt::of(&mut look)).await {
            look = None;
            self.look_done(generation, result);
        }
        self.look = look;
        if self.held.is_some() {
            self.publish();
        }
    }
}

const LOAD_LIMIT: Duration = Duration::from_secs(5);
const RESUME_WAIT: Duration = Duration::from_secs(1);
