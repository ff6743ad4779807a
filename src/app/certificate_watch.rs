//! Watches the certificate files of the configuration: reports replaced, rejected and expiring ones to operators.
//!
//! Connections follow the files by themselves (`http::tls`); this task logs and counts, at the time of the change.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use keyward_http::tls::{self, Expiry};
use keyward_machine::clock::Clock;
use keyward_machine::file_watch::FileWatch;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::time_format::format_rfc3339;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::certificate_files::{CertificateFiles, CertificatePaths};
use super::metrics::{CertificateLabels, CertificateMetrics};

/// Watches the files until `stop`. Each reload sends a new list, which replaces the one before.
pub(super) async fn watch(
    mut files: watch::Receiver<CertificateFiles>,
    clock: Clock,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let folders = FileWatch::new(|error| {
        tracing::warn!(
            event = "certificate.watch_failed",
            error = error.to_string(),
            "changes of certificate files are not logged; connections use them all the same"
        );
    });
    let mut monitor = CertificateMonitor { clock: clock.clone(), metrics, entries: BTreeMap::new() };
    loop {
        let list = files.borrow_and_update().clone();
        for path in list.values().flat_map(CertificatePaths::paths) {
            // A folder of CA certificates is watched for changes of any file in it.
            folders.follow(&if path.is_dir() { path.join("any") } else { path.to_owned() });
        }
        let next = monitor.check_all(list).await;
        let wait =
            next.map(|due| clock.now() + due.duration_since(clock.now().wall).unwrap_or_default().min(MAX_SLEEP));
        tokio::select! {
            () = stop.cancelled() => return,
            changed = files.changed() => if changed.is_err() { return },
            () = clock.sleep_until_some(wait) => {}
            // A certificate and its key are replaced one after the other.
            () = folders.changed() => tokio::time::sleep(DEBOUNCE).await,
        }
    }
}

/// Time in which several changes are one.
const DEBOUNCE: Duration = Duration::from_millis(500);

/// The wall clock may be set meanwhile, and ends of certificates are on it.
const MAX_SLEEP: Duration = Duration::from_hours(24);

struct CertificateMonitor {
    clock: Clock,
    metrics: Metrics,
    entries: BTreeMap<String, CertificateState>,
}

/// State of one certificate entry after the last check.
#[derive(Debug, Clone, PartialEq)]
struct CertificateState {
    files: CertificatePaths,
    read: Result<Vec<CertificateDer<'static>>, String>,
    /// Expiry that was already warned of.
    warned: Option<SystemTime>,
    /// True if the expiry was logged.
    expiry_logged: bool,
}

impl CertificateMonitor {
    /// Reads all files, logs changes, and returns the time of the next warning.
    async fn check_all(&mut self, list: CertificateFiles) -> Option<SystemTime> {
        let removed_keys: Vec<String> = self.entries.keys().filter(|key| !list.contains_key(*key)).cloned().collect();
        for key in removed_keys {
            self.entries.remove(&key);
            self.metrics.get::<CertificateMetrics>().expiry.remove(&label(&key));
            self.metrics.get::<CertificateMetrics>().rejected.remove(&label(&key));
        }
        let mut next: Option<SystemTime> = None;
        for (key, files) in list {
            let paths = files.clone();
            let read = tokio::task::spawn_blocking(move || paths.read().map_err(|error| format_chain(&error))).await;
            let read = read.unwrap_or_else(|error| Err(error.to_string()));
            let due = self.record(&key, files, read);
            next = next.into_iter().chain(due).min();
        }
        next
    }

    fn record(
        &mut self,
        key: &str,
        files: CertificatePaths,
        read: Result<Vec<CertificateDer<'static>>, String>,
    ) -> Option<SystemTime> {
        let previous = self.entries.remove(key).filter(|entry| entry.files == files);
        let paths = files.describe();
        let rejected = self.metrics.get::<CertificateMetrics>().rejected.get_or_create(&label(key)).clone();
        rejected.set(i64::from(read.is_err()));
        let changed = previous.as_ref().is_some_and(|previous| previous.read != read);
        let mut entry = match (previous, read) {
            (Some(mut previous), Ok(certificates)) => {
                if changed {
                    tracing::info!(event = "certificate.reloaded", key, paths, "new connections use the new files");
                    (previous.warned, previous.expiry_logged) = (None, false);
                }
                previous.read = Ok(certificates);
                previous
            }
            (Some(previous), Err(error)) => {
                if changed {
                    tracing::warn!(
                        event = "certificate.rejected",
                        key,
                        paths,
                        error,
                        "rejected the new certificate files; connections keep using the previous ones"
                    );
                }
                CertificateState { read: Err(error), ..previous }
            }
            (None, read) => {
                if let Err(error) = &read {
                    tracing::warn!(
                        event = "certificate.rejected",
                        key,
                        paths,
                        error,
                        "cannot use the certificate files"
                    );
                }
                CertificateState { files, read, warned: None, expiry_logged: false }
            }
        };
        let due = entry.read.as_ref().ok().and_then(|certificates| tls::expiry(certificates));
        let next = due.and_then(|due| self.warn(key, &paths, due, &mut entry));
        self.entries.insert(key.to_owned(), entry);
        next
    }

    /// Warns once before a certificate expires and once after. Returns the time of the next warning.
    fn warn(&self, key: &str, paths: &str, due: Expiry, entry: &mut CertificateState) -> Option<SystemTime> {
        let Expiry { warn_at, ends } = due;
        let seconds = ends.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let gauge = self.metrics.get::<CertificateMetrics>().expiry.get_or_create(&label(key)).clone();
        gauge.set(i64::try_from(seconds).unwrap_or(i64::MAX));
        let now = self.clock.now().wall;
        let expires = format_rfc3339(ends);
        if now >= ends {
            if !entry.expiry_logged {
                entry.expiry_logged = true;
                tracing::warn!(
                    event = "certificate.expired",
                    key,
                    paths,
                    expires,
                    "a certificate has expired; replace the file"
                );
            }
            return None;
        }
        if now >= warn_at {
            if entry.warned != Some(ends) {
                entry.warned = Some(ends);
                tracing::warn!(
                    event = "certificate.expiring",
                    key,
                    paths,
                    expires,
                    "a certificate expires soon; replace the file"
                );
            }
            return Some(ends);
        }
        Some(warn_at)
    }
}

fn label(key: &str) -> CertificateLabels {
    CertificateLabels { certificate: key.to_owned() }
}
