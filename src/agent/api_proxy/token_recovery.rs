//! What is done once the server has refused the session's token: its keeper looks, once for all who ran into it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Response;
use http_body_util::{Either, Full};
use hyper::body::Body as _;
use tokio::time::Instant;

use super::Inner;
use super::answer::ProxyBody;
use super::screen::FilteredBody;
use super::session_token::{TokenHeader, TokenUnavailable};
use crate::agent::server_client::is_bare_denial;
use crate::clock::{Clock, ClockReading};
use crate::credential_watch::RefreshRequest;
use crate::http::body_buffer::collect;

/// A 403, and what it says of the token.
pub(super) struct Refusal {
    pub(super) answer: Response<ProxyBody>,
    /// True if it says that there is no such token, in any server's words. Without such words it may be the policy that refuses.
    pub(super) says_dead: bool,
}

impl Refusal {
    /// Reads the answer's body, where it is told to be short.
    pub(super) async fn read(answer: Response<FilteredBody>) -> Self {
        let short = answer.body().size_hint().upper().is_some_and(|bytes| bytes <= MAX_ERROR_BODY as u64);
        if !short {
            return Self { answer: answer.map(Either::Left), says_dead: false };
        }
        let (parts, body) = answer.into_parts();
        let body = match tokio::time::timeout(ERROR_BODY_TIMEOUT, collect(body, MAX_ERROR_BODY)).await {
            Ok(Ok(body)) => body.into_bytes(),
            // Nothing of it is left to be passed on but its head.
            Ok(Err(_)) | Err(_) => return Self { answer: super::answer::truncated_response(), says_dead: false },
        };
        let says_dead = says_dead(&body);
        Self { answer: Response::from_parts(parts, Either::Right(Full::new(body))), says_dead }
    }
}

/// How much of a refusal is looked at.
const MAX_ERROR_BODY: usize = 64 * 1024;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Vault says `invalid token` or `bad token`, OpenBao `permission denied` and nothing else; a Consul-compatible server says
/// `ACL not found`.
fn says_dead(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Errors {
        errors: Vec<String>,
    }
    ["invalid token", "bad token", "ACL not found"]
        .iter()
        .any(|words| body.windows(words.len()).any(|found| found == words.as_bytes()))
        || serde_json::from_slice::<Errors>(body).is_ok_and(|body| is_bare_denial(&body.errors))
}

/// What there is in place of a token that was refused.
pub(super) enum Recovery {
    /// Another token.
    Token(TokenHeader),
    /// The same: it is not the token that is refused, or nobody was asked.
    Same,
    /// None.
    TokenUnavailable(TokenUnavailable),
}

impl Inner {
    /// The token of this moment. Where there is none, a login may be under way: who calls meanwhile waits a moment for it, as
    /// those do who found the last one dead.
    pub(super) async fn present(&self) -> Result<TokenHeader, TokenUnavailable> {
        match self.session_token.current() {
            Err(_) => Box::pin(self.wait_for_token_until(Instant::now() + WAIT_FOR_TOKEN)).await,
            token => token,
        }
    }

    /// The token that there is by then.
    async fn wait_for_token_until(&self, end: Instant) -> Result<TokenHeader, TokenUnavailable> {
        let mut watch = self.session_token.watch.clone();
        let _waiting = self.refresh_signal.demand().wait();
        let mut asked = false;
        loop {
            watch.current();
            match self.session_token.current() {
                Err(absent) if Instant::now() + absent.retry_after < end => {
                    if !matches!(tokio::time::timeout_at(end, watch.changed()).await, Ok(Ok(()))) {
                        return Err(absent);
                    }
                }
                // Now that somebody waits the keeper may try sooner, and says so.
                Err(_) if !asked => {
                    asked = true;
                    let _ = tokio::time::timeout(SCHEDULE_TIMEOUT, watch.changed()).await;
                }
                found => return found,
            }
        }
    }

    /// Has the session's keeper look for itself, where a refusal is a reason to. Says whether it will; `None` where it is none.
    pub(super) fn ring(&self, says_dead: bool) -> Option<bool> {
        let rings = says_dead || self.suspicions.try_take();
        rings.then(|| !matches!(self.refresh_signal.request(), RefreshRequest::RateLimited { .. }))
    }

    /// Another token than the one that the server has refused: the one that is there by now, or the one that its keeper
    /// gets once it has looked for itself.
    pub(super) async fn recover(&self, refused: &TokenHeader, says_dead: bool) -> Recovery {
        let same = |token: &TokenHeader| token.generation() == refused.generation();
        if self.session_token.current().is_ok_and(|token| same(&token)) {
            if self.ring(says_dead) == Some(false) {
                return Recovery::Same;
            }
            // Without a ring too: somebody else's may be under way.
            // One that doubts the token is answered once a login has replaced it.
            let within = if says_dead { CHECK_TIMEOUT + LOGIN_TIMEOUT } else { CHECK_TIMEOUT };
            if tokio::time::timeout(within, self.refresh_signal.wait()).await.is_err() {
                return Recovery::Same;
            }
        }
        match self.wait_for_token_until(Instant::now() + LOGIN_TIMEOUT).await {
            Ok(token) if same(&token) => Recovery::Same,
            Ok(token) => Recovery::Token(token),
            Err(absent) => Recovery::TokenUnavailable(absent),
        }
    }
}

/// How long a caller waits for the keeper's look, which is one call of the server.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long after it for the login that follows where the token is dead.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a caller waits for the keeper to say when it tries next.
const SCHEDULE_TIMEOUT: Duration = Duration::from_millis(20);

/// How long a caller waits who comes while there is no token.
const WAIT_FOR_TOKEN: Duration = Duration::from_secs(2);

/// How often a refusal that does not name the token is a reason to look: a policy that refuses all the time must not use up
/// the rings that a dead token needs.
#[derive(Debug)]
pub(super) struct SuspicionLimiter {
    clock: Clock,
    last: Mutex<Option<ClockReading>>,
}

impl SuspicionLimiter {
    pub(super) const fn new(clock: Clock) -> Self {
        Self { clock, last: Mutex::new(None) }
    }

    fn try_take(&self) -> bool {
        let now = self.clock.now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| now.since(last) >= SUSPICION_INTERVAL);
        if due {
            *last = Some(now);
        }
        due
    }
}

const SUSPICION_INTERVAL: Duration = Duration::from_mins(2);

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::clock::TestClock;

    #[test]
    fn a_refusal_says_that_the_token_is_dead_in_the_words_of_each_server() {
        for dead in [
            r#"{"errors":["2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n"]}"#,
            r#"{"errors":["bad token"]}"#,
            "{\"errors\":[\"permission denied\"]}\n",
            "ACL not found",
        ] {
            assert!(says_dead(dead.as_bytes()), "{dead}");
        }
        assert!(!says_dead(br#"{"errors":["1 error occurred:\n\t* permission denied\n\n"]}"#));
        assert!(!says_dead(br#"{"errors":["permission denied","and more"]}"#));
        assert!(!says_dead(b"permission denied"), "the page of a balancer");
        assert!(!says_dead(b""));
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_that_refuses_all_the_time_is_doubted_now_and_then() {
        let doubt = SuspicionLimiter::new(Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)));
        assert!(doubt.try_take() && !doubt.try_take());
        tokio::time::advance(Duration::from_secs(119)).await;
        assert!(!doubt.try_take());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(doubt.try_take() && !doubt.try_take());
    }
}
