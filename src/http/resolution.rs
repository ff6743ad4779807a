//! Resolves host names, and uses the last known addresses while that fails.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::time::Duration;

use keyward_machine::clock::{Clock, ClockReading};
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::outage::Outage;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::timeout;

/// Time for which known addresses are used after the name was last resolved.
const STALE_TTL: Duration = Duration::from_hours(1);

/// Time limit of a lookup where there are known addresses. A resolver without a server may take longer than a connection may.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Addresses of the names that this process connects to. Clients are rebuilt by a reload; what they resolved stays.
static NAMES: Mutex<BTreeMap<String, ResolvedName>> = Mutex::new(BTreeMap::new());

/// Lookups that run, by name. A name has one at most: each occupies a thread, for half a minute without an answer, and a caller
/// that gives up does not end it.
static LOOKUPS: Mutex<BTreeMap<String, LookupResult>> = Mutex::new(BTreeMap::new());

/// Permits of lookups that run: a resolver without a server leaves threads to the work with files.
static PERMITS: Semaphore = Semaphore::const_new(MAX_LOOKUPS);

/// Limit of lookups that run, half of the threads of `keyward run` that may block.
const MAX_LOOKUPS: usize = 6;

/// Result of a lookup: addresses or an error; `None` until it has ended.
type LookupResult = watch::Receiver<Option<Result<Vec<IpAddr>, String>>>;

#[derive(Debug)]
struct ResolvedName {
    addresses: Vec<IpAddr>,
    resolved: ClockReading,
    outage: Outage,
}

/// Returns the addresses of a host: an address itself, or a name.
///
/// TLS verifies that the server has the name, so that an old address can lead to no other server.
///
/// # Errors
/// The name has no address, and had none within the last hour.
pub(crate) async fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    let host = host.trim_matches(['[', ']']);
    if let Ok(address) = host.parse() {
        return Ok(vec![address]);
    }
    let clock = Clock::System;
    let cached = cached_addresses(host, clock.now());
    let lookup = wait_for_lookup(host);
    let resolved = if cached.is_some() {
        timeout(LOOKUP_TIMEOUT, lookup).await.unwrap_or_else(|_| Err("timed out".to_owned()))
    } else {
        lookup.await
    };
    match (resolved, cached) {
        (Ok(addresses), _) if !addresses.is_empty() => Ok(addresses),
        (resolved, Some(cached)) => {
            let error = resolved.err().unwrap_or_else(|| "the name has no address".to_owned());
            report(host, &error, clock.now());
            Ok(cached)
        }
        (resolved, None) => resolved.map_err(io::Error::other),
    }
}

/// Waits for the lookup of a name that runs already, or for a new one.
async fn wait_for_lookup(host: &str) -> Result<Vec<IpAddr>, String> {
    let running = lookups().get(host).cloned();
    let mut receiver = match running {
        Some(running) => running,
        // The semaphore is never closed.
        None => join_lookup(host, PERMITS.acquire().await.ok()),
    };
    let resolved = receiver.wait_for(Option::is_some).await;
    resolved.ok().and_then(|resolved| resolved.clone()).unwrap_or_else(|| Err("the lookup was cancelled".to_owned()))
}

/// Returns the result of the lookup of a name that runs already, or starts one with this permit.
fn join_lookup(host: &str, permit: Option<SemaphorePermit<'static>>) -> LookupResult {
    let mut lookups = lookups();
    if let Some(running) = lookups.get(host) {
        return running.clone();
    }
    let (sender, receiver) = watch::channel(None);
    let host = host.to_owned();
    lookups.insert(host.clone(), receiver.clone());
    drop(lookups);
    // Also runs if the lookup never starts, as at the end of the runtime.
    let running = scopeguard::guard(host, |host| drop(self::lookups().remove(&host)));
    tokio::task::spawn_blocking(move || {
        let addresses = (running.as_str(), 0).to_socket_addrs().map_err(|error| format_chain(&error));
        let addresses = addresses.map(|addresses| addresses.map(|address| address.ip()).collect::<Vec<_>>());
        if let Ok(addresses @ [_, ..]) = addresses.as_deref() {
            remember(&running, addresses, Clock::System.now());
        }
        drop(running);
        sender.send_replace(Some(addresses));
        drop(permit);
    });
    receiver
}

/// Returns the addresses of a name that was resolved within the last hour.
fn cached_addresses(host: &str, now: ClockReading) -> Option<Vec<IpAddr>> {
    let names = names();
    let name = names.get(host).filter(|name| now.since(name.resolved) < STALE_TTL)?;
    Some(name.addresses.clone())
}

fn remember(host: &str, addresses: &[IpAddr], now: ClockReading) {
    let mut names = names();
    let outage = names.remove(host).map(|name| name.outage);
    let mut name = ResolvedName { addresses: addresses.to_vec(), resolved: now, outage: outage.unwrap_or_default() };
    let lasted_seconds = name.outage.record_success(now);
    names.insert(host.to_owned(), name);
    drop(names);
    if let Some(lasted_seconds) = lasted_seconds {
        tracing::info!(
            event = "name.resolution.recovered",
            name = host,
            lasted_seconds,
            "the name can be resolved again"
        );
    }
}

/// Logs a failure, once until the name can be resolved again.
fn report(host: &str, error: &str, now: ClockReading) {
    if names().get_mut(host).is_some_and(|name| name.outage.record_failure(now)) {
        tracing::warn!(
            event = "name.resolution.failed",
            name = host,
            error,
            "the name cannot be resolved; its last addresses are used for an hour"
        );
    }
}

fn names() -> MutexGuard<'static, BTreeMap<String, ResolvedName>> {
    NAMES.lock()
}

fn lookups() -> MutexGuard<'static, BTreeMap<String, LookupResult>> {
    LOOKUPS.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_cannot_be_resolved_has_its_last_addresses_for_an_hour() {
        let host = "known.invalid";
        let address = IpAddr::from([127, 0, 0, 9]);
        assert!(resolve(host).await.is_err());
        let now = Clock::System.now();
        remember(host, &[address], now);
        assert_eq!(resolve(host).await.unwrap(), [address]);
        assert_eq!(cached_addresses(host, now + STALE_TTL), None);
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_at_a_time() {
        let (sender, result) = watch::channel(None);
        lookups().insert("slow.invalid".to_owned(), result);
        let first = resolve("slow.invalid");
        let second = resolve("slow.invalid");
        let end = async { sender.send_replace(Some(Ok(vec![IpAddr::from([127, 0, 0, 8])]))) };
        let (first, second, _) = tokio::join!(first, second, end);
        assert_eq!(first.unwrap(), [IpAddr::from([127, 0, 0, 8])]);
        assert_eq!(second.unwrap(), [IpAddr::from([127, 0, 0, 8])]);
        lookups().remove("slow.invalid");

        assert!(resolve("other.invalid").await.is_err());
        assert!(!lookups().contains_key("other.invalid"), "a lookup that has ended does not count");
    }

    #[tokio::test]
    async fn an_address_is_itself() {
        for (host, address) in [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("::1", "::1")] {
            assert_eq!(resolve(host).await.unwrap(), [address.parse::<IpAddr>().unwrap()]);
        }
    }
}
