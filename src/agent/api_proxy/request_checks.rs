//! Checks a request by the rules of its listener and its caller, wherever the request leads.

use std::borrow::Cow;

use http::{HeaderMap, Response, StatusCode};
use keyward_telemetry::audit::AuditedRequest;

use super::inline_login::InlineLogin;
use super::login_path;
use super::namespace::{self, AllowedNamespaces};
use super::options::{ApiProxyOptions, CallerProxyRules, TokenMode};
use super::path::ApiPath;
use super::query::Query;
use super::request_headers::RequestHeaders;
use super::response::{ProxyBody, error_response, local_response};
use super::rules::{Operation, RuleViolation, Rules};
use super::server_dialect::ServerDialect;
use crate::callers::{AdmittedCaller, CallerRefusal};

/// Rules that apply to one request.
pub(super) struct RequestChecks<'a> {
    pub(super) options: &'a ApiProxyOptions,
    pub(super) dialect: &'a ServerDialect,
    pub(super) caller: AdmittedCaller<'a>,
    /// Limits of the caller; `None` without callers.
    pub(super) limits: Option<&'a CallerProxyRules>,
    pub(super) audited: Option<&'a AuditedRequest>,
}

/// A request as the server reads it.
#[derive(Clone, Copy)]
pub(super) struct ParsedRequest<'a> {
    pub(super) operation: Operation,
    pub(super) path: &'a ApiPath<'a>,
    pub(super) query: Query<'a>,
    pub(super) headers: &'a RequestHeaders<'a>,
    /// All headers.
    pub(super) header_map: &'a HeaderMap,
}

/// The response to a request that is refused.
pub(super) type Refusal = Box<Response<ProxyBody>>;

impl RequestChecks<'_> {
    /// Checks a request. Returns its path behind the namespace that the caller names, as rules see it.
    pub(super) fn check<'p>(&self, request: ParsedRequest<'p>) -> Result<Cow<'p, ApiPath<'p>>, Refusal> {
        let ParsedRequest { operation, path, query, headers, header_map } = request;
        let bad = |reason| refuse(StatusCode::BAD_REQUEST, reason);
        let namespace = self.dialect.named_namespace(headers, query).or_else(bad)?;
        let rule_path = self.path_in_namespace(path, namespace.as_deref())?;
        self.check_rules(operation, &rule_path)?;
        if let Some(namespace) = self.dialect.method_namespace(query).or_else(bad)? {
            let rule_path = self.path_in_namespace(path, Some(&namespace))?;
            self.check_rules(operation, &rule_path)?;
        }
        if self.dialect.leads_elsewhere(headers, query) && self.has_rules() {
            self.audit("namespace");
            return refuse(StatusCode::FORBIDDEN, ELSEWHERE);
        }
        // With `always` these headers are removed, as a caller's token is.
        if headers.has_inline_login && self.options.token_mode == TokenMode::WhenMissing {
            self.check_inline_login(header_map, namespace.as_deref())?;
        }
        Ok(rule_path)
    }

    /// Prepends the caller's namespace to the path, as the server does, so that rules see the same path.
    fn path_in_namespace<'p>(
        &self,
        path: &'p ApiPath<'p>,
        namespace: Option<&str>,
    ) -> Result<Cow<'p, ApiPath<'p>>, Refusal> {
        let Some(namespace) = namespace else { return Ok(Cow::Borrowed(path)) };
        let session_namespace = self.dialect.session_namespace();
        if !self.options.namespaces.permits(session_namespace, namespace) {
            self.audit("namespace");
            return refuse(StatusCode::FORBIDDEN, "this listener does not allow that namespace");
        }
        let limits = self.limits.and_then(|limits| limits.namespaces.as_ref());
        if limits.is_some_and(|namespaces| !namespaces.permits(session_namespace, namespace)) {
            return refuse_caller(self.caller.refuse_request("namespace", "name that namespace"));
        }
        Ok(Cow::Owned(path.in_namespace(&namespace::prefix(session_namespace, namespace))))
    }

    /// Checks a path behind its namespace.
    fn check_rules(&self, operation: Operation, path: &ApiPath<'_>) -> Result<(), Refusal> {
        if let Err(violation) = self.options.rules.check(operation, path) {
            self.audit(violation.name());
            return refuse(StatusCode::FORBIDDEN, describe_violation(violation));
        }
        if self.limits.is_some_and(|limits| limits.rules.check(operation, path).is_err()) {
            return refuse_caller(self.caller.refuse_request("path", "use that path and method"));
        }
        if !self.options.logins && login_path::classify(path).is_some() {
            return self.refuse_login();
        }
        Ok(())
    }

    /// Checks the login that a request to OpenBao carries in its headers, like a request of its own.
    fn check_inline_login(&self, headers: &HeaderMap, namespace: Option<&str>) -> Result<(), Refusal> {
        if !self.options.logins {
            return self.refuse_login();
        }
        let Some(login) = InlineLogin::parse(headers) else {
            return refuse(StatusCode::BAD_REQUEST, "the login in X-Vault-Inline-Auth-* is ambiguous");
        };
        let path = self.path_in_namespace(&login.path, login.namespace.or(namespace))?;
        self.check_rules(login.operation, &path)
    }

    fn refuse_login(&self) -> Result<(), Refusal> {
        self.audit("logins");
        refuse(StatusCode::FORBIDDEN, "logins are not allowed through this listener (logins = false)")
    }

    /// Returns true if some rule limits the paths or namespaces of the request.
    fn has_rules(&self) -> bool {
        let limits_paths = |rules: &Rules| !(rules.allow.is_empty() && rules.deny.is_empty());
        let limits_namespaces = |namespaces: &AllowedNamespaces| !namespaces.is_default();
        limits_paths(&self.options.rules)
            || limits_namespaces(&self.options.namespaces)
            || !self.dialect.session_namespace().is_empty()
            || self.limits.is_some_and(|limits| {
                limits_paths(&limits.rules) || limits.namespaces.as_ref().is_some_and(limits_namespaces)
            })
    }

    fn audit(&self, violation: &'static str) {
        self.audited.inspect(|audited| audited.refuse(violation));
    }
}

/// Builds the response to a request that is refused.
pub(super) fn refuse<T>(status: StatusCode, message: &str) -> Result<T, Refusal> {
    Err(Box::new(error_response(status, message)))
}

pub(super) fn refusal_response(refusal: &CallerRefusal) -> Refusal {
    Box::new(local_response(refusal.to_response()))
}

/// Refuses a request by a caller's rules; `gate` is present wherever this is called.
pub(super) fn refuse_caller<T>(refusal: Option<CallerRefusal>) -> Result<T, Refusal> {
    match refusal {
        Some(refusal) => Err(refusal_response(&refusal)),
        None => refuse(StatusCode::FORBIDDEN, "the rules of callers do not allow this request"),
    }
}

const fn describe_violation(violation: RuleViolation) -> &'static str {
    match violation {
        RuleViolation::NotAllowed => "this listener does not allow that path and method",
        RuleViolation::Denied | RuleViolation::Protected(_) => "this listener denies that path and method",
    }
}

const ELSEWHERE: &str = "rules apply to this request, and they cannot name a datacenter, partition or peer; remove dc, partition and peer \
                         from the query, and X-Consul-Partition";
