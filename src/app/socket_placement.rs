//! Places the unix sockets of a plan: until then a running socket keeps its path, and the plan may be dropped.

use super::error_codes::ListenError;
use super::outputs::BoundListener;
use super::reload::ReloadPlan;
use crate::http::server::{Endpoint, Listener};

/// Moves the files of the new sockets to their paths, where they replace those of running sockets.
///
/// # Errors
/// A path cannot be used. Dropping the plan then puts the replaced files back.
pub(super) fn place_sockets(plan: &ReloadPlan) -> Result<(), ListenError> {
    #[cfg(feature = "gateway")]
    let gateway = plan.gateway.sockets().map(|(endpoint, socket)| ("the gateway".to_owned(), endpoint, socket));
    #[cfg(not(feature = "gateway"))]
    let gateway = std::iter::empty();
    let named = |listener: &BoundListener| format!("listener {}", listener.name());
    let listeners =
        plan.listeners.iter().map(|listener| (named(listener), &listener.options.endpoint, &listener.socket));
    let sockets: Vec<(String, &Endpoint, &Listener)> = gateway.chain(listeners).collect();
    for (listener, endpoint, socket) in &sockets {
        socket.place().map_err(|error| ListenError::new(listener, endpoint, error))?;
    }
    for (_, _, socket) in sockets {
        socket.discard_replaced();
    }
    Ok(())
}
