//! One request upstream however many ask the same at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::key::CacheKey;

/// The requests that are under way.
#[derive(Debug)]
pub(super) struct Singleflight<T>(Arc<Mutex<HashMap<CacheKey, InFlight<T>>>>);

/// A request that is under way.
#[derive(Debug)]
struct InFlight<T> {
    told: watch::Receiver<FlightResult<T>>,
    /// What it asks for was changed or ended since it began: its answer may be that of before.
    outdated: Arc<AtomicBool>,
}

/// What became of a request.
#[derive(Debug, Clone)]
pub enum FlightResult<T> {
    /// It is under way.
    Not,
    /// This is for all who wait.
    Shared(T),
    /// Its answer is for who asked first alone.
    Unshared,
}

/// How to go on.
#[derive(Debug)]
pub enum JoinOutcome<T> {
    /// Anonymous asks the same: go, and say what became of it.
    Leader(Leader<T>),
    /// Somebody does: what is told is there once it is.
    Follow(watch::Receiver<FlightResult<T>>),
}

impl<T> Singleflight<T> {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn join(&self, key: &CacheKey) -> JoinOutcome<T> {
        let mut singleflight = lock(&self.0);
        if let Some(flight) = singleflight.get(key).filter(|flight| !flight.outdated.load(Ordering::Relaxed)) {
            return JoinOutcome::Follow(flight.told.clone());
        }
        let (tell, told) = watch::channel(FlightResult::Not);
        let outdated = Arc::new(AtomicBool::new(false));
        singleflight.insert(key.clone(), InFlight { told, outdated: Arc::clone(&outdated) });
        JoinOutcome::Leader(Leader { singleflight: Arc::clone(&self.0), key: key.clone(), tell, outdated })
    }

    /// Marks the requests that are under way as outdated: nobody joins them any more, and their answers are not kept.
    pub(super) fn outdate(&self, meant: impl Fn(&CacheKey) -> bool) {
        for (_, flight) in lock(&self.0).iter().filter(|(key, _)| meant(key)) {
            flight.outdated.store(true, Ordering::Relaxed);
        }
    }
}

fn lock<T>(singleflight: &Mutex<HashMap<CacheKey, T>>) -> MutexGuard<'_, HashMap<CacheKey, T>> {
    singleflight.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held by who asks for all. Dropped without a word, as by a caller that hangs up, another goes in its place.
#[derive(Debug)]
pub struct Leader<T> {
    singleflight: Arc<Mutex<HashMap<CacheKey, InFlight<T>>>>,
    key: CacheKey,
    tell: watch::Sender<FlightResult<T>>,
    outdated: Arc<AtomicBool>,
}

impl<T> Leader<T> {
    /// Says what became of it.
    pub fn tell(self, landed: FlightResult<T>) {
        self.tell.send_replace(landed);
    }

    /// True if what is asked for was changed or ended meanwhile, so that the answer is not to be kept.
    pub fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Leader<T> {
    fn drop(&mut self) {
        let mut singleflight = lock(&self.singleflight);
        // Another may have gone in the place of one that was outdated.
        if singleflight.get(&self.key).is_some_and(|flight| Arc::ptr_eq(&flight.outdated, &self.outdated)) {
            singleflight.remove(&self.key);
        }
    }
}

/// Waits for what another was told; `None` where that one went away.
pub async fn told<T: Clone>(mut told: watch::Receiver<FlightResult<T>>) -> Option<FlightResult<T>> {
    let landed = told.wait_for(|landed| !matches!(landed, FlightResult::Not)).await;
    landed.ok().map(|landed| (*landed).clone())
}
