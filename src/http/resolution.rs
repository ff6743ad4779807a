//! Resolves host names, and uses the last known addresses while that fails.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::timeout;

use crate::clock::{Clock, ClockReading};
use crate::error_chain::format_chain;
use crate::outage::Outage;

/// Time for which known addresses are used after the name was last resolved.
const USABLE: Duration = Duration::from_hours(1);

/// Time limit of a lookup where there are known addresses. A resolver without a server may take longer than a connection may.
const LIMIT: Duration = Duration::from_secs(2);

/// Addresses of the names that this process connects to. Clients are rebuilt by a reload; what they resolved stays.
static NAMES: Mutex<BTreeMap<String, ResolvedName>> = Mutex::new(BTreeMap::new());

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
    let known = known(host, clock.now());
    let lookup =
        async { lookup_host((host, 0)).await.map(|found| found.map(|address| address.ip()).collect::<Vec<_>>()) };
    let found = if known.is_some() {
        timeout(LIMIT, lookup).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    } else {
        lookup.await
    };
    match (found, known) {
        (Ok(addresses), _) if !addresses.is_empty() => {
            remember(host, &addresses, clock.now());
            Ok(addresses)
        }
        (found, Some(known)) => {
            let error = found.err().map_or_else(|| "the name has no address".to_owned(), |error| format_chain(&error));
            report(host, &error, clock.now());
            Ok(known)
        }
        (found, None) => found,
    }
}

/// Returns the addresses of a name that was resolved within the last hour.
fn known(host: &str, now: ClockReading) -> Option<Vec<IpAddr>> {
    let names = names();
    let name = names.get(host).filter(|name| now.since(name.resolved) < USABLE)?;
    Some(name.addresses.clone())
}

fn remember(host: &str, addresses: &[IpAddr], now: ClockReading) {
    let mut names = names();
    let outage = names.remove(host).map(|name| name.outage);
    let mut name = ResolvedName { addresses: addresses.to_vec(), resolved: now, outage: outage.unwrap_or_default() };
    let lasted_seconds = name.outage.end(now);
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
    if names().get_mut(host).is_some_and(|name| name.outage.begin(now)) {
        tracing::warn!(
            event = "name.resolution.failed",
            name = host,
            error,
            "the name cannot be resolved; its last addresses are used for an hour"
        );
    }
}

fn names() -> MutexGuard<'static, BTreeMap<String, ResolvedName>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_cannot_be_resolved_has_its_last_addresses_for_an_hour() {
        let (host, address) = ("known.invalid", IpAddr::from([127, 0, 0, 9]));
        assert!(resolve(host).await.is_err());
        let now = Clock::System.now();
        remember(host, &[address], now);
        assert_eq!(resolve(host).await.unwrap(), [address]);
        assert_eq!(known(host, now + USABLE), None);
    }

    #[tokio::test]
    async fn an_address_is_itself() {
        for (host, address) in [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("::1", "::1")] {
            assert_eq!(resolve(host).await.unwrap(), [address.parse::<IpAddr>().unwrap()]);
        }
    }
}
