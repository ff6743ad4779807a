//! Gates of the listeners: rules of the configuration, joined to the kernel that identifies callers.

use std::sync::Arc;

use keyward_agent::callers::{CallerGate, CallerGateDeps, CallerPolicy};
use keyward_config as config;
use keyward_http::peer::{KernelSupport, PeerKernel, PeerReader};
use keyward_machine::command::ExecutableOpener;

use super::session::Shared;

/// Builds the gate of a listener, and the reader of its peers; without callers neither does anything.
pub(super) fn gate(options: &config::Listener, shared: &Shared) -> (CallerGate, Option<Arc<PeerReader>>) {
    let Some(policy) = options.callers.clone() else { return (CallerGate::default(), None) };
    let kernel = shared.callers.kernel(|| probe(&policy, shared.executables.clone()));
    let reader = PeerReader::new(kernel, policy.executables());
    let deps = CallerGateDeps {
        clock: shared.clock.clone(),
        metrics: shared.metrics.clone(),
        registry: shared.callers.clone(),
    };
    (CallerGate::new(policy, options.name.clone(), deps), Some(Arc::new(reader)))
}

/// Tests which facts the kernel reports about callers, and logs those that it does not report.
fn probe(policy: &CallerPolicy, executables: ExecutableOpener) -> PeerKernel {
    let kernel = PeerKernel::new(KernelSupport::probe()).with_opener(executables);
    let unused = |name: &str| name == "executables" && policy.executables().is_empty();
    let missing = kernel.support().features().into_iter().filter(|(name, there)| !there && !unused(name));
    let missing: Vec<_> = missing.map(|(name, _)| name).collect();
    if !missing.is_empty() {
        tracing::warn!(
            event = "caller.facts.missing",
            missing = missing.join(", "),
            "the kernel does not report all facts about callers; rules that need a missing fact never match"
        );
    }
    kernel
}
