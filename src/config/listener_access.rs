//! Keys of a listener that decide who may call it.

use keyward_http::guard::AccessMode;
use keyward_http::server::Endpoint;

use super::diagnostic::Location;
use super::reader::Reader;

/// Minimum length of a key that callers send, in bytes.
pub(super) const MIN_KEY_BYTES: usize = 16;

/// Reads who may call a listener that serves tokens.
pub(super) fn admit(reader: &mut Reader<'_>, endpoint: &Endpoint, address: Location, has_callers: bool) -> AccessMode {
    let advice = "name a file with a key that callers must send, or set any_local_user = true";
    admit_or_advise(reader, endpoint, address, has_callers, advice)
}

/// Reads it; `advice` is for a TCP address that every user of this machine could call.
fn admit_or_advise(
    reader: &mut Reader<'_>,
    endpoint: &Endpoint,
    address: Location,
    has_callers: bool,
    advice: &str,
) -> AccessMode {
    let by_peer = if has_callers { AccessMode::Callers } else { AccessMode::SocketPeers };
    if let Endpoint::Unix(_) = endpoint {
        for key in ["key_file", "any_local_user"] {
            reject_key(reader, key, "not allowed for a unix socket: mode, owner and group decide who may connect");
        }
        return by_peer;
    }
    let key = reader.secret("key_file", MIN_KEY_BYTES);
    let key_given = reader.locate("key_file").is_some();
    let any_local_user = reader.flag("any_local_user", false);
    if key_given && any_local_user {
        reader.conflict("any_local_user", "key_file", "callers send the key, or need none");
    }
    let diagnostics = reader.scope.diagnostics;
    if let Endpoint::Tcp(socket) = endpoint {
        if !socket.ip().is_loopback() {
            let advice = "use 127.0.0.1 or [::1]; only a health listener may serve other machines";
            let message = format!("serves tokens on {}, which is not loopback", socket.ip());
            diagnostics.error(address, &reader.key("address"), message, advice);
        }
        if !key_given && !any_local_user && !has_callers {
            diagnostics.missing(
                reader.at,
                &reader.key("key_file"),
                "missing: any user can connect to a TCP address",
                advice,
            );
        }
    }
    match key {
        Some(key) => AccessMode::Key(key),
        None if any_local_user => AccessMode::AnyLocalUser,
        None => by_peer,
    }
}

/// Reads who may call a listener that serves identities to tools: never every user of this machine.
pub(super) fn admit_tools(
    reader: &mut Reader<'_>,
    endpoint: &Endpoint,
    address: Location,
    has_callers: bool,
) -> AccessMode {
    let why = "not allowed on an identity listener: its key, or the rules of [caller.NAME], decide who may call";
    reject_key(reader, "any_local_user", why);
    reject_key(reader, "sessions", "not allowed on an identity listener, which serves no session");
    let advice = "name a file with a key that callers must send, or write [caller.NAME] with the route identity";
    admit_or_advise(reader, endpoint, address, has_callers, advice)
}

/// Reads the key of a `ui` listener, and checks that browsers reach it without others listening.
pub(super) fn admit_browsers(
    reader: &mut Reader<'_>,
    endpoint: Option<&Endpoint>,
    tls: bool,
    address: Location,
) -> AccessMode {
    reject_key(reader, "any_local_user", "not allowed on a ui listener: whoever opens its pages gives the key");
    let key = reader.secret("key_file", MIN_KEY_BYTES);
    if reader.locate("key_file").is_none() {
        reader.missing("key_file", "the file with the key that opens the pages");
    }
    let diagnostics = reader.scope.diagnostics;
    match endpoint {
        Some(Endpoint::Unix(_)) => {
            let advice = "write an address such as \"tcp://127.0.0.1:8310\"";
            diagnostics.error(address, &reader.key("address"), "a browser cannot open a unix socket", advice);
        }
        Some(Endpoint::Tcp(socket)) if !tls && !socket.ip().is_loopback() => {
            let message = format!("would show pages on {} unencrypted", socket.ip());
            diagnostics.error(
                address,
                &reader.key("address"),
                message,
                "write certificate, or tls_cert and tls_key, or use 127.0.0.1",
            );
        }
        _ => {}
    }
    key.map_or(AccessMode::SocketPeers, AccessMode::Key)
}

/// Rejects the keys that decide who may call, which a health listener has no use for.
pub(super) fn reject_access_keys(reader: &mut Reader<'_>) {
    for key in ["key_file", "any_local_user", "sessions", "derived_token"] {
        reject_key(reader, key, "not allowed on a health listener, which reports all sessions and serves no token");
    }
}

/// Rejects keys that this listener has no use for.
pub(super) fn reject_keys(reader: &mut Reader<'_>, keys: &[&'static str], why: &str) {
    for key in keys {
        reject_key(reader, key, why);
    }
}

/// Rejects a key that this listener has no use for.
pub(super) fn reject_key(reader: &mut Reader<'_>, key: &'static str, why: &str) {
    if let Some(at) = reader.locate(key) {
        reader.error(at, key, why, "leave it out");
    }
}
