//! Places the unix sockets of a plan: until then a running socket keeps its path, and the plan may be dropped.

use keyward_http::server::{Endpoint, Listener};

use super::error_codes::ListenError;
use super::reload::ReloadPlan;

/// Moves the files of the new sockets to their paths, where they replace those of running sockets.
///
/// If the plan is dropped before [`discard_replaced`], the replaced files are put back.
pub(super) fn place_sockets(plan: &ReloadPlan) -> Result<(), ListenError> {
    for (listener, endpoint, socket) in sockets(plan) {
        socket.place().map_err(|error| ListenError::new(&listener, endpoint, error))?;
    }
    Ok(())
}

/// Removes the files that the new sockets replaced.
pub(super) fn discard_replaced(plan: &ReloadPlan) {
    for (_, _, socket) in sockets(plan) {
        socket.discard_replaced();
    }
}

/// Lists the new sockets, each with its listener and configured address.
fn sockets(plan: &ReloadPlan) -> impl Iterator<Item = (String, &Endpoint, &Listener)> {
    #[cfg(feature = "gateway")]
    let gateway = plan.gateway.built.iter().flat_map(|gateway| {
        let sockets = gateway.options.endpoints.iter().zip(&gateway.handle.sockets);
        sockets.map(|(endpoint, socket)| ("the gateway".to_owned(), endpoint, socket))
    });
    #[cfg(not(feature = "gateway"))]
    let gateway = std::iter::empty();
    let listeners = plan.listeners.built.iter().map(|listener| {
        (format!("listener {}", listener.claim.name), &listener.options.endpoint, &listener.handle.socket)
    });
    gateway.chain(listeners)
}
