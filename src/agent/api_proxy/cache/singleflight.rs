//! Coalesces equal requests: one goes to the server, and all callers that wait share its response.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use keyward_http::server::CallerGroup;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::key::CacheKey;

/// Requests under way, by key.
#[derive(Debug)]
pub(super) struct Singleflight<T>(Arc<Mutex<HashMap<CacheKey, InFlight<T>>>>);

/// A request under way.
#[derive(Debug)]
struct InFlight<T> {
    result: watch::Receiver<FlightResult<T>>,
    /// A write or a revocation came since the request started; its response may be older than that.
    is_outdated: Arc<AtomicBool>,
}

/// Result of a coalesced request.
#[derive(Debug, Clone)]
pub(crate) enum FlightResult<T> {
    /// The request is under way.
    Pending,
    /// The response for all that wait.
    Shared(T),
    /// The response is only for the leader, such as one that is too long to share.
    Unshared,
}

/// A response in memory, shared by all callers that sent the same request at once.
#[derive(Debug)]
pub(crate) struct BufferedResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Callers for which no connection to the server was free; others may have one. `None` for any other response.
    pub refused: Option<CallerGroup>,
}

/// Role of a caller that joined.
#[derive(Debug)]
pub(crate) enum JoinOutcome<T> {
    /// No equal request is under way: send it, and complete the leader with its result.
    Leader(Leader<T>),
    /// An equal request is under way; wait for its result.
    Follower(watch::Receiver<FlightResult<T>>),
}

impl<T> Singleflight<T> {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn join(&self, key: &CacheKey) -> JoinOutcome<T> {
        let mut flights = self.0.lock();
        if let Some(flight) = flights.get(key).filter(|flight| !flight.is_outdated.load(Ordering::Relaxed)) {
            return JoinOutcome::Follower(flight.result.clone());
        }
        let (sender, result) = watch::channel(FlightResult::Pending);
        let is_outdated = Arc::new(AtomicBool::new(false));
        flights.insert(key.clone(), InFlight { result, is_outdated: Arc::clone(&is_outdated) });
        JoinOutcome::Leader(Leader { flights: Arc::clone(&self.0), key: key.clone(), sender, is_outdated })
    }

    /// Marks matching requests under way as outdated: no caller joins them, and their responses are not cached.
    pub(super) fn mark_outdated(&self, matches: impl Fn(&CacheKey) -> bool) {
        for (_, flight) in self.0.lock().iter().filter(|(key, _)| matches(key)) {
            flight.is_outdated.store(true, Ordering::Relaxed);
        }
    }
}

/// Leader of a coalesced request. If it is dropped before it completes, as when its caller hangs up, a waiter takes over.
#[derive(Debug)]
pub(crate) struct Leader<T> {
    flights: Arc<Mutex<HashMap<CacheKey, InFlight<T>>>>,
    key: CacheKey,
    sender: watch::Sender<FlightResult<T>>,
    is_outdated: Arc<AtomicBool>,
}

impl<T> Leader<T> {
    /// Hands the result to all that wait.
    pub(crate) fn complete(self, result: FlightResult<T>) {
        self.sender.send_replace(result);
    }

    /// Returns true after a write or a revocation of what the request reads: its response must not be cached.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Leader<T> {
    fn drop(&mut self) {
        let mut flights = self.flights.lock();
        // After it was marked outdated, another leader may have taken the key.
        if flights.get(&self.key).is_some_and(|flight| Arc::ptr_eq(&flight.is_outdated, &self.is_outdated)) {
            flights.remove(&self.key);
        }
    }
}

/// Waits for the leader's result; `None` if the leader was dropped.
pub(crate) async fn wait_for_result<T: Clone>(mut result: watch::Receiver<FlightResult<T>>) -> Option<FlightResult<T>> {
    let result = result.wait_for(|result| !matches!(result, FlightResult::Pending)).await;
    result.ok().map(|result| (*result).clone())
}
