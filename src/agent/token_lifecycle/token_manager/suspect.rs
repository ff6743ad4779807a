//! A token that the server refuses without a reason: it may be dead, or be used from an address that it is not bound to.

use std::time::Duration;

use super::TokenKeeper;
use crate::agent::token_lifecycle::current_token::Standing;
use crate::agent::token_lifecycle::schedule::{Last, Step};

impl TokenKeeper {
    /// Has a login replace the token, unless the last such login changed nothing and was not long ago.
    pub(super) fn suspect(&mut self, message: &str) {
        let now = self.clock.now();
        let session = &self.options.name;
        let Some(held) = self.held.as_mut().filter(|held| held.standing != Standing::Suspect) else {
            tracing::debug!(event = "token.suspect", session, "{message}");
            return;
        };
        self.last_error = Some(message.to_owned());
        if !self.suspicions.allow(now) {
            if held.standing != Standing::Refused {
                held.standing = Standing::Refused;
                tracing::warn!(
                    event = "token.refused",
                    session,
                    "the server refuses each token of this session: the role may bind them to other addresses; {message}"
                );
            }
            return;
        }
        held.standing = Standing::Suspect;
        tracing::warn!(
            event = "token.suspect",
            session,
            "the server may no longer know the token: a login is to replace it; {message}"
        );
        if self.work.is_none() {
            self.plan(Last::Well);
        }
    }

    /// True while a login that replaces a suspect token is under way, or about to be. A ringer waits for it.
    pub(super) fn awaits_replacement(&self) -> bool {
        let about_to = match self.next {
            Step::LoginAt(at) => self.clock.now().until(at) <= SOON,
            Step::RenewAt(_) | Step::Rest => false,
        };
        self.held.as_ref().is_some_and(|held| held.standing == Standing::Suspect)
            && !self.renewing
            && (self.work.is_some() || about_to)
    }

    /// Why callers are refused though there is a token; `None` where they are not.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        match self.held.as_ref()?.standing {
            Standing::Good => None,
            // A login takes a moment, which is no news.
            Standing::Suspect if self.pace.failures() == 0 => None,
            Standing::Suspect => Some("the server may no longer know the token, and nothing could replace it yet"),
            Standing::Refused => Some("the server refuses the token"),
        }
    }
}

const SOON: Duration = Duration::from_secs(5);
