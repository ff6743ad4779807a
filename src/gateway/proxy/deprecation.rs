//! Applies the API history to calls: warns, refuses, replaces and counts them.

use std::sync::{Arc, PoisonError};

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};

use super::Inner;
use super::body::CallerBody;
use super::outcome::{CallOutcome, PlatformBody};
use super::upstream_call::{ErrorResponse, UpstreamCall};
use crate::gateway::actions::organization::{
    OrganizationHint, oauth_client_path, organization_from_client, organization_hint,
};
use crate::gateway::actions::{self, DeprecatedCall, DeprecatedCallMode, Replacement, ReportedCall, WARNING_HEADER};
use crate::gateway::api_changelog::Change;
use crate::gateway::availability::ServerInfo;
use crate::gateway::jsonapi_error::JsonApiError;
use crate::metrics;

/// Result of checking a call against the API history.
#[derive(Debug)]
pub(super) struct Assessment {
    /// Set if the call is deprecated.
    pub(super) deprecated: Option<DeprecatedCall>,
    /// Warning headers of its response.
    pub(super) headers: HeaderMap,
}

/// Largest document, in bytes, that is read to find an organization.
const MAX_DOCUMENT: usize = 256 * 1024;

impl UpstreamCall {
    /// Borrows the call in the form that the rules take.
    pub(super) fn as_api_call(&self) -> actions::ApiCall<'_> {
        actions::ApiCall {
            method: &self.method,
            path: self.target.path(),
            query: self.target.query().unwrap_or_default(),
        }
    }

    /// Builds the replacement of a deprecated call, and whether its body is dropped. The query stays. `None` if there
    /// is no replacement, or its path cannot be sent.
    fn replacement(&self, deprecated: &DeprecatedCall, organization: Option<&str>) -> Option<(Self, bool)> {
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
    /// Returns product and release of the platform, as far as they are known.
    pub(super) fn server(&self) -> Arc<ServerInfo> {
        Arc::clone(&self.server.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Learns product and release from response headers; most responses repeat what is known.
    pub(super) fn learn_server(&self, headers: &HeaderMap) {
        let mut known = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(learned) = known.updated_by(headers) {
            tracing::info!(
                event = "gateway.platform.detected",
                upstream = self.origin,
                product = learned.product.map(|product| format!("{product:?}")),
                release = learned.release.map(|release| release.to_string()),
                api_version = learned.api_version,
                "detected product and release of the platform"
            );
            self.dependencies.status_registry.set_platform(Some(learned.to_status(&self.origin)));
            *known = Arc::new(learned);
        }
    }

    /// Checks a call, and its body where a rule is about bodies.
    ///
    /// # Errors
    /// In strict mode, the errors for which the call is not sent.
    pub(super) fn assess(
        &self,
        call: &UpstreamCall,
        body: &CallerBody,
        client: &str,
    ) -> Result<Assessment, Vec<JsonApiError>> {
        let server = self.server();
        let known = self.actions.assess_call(call.as_api_call(), &server);
        let mut findings = known.findings;
        if known.reads_body
            && let Some(body) = body.buffered()
        {
            findings.extend(self.actions.assess_body(call.as_api_call(), body, &server));
        }
        let errors = if self.actions.options().strict { actions::blocking_errors(&findings) } else { Vec::new() };
        let mut headers = HeaderMap::new();
        for finding in &findings {
            let what = if errors.is_empty() { "warned" } else { "refused" };
            self.record_deprecated_call(
                finding.change,
                client,
                ReportedCall::from_call(call.as_api_call()),
                what,
                false,
            );
            headers.append(WARNING_HEADER, finding.to_header());
        }
        if errors.is_empty() { Ok(Assessment { deprecated: known.deprecated, headers }) } else { Err(errors) }
    }

    fn record_deprecated_call(
        &self,
        change: &'static Change,
        client: &str,
        reported: ReportedCall,
        what: &'static str,
        replaced: bool,
    ) {
        self.dependencies.usage.record_deprecated_call(
            change,
            client,
            reported,
            replaced,
            self.dependencies.clock.now().wall,
        );
        let label = metrics::DeprecatedCallLabels { change: change.id.clone(), client: client.to_owned(), what };
        self.dependencies.metrics.gateway_deprecated_calls.get_or_create(&label).inc();
    }

    /// Sends a deprecated call, or its replacement, as the mode says.
    ///
    /// # Errors
    /// The response for the caller if the platform could not be called.
    pub(super) async fn call_or_replace(
        &self,
        call: &UpstreamCall,
        body: CallerBody,
        deprecated: &DeprecatedCall,
        client: &str,
    ) -> Result<CallOutcome, ErrorResponse> {
        let hint = body
            .buffered()
            .filter(|_| deprecated.needs_organization())
            .map_or(OrganizationHint::Missing, organization_hint);
        let mut organization = self.known_organization(&hint);
        let (outcome, unresolved) = match self.actions.options().deprecated {
            DeprecatedCallMode::Off | DeprecatedCallMode::Warn => (self.forward(call, body).await, false),
            DeprecatedCallMode::Always => {
                organization = self.organization(call, &hint).await;
                match call.replacement(deprecated, organization.as_deref()) {
                    Some((replacement, true)) => {
                        (self.forward_replacement(replacement, CallerBody::empty()).await, false)
                    }
                    Some((replacement, false)) => (self.forward_replacement(replacement, body).await, false),
                    None => (self.forward(call, body).await, deprecated.needs_organization()),
                }
            }
            DeprecatedCallMode::Fallback => {
                let replay = body.replay();
                match self.forward(call, body).await {
                    Ok(first) if self.actions.is_fallback_status(first.response.status()) => {
                        // Lookups come after the call itself, which holds no connection meanwhile.
                        let first = if matches!(hint, OrganizationHint::TokenPath(_)) {
                            first.buffer().await
                        } else {
                            Ok(first)
                        };
                        organization = self.organization(call, &hint).await;
                        match (first, call.replacement(deprecated, organization.as_deref()), replay) {
                            (Err(refused), ..) => (Err(refused), false),
                            (Ok(first), Some((replacement, true)), _) => {
                                drop(first);
                                (self.forward_replacement(replacement, CallerBody::empty()).await, false)
                            }
                            (Ok(first), Some((replacement, false)), Some(body)) => {
                                drop(first);
                                (self.forward_replacement(replacement, body).await, false)
                            }
                            (Ok(first), replacement, _) => {
                                (Ok(first), replacement.is_none() && deprecated.needs_organization())
                            }
                        }
                    }
                    first => (first, false),
                }
            }
        };
        let mut outcome = self.annotate(call, deprecated, organization.as_deref(), client, outcome)?;
        if unresolved {
            outcome.response.headers_mut().append(WARNING_HEADER, deprecated.unresolved_warning(&hint).to_header());
        }
        Ok(outcome)
    }

    /// Counts a deprecated call, and adds its `Deprecation` and `Link` headers to the response.
    ///
    /// # Errors
    /// Those of `outcome`.
    pub(super) fn annotate(
        &self,
        call: &UpstreamCall,
        deprecated: &DeprecatedCall,
        organization: Option<&str>,
        client: &str,
        outcome: Result<CallOutcome, ErrorResponse>,
    ) -> Result<CallOutcome, ErrorResponse> {
        let replaced = outcome.as_ref().is_ok_and(|outcome| outcome.replacement.is_some());
        let mut reported = ReportedCall::from_call(call.as_api_call());
        reported.organization = reported.organization.or_else(|| organization.map(str::to_owned));
        self.record_deprecated_call(deprecated.change, client, reported, "deprecated", replaced);
        outcome.map(|mut outcome| {
            for (name, value) in deprecated.headers(organization) {
                outcome.response.headers_mut().append(name, value);
            }
            outcome
        })
    }

    /// Sends a call as it is.
    ///
    /// # Errors
    /// As [`Inner::call_or_replace`].
    pub(super) async fn forward(&self, call: &UpstreamCall, body: CallerBody) -> Result<CallOutcome, ErrorResponse> {
        Ok(CallOutcome {
            replacement: None,
            response: self.call_platform(call, body).await?.map(PlatformBody::Streamed),
        })
    }

    async fn forward_replacement(
        &self,
        replacement: UpstreamCall,
        body: CallerBody,
    ) -> Result<CallOutcome, ErrorResponse> {
        let response = self.call_platform(&replacement, body).await?.map(PlatformBody::Streamed);
        Ok(CallOutcome { replacement: Some(replacement), response })
    }

    /// Returns the organization from the body or the configuration, without a lookup.
    fn known_organization(&self, hint: &OrganizationHint) -> Option<String> {
        match hint {
            OrganizationHint::Organization(organization) => Some(organization.clone()),
            OrganizationHint::InvalidName => None,
            OrganizationHint::TokenPath(_) | OrganizationHint::Missing => self.actions.options().organization.clone(),
        }
    }

    /// Returns the organization, with two lookups if the body names an OAuth token.
    async fn organization(&self, call: &UpstreamCall, hint: &OrganizationHint) -> Option<String> {
        let OrganizationHint::TokenPath(path) = hint else { return self.known_organization(hint) };
        let mut headers = call.headers.clone();
        for name in [CONTENT_TYPE, CONTENT_LENGTH] {
            headers.remove(name);
        }
        let found = async {
            let token = self.fetch_document(path, &headers, MAX_DOCUMENT).await?;
            let client = self.fetch_document(&oauth_client_path(&token)?, &headers, MAX_DOCUMENT).await?;
            organization_from_client(&client)
        };
        found.await.or_else(|| self.known_organization(hint))
    }
}
