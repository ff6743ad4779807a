//! Entry point of the fuzz target `guard`.

use std::net::SocketAddr;

use http::Request;

use super::{AccessMode, Guard, GuardOptions};
use crate::server::Peer;

/// Checks a request to a TCP listener at `address`; returns the status and the reason of a rejection.
pub fn check(admit: AccessMode, address: SocketAddr, request: &Request<()>) -> Result<(), (u16, String)> {
    let options = GuardOptions { admit, ..GuardOptions::default() };
    decide(&Guard::new(options, Some(address), None), address, request)
}

/// Checks a request to a listener for probes as [`check`] does.
pub fn check_probe(address: SocketAddr, request: &Request<()>) -> Result<(), (u16, String)> {
    decide(&Guard::for_probes(None), address, request)
}

fn decide(guard: &Guard, address: SocketAddr, request: &Request<()>) -> Result<(), (u16, String)> {
    guard
        .decide(&Peer::Tcp { address, local: address, owner: None }, request)
        .map(drop)
        .map_err(|rejection| (rejection.status.as_u16(), rejection.message.into_owned()))
}
