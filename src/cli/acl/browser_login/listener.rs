//! Listener on loopback to which the browser returns from the provider.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderValue, Method, Request};
use keyward_http::server::{Endpoint, IncomingBody, Listener, ListenerLimits, Peer, ResponseFuture};
use keyward_machine::secret_string::SecretString;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

pub(super) use super::answer::ExpectedAnswer;
use super::browser_users::BrowserUsers;
use super::page::{Page, redirect};
use super::redirect_uri::RedirectUri;
use crate::cli::Exit;
use crate::cli::acl::failure::CommandFailure;

/// The answer of the provider, and the way to the page that the browser then shows.
#[derive(Debug)]
pub(super) struct Arrival {
    /// The code, or the reason why there is none.
    pub(super) answer: Result<SecretString, String>,
    pub(super) page: oneshot::Sender<Page>,
}

/// A login as the listener serves it.
#[derive(Debug)]
pub(super) struct ServedLogin {
    /// Path to which the browser returns.
    pub(super) path: String,
    /// Path that leads to the page of the provider.
    pub(super) start_path: String,
    /// Page of the provider.
    pub(super) provider_page: HeaderValue,
    pub(super) expected: ExpectedAnswer,
    pub(super) users: BrowserUsers,
}

/// Bound sockets.
#[derive(Debug)]
pub(super) struct CallbackListener(Vec<Listener>);

impl CallbackListener {
    /// Binds the addresses of a redirect URI.
    pub(super) fn bind(uri: &RedirectUri) -> Result<Self, CommandFailure> {
        let mut listeners = Vec::new();
        for address in uri.addresses() {
            match Listener::bind(&Endpoint::Tcp(address)) {
                Ok(listener) => listeners.push(listener),
                // A machine without IPv6.
                Err(error) if !listeners.is_empty() && error.kind() != io::ErrorKind::AddrInUse => {}
                Err(error) => {
                    let text = format!(
                        "cannot listen at {address} for the browser: {error}; pass another --redirect-uri, which the auth \
                         method and the provider must list"
                    );
                    return Err(CommandFailure::new(Exit::Failed, text));
                }
            }
        }
        Ok(Self(listeners))
    }

    /// Serves until `stop`: sends the first answer of the login, and refuses everything else.
    pub(super) async fn serve(self, login: ServedLogin, arrivals: mpsc::Sender<Arrival>, stop: CancellationToken) {
        let handler = Arc::new(Handler { login, arrivals, is_answered: AtomicBool::new(false) });
        let limits = ListenerLimits { connections: 64, drain: Duration::from_secs(2), ..ListenerLimits::default() };
        let mut listeners = self.0.into_iter();
        let mut serve = || {
            let listener = listeners.next();
            let handler = Arc::clone(&handler);
            let service =
                move |peer: Peer, request: Request<IncomingBody>| Arc::clone(&handler).respond(&peer, &request);
            let limits = limits.clone();
            let stop = stop.clone();
            async move {
                if let Some(listener) = listener {
                    listener.serve(service, limits, stop).await;
                }
            }
        };
        tokio::join!(serve(), serve());
    }
}

struct Handler {
    login: ServedLogin,
    arrivals: mpsc::Sender<Arrival>,
    is_answered: AtomicBool,
}

impl Handler {
    fn respond(
        self: Arc<Self>,
        peer: &Peer,
        request: &Request<IncomingBody>,
    ) -> ResponseFuture<http_body_util::Full<bytes::Bytes>> {
        if !self.login.users.admit(peer.group()) {
            return ResponseFuture::ready(Page::OtherUser.to_response());
        }
        if request.uri().path() == self.login.start_path && request.method() == Method::GET {
            return ResponseFuture::ready(redirect(&self.login.provider_page));
        }
        if request.uri().path() != self.login.path || request.method() != Method::GET {
            return ResponseFuture::ready(Page::Missing.to_response());
        }
        let Some(answer) = self.login.expected.read(request.uri().query()) else {
            return ResponseFuture::ready(Page::Stranger.to_response());
        };
        if self.is_answered.swap(true, Ordering::Relaxed) {
            return ResponseFuture::ready(Page::Answered.to_response());
        }
        ResponseFuture::waiting(async move {
            let (page, shown) = oneshot::channel();
            let sent = self.arrivals.send(Arrival { answer, page }).await;
            let too_late = || Page::Failed("The login has ended. Start it again.".to_owned());
            let page = if sent.is_ok() { shown.await.unwrap_or_else(|_| too_late()) } else { too_late() };
            page.to_response()
        })
    }
}
