//! Dependencies of a template: subscriptions to secrets, and files that are read again at intervals.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::evaluation::{Dependency, Resolved};
use crate::agent::secrets::{SecretRegistry, SecretResponse, Subscription};
use crate::credential_watch::{Availability, UpdateError, any_changed};
use crate::secret;

/// Secrets and files of one template.
#[derive(Debug)]
pub(super) struct Dependencies {
    registry: SecretRegistry,
    /// Directories below which files may be read.
    folders: Vec<PathBuf>,
    secrets: BTreeMap<Dependency, SubscribedSecret>,
    files: BTreeMap<Dependency, Resolved>,
}

/// A subscribed secret, and the value that the last rendering used.
#[derive(Debug)]
struct SubscribedSecret {
    subscription: Subscription,
    rendered: Option<Arc<SecretResponse>>,
}

impl Dependencies {
    pub(super) const fn new(registry: SecretRegistry, folders: Vec<PathBuf>) -> Self {
        Self { registry, folders, secrets: BTreeMap::new(), files: BTreeMap::new() }
    }

    /// Subscribes to secrets and reads files.
    pub(super) fn request(&mut self, dependencies: BTreeSet<Dependency>) {
        for dependency in dependencies {
            match &dependency {
                Dependency::Secret(request) => {
                    let subscription = self.registry.subscribe(request);
                    self.secrets.entry(dependency).or_insert(SubscribedSecret { subscription, rendered: None });
                }
                Dependency::File(path) => {
                    let text = read_file(&self.folders, path);
                    self.files.insert(dependency, text);
                }
            }
        }
    }

    /// Removes the dependencies that the last rendering did not use.
    pub(super) fn retain(&mut self, used: &BTreeSet<Dependency>) {
        self.secrets.retain(|dependency, _| used.contains(dependency));
        self.files.retain(|dependency, _| used.contains(dependency));
    }

    /// Returns all results.
    ///
    /// # Errors
    /// The reason why a secret is not available.
    pub(super) fn resolve(&mut self) -> Result<BTreeMap<Dependency, Resolved>, String> {
        let mut resolved = self.files.clone();
        let mut missing = None;
        for (dependency, used) in &mut self.secrets {
            match used.subscription.watch.current().availability {
                Availability::Available(response) => {
                    used.rendered = Some(Arc::clone(&response));
                    resolved.insert(dependency.clone(), Resolved::Secret(response));
                }
                Availability::Unavailable { reason, .. } => {
                    missing.get_or_insert(reason);
                }
            }
        }
        match missing {
            Some(reason) => Err(reason.to_string()),
            None => Ok(resolved),
        }
    }

    /// Returns the reason why a secret is not available; `None` if all are.
    pub(super) fn unavailable_reason(&self) -> Option<String> {
        self.secrets.values().find_map(|used| match used.subscription.watch.peek().availability {
            Availability::Unavailable { reason, .. } => Some(reason.to_string()),
            Availability::Available(_) => None,
        })
    }

    /// Returns the error of a secret that could not be read again, with the secret's path.
    pub(super) fn update_error(&self) -> Option<(String, UpdateError)> {
        self.secrets.iter().find_map(|(dependency, used)| {
            let Dependency::Secret(request) = dependency else { return None };
            used.subscription.watch.with(|state| Some((request.path.clone(), state.update_error.clone()?)))
        })
    }

    /// Returns true if a secret differs from the one that the last rendering used.
    pub(super) fn has_changed(&self) -> bool {
        self.secrets.values().any(|used| match (&used.subscription.watch.peek().availability, &used.rendered) {
            (Availability::Available(now), Some(seen)) => !Arc::ptr_eq(now, seen),
            (Availability::Available(_), None) => true,
            (Availability::Unavailable { .. }, _) => false,
        })
    }

    /// Waits for a change of a secret, and returns true if instead one became available or unavailable, or an update failed or
    /// succeeded again. Ignores reads that changed nothing.
    pub(super) async fn wait_for_change(&mut self) -> bool {
        let (unavailable, update_error) = (self.unavailable_reason(), self.update_error());
        loop {
            any_changed(self.secrets.values_mut().map(|used| &mut used.subscription.watch)).await;
            // Marks the values as seen, so that the next wait does not return at once.
            for used in self.secrets.values_mut() {
                let _ = used.subscription.watch.current();
            }
            if self.has_changed() {
                return false;
            }
            if self.unavailable_reason() != unavailable || self.update_error() != update_error {
                return true;
            }
        }
    }

    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Reads the files again. Returns true if one has changed.
    pub(super) fn reread_files(&mut self) -> bool {
        let mut changed = false;
        for (dependency, text) in &mut self.files {
            let Dependency::File(path) = dependency else { continue };
            let current = read_file(&self.folders, path);
            if !is_same(text, &current) {
                *text = current;
                changed = true;
            }
        }
        changed
    }
}

fn read_file(folders: &[PathBuf], path: &Path) -> Resolved {
    match secret::read_text_beneath(folders, path) {
        Ok(text) => Resolved::Text(Arc::new(text)),
        Err(error) => Resolved::Absent(crate::error_chain::format_chain(&error).into()),
    }
}

fn is_same(left: &Resolved, right: &Resolved) -> bool {
    match (left, right) {
        (Resolved::Text(left), Resolved::Text(right)) => secret::ct_eq(left, right.expose_secret().as_bytes()),
        (Resolved::Absent(left), Resolved::Absent(right)) => left == right,
        _ => false,
    }
}
