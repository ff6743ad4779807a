//! Bodies that can be sent once more: a copy is kept of what passes, as long as it is small and there is room.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// How much is kept at once, by all requests together. Clones share it.
#[derive(Debug, Clone)]
pub struct Room(Arc<AtomicUsize>);

impl Room {
    /// Room for so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Takes so many bytes of it, if they are left.
    pub fn take(&self, bytes: usize) -> Option<Place> {
        let mut place = Place { room: self.clone(), bytes: 0 };
        place.grow(bytes).then_some(place)
    }

    /// A body that is copied as it passes, where it has at most `limit` bytes, and its copy.
    pub fn keep(&self, body: Incoming, limit: usize) -> (Copying, Copied) {
        let place = Place { room: self.clone(), bytes: 0 };
        let copied = Copied(Arc::new(Mutex::new(Pieces { all: Vec::new(), whole: None, place })));
        (Copying { body, limit, copied: copied.clone() }, copied)
    }
}

/// A part of a room, given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    room: Room,
    bytes: usize,
}

impl Place {
    fn grow(&mut self, bytes: usize) -> bool {
        let taken = self.room.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        self.bytes += if taken.is_ok() { bytes } else { 0 };
        taken.is_ok()
    }

    /// Gives back what is more than so many bytes.
    pub fn shrink(&mut self, bytes: usize) {
        let more = self.bytes.saturating_sub(bytes);
        self.bytes -= more;
        self.room.0.fetch_add(more, Ordering::Relaxed);
    }

    fn give_back(&mut self) {
        self.room.0.fetch_add(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// A body on its way that is copied.
#[derive(Debug)]
pub struct Copying {
    body: Incoming,
    limit: usize,
    copied: Copied,
}

/// The copy of a body.
#[derive(Debug, Clone)]
pub struct Copied(Arc<Mutex<Pieces>>);

struct Pieces {
    all: Vec<Bytes>,
    /// `None` while it is on its way.
    whole: Option<bool>,
    place: Place,
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pieces").field("bytes", &self.place.bytes).field("whole", &self.whole).finish_non_exhaustive()
    }
}

impl Copied {
    fn lock(&self) -> MutexGuard<'_, Pieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole body, if all of it has passed and was kept.
    pub fn whole(&self) -> Option<Bytes> {
        let pieces = self.lock();
        if pieces.whole != Some(true) {
            return None;
        }
        if let [one] = pieces.all.as_slice() {
            return Some(one.clone());
        }
        let mut whole = BytesMut::with_capacity(pieces.place.bytes);
        pieces.all.iter().for_each(|piece| whole.extend_from_slice(piece));
        Some(whole.freeze())
    }
}

impl Pieces {
    fn add(&mut self, piece: &Bytes, limit: usize) {
        if self.whole.is_some() {
            return;
        }
        let bytes = piece.len();
        if self.place.bytes + bytes > limit || !self.place.grow(bytes) {
            return self.lose();
        }
        self.all.push(piece.clone());
    }

    fn lose(&mut self) {
        self.whole = Some(false);
        self.all = Vec::new();
        self.place.give_back();
    }
}

impl Body for Copying {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        let mut pieces = this.copied.lock();
        match &frame {
            None => {
                pieces.whole.get_or_insert(true);
            }
            Some(Ok(frame)) => match frame.data_ref() {
                Some(piece) => {
                    pieces.add(piece, this.limit);
                    // Its reader may not ask for more.
                    if this.body.is_end_stream() {
                        pieces.whole.get_or_insert(true);
                    }
                }
                // Trailers are not kept.
                None => pieces.lose(),
            },
            Some(Err(_)) => pieces.lose(),
        }
        drop(pieces);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_a_copy_takes_is_given_back_whatever_becomes_of_it() {
        let room = Room::new(100);
        let pieces = || Pieces { all: Vec::new(), whole: None, place: room.take(0).unwrap() };
        let left = || room.0.load(Ordering::Relaxed);
        let bytes = |count: usize| Bytes::from(vec![b'x'; count]);
        let mut first = pieces();
        first.add(&bytes(30), 50);
        first.add(&bytes(20), 50);
        assert_eq!((first.place.bytes, first.whole, left()), (50, None, 50));
        let mut second = pieces();
        second.add(&bytes(40), 50);
        second.add(&bytes(11), 50);
        assert_eq!((second.whole, left()), (Some(false), 50), "larger than what is kept of one");
        let mut third = pieces();
        third.add(&bytes(50), 50);
        let mut fourth = pieces();
        fourth.add(&bytes(1), 50);
        assert_eq!((fourth.whole, left()), (Some(false), 0), "no room");
        drop((first, second, third, fourth));
        assert_eq!(left(), 100);
        let place = room.take(60).unwrap();
        assert!(room.take(41).is_none() && left() == 40);
        drop(place);
        assert_eq!(left(), 100);
    }
}
