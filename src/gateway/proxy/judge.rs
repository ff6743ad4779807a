//! What the history of the platform's API means for a call, done: warned of, refused, replaced, counted.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Response};
use http_body_util::Full;

use super::Inner;
use super::body::Asked;
use super::exchange::{Call, Refused};
use crate::gateway::actions::organization::{Clue, client_path, clue, of_client};
use crate::gateway::actions::{self, Deprecated, Mode, Replacement, WARNING_HEADER};
use crate::gateway::availability::Server;
use crate::gateway::changes::Change;
use crate::gateway::refusal::Refusal;
use crate::http::forward::Downstream;
use crate::metrics;

/// What is known of a call before it is sent.
#[derive(Debug)]
pub(super) struct Judged {
    /// That it is deprecated.
    pub(super) deprecated: Option<Deprecated>,
    /// What its answer says besides.
    pub(super) headers: HeaderMap,
}

/// What became of a call.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The call that was sent in its place, if one was.
    pub(super) other: Option<Call>,
    pub(super) answer: Response<Platform>,
}

/// What the platform has answered with: a body on its way, or one that was made of several.
#[derive(Debug)]
pub(super) enum Platform {
    Streamed(Downstream),
    Whole(Full<Bytes>),
}

/// The largest document that is read to find an organization, in bytes.
const DOCUMENT: usize = 256 * 1024;

impl Call {
    /// The call as the history looks at it.
    pub(super) fn as_known(&self) -> actions::Call<'_> {
        actions::Call { method: &self.method, path: self.target.path(), query: self.target.query().unwrap_or_default() }
    }

    /// The call that replaces this one; its query stays. Nothing, where its path cannot be sent.
    fn replaced_by(&self, replacement: &Replacement) -> Option<Self> {
        let query = self.target.query().map(|query| format!("?{query}")).unwrap_or_default();
        let target = format!("{}{query}", replacement.path).parse().ok()?;
        let mut headers = self.headers.clone();
        if replacement.drops_body {
            headers.remove(CONTENT_TYPE);
            headers.remove(CONTENT_LENGTH);
        }
        Some(Self { method: replacement.method.clone(), target, headers })
    }
}

impl Inner {
    /// What is known of the platform.
    pub(super) fn server(&self) -> Arc<Server> {
        Arc::clone(&self.server.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Learns what the platform is from the headers of an answer, most of which say what is known.
    pub(super) fn learn_server(&self, headers: &HeaderMap) {
        let mut known = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(learned) = known.after(headers) {
            tracing::info!(
                event = "gateway.platform.known",
                upstream = self.origin,
                product = learned.product.map(|product| format!("{product:?}")),
                release = learned.release.map(|release| release.to_string()),
                api_version = learned.api_version,
                "the platform has told what it is"
            );
            self.parts.board.platform_is(Some(learned.shown(&self.origin)));
            *known = Arc::new(learned);
        }
    }

    /// Looks at a call, and at its body where a row of the history is about it.
    ///
    /// # Errors
    /// In strict mode: why it is not sent.
    pub(super) fn judge(&self, call: &Call, body: &Asked, client: &str) -> Result<Judged, Vec<Refusal>> {
        let server = self.server();
        let known = self.actions.look(call.as_known(), &server);
        let mut findings = known.findings;
        if known.reads_body
            && let Some(body) = body.held()
        {
            findings.extend(self.actions.read(call.as_known(), body, &server));
        }
        let refusals = if self.actions.options().strict { actions::refusals(&findings) } else { Vec::new() };
        let mut headers = HeaderMap::new();
        for finding in &findings {
            let what = if refusals.is_empty() { "warned" } else { "refused" };
            self.notice(finding.change, client, what, false);
            headers.append(WARNING_HEADER, finding.header());
        }
        if refusals.is_empty() { Ok(Judged { deprecated: known.deprecated, headers }) } else { Err(refusals) }
    }

    fn notice(&self, change: &'static Change, client: &str, what: &'static str, replaced: bool) {
        self.parts.record.notice(change, client, replaced, self.parts.clock.now().wall);
        let label = metrics::Noticed { change: change.id.clone(), client: client.to_owned(), what };
        self.parts.metrics.gateway_noticed.get_or_create(&label).inc();
    }

    /// Sends a deprecated call: as it is, or as what replaces it.
    ///
    /// # Errors
    /// The platform was not called, or did not answer: what the caller is told.
    pub(super) async fn replaced(
        &self,
        call: &Call,
        body: Asked,
        deprecated: &Deprecated,
        client: &str,
    ) -> Result<Outcome, Refused> {
        let mode = self.actions.options().deprecated;
        let replaces = matches!(mode, Mode::Fallback | Mode::Always);
        let organization =
            if deprecated.needs_organization() { self.organization(call, &body, replaces).await } else { None };
        let replacement = deprecated.replacement(organization.as_deref());
        let other = replacement.as_ref().filter(|_| replaces).and_then(|new| Some((call.replaced_by(new)?, new)));
        let outcome = match other {
            Some((other, new)) if mode == Mode::Always => {
                let body = if new.drops_body { Asked::empty() } else { body };
                self.sent_instead(other, body).await
            }
            Some((other, new)) => {
                let again = if new.drops_body { Some(Asked::empty()) } else { body.again() };
                let first = self.sent(call, body).await?;
                match again {
                    Some(body) if self.actions.falls_back(first.answer.status()) => {
                        drop(first);
                        self.sent_instead(other, body).await
                    }
                    _ => Ok(first),
                }
            }
            None => self.sent(call, body).await,
        };
        let mut outcome = self.told(deprecated, organization.as_deref(), client, outcome)?;
        if replaces && deprecated.needs_organization() && replacement.is_none() {
            outcome.answer.headers_mut().append(WARNING_HEADER, deprecated.unresolved().header());
        }
        Ok(outcome)
    }

    /// Counts a deprecated call, and says in its answer that it is one.
    ///
    /// # Errors
    /// What `outcome` has.
    pub(super) fn told(
        &self,
        deprecated: &Deprecated,
        organization: Option<&str>,
        client: &str,
        outcome: Result<Outcome, Refused>,
    ) -> Result<Outcome, Refused> {
        let replaced = outcome.as_ref().is_ok_and(|outcome| outcome.other.is_some());
        self.notice(deprecated.change, client, "deprecated", replaced);
        outcome.map(|mut outcome| {
            for (name, value) in deprecated.headers(organization) {
                outcome.answer.headers_mut().append(name, value);
            }
            outcome
        })
    }

    /// Sends a call as it is.
    ///
    /// # Errors
    /// As [`Inner::replaced`].
    pub(super) async fn sent(&self, call: &Call, body: Asked) -> Result<Outcome, Refused> {
        Ok(Outcome { other: None, answer: self.exchange(call, body).await?.map(Platform::Streamed) })
    }

    async fn sent_instead(&self, other: Call, body: Asked) -> Result<Outcome, Refused> {
        let answer = self.exchange(&other, body).await?.map(Platform::Streamed);
        Ok(Outcome { other: Some(other), answer })
    }

    /// The organization of a call that names none: from its body; else, where the call is to be replaced, from its OAuth
    /// token by two look-ups; else the configured one.
    async fn organization(&self, call: &Call, body: &Asked, look_up: bool) -> Option<String> {
        let configured = || self.actions.options().organization.clone();
        match body.held().map(clue) {
            Some(Clue::Organization(organization)) => Some(organization),
            Some(Clue::TokenPath(path)) if look_up => {
                let mut headers = call.headers.clone();
                for name in [CONTENT_TYPE, CONTENT_LENGTH] {
                    headers.remove(name);
                }
                let found = async {
                    let token = self.document(&path, &headers, DOCUMENT).await?;
                    let client = self.document(&client_path(&token)?, &headers, DOCUMENT).await?;
                    of_client(&client)
                };
                found.await.or_else(configured)
            }
            _ => configured(),
        }
    }
}
