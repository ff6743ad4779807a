//! State of a session's connection for events, from the subscription to the poll of versions.

use tokio::sync::watch;

/// Writes the state.
#[derive(Debug)]
pub(super) struct EventConnectionPublisher {
    sender: watch::Sender<Option<u64>>,
    connections: u64,
}

/// Reads the state: the number of the connection that is open, or none.
#[derive(Debug, Clone)]
pub struct EventConnection(Option<watch::Receiver<Option<u64>>>);

impl EventConnectionPublisher {
    /// Creates both ends, without a connection.
    pub(super) fn new() -> (Self, EventConnection) {
        let (sender, receiver) = watch::channel(None);
        (Self { sender, connections: 0 }, EventConnection(Some(receiver)))
    }

    pub(super) fn open(&mut self) {
        self.connections += 1;
        self.sender.send_replace(Some(self.connections));
    }

    pub(super) fn close(&self) {
        // Others wait for a change: a failed attempt is none.
        self.sender.send_if_modified(|connection| connection.take().is_some());
    }
}

impl EventConnection {
    /// Returns the state of a session whose events are not followed.
    pub(super) const fn never() -> Self {
        Self(None)
    }

    /// Returns the current connection, and marks the state as seen.
    pub(super) fn current(&mut self) -> Option<u64> {
        self.0.as_mut().and_then(|state| *state.borrow_and_update())
    }

    /// Waits for a state that was not seen; for ever if none can come.
    pub(super) async fn changed(&mut self) {
        if let Some(state) = &mut self.0
            && state.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}
