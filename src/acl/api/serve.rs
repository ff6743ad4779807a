//! From a request to its answer.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use prometheus_client::metrics::counter::Counter;

use super::browser::BrowserGuard;
use super::error::{ApiError, Door};
use super::operation::{Operation, Route, route};
use super::request::Ask;
use super::response::{Body, Done, Reply, say_default_policy};
use super::state::Rooms;
use super::{blocking_query, dispatch, vault};
use crate::acl::service::error::ServiceError;
use crate::acl::store::Freshness;
use crate::http::server::{Peer, ResponseFuture};
use crate::metrics::AclRequestLabels;

/// All doors, to be served by [`crate::http::server`] on a socket bound to `address`, `None` for a unix socket.
pub fn service(
    rooms: Rooms,
    address: Option<SocketAddr>,
) -> impl Fn(Peer, Request<Incoming>) -> ResponseFuture<Body> + Clone + Send + 'static {
    let browsers = BrowserGuard::new(&rooms.options.allowed_hosts, address, rooms.metrics.clone());
    let doors = Arc::new(Doors { rooms, browsers, good: [const { OnceLock::new() }; Operation::COUNT] });
    move |peer, request| answer(&doors, &peer, request)
}

/// Decides by the head alone what is to be done, and gives what does it. Each kind of request has a future of its own, and the
/// head is gone before it begins: ten thousand may wait, and take no room for what others need.
fn answer(doors: &Arc<Doors>, peer: &Peer, request: Request<Incoming>) -> ResponseFuture<Body> {
    let rooms = &doors.rooms;
    let (door, found) = found(&rooms.options.base_path, &request);
    let mut found = match doors.browsers.verify(&request) {
        Ok(()) => found,
        Err(error) => Err(error.at(door)),
    };
    if request.body().size_hint().exact().is_none() && request.headers().contains_key(header::CONTENT_LENGTH) {
        found = Err(ApiError::Invalid(TWO_LENGTHS.to_owned()).at(door));
    }
    let (operation, subject) = match found {
        Ok(found) => found,
        Err(mut answer) => {
            say_policy(rooms, door, &mut answer);
            return ResponseFuture::ready(answer);
        }
    };
    let at = At { doors: Arc::clone(doors), door, operation };
    if operation.is_login()
        && let Err(wait) = rooms.limiter.admit(peer, rooms.directory.moment())
    {
        return ResponseFuture::ready(at.told(Err(ApiError::TooMany { wait })));
    }
    match door {
        Door::Vault => {
            ResponseFuture::waiting(async move { at.told(vault(at.rooms(), operation, subject, request).await) })
        }
        Door::Acl => acl(at, subject, request),
    }
}

const TWO_LENGTHS: &str = "the request has both Content-Length and Transfer-Encoding";

/// Which door a request is at, and what it asks for there, or what it is told without more ado.
fn found(base: &str, request: &Request<Incoming>) -> (Door, Result<(Operation, String), Response<Body>>) {
    let raw = request.uri().path();
    let path = raw.strip_prefix(base).unwrap_or(raw).strip_prefix("/v1/");
    let vault = path.is_some_and(|path| path.starts_with("auth/") || path.starts_with("sys/"));
    let door = if vault { Door::Vault } else { Door::Acl };
    let found = match path {
        _ if !printable(raw.strip_prefix('/').unwrap_or(raw)) => Err(ApiError::Path.at(door)),
        None => Err(ApiError::NoRoute { versioned: raw.contains("/v1/") }.at(door)),
        Some(path) => match route(request.method(), path) {
            Route::To(operation, subject) => Ok((operation, subject)),
            Route::Options(allow) => Err(options(&allow)),
            Route::NoMethod(allow) => Err(ApiError::NoMethod { method: request.method().clone(), allow }.at(door)),
            Route::Nothing => Err(ApiError::NoRoute { versioned: true }.at(door)),
        },
    };
    (door, found)
}

fn say_policy(rooms: &Rooms, door: Door, answer: &mut Response<Body>) {
    if door == Door::Acl {
        say_default_policy(answer.headers_mut(), rooms.directory.default_policy);
    }
}

/// The doors, and what is behind them.
struct Doors {
    rooms: Rooms,
    browsers: BrowserGuard,
    /// The counters of good answers, each looked up once: most are good, and to look one up costs as much as to answer.
    good: [OnceLock<Counter>; Operation::COUNT],
}

/// Where a request has come in, and what it asks for.
struct At {
    doors: Arc<Doors>,
    door: Door,
    operation: Operation,
}

impl At {
    fn rooms(&self) -> &Rooms {
        &self.doors.rooms
    }

    /// What it is told in the end; it is counted.
    fn told(&self, answer: Result<Response<Body>, ApiError>) -> Response<Body> {
        let answer = answer.unwrap_or_else(|error| {
            let mut answer = error.at(self.door);
            say_policy(self.rooms(), self.door, &mut answer);
            answer
        });
        let code = answer.status().as_u16();
        let labels = AclRequestLabels { operation: self.operation.name(), code };
        let counter = || self.rooms().metrics.acl_requests.get_or_create(&labels).clone();
        match self.doors.good.get(self.operation as usize).filter(|_| code == StatusCode::OK.as_u16()) {
            Some(good) => good.get_or_init(counter).inc(),
            None => counter().inc(),
        };
        answer
    }
}

fn acl(at: At, subject: String, request: Request<Incoming>) -> ResponseFuture<Body> {
    let (head, body) = request.into_parts();
    let in_query = at.rooms().options.token_in_query;
    let read = Ask::read(at.operation, subject, head.uri.query(), &head.headers, body, in_query);
    let mut ask = match read {
        Ok(ask) => ask,
        Err(error) => return ResponseFuture::ready(at.told(Err(error))),
    };
    if !at.operation.reads() {
        return ResponseFuture::waiting(async move {
            let mut answer = written(at.rooms(), &mut ask).await;
            if let Ok(answer) = &mut answer {
                say_policy(at.rooms(), at.door, answer);
            }
            at.told(answer)
        });
    }
    let cache_control = head.headers.get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
    match ask.query.waiting(cache_control) {
        Ok(waiting) => {
            ResponseFuture::waiting(async move { at.told(blocking_query::read(at.rooms(), &ask, waiting).await) })
        }
        Err(error) => ResponseFuture::ready(at.told(Err(error.into()))),
    }
}

async fn written(rooms: &Rooms, ask: &mut Ask) -> Result<Response<Body>, ApiError> {
    open(rooms, ask.operation).await?;
    let operation = ask.operation.name();
    let changed = match Box::pin(dispatch::write(rooms, ask)).await? {
        Done::Changed(changed) => changed,
        Done::Nothing(reply) => return Ok(reply.answer()),
    };
    let (namespace, what) = (changed.namespace.as_str(), &changed.what);
    let by = changed.by.map(|accessor| accessor.to_string());
    tracing::info!(event = "acl.changed", operation, namespace, what, by, "changed what tokens may do");
    Ok(changed.reply.answer())
}

async fn vault(
    rooms: &Rooms,
    operation: Operation,
    subject: String,
    request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    open(rooms, operation).await?;
    vault::answer(rooms, operation, subject, request).await
}

/// Refuses what is asked of a store that is being restored.
async fn open(rooms: &Rooms, operation: Operation) -> Result<(), ApiError> {
    match operation {
        // A probe does not wait for a store that may be away.
        Operation::VaultHealth if rooms.directory.was_shut() => Err(ServiceError::Restoring.into()),
        Operation::VaultHealth => Ok(()),
        operation if operation.looks_itself() => Ok(()),
        _ => Ok(rooms.directory.epoch(Freshness::Linearizable).await.map(drop)?),
    }
}

/// What `OPTIONS` is answered with: no token is needed to ask what a path can do.
fn options(allow: &str) -> Response<Body> {
    let mut answer = Reply::empty(StatusCode::OK).answer();
    if let Ok(allow) = HeaderValue::from_str(allow) {
        answer.headers_mut().insert(header::ALLOW, allow);
    }
    answer
}

/// Whether a path, still encoded, has neither empty nor dotted segments in it, nor characters that cannot be printed. Its
/// last segment may be empty.
fn printable(path: &str) -> bool {
    // Most are of nothing but this.
    if path.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'/'))
        && !path.starts_with('/')
        && !path.contains("//")
    {
        return true;
    }
    let mut segments = path.split('/').rev();
    let plain = |segment: &str| {
        let decoded: Cow<'_, [u8]> = percent_encoding::percent_decode_str(segment).into();
        let dotted = matches!(&*decoded, b"." | b"..");
        !dotted && std::str::from_utf8(&decoded).is_ok_and(|text| !text.chars().any(char::is_control))
    };
    segments.next().is_none_or(plain) && segments.all(|segment| !segment.is_empty() && plain(segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_no_empty_or_dotted_segment_and_nothing_that_cannot_be_printed() {
        for path in
            ["acl/token/x", "acl/token/", "acl/token/a%20b", "acl/token/%c3%a9", "acl/token/.a", "acl/token/..."]
        {
            assert!(printable(path), "{path}");
        }
        for path in
            ["acl//token", "acl/./token", "acl/../x", "acl/%2e%2E/x", "acl/%00", "acl/a%0a", "acl/%ff", "acl/.", "/acl"]
        {
            assert!(!printable(path), "{path}");
        }
    }
}
