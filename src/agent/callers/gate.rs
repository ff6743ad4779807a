//! Applies a policy to the requests of one listener: names the caller of each, checks its rights, and records both.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::Request;
use keyward_http::guard::LogThrottle;
use keyward_http::peer::{ExecutableAge, PeerChange, PeerFacts, PeerIdentity};
use keyward_machine::clock::Clock;
use keyward_telemetry::audit::{Attestation, AuditedRequest};
use keyward_telemetry::metrics::Metrics;
use keyward_telemetry::status_registry::StatusRegistry;
use prometheus_client::metrics::counter::Counter;

use super::cgroup_path;
use super::grants::{CallerRoute, CallerTokenOptions};
use super::metrics::{AdmissionLabels, CallerLabel, CallerMetrics, CallerRefusalLabels};
use super::policy::CallerPolicy;
use super::refusal::{CallerRefusal, describe};
use super::rule::CallerRule;
use super::usage::{CallerRegistry, CallerUsage};

/// Gate of one listener. Without a policy it lets every request pass that the listener's guard has admitted. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CallerGate(Option<Arc<GateState>>);

/// Collaborators of a gate.
#[derive(Debug, Clone, Default)]
pub struct CallerGateDeps {
    /// Refills the rates.
    pub clock: Clock,
    /// Counts admissions and refusals.
    pub metrics: Metrics,
    /// Counts the use of limits over all listeners.
    pub registry: CallerRegistry,
}

#[derive(Debug)]
struct GateState {
    policy: CallerPolicy,
    listener: String,
    deps: CallerGateDeps,
    /// Of each rule, by rule index.
    callers: Vec<CallerCounters>,
    unmatched: Arc<CallerUsage>,
    log_throttle: LogThrottle,
}

/// Use of a caller's limits, and its counters. Each is looked up once.
#[derive(Debug)]
struct CallerCounters {
    usage: Arc<CallerUsage>,
    admitted: Vec<(CallerRoute, Counter)>,
}

/// Caller of an admitted request. Without a policy there is none, and it permits what the listener permits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AdmittedCaller<'a>(Option<Admitted<'a>>);

#[derive(Debug, Clone, Copy)]
struct Admitted<'a> {
    gate: &'a Arc<GateState>,
    at: usize,
    rule: &'a CallerRule,
    identity: &'a Arc<PeerIdentity>,
    audited: Option<&'a AuditedRequest>,
}

/// Caller of a request that is answered later: its process may change meanwhile.
#[derive(Debug)]
pub(crate) struct WaitingCaller {
    gate: Arc<GateState>,
    identity: Arc<PeerIdentity>,
    audited: Option<AuditedRequest>,
}

impl WaitingCaller {
    /// Checks that the process still is the caller.
    pub(crate) fn check(&self) -> Result<(), CallerRefusal> {
        let refuse = |(at, refusal)| self.gate.refuse(at, Some(self.identity.facts()), self.audited.as_ref(), refusal);
        self.gate.identify(&self.identity, ExecutableAge::Current).map(drop).map_err(refuse)
    }
}

impl CallerGate {
    /// Creates the gate of a listener.
    pub fn new(policy: CallerPolicy, listener: String, deps: CallerGateDeps) -> Self {
        let metrics: CallerMetrics = deps.metrics.get();
        let counters = |rule: &CallerRule| {
            let caller = || rule.name.clone();
            let counter = |route: &CallerRoute| {
                (
                    *route,
                    metrics.admitted.get_or_create(&AdmissionLabels { caller: caller(), route: route.name() }).clone(),
                )
            };
            let admitted = rule.grants.routes.iter().map(counter).collect();
            CallerCounters { usage: deps.registry.usage(&rule.name), admitted }
        };
        let callers = policy.rules().iter().map(counters).collect();
        let unmatched = deps.registry.unmatched();
        let log_throttle = LogThrottle::default();
        Self(Some(Arc::new(GateState { policy, listener, deps, callers, unmatched, log_throttle })))
    }

    /// Names the caller of a request and checks that it has one of these routes, the first of which is counted.
    ///
    /// # Errors
    /// The request is refused. That is counted, and logged at a limited rate.
    pub(crate) fn admit<'a, B>(
        &'a self,
        request: &'a Request<B>,
        routes: &[CallerRoute],
    ) -> Result<AdmittedCaller<'a>, CallerRefusal> {
        let Some(gate) = &self.0 else { return Ok(AdmittedCaller(None)) };
        let audited = AuditedRequest::from_extensions(request.extensions());
        let Some(identity) = request.extensions().get::<Arc<PeerIdentity>>() else {
            return Err(gate.refuse(None, None, audited, CallerRefusal::unidentified()));
        };
        let facts = identity.facts();
        // A token that is handed out cannot be taken back; a later request can still be refused.
        let hands_out_token = routes.iter().any(|route| matches!(route, CallerRoute::Token | CallerRoute::Identity));
        let age = if hands_out_token { ExecutableAge::Current } else { ExecutableAge::Recent };
        let identified = gate.identify(identity, age);
        let (at, rule) = identified.map_err(|(at, refusal)| gate.refuse(at, Some(facts), audited, refusal))?;
        audited.inspect(|audited| audited.attest(attestation(rule, facts)));
        let refuse = |refusal| gate.refuse(Some(at), Some(facts), audited, refusal);
        let Some(route) = routes.iter().find(|route| rule.grants.routes.contains(route)) else {
            return Err(refuse(CallerRefusal::route(rule, routes, facts)));
        };
        let Some(counters) = gate.callers.get(at) else { return Err(refuse(CallerRefusal::unidentified())) };
        let max = rule.grants.connections.unwrap_or(usize::MAX);
        if !identity.hold(&counters.usage.open, max) {
            return Err(refuse(CallerRefusal::connections(rule, max)));
        }
        if let Some(per_second) = rule.grants.requests_per_second {
            let rate_limit = counters.usage.take_request(per_second, gate.deps.clock.now());
            rate_limit.map_err(|wait| refuse(CallerRefusal::rate(rule, per_second, wait)))?;
        }
        counters.usage.admitted.fetch_add(1, Ordering::Relaxed);
        if let Some((_, counter)) = counters.admitted.iter().find(|(admitted, _)| admitted == route) {
            counter.inc();
        }
        Ok(AdmittedCaller(Some(Admitted { gate, at, rule, identity, audited })))
    }

    /// Publishes the callers' status and connections.
    pub(crate) fn publish(&self, status_registry: &StatusRegistry) {
        if let Some(gate) = self.0.as_deref() {
            let callers = gate.deps.registry.status(&gate.policy);
            status_registry.update(|status| status.callers = Some(callers));
        }
    }

    /// Sets the gauges of connections.
    pub(crate) fn publish_metrics(&self) {
        let Some(gate) = self.0.as_deref() else { return };
        let metrics: CallerMetrics = gate.deps.metrics.get();
        for (rule, counters) in gate.policy.rules().iter().zip(&gate.callers) {
            let open = i64::try_from(counters.usage.open.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
            metrics.connections.get_or_create(&CallerLabel { caller: rule.name.clone() }).set(open);
        }
    }
}

impl GateState {
    /// Returns the caller of a connection as identified when it connected, if the process is still the same.
    fn identify(
        &self,
        identity: &PeerIdentity,
        age: ExecutableAge,
    ) -> Result<(usize, &CallerRule), (Option<usize>, CallerRefusal)> {
        let facts = identity.facts();
        let connected = self.policy.decide(facts);
        let at = connected.map(|(at, _)| at);
        let decision = connected.ok_or_else(|| (None, CallerRefusal::unmatched(facts)))?;
        match identity.compare(age) {
            PeerChange::Same => Ok(decision),
            PeerChange::Changed(now) if self.policy.decide(&now).map(|(at, _)| at) == at => Ok(decision),
            PeerChange::Changed(now) => Err((at, CallerRefusal::changed(facts, &now))),
            PeerChange::Ended => Err((at, CallerRefusal::ended(facts))),
        }
    }

    /// Records a refusal, also for the audit, and returns it.
    fn refuse(
        &self,
        at: Option<usize>,
        facts: Option<&PeerFacts>,
        audited: Option<&AuditedRequest>,
        refusal: CallerRefusal,
    ) -> CallerRefusal {
        audited.inspect(|audited| audited.refuse(refusal.reason));
        let rule = at.and_then(|at| self.policy.rules().get(at));
        let usage = at.and_then(|at| self.callers.get(at)).map_or(&self.unmatched, |counters| &counters.usage);
        usage.refused.fetch_add(1, Ordering::Relaxed);
        let caller = rule.map(|rule| rule.name.as_str());
        if let Some(suppressed) = self.log_throttle.allow(refusal.reason) {
            tracing::warn!(
                event = "caller.refused",
                listener = self.listener,
                caller,
                reason = refusal.reason,
                process = facts.map(describe),
                attested_by = facts.map(|facts| facts.source.as_str()),
                status = refusal.status.as_u16(),
                suppressed = (suppressed > 0).then_some(suppressed),
                "{}",
                refusal.message
            );
        }
        let labels = CallerRefusalLabels {
            caller: caller.unwrap_or_default().to_owned(),
            listener: self.listener.clone(),
            reason: refusal.reason,
        };
        self.deps.metrics.get::<CallerMetrics>().refused.get_or_create(&labels).inc();
        refusal
    }
}

impl Admitted<'_> {
    fn refuse(&self, refusal: CallerRefusal) -> CallerRefusal {
        self.gate.refuse(Some(self.at), Some(self.identity.facts()), self.audited, refusal)
    }
}

impl<'a> AdmittedCaller<'a> {
    /// Name of the caller; `None` without a policy.
    pub(crate) fn name(&self) -> Option<&'a str> {
        self.0.map(|admitted| admitted.rule.name.as_str())
    }

    /// Rule index of the caller; `None` without a policy.
    pub(crate) fn rule_index(&self) -> Option<usize> {
        self.0.map(|admitted| admitted.at)
    }

    /// Returns the options of its caller token, and the identity of its process; `None` without a caller token.
    pub(crate) fn token_options(&self) -> Option<(&'a str, &'a CallerTokenOptions, &'a Arc<PeerIdentity>)> {
        let Admitted { rule, identity, .. } = self.0?;
        Some((&rule.name, rule.grants.derived_token.as_ref()?, identity))
    }

    /// Returns true if it may use a session.
    pub(crate) fn permits_session(&self, session: &str) -> bool {
        self.0.is_none_or(|admitted| admitted.rule.grants.permits_session(session))
    }

    /// Checks that it may use an identity.
    pub(crate) fn check_identity(&self, identity: &str) -> Result<(), CallerRefusal> {
        match self.0 {
            Some(admitted) if !admitted.rule.grants.permits_identity(identity) => {
                Err(admitted.refuse(CallerRefusal::identity(admitted.rule)))
            }
            _ => Ok(()),
        }
    }

    /// Returns the caller of a response that follows later; `None` without a policy.
    pub(crate) fn to_waiting(self) -> Option<WaitingCaller> {
        let Admitted { gate, identity, audited, .. } = self.0?;
        Some(WaitingCaller { gate: Arc::clone(gate), identity: Arc::clone(identity), audited: audited.cloned() })
    }

    /// Refuses access to a session.
    pub(crate) fn refuse_session(&self) -> Option<CallerRefusal> {
        self.0.map(|admitted| admitted.refuse(CallerRefusal::session(admitted.rule)))
    }

    /// Records a refusal and returns it.
    pub(crate) fn refuse(&self, refusal: CallerRefusal) -> CallerRefusal {
        match self.0 {
            Some(it) => it.refuse(refusal),
            None => refusal,
        }
    }

    /// Refuses a proxied request: `action` completes "may not ...".
    pub(crate) fn refuse_request(&self, reason: &'static str, action: &str) -> Option<CallerRefusal> {
        self.0.map(|admitted| admitted.refuse(CallerRefusal::request(admitted.rule, reason, action)))
    }
}

/// Returns the facts about an admitted process for the audit.
fn attestation(rule: &CallerRule, facts: &PeerFacts) -> Attestation {
    Attestation {
        name: rule.name.as_str().into(),
        attested_by: Some(facts.source.as_str()),
        uid: facts.uid,
        unit: facts.cgroup.as_deref().and_then(cgroup_path::unit).map(Into::into),
        cgroup: facts.cgroup.clone().map(Into::into),
        executable: facts.executable.as_ref().map(|program| program.path.display().to_string().into()),
    }
}
