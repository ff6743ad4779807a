//! Ports for programs that are told their port before they bind it.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// Reserves a loopback port for a minute. Nobody listens there until a program binds exactly this port.
///
/// The end of a connection waits on the port (TIME-WAIT): the kernel neither gives such a port to a bind of port 0 nor to a
/// connection, but lets a listener with `SO_REUSEADDR` bind it by its number, which listeners of Rust's library have.
pub(crate) fn reserve() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let (server, _) = listener.accept().unwrap();
    // The side that closes first is the one that waits.
    drop(server);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    address
}

#[test]
fn a_reserved_port_is_refused_until_it_is_bound_and_is_no_other_tests() {
    let address = reserve();
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    let others: Vec<_> = (0..200).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    assert!(others.iter().all(|other| other.local_addr().unwrap() != address));
    let again = TcpListener::bind(address).unwrap();
    assert_eq!(again.local_addr().unwrap(), address);
}
