//! Dependencies of a template: subscriptions to secrets, and files that are read again at intervals.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keyward_credentials::credential_watch::{Availability, UpdateError, any_changed};
use keyward_machine::clock::ClockReading;
use keyward_machine::secret;
use keyward_telemetry::time_format::format_duration;

use super::evaluation::{Dependency, Resolved};
use crate::secrets::{ContentEnd, SecretOp, SecretRegistry, SecretResponse, Subscription};

/// Secrets and files of one template.
#[derive(Debug)]
pub(super) struct Dependencies {
    registry: SecretRegistry,
    /// Folders below which files may be read.
    folders: Vec<PathBuf>,
    secrets: BTreeMap<Dependency, SubscribedSecret>,
    files: BTreeMap<Dependency, Resolved>,
    /// Time at which the files are read again; `None` until it is asked for.
    reread_at: Option<ClockReading>,
}

/// A subscribed secret, and the value that the last rendering could use.
#[derive(Debug)]
struct SubscribedSecret {
    subscription: Subscription,
    rendered: Option<Arc<SecretResponse>>,
    /// The last rendering requested it. The template waits for no other secret.
    is_used: bool,
}

impl Dependencies {
    pub(super) const fn new(registry: SecretRegistry, folders: Vec<PathBuf>) -> Self {
        Self { registry, folders, secrets: BTreeMap::new(), files: BTreeMap::new(), reread_at: None }
    }

    /// Subscribes to secrets and reads files. Returns true if one of them is resolved by that.
    pub(super) fn request(&mut self, dependencies: BTreeSet<Dependency>) -> bool {
        let mut is_any_resolved = false;
        for dependency in dependencies {
            match &dependency {
                Dependency::Secret(_) if self.secrets.contains_key(&dependency) => {}
                Dependency::Secret(request) => {
                    let subscription = self.registry.subscribe(request);
                    // Other templates may use it already.
                    is_any_resolved |=
                        subscription.watch.read(|state| matches!(state.availability, Availability::Available(_)));
                    let secret = SubscribedSecret { subscription, rendered: None, is_used: true };
                    self.secrets.insert(dependency, secret);
                }
                Dependency::File(path) => {
                    let text = read_file(&self.folders, path);
                    self.files.insert(dependency, text);
                    is_any_resolved = true;
                }
            }
        }
        is_any_resolved
    }

    /// Removes the dependencies that the last rendering did not use, except those in `kept`: an incomplete rendering keeps what is
    /// resolved, as the complete one may use it, and a removed lease or certificate would be created again.
    pub(super) fn retain(&mut self, used: &BTreeSet<Dependency>, kept: &BTreeMap<Dependency, Resolved>) {
        self.secrets.retain(|dependency, secret| {
            secret.is_used = used.contains(dependency);
            secret.is_used || kept.contains_key(dependency)
        });
        self.files.retain(|dependency, _| used.contains(dependency) || kept.contains_key(dependency));
    }

    /// Returns the texts of all files and the secrets that are available.
    pub(super) fn resolve(&mut self) -> BTreeMap<Dependency, Resolved> {
        let mut resolved = self.files.clone();
        for (dependency, secret) in &mut self.secrets {
            if let Availability::Available(response) = secret.subscription.watch.current().availability {
                secret.rendered = Some(Arc::clone(&response));
                resolved.insert(dependency.clone(), Resolved::Secret(response));
            }
        }
        resolved
    }

    fn used_secrets(&self) -> impl Iterator<Item = (&Dependency, &SubscribedSecret)> {
        self.secrets.iter().filter(|(_, secret)| secret.is_used)
    }

    /// Returns the reason why a used secret is not available; `None` if all are.
    pub(super) fn unavailable_reason(&self) -> Option<String> {
        self.used_secrets().find_map(|(_, used)| match used.subscription.watch.peek().availability {
            Availability::Unavailable { reason, .. } => Some(reason.to_string()),
            Availability::Available(_) => None,
        })
    }

    /// Returns the error of a used secret that could not be read again, with the secret's path.
    pub(super) fn update_error(&self) -> Option<(String, UpdateError)> {
        self.used_secrets().find_map(|(dependency, used)| {
            let Dependency::Secret(request) = dependency else { return None };
            used.subscription.watch.read(|state| Some((request.path.clone(), state.update_error.clone()?)))
        })
    }

    /// Describes the used secrets that were made by a write, and whose content tells no end; `None` without one.
    pub(super) fn describe_unknown_ends(&self) -> Option<String> {
        let paths: Vec<&str> = self
            .used_secrets()
            .filter_map(|(dependency, used)| {
                let Dependency::Secret(request) = dependency else { return None };
                let response = used.rendered.as_ref().filter(|_| matches!(request.op, SecretOp::Write(_)))?;
                let is_unknown = response.lease.is_none() && ContentEnd::parse(&response.data).is_none();
                is_unknown.then_some(request.path.as_str())
            })
            .collect();
        let repeated = match self.registry.rewrite_interval() {
            Some(interval) => format!("it is written again every {}", format_duration(interval)),
            None => "it is never written again".to_owned(),
        };
        (!paths.is_empty()).then(|| format!("no known end of {}: {repeated}", paths.join(", ")))
    }

    /// Returns true if a secret differs from the one that the last rendering could use.
    pub(super) fn has_changed(&self) -> bool {
        self.secrets.values().any(|used| match (&used.subscription.watch.peek().availability, &used.rendered) {
            (Availability::Available(current), Some(rendered)) => !Arc::ptr_eq(current, rendered),
            (Availability::Available(_), None) => true,
            (Availability::Unavailable { .. }, _) => false,
        })
    }

    /// Waits for a change of a secret, and returns true if instead one became available or unavailable, or an update failed or
    /// succeeded again. Ignores reads that changed nothing.
    pub(super) async fn wait_for_change(&mut self) -> bool {
        let unavailable = self.unavailable_reason();
        let update_error = self.update_error();
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

    /// Returns the time at which the files are to be read again: an `interval` after the last time, whatever else happens
    /// meanwhile. `None` without files.
    pub(super) fn reread_at(&mut self, now: ClockReading, interval: Duration) -> Option<ClockReading> {
        if self.files.is_empty() {
            self.reread_at = None;
            return None;
        }
        Some(*self.reread_at.get_or_insert(now + interval))
    }

    /// Reads the files again. Returns true if one has changed.
    pub(super) fn reread_files(&mut self) -> bool {
        self.reread_at = None;
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
        Err(error) => Resolved::Absent(keyward_telemetry::error_chain::format_chain(&error).into()),
    }
}

fn is_same(left: &Resolved, right: &Resolved) -> bool {
    match (left, right) {
        (Resolved::Text(left), Resolved::Text(right)) => secret::ct_eq(left, right.expose_secret().as_bytes()),
        (Resolved::Absent(left), Resolved::Absent(right)) => left == right,
        _ => false,
    }
}
