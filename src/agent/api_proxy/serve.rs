//! From a request to its answer: guard, path, rules, whose token, call.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::answer::{Answered, own, refuse};
use super::cached::Keeping;
use super::call::{Asked, Call};
use super::door::Door;
use super::path::{ApiPath, Unserved};
use super::rules::{Operation, Refused};
use super::{ApiProxy, Inner, Put, cached, clear};
use crate::http::answer::refused;
use crate::http::guard::{self, Admit};
use crate::http::listen::{Observed, Peer};

/// An answer under way.
pub type Answering = Pin<Box<dyn Future<Output = Response<Answered>> + Send>>;

impl ApiProxy {
    /// The service of one listener, bound to `address` (`None` for a unix socket), for
    /// [`crate::http::listen::Listener::serve`].
    pub fn service(
        &self,
        admit: guard::Options,
        address: Option<SocketAddr>,
        observed: Observed,
    ) -> impl Fn(Peer, Request<Incoming>) -> Answering + Clone + Send + 'static {
        let keyed = matches!(admit.admit, Admit::Key(_));
        let guard = self.guard(admit, address, observed.clone());
        let door = Arc::new(Door::new(guard, keyed, observed));
        let inner = Arc::clone(&self.0);
        move |peer, request| {
            let (inner, door) = (Arc::clone(&inner), Arc::clone(&door));
            Box::pin(async move {
                let answer = inner.answer(&door, peer, request).await;
                door.answers.count(answer.status());
                answer
            })
        }
    }
}

impl Inner {
    async fn answer(&self, door: &Door, peer: Peer, request: Request<Incoming>) -> Response<Answered> {
        if let Err(refusal) = door.guard.admit(&peer, &request) {
            return own(refused(&refusal));
        }
        let query = request.uri().query();
        if let Some(keeping) = &self.keeping
            && clear::PATHS.contains(&request.uri().path())
        {
            let (parts, body) = request.into_parts();
            return clear::clear(keeping, &parts, body).await;
        }
        let path = match ApiPath::read(request.uri().path()) {
            Ok(path) => path,
            Err(Unserved::Elsewhere) => return refuse(StatusCode::NOT_FOUND, ELSEWHERE),
            Err(Unserved::Ambiguous(why)) => return refuse(StatusCode::BAD_REQUEST, why),
        };
        let Some(operation) = Operation::of(request.method(), query) else {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "the server's API has no such method");
        };
        if let Err(refused) = self.options.rules.judge(operation, &path) {
            return refuse(StatusCode::FORBIDDEN, words(refused));
        }
        let login = path.is_login();
        if login && !self.options.logins {
            return refuse(StatusCode::FORBIDDEN, "nobody logs in through this listener (logins = false)");
        }
        let brings = self.wire.brings_token(request.headers(), query, door.keyed);
        let with_session = match self.options.put {
            // What needs no token goes without the session's, also while there is none.
            _ if !brings && (login || OPEN.iter().any(|open| path.trimmed() == *open)) => false,
            Put::Always => true,
            Put::WhenMissing => !brings,
        };
        if with_session {
            if let Err(Refused::Guarded(name)) = self.options.rules.judge_with_session(&path) {
                return refuse(StatusCode::FORBIDDEN, &guarded(name));
            }
            if self.wire.token_in_query(query) {
                return refuse(StatusCode::BAD_REQUEST, "this listener puts a token on; leave ?token= out");
            }
        }
        let shows_token = with_session && SHOWS_TOKEN.iter().any(|its| path.names(its));
        tracing::debug!(
            event = "proxy.request",
            listener = door.answers.listener(),
            method = request.method().as_str(),
            with_session,
            uid = peer.uid(),
            pid = peer.pid(),
            "a request is passed on"
        );
        let call = Call { with_session, shows_token, keyed: door.keyed };
        let Some(keeping) = &self.keeping else {
            let (parts, body) = request.into_parts();
            return self.pass(door, call, parts, Asked::Coming(body)).await.0;
        };
        if let Some(kind) = keeping.kind(operation, &path, request.headers()) {
            if let Some(answer) = self.at_hand(door, call, keeping, path.trimmed(), &request) {
                return answer;
            }
            let path = path.into_owned();
            let (parts, body) = request.into_parts();
            return self.cached(door, call, (keeping, kind), path.trimmed(), parts, body).await;
        }
        if !cached::writes(request.method()) {
            let (parts, body) = request.into_parts();
            return self.pass(door, call, parts, Asked::Coming(body)).await.0;
        }
        let path = path.into_owned();
        let (parts, body) = request.into_parts();
        let namespace = self.wire.namespace_of(&parts.headers, with_session).to_owned();
        let answer = if Keeping::is_revocation(&path) {
            self.revocation(door, call, keeping, parts, body).await
        } else {
            self.pass(door, call, parts, Asked::Coming(body)).await.0
        };
        // Whatever it was answered with, it may have been done.
        keeping.written(&path, &namespace);
        answer
    }
}

/// What a server tells anyone: whether it is there and fit to work.
const OPEN: [&str; 4] = ["sys/health", "sys/init", "sys/leader", "sys/seal-status"];

/// What tells the token that asks.
const SHOWS_TOKEN: [&str; 2] = ["auth/token/lookup", "auth/token/lookup-self"];

const ELSEWHERE: &str = "this listener serves the server's API below /v1/ alone";

const fn words(refused: Refused) -> &'static str {
    match refused {
        Refused::NotAllowed => "this listener does not allow that path and method",
        Refused::Denied | Refused::Guarded(_) => "this listener denies that path and method",
    }
}

fn guarded(name: &str) -> String {
    format!("{name} is not done with the session's token; bring a token of your own, or have the listener lift it")
}
