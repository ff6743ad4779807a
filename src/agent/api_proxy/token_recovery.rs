//! Recovery after the server has refused the session's token: one check by the session for all requests that met the refusal.
use std::time::Duration;

use http::Response;
use http_body_util::{Either, Full};
use hyper::body::Body as _;
use keyward_credentials::credential_watch::{RefreshRequest, RefreshSignal};
use keyward_credentials::token_bucket::TokenBucket;
use keyward_http::body_buffer::collect;
use keyward_machine::clock::Clock;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::leak_filter::FilteredBody;
use super::response::{ProxyBody, truncated_response};
use super::session_token::{SessionToken, TokenHeader, TokenUnavailable};
use crate::server_client::is_bare_denial;
use crate::token::SessionHandle;

/// A 403 of the server.
pub(super) struct ForbiddenResponse {
    pub(super) response: Response<ProxyBody>,
    /// The response says that the token does not exist. Otherwise the token's policies may be the cause.
    pub(super) token_is_dead: bool,
}

impl ForbiddenResponse {
    /// Reads the response's body if its declared length is short. `names_token` is true for a request that may name another
    /// token, as a look-up does.
    pub(super) async fn read(response: Response<FilteredBody>, names_token: bool) -> Self {
        let is_short = response.body().size_hint().upper().is_some_and(|bytes| bytes <= MAX_ERROR_BODY as u64);
        if !is_short {
            return Self { response: response.map(Either::Left), token_is_dead: false };
        }
        let (parts, body) = response.into_parts();
        let body = match tokio::time::timeout(ERROR_BODY_TIMEOUT, collect(body, MAX_ERROR_BODY)).await {
            Ok(Ok(body)) => body.into_bytes(),
            // The part that was read cannot be forwarded any more, so only the head would remain.
            Ok(Err(_)) | Err(_) => return Self { response: truncated_response(), token_is_dead: false },
        };
        let token_is_dead = says_token_is_dead(&body) && !(names_token && says_named_token_is_unknown(&body));
        Self { response: Response::from_parts(parts, Either::Right(Full::new(body))), token_is_dead }
    }
}

/// The longest error body that is searched, in bytes.
const MAX_ERROR_BODY: usize = 64 * 1024;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(serde::Deserialize)]
struct ErrorBody {
    errors: Vec<String>,
}

/// A look-up of an unknown token gets `bad token` and nothing else from Vault and OpenBao (`handleLookup`). They have accepted the
/// token of the request by then.
fn says_named_token_is_unknown(body: &[u8]) -> bool {
    serde_json::from_slice::<ErrorBody>(body).is_ok_and(|body| body.errors == ["bad token"])
}

/// Vault says `invalid token` or `bad token`, OpenBao `permission denied` and nothing else; a Consul-compatible server says
/// `ACL not found`.
fn says_token_is_dead(body: &[u8]) -> bool {
    ["invalid token", "bad token", "ACL not found"]
        .iter()
        .any(|phrase| memchr::memmem::find(body, phrase.as_bytes()).is_some())
        || serde_json::from_slice::<ErrorBody>(body).is_ok_and(|body| is_bare_denial(&body.errors))
}

/// Result of a recovery.
pub(super) enum Recovery {
    /// The session has another token.
    Replaced(TokenHeader),
    /// The session has the same token: something else is refused, or no check was allowed.
    Unchanged,
    /// The session has no token.
    Unavailable(TokenUnavailable),
}

/// Reads the session's token, waits for a login and requests checks of a token that was refused.
#[derive(Debug)]
pub(super) struct TokenRecovery {
    session_token: SessionToken,
    check: RefreshSignal,
    clock: Clock,
    suspicions: Mutex<TokenBucket>,
}

impl TokenRecovery {
    pub(super) fn from_handle(handle: SessionHandle, clock: Clock) -> Self {
        let SessionHandle { watch, refresh_signal: check } = handle;
        let session_token = SessionToken::new(watch, clock.clone());
        Self { session_token, check, clock, suspicions: Mutex::new(SUSPICIONS) }
    }

    /// Returns the session's token without waiting.
    pub(super) fn current_token(&self) -> Result<TokenHeader, TokenUnavailable> {
        self.session_token.current()
    }

    /// Returns the session's token, or waits a moment for a login that may be under way.
    pub(super) async fn wait_for_token(&self) -> Result<TokenHeader, TokenUnavailable> {
        match self.session_token.current() {
            Err(_) => Box::pin(self.wait_for_token_until(Instant::now() + WAIT_FOR_TOKEN)).await,
            token => token,
        }
    }

    async fn wait_for_token_until(&self, deadline: Instant) -> Result<TokenHeader, TokenUnavailable> {
        let mut watch = self.session_token.watch.clone();
        let _waiting = self.check.demand().wait();
        let mut waited_for_schedule = false;
        loop {
            watch.current();
            match self.session_token.current() {
                Err(unavailable) if Instant::now() + unavailable.retry_after < deadline => {
                    if !matches!(tokio::time::timeout_at(deadline, watch.changed()).await, Ok(Ok(()))) {
                        return Err(unavailable);
                    }
                }
                // A waiting caller may make the session try sooner; it publishes the new time.
                Err(_) if !waited_for_schedule => {
                    waited_for_schedule = true;
                    let _ = tokio::time::timeout(SCHEDULE_TIMEOUT, watch.changed()).await;
                }
                token => return token,
            }
        }
    }

    /// Requests a check of `refused` if it is still the session's token.
    pub(super) fn report_refusal(&self, refused: &TokenHeader, token_is_dead: bool) {
        if self.session_token.current().is_ok_and(|current| current.generation() == refused.generation()) {
            self.request_check(token_is_dead);
        }
    }

    /// Requests a check of the session's token. Returns whether the session accepted the request; `None` if the refusal is no
    /// reason for a check now.
    fn request_check(&self, token_is_dead: bool) -> Option<bool> {
        let is_due = token_is_dead || self.suspicions.lock().try_take(self.clock.now()).is_ok();
        is_due.then(|| !matches!(self.check.request(), RefreshRequest::RateLimited { .. }))
    }

    /// Returns a token that replaces the one that the server has refused: the current one, or that of the login after a check.
    pub(super) async fn recover(&self, refused: &TokenHeader, token_is_dead: bool) -> Recovery {
        let is_refused = |token: &TokenHeader| token.generation() == refused.generation();
        if self.session_token.current().is_ok_and(|token| is_refused(&token)) {
            if self.request_check(token_is_dead) == Some(false) {
                return self.unchanged(token_is_dead);
            }
            // Waits even if this refusal requested no check: that of another request may be under way. A check that finds
            // the token dead completes once a login has replaced it.
            let timeout = if token_is_dead { CHECK_TIMEOUT + LOGIN_TIMEOUT } else { CHECK_TIMEOUT };
            if tokio::time::timeout(timeout, self.check.wait()).await.is_err() {
                return if token_is_dead { Recovery::Unavailable(unchecked()) } else { Recovery::Unchanged };
            }
        }
        match self.wait_for_token_until(Instant::now() + LOGIN_TIMEOUT).await {
            Ok(token) if is_refused(&token) => self.unchanged(token_is_dead),
            Ok(token) => Recovery::Replaced(token),
            Err(unavailable) => Recovery::Unavailable(unavailable),
        }
    }

    /// Returns the result for a token that the session still has. If the server says that it is dead and does not answer the
    /// check, the caller has to ask again: the refusal is not about the call.
    fn unchanged(&self, token_is_dead: bool) -> Recovery {
        if token_is_dead && self.session_token.has_failed_check() {
            Recovery::Unavailable(unchecked())
        } else {
            Recovery::Unchanged
        }
    }
}

fn unchecked() -> TokenUnavailable {
    let reason = "the server refuses the session's token, and does not answer the check of it".into();
    TokenUnavailable { reason, retry_after: Duration::from_secs(5) }
}

/// Longest wait for a check, which is one call of the server.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait for the login that replaces a dead token.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait for the session to publish the time of its next attempt.
const SCHEDULE_TIMEOUT: Duration = Duration::from_millis(20);

/// Longest wait for a token, of a request that arrives while there is none.
pub(super) const WAIT_FOR_TOKEN: Duration = Duration::from_secs(2);

/// Checks after refusals that do not name the token: a policy that always refuses must not use up the checks that a dead token needs.
const SUSPICIONS: TokenBucket = TokenBucket::full(1, Duration::from_mins(2));

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use keyward_machine::clock::ClockReading;

    use super::*;

    #[test]
    fn each_servers_wording_of_a_dead_token_is_recognised() {
        for dead in [
            r#"{"errors":["2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n"]}"#,
            r#"{"errors":["bad token"]}"#,
            "{\"errors\":[\"permission denied\"]}\n",
            "ACL not found",
        ] {
            assert!(says_token_is_dead(dead.as_bytes()), "{dead}");
        }
        assert!(!says_token_is_dead(br#"{"errors":["1 error occurred:\n\t* permission denied\n\n"]}"#));
        assert!(!says_token_is_dead(br#"{"errors":["permission denied","and more"]}"#));
        assert!(!says_token_is_dead(b"permission denied"), "a load balancer's page");
        assert!(!says_token_is_dead(b""));
        assert!(says_named_token_is_unknown(br#"{"errors":["bad token"]}"#));
        for other in [r#"{"errors":["permission denied"]}"#, r#"{"errors":["bad token","and more"]}"#, "bad token"] {
            assert!(!says_named_token_is_unknown(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn repeated_refusals_by_a_policy_request_a_check_every_two_minutes() {
        let at = |seconds| ClockReading { boot: Duration::from_secs(seconds), wall: SystemTime::UNIX_EPOCH };
        let mut suspicions = SUSPICIONS;
        let due: Vec<_> = (0..300).filter(|second| suspicions.try_take(at(*second)).is_ok()).collect();
        assert_eq!(due, [0, 120, 240]);
    }
}
