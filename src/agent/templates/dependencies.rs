//! What a template's needs are, kept known: secrets by use of the store, files by looking at them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::evaluation::{Dependency, Resolved};
use crate::agent::secrets::{SecretRegistry, SecretResponse, Subscription};
use crate::credential_watch::{Availability, any_changed};
use crate::secret;

/// Where one template's secrets and files come from.
#[derive(Debug)]
pub(super) struct Dependencies {
    registry: SecretRegistry,
    /// The folders that files are read beneath.
    folders: Vec<PathBuf>,
    secrets: BTreeMap<Dependency, SecretUse>,
    files: BTreeMap<Dependency, Resolved>,
}

/// A secret in use, and what of it the last rendering saw.
#[derive(Debug)]
struct SecretUse {
    subscription: Subscription,
    seen: Option<Arc<SecretResponse>>,
}

impl Dependencies {
    /// One that asks for nothing yet.
    pub(super) const fn new(registry: SecretRegistry, folders: Vec<PathBuf>) -> Self {
        Self { registry, folders, secrets: BTreeMap::new(), files: BTreeMap::new() }
    }

    /// Asks for what is needed besides.
    pub(super) fn ask(&mut self, needs: BTreeSet<Dependency>) {
        for need in needs {
            match &need {
                Dependency::Secret(request) => {
                    let subscription = self.registry.subscribe(request);
                    self.secrets.entry(need).or_insert(SecretUse { subscription, seen: None });
                }
                Dependency::File(path) => {
                    let known = look(&self.folders, path);
                    self.files.insert(need, known);
                }
            }
        }
    }

    /// Forgets what was not used.
    pub(super) fn keep(&mut self, used: &BTreeSet<Dependency>) {
        self.secrets.retain(|need, _| used.contains(need));
        self.files.retain(|need, _| used.contains(need));
    }

    /// All that is known now, or why something is not known yet or not any more.
    pub(super) fn known(&mut self) -> Result<BTreeMap<Dependency, Resolved>, String> {
        let mut known = self.files.clone();
        let mut missing = None;
        for (need, used) in &mut self.secrets {
            match used.subscription.watch.current().availability {
                Availability::Available(answer) => {
                    used.seen = Some(Arc::clone(&answer));
                    known.insert(need.clone(), Resolved::Secret(answer));
                }
                Availability::Unavailable { reason, .. } => {
                    missing.get_or_insert(reason);
                }
            }
        }
        match missing {
            Some(reason) => Err(reason.to_string()),
            None => Ok(known),
        }
    }

    /// Why a secret is not there, if one is not.
    pub(super) fn absent(&self) -> Option<String> {
        self.secrets.values().find_map(|used| match used.subscription.watch.peek().availability {
            Availability::Unavailable { reason, .. } => Some(reason.to_string()),
            Availability::Available(_) => None,
        })
    }

    /// Whether a secret is another than the last rendering saw.
    pub(super) fn is_new(&self) -> bool {
        self.secrets.values().any(|used| match (&used.subscription.watch.peek().availability, &used.seen) {
            (Availability::Available(now), Some(seen)) => !Arc::ptr_eq(now, seen),
            (Availability::Available(_), None) => true,
            (Availability::Unavailable { .. }, _) => false,
        })
    }

    /// Returns once a secret has changed, or (`true`) one has gone or come back. A look at the server that changed nothing is
    /// no news.
    pub(super) async fn changed(&mut self) -> bool {
        let absent = self.absent();
        loop {
            any_changed(self.secrets.values_mut().map(|used| &mut used.subscription.watch)).await;
            // Marks as seen by the watch, so that the next wait waits.
            for used in self.secrets.values_mut() {
                let _ = used.subscription.watch.current();
            }
            if self.is_new() {
                return false;
            }
            if self.absent() != absent {
                return true;
            }
        }
    }

    /// Whether there are files to look at.
    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Looks at the files again. Says whether one has changed.
    pub(super) fn look_again(&mut self) -> bool {
        let mut changed = false;
        for (need, known) in &mut self.files {
            let Dependency::File(path) = need else { continue };
            let now = look(&self.folders, path);
            if !same(known, &now) {
                *known = now;
                changed = true;
            }
        }
        changed
    }
}

fn look(folders: &[PathBuf], path: &Path) -> Resolved {
    match secret::read_text_beneath(folders, path) {
        Ok(text) => Resolved::Text(Arc::new(text)),
        Err(error) => Resolved::Absent(crate::error_chain::format_chain(&error).into()),
    }
}

fn same(one: &Resolved, other: &Resolved) -> bool {
    use secrecy::ExposeSecret as _;
    match (one, other) {
        (Resolved::Text(one), Resolved::Text(other)) => secret::ct_eq(one, other.expose_secret().as_bytes()),
        (Resolved::Absent(one), Resolved::Absent(other)) => one == other,
        _ => false,
    }
}
