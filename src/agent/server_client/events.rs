//! Subscribes to the events of Vault's secrets (`GET sys/events/subscribe/kv*?json=true`, a WebSocket).
//!
//! Contract, by <https://developer.hashicorp.com/vault/docs/concepts/events> and Vault's own code (`http/events.go`): Vault Enterprise
//! from 1.16 has it, and 1.13 to 1.15 as an experiment; Vault Community and OpenBao do not. The token needs `read` on
//! `sys/events/subscribe/kv*`, and `list` and `subscribe` with `subscribe_event_types` on the paths of the secrets. A refused token gets 403,
//! or 401 from Vault 1.13. Events are of the request's namespace. The server pings every 30 s, and delivers each event at most once.
//! A node that cannot serve events redirects to the active one (307): Vault Proxy follows it, whatever the host.

use http::Method;
use http::header::LOCATION;
use keyward_http::client::sanitize::sanitize;
use keyward_http::client::{ClientResponse, TransportError, UpgradeResponse, WebSocket};
use keyward_http::reverse_proxy::UpstreamOutcome;
use reqwest::RequestBuilder;
use tokio::time::Instant;
use url::Url;

use super::{CallError, PathClass, ServerClient, parse_response};
use crate::token::ClientToken;

/// Path of the subscription, below `/v1/`: the events of key-value stores.
const EVENTS_PATH: &str = "sys/events/subscribe/kv*";

/// Redirects to the address that was asked are followed this often: behind one address are several nodes.
const MAX_ATTEMPTS: usize = 4;

/// Reason why there is no subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriptionRefusal {
    /// The server has no events.
    Absent,
    /// The token may not subscribe, or is dead.
    Denied,
    /// The server redirects to another host, which does not get the token.
    Redirected,
    /// The server cannot be reached or is in trouble.
    Outage,
}

impl SubscriptionRefusal {
    /// Classifies the error of a subscription.
    pub(crate) const fn from_error(error: &CallError) -> Self {
        match error {
            CallError::Status { status: 401 | 403, .. } => Self::Denied,
            CallError::Status { status: 300..=399, .. } => Self::Redirected,
            CallError::Status { status: 400 | 404 | 405 | 501, .. } => Self::Absent,
            _ => Self::Outage,
        }
    }
}

impl ServerClient {
    /// Subscribes to the events of key-value stores in a namespace.
    pub(crate) async fn subscribe_events(
        &self,
        token: &ClientToken,
        namespace: Option<&str>,
    ) -> Result<Box<WebSocket>, CallError> {
        let mut attempts = 1;
        loop {
            let path = format!("v1/{EVENTS_PATH}");
            let request = self.with_token(Method::GET, &path, token, namespace).query(&[("json", "true")]);
            let (http, request) = request.build_split();
            let request = request.map_err(|error| self.client.failed(error))?;
            let url = request.url().clone();
            let response = match self.open(RequestBuilder::from_parts(http, request)).await? {
                UpgradeResponse::Open(socket) => return Ok(socket),
                UpgradeResponse::Refused(response) => response,
            };
            match redirect_target(&response, &url) {
                Some(target) if attempts < MAX_ATTEMPTS && is_same_place(&target, &url) => attempts += 1,
                Some(target) => return Err(redirected(&target, &url, &response)),
                None => return Err(refusal(&response, token)),
            }
        }
    }

    async fn open(&self, request: RequestBuilder) -> Result<UpgradeResponse, TransportError> {
        let started = Instant::now();
        let result = Box::pin(self.client.open_websocket(request, self.client.timeout())).await;
        if let Some(recorder) = &self.recorder {
            let outcome = match &result {
                Ok(UpgradeResponse::Open(_)) => UpstreamOutcome::Response(http::StatusCode::SWITCHING_PROTOCOLS),
                Ok(UpgradeResponse::Refused(response)) => UpstreamOutcome::Response(response.status),
                Err(error) => UpstreamOutcome::from_failed_call(error),
            };
            recorder.record(PathClass::System.index(), outcome, started.elapsed());
        }
        result
    }
}

/// Returns the URL that a redirect leads to; `None` for other responses.
fn redirect_target(response: &ClientResponse, asked: &Url) -> Option<Url> {
    let location = response.headers.get(LOCATION).filter(|_| response.status.is_redirection())?;
    asked.join(location.to_str().ok()?).ok()
}

/// Returns true if a redirect leads to the address and the path that were asked: nothing of it decides where the token goes.
fn is_same_place(target: &Url, asked: &Url) -> bool {
    target.origin() == asked.origin() && target.path() == asked.path() && target.username().is_empty()
}

fn redirected(target: &Url, asked: &Url, response: &ClientResponse) -> CallError {
    let text = if target.origin() == asked.origin() {
        "the server redirects to itself".to_owned()
    } else {
        let target = sanitize(&target.origin().ascii_serialization(), "");
        format!("the server redirects to {target}, and the token goes to no other host")
    };
    CallError::Status { status: response.status.as_u16(), errors: vec![text], retry_after: None, date: None }
}

fn refusal(response: &ClientResponse, token: &ClientToken) -> CallError {
    match parse_response::check_status(response, token.secret()) {
        Err(error) => error,
        Ok(()) => CallError::InvalidResponse {
            what: format!("HTTP {} instead of 101 (Switching Protocols)", response.status.as_u16()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_is_followed_to_the_address_and_the_path_that_were_asked_alone() {
        let asked: Url = "https://vault.example:8200/v1/sys/events/subscribe/kv*?json=true".parse().unwrap();
        let check = |location: &str, expected: bool| {
            let response = ClientResponse {
                status: http::StatusCode::TEMPORARY_REDIRECT,
                headers: [(LOCATION, location.parse().unwrap())].into_iter().collect(),
                body: Vec::new(),
            };
            let target = redirect_target(&response, &asked).unwrap();
            assert_eq!(is_same_place(&target, &asked), expected, "{location}");
        };
        check("https://vault.example:8200/v1/sys/events/subscribe/kv*?json=true", true);
        check("https://VAULT.example:8200/v1/sys/events/subscribe/kv*", true);
        check("/v1/sys/events/subscribe/kv*", true);
        check("https://vault-0.example:8200/v1/sys/events/subscribe/kv*?json=true", false);
        check("https://vault.example/v1/sys/events/subscribe/kv*?json=true", false);
        check("http://vault.example:8200/v1/sys/events/subscribe/kv*?json=true", false);
        check("wss://vault.example:8200/v1/sys/events/subscribe/kv*?json=true", false);
        check("https://user@vault.example:8200/v1/sys/events/subscribe/kv*", false);
        check("//other.example/v1/sys/events/subscribe/kv*", false);
        check("/v1/sys/events/subscribe/*", false);
    }

    #[test]
    fn a_refusal_is_classified_by_its_status() {
        let check = |status: u16, expected: SubscriptionRefusal| {
            let error = CallError::Status { status, errors: Vec::new(), retry_after: None, date: None };
            assert_eq!(SubscriptionRefusal::from_error(&error), expected, "{status}");
        };
        check(404, SubscriptionRefusal::Absent);
        check(405, SubscriptionRefusal::Absent);
        check(501, SubscriptionRefusal::Absent);
        check(401, SubscriptionRefusal::Denied);
        check(403, SubscriptionRefusal::Denied);
        check(307, SubscriptionRefusal::Redirected);
        check(308, SubscriptionRefusal::Redirected);
        check(429, SubscriptionRefusal::Outage);
        check(472, SubscriptionRefusal::Outage);
        check(500, SubscriptionRefusal::Outage);
        check(503, SubscriptionRefusal::Outage);
        let error = CallError::InvalidResponse { what: String::new() };
        assert_eq!(SubscriptionRefusal::from_error(&error), SubscriptionRefusal::Outage);
    }
}
