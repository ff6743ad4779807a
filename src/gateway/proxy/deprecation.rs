//! Applies the API history to calls: warns, refuses, replaces and counts them.

use std::sync::Arc;

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use keyward_machine::clock::Clock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::body::CallerBody;
use super::upstream::Upstream;
use super::upstream_call::{CallOutcome, ErrorResponse, PlatformBody, UpstreamCall};
use super::usage_stats::UsageStats;
use crate::actions::organization::{OrganizationHint, oauth_client_path, organization_from_client, organization_hint};
use crate::actions::{
    self, ActionOptions, CallAssessor, DeprecatedCall, DeprecatedCallMode, ReportedCall, WARNING_HEADER,
};
use crate::api_changelog::Change;
use crate::jsonapi_error::JsonApiError;
use crate::metrics::{DeprecatedCallLabels, GatewayMetrics};

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

/// Applies the API history to the calls of one platform.
#[derive(Debug)]
pub(super) struct Deprecations {
    assessor: CallAssessor,
    upstream: Arc<Upstream>,
    usage: Arc<UsageStats>,
    deprecated_calls: Family<DeprecatedCallLabels, Counter>,
    clock: Clock,
}

impl Deprecations {
    pub(super) fn new(
        options: ActionOptions,
        upstream: Arc<Upstream>,
        usage: Arc<UsageStats>,
        metrics: &GatewayMetrics,
        clock: Clock,
    ) -> Self {
        let deprecated_calls = metrics.deprecated_calls.clone();
        Self { assessor: CallAssessor::new(options), upstream, usage, deprecated_calls, clock }
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
        let server = self.upstream.platform.server();
        let assessed = self.assessor.assess_call(call.as_api_call(), &server);
        let mut findings = assessed.findings;
        if assessed.reads_body
            && let Some(body) = body.buffered()
        {
            findings.extend(self.assessor.assess_body(call.as_api_call(), body, &server));
        }
        let errors = if self.assessor.options().strict { actions::blocking_errors(&findings) } else { Vec::new() };
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
        if errors.is_empty() { Ok(Assessment { deprecated: assessed.deprecated, headers }) } else { Err(errors) }
    }

    fn record_deprecated_call(
        &self,
        change: &'static Change,
        client: &str,
        reported: ReportedCall,
        what: &'static str,
        replaced: bool,
    ) {
        self.usage.record_deprecated_call(change, client, reported, replaced, self.clock.now().wall);
        let label = DeprecatedCallLabels { change: change.id.clone(), client: client.to_owned(), what };
        self.deprecated_calls.get_or_create(&label).inc();
    }

    /// Sends a deprecated call, or its replacement, as the mode says.
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
        let (outcome, unresolved) = match self.assessor.options().deprecated {
            DeprecatedCallMode::Off | DeprecatedCallMode::Warn => (self.send_unchanged(call, body).await, false),
            DeprecatedCallMode::Always => {
                organization = self.organization(call, &hint).await;
                match call.replacement(deprecated, organization.as_deref()) {
                    Some((replacement, true)) => (self.send_replacement(replacement, CallerBody::empty()).await, false),
                    Some((replacement, false)) => (self.send_replacement(replacement, body).await, false),
                    None => (self.send_unchanged(call, body).await, deprecated.needs_organization()),
                }
            }
            DeprecatedCallMode::Fallback => {
                let replay = body.replay();
                match self.send_unchanged(call, body).await {
                    Ok(first) if self.assessor.is_fallback_status(first.response.status()) => {
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
                                (self.send_replacement(replacement, CallerBody::empty()).await, false)
                            }
                            (Ok(first), Some((replacement, false)), Some(body)) => {
                                drop(first);
                                (self.send_replacement(replacement, body).await, false)
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
    pub(super) async fn send_unchanged(
        &self,
        call: &UpstreamCall,
        body: CallerBody,
    ) -> Result<CallOutcome, ErrorResponse> {
        Ok(CallOutcome {
            replacement: None,
            response: self.upstream.call(call, body).await?.map(PlatformBody::Streamed),
        })
    }

    async fn send_replacement(
        &self,
        replacement: UpstreamCall,
        body: CallerBody,
    ) -> Result<CallOutcome, ErrorResponse> {
        let response = self.upstream.call(&replacement, body).await?.map(PlatformBody::Streamed);
        Ok(CallOutcome { replacement: Some(replacement), response })
    }

    /// Returns the organization from the body or the configuration, without a lookup.
    fn known_organization(&self, hint: &OrganizationHint) -> Option<String> {
        match hint {
            OrganizationHint::Organization(organization) => Some(organization.clone()),
            OrganizationHint::InvalidName => None,
            OrganizationHint::TokenPath(_) | OrganizationHint::Missing => self.assessor.options().organization.clone(),
        }
    }

    /// Returns the organization, with two lookups if the body names an OAuth token.
    async fn organization(&self, call: &UpstreamCall, hint: &OrganizationHint) -> Option<String> {
        let OrganizationHint::TokenPath(path) = hint else { return self.known_organization(hint) };
        let mut headers = call.headers.clone();
        for name in [CONTENT_TYPE, CONTENT_LENGTH] {
            headers.remove(name);
        }
        let lookup = async {
            let token = self.upstream.fetch_document(path, &headers, MAX_DOCUMENT).await?;
            let client = self.upstream.fetch_document(&oauth_client_path(&token)?, &headers, MAX_DOCUMENT).await?;
            organization_from_client(&client)
        };
        lookup.await.or_else(|| self.known_organization(hint))
    }
}
