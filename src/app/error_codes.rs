//! Codes of errors that end a command or a reload.

use std::io;
use std::net::{IpAddr, SocketAddr};

use keyward_agent::login::LoginError;
use keyward_agent::server_client::CallError;
use keyward_http::client::{BuildError, TransportError};
use keyward_http::server::{Endpoint, SocketOwnerError};
use keyward_http::tls::CertificateError;
use keyward_machine::atomic_file::ReplaceError;
use keyward_machine::secret::SecretFileError;
use keyward_machine::secure_dir::DirError;
use keyward_telemetry::error_code::ErrorCode;

/// Returns the code of the outermost cause that has one.
pub fn find(error: &anyhow::Error) -> Option<ErrorCode> {
    error.chain().find_map(code_of)
}

/// Formats an error with its causes and its code, in one line.
pub fn format(error: &anyhow::Error) -> String {
    ErrorCode::tag(find(error), &format!("{error:#}"))
}

/// Returns true if the running process can never apply the change that failed, and a restarted one could.
pub(crate) fn needs_restart(error: &anyhow::Error) -> bool {
    error.is::<HeldPortError>()
}

fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorCode> {
    let code = cause
        .downcast_ref::<ListenError>()
        .and_then(ListenError::code)
        .or_else(|| cause.downcast_ref::<LoginError>()?.code())
        .or_else(|| cause.downcast_ref::<CallError>()?.code())
        .or_else(|| cause.downcast_ref().map(TransportError::code))
        .or_else(|| cause.downcast_ref::<BuildError>()?.code())
        .or_else(|| cause.downcast_ref::<CertificateError>().map(|_| ErrorCode::CertificateFile));
    #[cfg(feature = "acl")]
    let code = code
        .or_else(|| cause.downcast_ref::<keyward_acl::AclOpenError>()?.code())
        .or_else(|| cause.downcast_ref::<keyward_acl::LostStoreError>()?.code());
    #[cfg(feature = "gateway")]
    let code = code.or_else(|| {
        cause.downcast_ref::<keyward_gateway::local_token::LocalTokenError>().map(|_| ErrorCode::LocalTokenFile)
    });
    code.or_else(|| cause.downcast_ref().map(|error: &ReplaceError| error.into()))
        .or_else(|| cause.downcast_ref().map(|error: &DirError| error.into()))
        .or_else(|| cause.downcast_ref::<SecretFileError>().map(|_| ErrorCode::UnresolvedValue))
}

/// A listener that cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("{listener} cannot listen on {endpoint}")]
pub(super) struct ListenError {
    listener: String,
    endpoint: Endpoint,
    source: io::Error,
}

impl ListenError {
    pub(super) fn new(listener: impl Into<String>, endpoint: &Endpoint, source: io::Error) -> Self {
        Self { listener: listener.into(), endpoint: endpoint.clone(), source }
    }

    /// Returns the listener of this process that holds the port, found by the names and addresses of those that run.
    fn held_by<'a>(&self, mut running: impl Iterator<Item = (&'a String, SocketAddr)>) -> Option<HeldPortError> {
        let Endpoint::Tcp(wanted) = &self.endpoint else { return None };
        if self.source.kind() != io::ErrorKind::AddrInUse {
            return None;
        }
        let overlaps = |held: &SocketAddr| {
            held.port() == wanted.port() && (covers(held.ip(), wanted.ip()) || covers(wanted.ip(), held.ip()))
        };
        let (holder, _) = running.find(|(_, held)| overlaps(held))?;
        Some(HeldPortError { listener: self.listener.clone(), endpoint: self.endpoint.clone(), holder: holder.clone() })
    }

    fn code(&self) -> Option<ErrorCode> {
        if self.source.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<SocketOwnerError>) {
            return Some(ErrorCode::SandboxCapability);
        }
        match (self.source.kind(), &self.endpoint) {
            (io::ErrorKind::AddrInUse, _) => Some(ErrorCode::AddressInUse),
            (io::ErrorKind::AddrNotAvailable, _) => Some(ErrorCode::AddressUnavailable),
            (io::ErrorKind::PermissionDenied, _) => Some(ErrorCode::BindDenied),
            (_, Endpoint::Unix(_)) => Some(ErrorCode::SocketPath),
            (_, Endpoint::Tcp(_) | Endpoint::Activated(_)) => None,
        }
    }
}

/// Returns true if a socket on the address `all` receives connections to `one`.
fn covers(all: IpAddr, one: IpAddr) -> bool {
    all == one || all.is_unspecified() && (all.is_ipv6() || one.is_ipv4())
}

/// A port that a running listener of this process holds by another address.
#[derive(Debug, thiserror::Error)]
#[error("{listener} cannot listen on {endpoint}: listener {holder} of this agent holds the port: restart keyward")]
struct HeldPortError {
    listener: String,
    endpoint: Endpoint,
    holder: String,
}

/// Names the listener of this process that holds the port, if that is why another one cannot be bound.
pub(super) fn name_port_holder<'a>(
    error: anyhow::Error,
    running: impl Iterator<Item = (&'a String, SocketAddr)>,
) -> anyhow::Error {
    let held = error.downcast_ref::<ListenError>().and_then(|error| error.held_by(running));
    held.map_or(error, anyhow::Error::from)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn the_outermost_cause_with_a_code_decides() {
        let in_use = || io::Error::from(io::ErrorKind::AddrInUse);
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 80).into());
        let error = anyhow::Error::new(ListenError::new("listener api", &endpoint, in_use())).context("cannot start");
        assert_eq!(find(&error), Some(ErrorCode::AddressInUse));
        assert!(format(&error).ends_with(" [KW-1501]"), "{}", format(&error));
        let foreign = SocketOwnerError::Group { user: "keyward".to_owned(), group: "app".to_owned() };
        let denied = io::Error::new(io::ErrorKind::PermissionDenied, foreign);
        let error = anyhow::Error::new(ListenError::new("listener api", &endpoint, denied));
        assert_eq!(find(&error), Some(ErrorCode::SandboxCapability));
        assert!(format(&error).contains("SupplementaryGroups=app"), "{}", format(&error));
        let other = Err::<(), _>(in_use()).context("cannot start").unwrap_err();
        assert_eq!((find(&other), format(&other).contains('[')), (None, false));
    }

    #[test]
    fn a_port_that_a_running_listener_holds_by_another_address_needs_a_restart() {
        let check = |held: &str, wanted: &str, kind: io::ErrorKind, expected: bool| {
            let endpoint = Endpoint::Tcp(wanted.parse().unwrap());
            let error = anyhow::Error::new(ListenError::new("listener new", &endpoint, kind.into()));
            let name = "old".to_owned();
            let address = held.parse().unwrap();
            let error = name_port_holder(error, [(&name, address)].into_iter());
            assert_eq!(needs_restart(&error), expected, "{held} {wanted}");
            let says = format(&error).ends_with(": listener old of this agent holds the port: restart keyward");
            assert_eq!(says, expected, "{error:#}");
        };
        let in_use = io::ErrorKind::AddrInUse;
        check("127.0.0.1:80", "0.0.0.0:80", in_use, true);
        check("0.0.0.0:80", "127.0.0.1:80", in_use, true);
        check("[::]:80", "127.0.0.1:80", in_use, true);
        check("[::1]:80", "0.0.0.0:80", in_use, false);
        check("127.0.0.1:80", "127.0.0.2:80", in_use, false);
        check("127.0.0.1:80", "0.0.0.0:81", in_use, false);
        check("127.0.0.1:80", "0.0.0.0:80", io::ErrorKind::PermissionDenied, false);
    }
}
