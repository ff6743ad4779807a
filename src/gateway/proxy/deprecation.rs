//! What the history of the platform's API means for a call, done: warned of, refused, replaced, counted.

use std::sync::{Arc, PoisonError};

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};

use super::Inner;
use super::body::Asked;
use super::outcome::{Outcome, Platform};
use super::upstream_call::{Call, Refused};
use crate::gateway::actions::organization::{Clue, client_path, clue, of_client};
use crate::gateway::actions::{self, Called, Deprecated, Mode, Replacement, WARNING_HEADER};
use crate::gateway::api_changelog::Change;
use crate::gateway::availability::Server;
use crate::gateway::jsonapi_error::Refusal;
use crate::metrics;

/// What is known of a call before it is sent.
#[derive(Debug)]
pub(super) struct Judged {
    /// That it is deprecated.
    pub(super) deprecated: Option<Deprecated>,
    /// What its answer says besides.
    pub(super) headers: HeaderMap,
}

/// The largest document that is read to find an organization, in bytes.
const DOCUMENT: usize = 256 * 1024;

impl Call {
    /// The call as the history looks at it.
    pub(super) fn as_known(&self) -> actions::Call<'_> {
        actions::Call { method: &self.method, path: self.target.path(), query: self.target.query().unwrap_or_default() }
    }

    /// The call that replaces this deprecated one, and whether its body is left out. The query stays. `None` where there is no
    /// replacement, or its path cannot be sent.
    fn replacement(&self, deprecated: &Deprecated, organization: Option<&str>) -> Option<(Self, bool)> {
        let Replacement { method, path, drops_body } = deprecated.replacement(organization)?;
        let query = self.target.query().map(|query| format!("?{query}")).unwrap_or_default();
        let target = format!("{path}{query}").parse().ok()?;
        let mut headers = self.headers.clone();
        if drops_body {
            headers.remove(CONTENT_TYPE);
            headers.remove(CONTENT_LENGTH);
        }
        Some((Self { caller: self.caller, method, target, headers }, drops_body))
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
            self.parts.status_registry.set_platform(Some(learned.shown(&self.origin)));
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
            self.notice(finding.change, client, Called::of(call.as_known()), what, false);
            headers.append(WARNING_HEADER, finding.header());
        }
        if refusals.is_empty() { Ok(Judged { deprecated: known.deprecated, headers }) } else { Err(refusals) }
    }

    fn notice(&self, change: &'static Change, client: &str, called: Called, what: &'static str, replaced: bool) {
        self.parts.record.notice(change, client, called, replaced, self.parts.clock.now().wall);
        let label = metrics::DeprecatedCallLabels { change: change.id.clone(), client: client.to_owned(), what };
        self.parts.metrics.gateway_noticed.get_or_create(&label).inc();
    }

    /// Sends a deprecated call: as it is, or as its replacement.
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
        let clue = body.held().filter(|_| deprecated.needs_organization()).map_or(Clue::Nothing, clue);
        let mut organization = self.known_organization(&clue);
        let (outcome, unresolved) = match self.actions.options().deprecated {
            Mode::Off | Mode::Warn => (self.sent(call, body).await, false),
            Mode::Always => {
                organization = self.organization(call, &clue).await;
                match call.replacement(deprecated, organization.as_deref()) {
                    Some((other, true)) => (self.sent_instead(other, Asked::empty()).await, false),
                    Some((other, false)) => (self.sent_instead(other, body).await, false),
                    None => (self.sent(call, body).await, deprecated.needs_organization()),
                }
            }
            Mode::Fallback => {
                let again = body.again();
                match self.sent(call, body).await {
                    Ok(first) if self.actions.falls_back(first.answer.status()) => {
                        // Look-ups come after the call itself. It holds no connection meanwhile.
                        let first = if matches!(clue, Clue::TokenPath(_)) { first.buffer().await } else { Ok(first) };
                        organization = self.organization(call, &clue).await;
                        match (first, call.replacement(deprecated, organization.as_deref()), again) {
                            (Err(refused), ..) => (Err(refused), false),
                            (Ok(first), Some((other, true)), _) => {
                                drop(first);
                                (self.sent_instead(other, Asked::empty()).await, false)
                            }
                            (Ok(first), Some((other, false)), Some(body)) => {
                                drop(first);
                                (self.sent_instead(other, body).await, false)
                            }
                            (Ok(first), other, _) => (Ok(first), other.is_none() && deprecated.needs_organization()),
                        }
                    }
                    first => (first, false),
                }
            }
        };
        let mut outcome = self.told(call, deprecated, organization.as_deref(), client, outcome)?;
        if unresolved {
            outcome.answer.headers_mut().append(WARNING_HEADER, deprecated.unresolved(&clue).header());
        }
        Ok(outcome)
    }

    /// Counts a deprecated call, and says in its answer that it is one.
    ///
    /// # Errors
    /// What `outcome` has.
    pub(super) fn told(
        &self,
        call: &Call,
        deprecated: &Deprecated,
        organization: Option<&str>,
        client: &str,
        outcome: Result<Outcome, Refused>,
    ) -> Result<Outcome, Refused> {
        let replaced = outcome.as_ref().is_ok_and(|outcome| outcome.other.is_some());
        let mut called = Called::of(call.as_known());
        called.organization = called.organization.or_else(|| organization.map(str::to_owned));
        self.notice(deprecated.change, client, called, "deprecated", replaced);
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

    /// The organization of a call that names none in its path, without any look-up: from its body, or the configured one.
    fn known_organization(&self, clue: &Clue) -> Option<String> {
        match clue {
            Clue::Organization(organization) => Some(organization.clone()),
            Clue::Unusable => None,
            Clue::TokenPath(_) | Clue::Nothing => self.actions.options().organization.clone(),
        }
    }

    /// The same, with two look-ups where the body names an OAuth token.
    async fn organization(&self, call: &Call, clue: &Clue) -> Option<String> {
        let Clue::TokenPath(path) = clue else { return self.known_organization(clue) };
        let mut headers = call.headers.clone();
        for name in [CONTENT_TYPE, CONTENT_LENGTH] {
            headers.remove(name);
        }
        let found = async {
            let token = self.document(path, &headers, DOCUMENT).await?;
            let client = self.document(&client_path(&token)?, &headers, DOCUMENT).await?;
            of_client(&client)
        };
        found.await.or_else(|| self.known_organization(clue))
    }
}
