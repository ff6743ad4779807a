//! Keeps the session's token out of answers: a server, or what stands before it, may repeat a request's headers.
//!
//! What is here as a whole is searched before any of it is passed on. Of what streams, the end that may be the beginning
//! of the token is held back until the next piece tells, so that the caller's connection is cut before the token is whole.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use http::header::CONTENT_ENCODING;
use hyper::body::{Body, Frame, SizeHint};
use prometheus_client::metrics::counter::Counter;
use secrecy::ExposeSecret as _;

use super::needle::TokenFinder;
use crate::agent::token::Token;
use crate::http::reverse_proxy::{BufferedBody, ConnectionError, ResponseBody};

/// Screens the answers to requests that carry the session's token.
#[derive(Debug)]
pub(super) struct LeakFilter {
    server: String,
    found: Counter,
    /// True if it has been logged. Each is counted.
    logged: AtomicBool,
}

/// Reason why an answer is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Leak {
    /// The token stands in it.
    #[error("the server's answer repeats the session's token, and is not passed on")]
    Token,
    /// It is compressed although it was asked for as it is.
    #[error(
        "the server's answer is compressed, which was not asked for, and cannot be searched for the session's token"
    )]
    Encoded,
}

impl LeakFilter {
    pub(super) const fn new(server: String, found: Counter) -> Self {
        Self { server, found, logged: AtomicBool::new(false) }
    }

    /// The answer with its body screened as it streams, or the reason not to pass it on.
    pub(super) fn screened(
        self: &Arc<Self>,
        answer: Response<ResponseBody>,
        token: &Arc<Token>,
    ) -> Result<Response<FilteredBody>, Leak> {
        if !is_searched_for(token) {
            return Ok(answer.map(FilteredBody::unscreened));
        }
        let needle = TokenFinder::new(token);
        if needle.is_in_headers(answer.headers()) {
            return Err(self.leak());
        }
        match answer.body().whole() {
            Some(body) if needle.is_in(body) => return Err(self.leak()),
            Some(body) if body.is_empty() => return Ok(answer.map(FilteredBody::unscreened)),
            _ => {}
        }
        let mut codings = answer.headers().get_all(CONTENT_ENCODING).iter();
        if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(Leak::Encoded);
        }
        if answer.body().whole().is_some() {
            return Ok(answer.map(FilteredBody::unscreened));
        }
        let streamed = Streamed { token: Arc::clone(token), screen: Arc::clone(self), held: 0, ended: None };
        Ok(answer.map(|body| FilteredBody { body, streamed: Some(Box::new(streamed)) }))
    }

    fn leak(&self) -> Leak {
        self.found.inc();
        if !self.logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                event = "proxy.token.leaked",
                server = self.server,
                "an answer of the server repeats the session's token; it is not passed on, further ones are counted only"
            );
        }
        Leak::Token
    }
}

/// True if a token is long enough to be no word of an answer by chance, as `root` of a server for trials is.
fn is_searched_for(token: &Token) -> bool {
    token.secret.secret().expose_secret().len() >= MIN_TOKEN_LEN
}

const MIN_TOKEN_LEN: usize = 16;

/// An answer's body, in which the session's token does not stand.
pub struct FilteredBody {
    body: ResponseBody,
    /// In a box, where it streams: most bodies are here as a whole.
    streamed: Option<Box<Streamed>>,
}

struct Streamed {
    token: Arc<Token>,
    screen: Arc<LeakFilter>,
    /// How many bytes are held back; they are the token's first.
    held: usize,
    /// The end of the body, once it has come while bytes were held back.
    ended: Option<Last>,
}

/// The end of a body.
enum Last {
    Nothing,
    Trailers(Frame<Bytes>),
}

impl FilteredBody {
    /// A body that is passed on as it is.
    pub(super) const fn unscreened(body: ResponseBody) -> Self {
        Self { body, streamed: None }
    }

    /// Reads the body as [`ResponseBody::buffer`] does. It fails where the token stands in it.
    pub(super) async fn buffer(self, limit: usize, idle: Duration) -> BufferedBody<Self> {
        let Self { body, streamed } = self;
        match body.buffer(limit, idle).await {
            BufferedBody::Complete(bytes) => match &streamed {
                Some(streamed) if TokenFinder::new(&streamed.token).is_in(&bytes) => {
                    streamed.screen.leak();
                    BufferedBody::Failed
                }
                _ => BufferedBody::Complete(bytes),
            },
            BufferedBody::TooLong(body) => BufferedBody::TooLong(Self { body, streamed }),
            BufferedBody::Failed => BufferedBody::Failed,
        }
    }
}

impl fmt::Debug for FilteredBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Screened").field(&self.body).finish()
    }
}

/// Reason why a body has no end.
#[derive(Debug, thiserror::Error)]
pub enum FilteredBodyError {
    /// The server's answer broke off.
    #[error(transparent)]
    Broken(#[from] ConnectionError),
    /// The session's token stands in it.
    #[error("the server's answer repeats the session's token")]
    Token,
}

impl Streamed {
    /// The part of `piece`, and of what was held back, that can be passed on now.
    fn take(&mut self, piece: Bytes) -> Result<Bytes, FilteredBodyError> {
        let needle = TokenFinder::new(&self.token);
        let mut piece = match needle.token.get(..self.held) {
            None | Some([]) => piece,
            Some(held) => {
                let mut whole = BytesMut::with_capacity(held.len() + piece.len());
                whole.extend_from_slice(held);
                whole.extend_from_slice(&piece);
                whole.freeze()
            }
        };
        if needle.is_in(&piece) {
            self.screen.leak();
            return Err(FilteredBodyError::Token);
        }
        self.held = needle.partial_match_len(&piece);
        piece.truncate(piece.len() - self.held);
        Ok(piece)
    }

    /// Bytes that were held back and are no token.
    fn release(&mut self) -> Bytes {
        let token = self.token.secret.secret().expose_secret().as_bytes();
        Bytes::copy_from_slice(token.get(..std::mem::take(&mut self.held)).unwrap_or_default())
    }
}

impl Body for FilteredBody {
    type Data = Bytes;
    type Error = FilteredBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FilteredBodyError>>> {
        let this = &mut *self;
        let Some(streamed) = &mut this.streamed else {
            let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
            return Poll::Ready(frame.map(|frame| frame.map_err(FilteredBodyError::Broken)));
        };
        if let Some(end) = streamed.ended.take() {
            return Poll::Ready(match end {
                Last::Nothing => None,
                Last::Trailers(frame) => Some(Ok(frame)),
            });
        }
        loop {
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                Some(Ok(frame)) => frame.into_data(),
                None if streamed.held == 0 => return Poll::Ready(None),
                None => {
                    streamed.ended = Some(Last::Nothing);
                    return Poll::Ready(Some(Ok(Frame::data(streamed.release()))));
                }
            };
            match frame {
                Ok(piece) => match streamed.take(piece) {
                    Ok(piece) if piece.is_empty() => {}
                    piece => return Poll::Ready(Some(piece.map(Frame::data))),
                },
                Err(frame) => {
                    if frame
                        .trailers_ref()
                        .is_some_and(|trailers| TokenFinder::new(&streamed.token).is_in_headers(trailers))
                    {
                        streamed.screen.leak();
                        return Poll::Ready(Some(Err(FilteredBodyError::Token)));
                    }
                    if streamed.held == 0 {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    streamed.ended = Some(Last::Trailers(frame));
                    return Poll::Ready(Some(Ok(Frame::data(streamed.release()))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let held = self.streamed.as_ref().is_some_and(|streamed| streamed.held > 0 || streamed.ended.is_some());
        !held && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let held = self.streamed.as_ref().map_or(0, |streamed| streamed.held as u64);
        // The upper bound first: it may not be below the lower one.
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + held);
        }
        hint.set_lower(hint.lower() + held);
        hint
    }
}
