//! One request upstream however many ask the same at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::key::Key;

/// The requests that are under way.
#[derive(Debug)]
pub(super) struct Flights<T>(Arc<Mutex<HashMap<Key, Flight<T>>>>);

/// A request that is under way.
#[derive(Debug)]
struct Flight<T> {
    told: watch::Receiver<Landed<T>>,
    /// What it asks for was changed or ended since it began: its answer may be that of before.
    outdated: Arc<AtomicBool>,
}

/// What became of a request.
#[derive(Debug, Clone)]
pub enum Landed<T> {
    /// It is under way.
    Not,
    /// This is for all who wait.
    Shared(T),
    /// Its answer is for who asked first alone.
    Unshared,
}

/// How to go on.
#[derive(Debug)]
pub enum Joined<T> {
    /// Nobody asks the same: go, and say what became of it.
    Lead(Lead<T>),
    /// Somebody does: what is told is there once it is.
    Follow(watch::Receiver<Landed<T>>),
}

impl<T> Flights<T> {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn join(&self, key: &Key) -> Joined<T> {
        let mut flights = lock(&self.0);
        if let Some(flight) = flights.get(key).filter(|flight| !flight.outdated.load(Ordering::Relaxed)) {
            return Joined::Follow(flight.told.clone());
        }
        let (tell, told) = watch::channel(Landed::Not);
        let outdated = Arc::new(AtomicBool::new(false));
        flights.insert(key.clone(), Flight { told, outdated: Arc::clone(&outdated) });
        Joined::Lead(Lead { flights: Arc::clone(&self.0), key: key.clone(), tell, outdated })
    }

    /// Marks the requests that are under way as outdated: nobody joins them any more, and their answers are not kept.
    pub(super) fn outdate(&self, meant: impl Fn(&Key) -> bool) {
        for (_, flight) in lock(&self.0).iter().filter(|(key, _)| meant(key)) {
            flight.outdated.store(true, Ordering::Relaxed);
        }
    }
}

fn lock<T>(flights: &Mutex<HashMap<Key, T>>) -> MutexGuard<'_, HashMap<Key, T>> {
    flights.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held by who asks for all. Dropped without a word, as by a caller that hangs up, another goes in its place.
#[derive(Debug)]
pub struct Lead<T> {
    flights: Arc<Mutex<HashMap<Key, Flight<T>>>>,
    key: Key,
    tell: watch::Sender<Landed<T>>,
    outdated: Arc<AtomicBool>,
}

impl<T> Lead<T> {
    /// Says what became of it.
    pub fn tell(self, landed: Landed<T>) {
        self.tell.send_replace(landed);
    }

    /// True if what is asked for was changed or ended meanwhile, so that the answer is not to be kept.
    pub fn is_outdated(&self) -> bool {
        self.outdated.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Lead<T> {
    fn drop(&mut self) {
        let mut flights = lock(&self.flights);
        // Another may have gone in the place of one that was outdated.
        if flights.get(&self.key).is_some_and(|flight| Arc::ptr_eq(&flight.outdated, &self.outdated)) {
            flights.remove(&self.key);
        }
    }
}

/// Waits for what another was told; `None` where that one went away.
pub async fn told<T: Clone>(mut told: watch::Receiver<Landed<T>>) -> Option<Landed<T>> {
    let landed = told.wait_for(|landed| !matches!(landed, Landed::Not)).await;
    landed.ok().map(|landed| (*landed).clone())
}
