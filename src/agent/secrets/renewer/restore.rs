//! How a keeper begins with what the last process knew, and writes down what the next one may begin with.

use std::sync::Arc;
use std::time::Duration;

use super::{Held, SecretRenewer};
use crate::agent::secrets::lease::{Step, rewrite_after};
use crate::agent::secrets::persisted_secrets::{PersistedSecrets, Record};
use crate::agent::secrets::{SecretOptions, SecretResponse};
use crate::agent::token::{Generation, Token};
use crate::credential_watch::Availability;

impl<T> SecretRenewer<T> {
    /// Begins with what the last process knew, and writes down for the next one what is known. It is given to readers once the
    /// server says that it is good, or does not answer.
    pub(in crate::agent::secrets) fn resuming(mut self, persisted: &PersistedSecrets) -> Self {
        let now = self.deps.clock.now();
        self.persisted = Some(persisted.clone());
        if let Some((record, mark)) = persisted.known(&self.options.request) {
            self.show_at = Some(now + SHOWN_AFTER);
            if record.lease.is_some() {
                self.awaited = Some((record, mark));
            } else {
                let (SecretOptions { request, interval, .. }, data) = (&self.options, &record.data);
                if let Some(after) = rewrite_after(request, data, *interval, now) {
                    (self.next, self.show_at) = (Step::ReadAt(now + after), Some(now));
                }
                self.take_up(record, Generation::new());
            }
        }
        self
    }

    fn take_up(&mut self, record: Record, generation: Generation) {
        let Record { data, read, before, lease, .. } = record;
        let lease = lease.map(|(lease, lease_state, next)| {
            self.next = next;
            (lease, lease_state)
        });
        let look_after = self.options.interval;
        self.held = Some(Held { data, read, before, shown: false, lease, look_after, generation });
    }

    /// Takes up the lease of the last process, if this is the token that it was got with. It is given to readers once it has
    /// been renewed; where it cannot be, at once, as nothing would tell whether it lives.
    pub(super) fn take_up_awaited(&mut self, token: &Token) -> bool {
        let Some((record, mark)) = self.awaited.take() else { return false };
        let ended =
            record.lease.as_ref().is_none_or(|(_, lease_state, _)| self.deps.clock.has_reached(lease_state.ends()));
        if ended || !mark.is_some_and(|mark| mark.is(token)) {
            self.forget();
            return false;
        }
        self.take_up(record, token.generation);
        if matches!(self.next, Step::ReadAt(_)) {
            self.show();
        }
        true
    }

    pub(super) fn write_down(&self) {
        let (Some(persisted), Some(held)) = (&self.persisted, &self.held) else { return };
        let lease = held.lease.as_ref().map(|(lease, lease_state)| (lease.clone(), *lease_state, self.next));
        let login = Some(held.generation);
        let record = Record { data: Arc::clone(&held.data), read: held.read, before: held.before, lease, login };
        persisted.write(&self.options.request, record);
    }

    /// Gives readers what the last process knew, unless they have it or something else by now.
    pub(super) fn show(&mut self) {
        let now = self.deps.clock.now();
        let Some(held) = self.held.as_mut().filter(|held| !held.shown) else { return };
        let lease = held.lease.as_ref().map(|(lease, _)| lease.clone());
        let answer = SecretResponse { data: Arc::clone(&held.data), lease };
        if let Ok(view) = (self.deps.view)(&self.options, &answer, now) {
            held.shown = true;
            let age = (held.before + now.since(held.read)).as_secs();
            tracing::info!(
                event = "agent.secret.resumed",
                secret = self.options.name,
                age,
                "a secret is used as it was known"
            );
            self.deps.publisher.publish(Availability::Available(Arc::new(view)), None);
            if let Some(health) = &self.deps.health {
                health.ready();
            }
        }
    }

    /// The server does not give any more what the last process knew.
    pub(super) fn drop_unshown(&mut self) {
        if self.held.as_ref().is_some_and(|held| !held.shown) {
            self.held = None;
            self.forget();
        }
    }

    pub(super) fn forget(&self) {
        if let Some(persisted) = &self.persisted {
            persisted.strike(&self.options.request);
        }
    }
}

/// How long the server is given to say that what the last process knew is still good, before it is used without its word.
const SHOWN_AFTER: Duration = Duration::from_secs(3);
