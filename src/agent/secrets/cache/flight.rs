//! One request upstream however many ask the same at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::key::Key;

/// The requests that are under way.
#[derive(Debug)]
pub(super) struct Flights<T>(Arc<Mutex<HashMap<Key, watch::Receiver<Landed<T>>>>>);

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
        if let Some(told) = flights.get(key) {
            return Joined::Follow(told.clone());
        }
        let (tell, told) = watch::channel(Landed::Not);
        flights.insert(key.clone(), told);
        Joined::Lead(Lead { flights: Arc::clone(&self.0), key: key.clone(), tell })
    }
}

fn lock<T>(flights: &Mutex<HashMap<Key, T>>) -> MutexGuard<'_, HashMap<Key, T>> {
    flights.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held by who asks for all. Dropped without a word, as by a caller that hangs up, another goes in its place.
#[derive(Debug)]
pub struct Lead<T> {
    flights: Arc<Mutex<HashMap<Key, watch::Receiver<Landed<T>>>>>,
    key: Key,
    tell: watch::Sender<Landed<T>>,
}

impl<T> Lead<T> {
    /// Says what became of it.
    pub fn tell(self, landed: Landed<T>) {
        self.tell.send_replace(landed);
    }
}

impl<T> Drop for Lead<T> {
    fn drop(&mut self) {
        lock(&self.flights).remove(&self.key);
    }
}

/// Waits for what another was told; `None` where that one went away.
pub async fn told<T: Clone>(mut told: watch::Receiver<Landed<T>>) -> Option<Landed<T>> {
    let landed = told.wait_for(|landed| !matches!(landed, Landed::Not)).await;
    landed.ok().map(|landed| (*landed).clone())
}
