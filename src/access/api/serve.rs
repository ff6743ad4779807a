//! From a request to its answer.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;

use super::ask::Ask;
use super::error::{ApiError, Door};
use super::operation::{Operation, Route, route};
use super::reply::{Body, Done, Reply, say_default_policy};
use super::rooms::Rooms;
use super::{dispatch, vault, wait};
use crate::access::service::error::ServiceError;
use crate::access::store::Freshness;
use crate::http::listen::Peer;
use crate::metrics::AccessRequest;

/// An answer under way.
pub type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// All doors, to be served by [`crate::http::listen`].
pub fn service(rooms: Rooms) -> impl Fn(Peer, Request<Incoming>) -> Answering + Clone + Send + 'static {
    let rooms = Arc::new(rooms);
    move |peer, request| {
        let rooms = Arc::clone(&rooms);
        Box::pin(async move { answer(&rooms, peer, request).await })
    }
}

async fn answer(rooms: &Rooms, peer: Peer, request: Request<Incoming>) -> Response<Body> {
    let raw = request.uri().path();
    let path = raw.strip_prefix(rooms.options.base_path.as_str()).unwrap_or(raw).strip_prefix("/v1/");
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
    let mut answer = match found {
        Ok((operation, subject)) => done(rooms, peer, door, operation, subject, request).await,
        Err(answer) => answer,
    };
    if door == Door::Acl {
        say_default_policy(answer.headers_mut(), rooms.directory.default_policy);
    }
    answer
}

async fn done(
    rooms: &Rooms,
    peer: Peer,
    door: Door,
    operation: Operation,
    subject: String,
    request: Request<Incoming>,
) -> Response<Body> {
    let admitted = if operation.is_login() { rooms.limiter.admit(&peer, rooms.directory.moment()) } else { Ok(()) };
    let answer = match (admitted, door) {
        (Err(wait), _) => Err(ApiError::TooMany { wait }),
        (Ok(()), _) if let Err(error) = open(rooms, operation).await => Err(error),
        (Ok(()), Door::Vault) => vault::answer(rooms, operation, subject, request).await,
        (Ok(()), Door::Acl) => acl(rooms, operation, subject, request).await,
    };
    let answer = answer.unwrap_or_else(|error| error.at(door));
    let labels = AccessRequest { operation: operation.name(), code: answer.status().as_u16() };
    rooms.metrics.access_requests.get_or_create(&labels).inc();
    answer
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

async fn acl(
    rooms: &Rooms,
    operation: Operation,
    subject: String,
    request: Request<Incoming>,
) -> Result<Response<Body>, ApiError> {
    let (head, body) = request.into_parts();
    let in_query = rooms.options.token_in_query;
    let mut ask = Ask::read(operation, subject, head.uri.query(), &head.headers, body, in_query)?;
    if operation.reads() {
        let cache_control = head.headers.get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
        let waiting = ask.query.waiting(cache_control)?;
        drop(head);
        return wait::read(rooms, &ask, waiting).await;
    }
    let changed = match Box::pin(dispatch::write(rooms, &mut ask)).await? {
        Done::Changed(changed) => changed,
        Done::Nothing(reply) => return Ok(reply.answer()),
    };
    let (operation, namespace, what) = (operation.name(), changed.namespace.as_str(), &changed.what);
    let by = changed.by.map(|accessor| accessor.to_string());
    tracing::info!(event = "access.changed", operation, namespace, what, by, "changed what tokens may do");
    Ok(changed.reply.answer())
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
