//! From a request to its answer: guard, path, rules, whose token, call.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::answer::{Answered, own, refuse};
use super::listener_metrics::Door;
use super::namespace;
use super::path::{ApiPath, Unserved};
use super::query::Query;
use super::request_headers::Brought;
use super::response_cache::Keeping;
use super::rules::{Operation, OperationError, Refused};
use super::send::Asked;
use super::server_dialect::Call;
use super::{ApiProxy, Inner, Put, cache_clear, response_cache};
use crate::agent::json_response;
use crate::agent::secrets::cache::Kind;
use crate::http::guard;
use crate::http::server::{Caller, ListenerMetrics, Peer, ResponseFuture};

impl ApiProxy {
    /// The service of one listener, bound to `address` (`None` for a unix socket), for
    /// [`crate::http::server::Listener::serve`].
    pub fn service(
        &self,
        admit: guard::GuardOptions,
        address: Option<SocketAddr>,
        listener_metrics: ListenerMetrics,
    ) -> impl Fn(Peer, Request<Incoming>) -> ResponseFuture<Answered> + Clone + Send + 'static {
        let guard = self.guard(admit, address, listener_metrics.clone());
        let door = Arc::new(Door::new(guard, address, listener_metrics));
        let inner = Arc::clone(&self.0);
        move |peer, request| inner.answer(&door, &peer, request)
    }
}

/// What is done for a request that is let in.
enum Way<'a> {
    /// The cache is told what to forget.
    Clear(&'a Arc<Keeping>),
    /// It is passed on, as it comes.
    Pass(Call),
    /// Its answer is kept.
    Keep(Call, &'a Arc<Keeping>, Kind, ApiPath<'a>, Brought<'a>),
    /// It is passed on, and what is kept may not be so after it.
    Write(Call, &'a Arc<Keeping>, ApiPath<'a>),
}

impl Inner {
    /// Decides by the head alone, and answers from what is kept. Only what goes further costs a future, each way one of its own
    /// size.
    fn answer(self: &Arc<Self>, door: &Arc<Door>, peer: &Peer, request: Request<Incoming>) -> ResponseFuture<Answered> {
        let way = match self.way(door, peer, &request) {
            Ok(way) => way,
            Err(answer) => return ResponseFuture::ready(door.counted(*answer)),
        };
        if let Way::Keep(call, keeping, _, path, brought) = &way
            && let Some(answer) = self.at_hand(door, *call, keeping, (path.trimmed(), brought), &request)
        {
            return ResponseFuture::ready(door.counted(answer));
        }
        let (inner, door) = (Arc::clone(self), Arc::clone(door));
        match way {
            Way::Pass(call) => {
                let (parts, body) = request.into_parts();
                let body = Asked::Coming(body);
                let Ok(worn) = inner.worn_now(call) else {
                    // A login is waited for.
                    return ResponseFuture::waiting(async move {
                        door.counted(inner.pass(&door, call, parts, body).await.0)
                    });
                };
                match inner.ready(call, &parts, body, worn) {
                    Ok(ready) => {
                        ResponseFuture::waiting(async move { door.counted(inner.passed(&door, ready).await.0) })
                    }
                    Err(answer) => ResponseFuture::ready(door.counted(*answer)),
                }
            }
            Way::Keep(call, keeping, kind, path, _) => {
                let (keeping, path) = (Arc::clone(keeping), path.into_owned());
                let (parts, body) = request.into_parts();
                ResponseFuture::waiting(async move {
                    let keeping = (&keeping, kind);
                    door.counted(inner.cached(&door, call, keeping, path.trimmed(), parts, body).await)
                })
            }
            Way::Write(call, keeping, path) => {
                let (keeping, path) = (Arc::clone(keeping), path.into_owned());
                let (parts, body) = request.into_parts();
                ResponseFuture::waiting(async move {
                    let brought = Brought::of(inner.wire.kind, &parts.headers);
                    let namespace = inner.wire.namespace(&brought, call.with_session).to_owned();
                    let answer = if Keeping::is_revocation(&path) {
                        inner.revocation(&door, call, &keeping, &path, parts, body).await
                    } else {
                        inner.pass(&door, call, parts, Asked::Coming(body)).await.0
                    };
                    // Whatever it was answered with, it may have been done.
                    keeping.written(&path, &namespace);
                    door.counted(answer)
                })
            }
            Way::Clear(keeping) => {
                let keeping = Arc::clone(keeping);
                let (parts, body) = request.into_parts();
                ResponseFuture::waiting(async move { door.counted(cache_clear::clear(&keeping, &parts, body).await) })
            }
        }
    }

    /// What is done for a request.
    ///
    /// # Errors
    /// It is not let in: what its caller is told.
    fn way<'a>(
        &'a self,
        door: &Door,
        peer: &Peer,
        request: &'a Request<Incoming>,
    ) -> Result<Way<'a>, Box<Response<Answered>>> {
        let refused = |status, why: &str| Err(Box::new(refuse(status, why)));
        let caller = match door.guard.admit(peer, request) {
            Ok(caller) => caller,
            Err(refusal) => return Err(Box::new(own(json_response::rejected(&refusal)))),
        };
        let query = request.uri().query();
        if let Some(keeping) = &self.keeping
            && cache_clear::PATHS.contains(&request.uri().path())
        {
            return Ok(Way::Clear(keeping));
        }
        let path = match ApiPath::read(request.uri().path()) {
            Ok(path) => path,
            Err(Unserved::Elsewhere) => return refused(StatusCode::NOT_FOUND, ELSEWHERE),
            Err(Unserved::Ambiguous(why)) => return refused(StatusCode::BAD_REQUEST, why),
        };
        let pairs = match Query::parse(query) {
            Ok(pairs) => pairs,
            Err(why) => return refused(StatusCode::BAD_REQUEST, why),
        };
        let operation = match Operation::parse(request.method(), pairs) {
            Ok(operation) => operation,
            Err(OperationError::Query(why)) => return refused(StatusCode::BAD_REQUEST, why),
            Err(OperationError::Method) => {
                return refused(StatusCode::METHOD_NOT_ALLOWED, "the server's API has no such method");
            }
        };
        let brought = Brought::of(self.wire.kind, request.headers());
        // The server reads namespace and path as one: so do the rules.
        let judged = match self.judged(&path, &brought, pairs) {
            Ok(judged) => judged,
            Err((status, why)) => return refused(status, why),
        };
        if let Err(denied) = self.options.rules.judge(operation, &judged) {
            return refused(StatusCode::FORBIDDEN, words(denied));
        }
        let login = judged.is_login();
        if login && !self.options.logins {
            return refused(StatusCode::FORBIDDEN, "nobody logs in through this listener (logins = false)");
        }
        let keyed = caller.key_as_token;
        let brings = brought.has_token(keyed) || self.wire.token_in_query(query);
        let with_session = match self.options.put {
            // What needs no token goes without the session's, also while there is none.
            _ if !brings && (login || OPEN.iter().any(|open| path.trimmed() == *open)) => false,
            Put::Always => true,
            Put::WhenMissing => !brings,
        };
        if with_session {
            if let Err(Refused::Guarded(name)) = self.options.rules.judge_with_session(&judged) {
                return refused(StatusCode::FORBIDDEN, &guarded(name));
            }
            if self.wire.token_in_query(query) {
                return refused(StatusCode::BAD_REQUEST, "this listener puts a token on; leave ?token= out");
            }
        }
        let shows_token = with_session && SHOWS_TOKEN.iter().any(|its| judged.names(its));
        tracing::debug!(
            event = "proxy.request",
            listener = door.answers.listener(),
            method = request.method().as_str(),
            with_session,
            uid = peer.uid(),
            pid = peer.pid(),
            "a request is passed on"
        );
        let call = Call { caller: Caller::new(*peer, door.local), with_session, shows_token, keyed };
        let Some(keeping) = &self.keeping else { return Ok(Way::Pass(call)) };
        Ok(match keeping.kind(operation, &path, &brought) {
            Some(kind) => Way::Keep(call, keeping, kind, path, brought),
            None if response_cache::writes(request.method()) => Way::Write(call, keeping, path),
            None => Way::Pass(call),
        })
    }
}

impl Inner {
    /// The path as rules see it: with the namespace that the caller names before it.
    fn judged<'a>(
        &self,
        path: &ApiPath<'a>,
        brought: &Brought<'_>,
        query: Query<'_>,
    ) -> Result<ApiPath<'a>, (StatusCode, &'static str)> {
        let named = self.wire.named_namespace(brought, query).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        let Some(named) = named else { return Ok(path.clone()) };
        let own = self.wire.own_namespace();
        if !self.options.namespaces.permits(own, &named) {
            return Err((StatusCode::FORBIDDEN, "this listener does not let callers name that namespace"));
        }
        Ok(path.behind(&namespace::prefix(own, &named)))
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
