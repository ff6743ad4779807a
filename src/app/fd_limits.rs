//! Computes how many connections and secrets the process can have within its limit of open files.

#[cfg(feature = "acl")]
use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[cfg(any(feature = "acl", feature = "gateway"))]
use crate::http::server::ListenerLimits;

/// File descriptors that are not client connections: store, log, the agent's own sockets.
const RESERVED_FILES: usize = 256;

/// Raises the limit of descriptors for so many templates, up to the process's hard limit: each waits for up to
/// [`TIMERS_PER_TEMPLATE`] timers of the kernel.
pub(super) fn reserve_for_templates(count: usize) {
    let limit = getrlimit(Resource::Nofile);
    let needed = u64::try_from(RESERVED_FILES + 1024 + count * TIMERS_PER_TEMPLATE).unwrap_or(u64::MAX);
    let needed = limit.maximum.map_or(needed, |hard| hard.min(needed));
    if limit.current.is_some_and(|soft| soft < needed) {
        // Without a descriptor, a boot-time timer falls back to one that stops during a suspend.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit });
    }
}

/// Timers of a template and of a secret in it.
const TIMERS_PER_TEMPLATE: usize = 5;

/// Returns the number of connections that each socket may have: the configured number, else a listener's default or as many as
/// the limit of open files allows. Raises the process's soft limit up to its hard one if needed.
///
/// # Errors
/// The hard limit is too low for the configured number.
#[cfg(feature = "acl")]
pub(super) fn reserve_connections(configured: Option<usize>, sockets: usize) -> anyhow::Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    let budget = compute_fd_budget(configured, sockets, limit)?;
    if let Some(soft) = budget.raise_to {
        setrlimit(Resource::Nofile, Rlimit { current: Some(soft), ..limit })
            .with_context(|| format!("cannot raise the limit of open files to {soft}"))?;
    }
    Ok(budget.connections)
}

/// Raises the limit of descriptors for the gateway's `connections` to the platform and for the clients of its sockets, up to the
/// process's hard limit.
///
/// # Errors
/// The hard limit is too low for the connections to the platform.
#[cfg(feature = "gateway")]
pub(super) fn reserve_for_gateway(connections: usize, sockets: usize) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if let Some(soft) = compute_gateway_limit(connections, sockets, limit)? {
        // With fewer descriptors, further clients wait.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(soft), ..limit });
    }
    Ok(())
}

/// Returns the soft limit to set; `None` if the current one is enough.
#[cfg(feature = "gateway")]
fn compute_gateway_limit(connections: usize, sockets: usize, limit: Rlimit) -> anyhow::Result<Option<u64>> {
    let hard = limit.maximum.map_or(usize::MAX, |hard| usize::try_from(hard).unwrap_or(usize::MAX));
    let least = connections.saturating_add(RESERVED_FILES);
    anyhow::ensure!(
        least <= hard,
        "gateway.connections = {connections} takes {least} open files, and this process may have {hard}: raise its limit \
         (LimitNOFILE= of the unit, or ulimit -n), or write {} or less",
        hard.saturating_sub(RESERVED_FILES)
    );
    let clients = sockets.saturating_mul(ListenerLimits::default().connections);
    let needed = u64::try_from(least.saturating_add(clients)).unwrap_or(u64::MAX);
    // All that is possible: other parts need descriptors too.
    Ok(limit.current.is_some_and(|soft| soft < needed).then(|| limit.maximum.unwrap_or(needed)))
}

#[cfg(feature = "acl")]
#[derive(Debug, PartialEq, Eq)]
struct FdBudget {
    connections: usize,
    raise_to: Option<u64>,
}

#[cfg(feature = "acl")]
fn compute_fd_budget(configured: Option<usize>, sockets: usize, limit: Rlimit) -> anyhow::Result<FdBudget> {
    let hard = limit.maximum.map_or(usize::MAX, |hard| usize::try_from(hard).unwrap_or(usize::MAX));
    let sockets = sockets.max(1);
    let max_connections = hard.saturating_sub(RESERVED_FILES) / sockets;
    let connections = configured.unwrap_or_else(|| ListenerLimits::default().connections.min(max_connections.max(16)));
    let needed = connections.saturating_mul(sockets).saturating_add(RESERVED_FILES);
    anyhow::ensure!(
        configured.is_none() || connections <= max_connections,
        "acl.connections = {connections} takes {needed} open files, and this process may have {hard}: raise its limit \
         (LimitNOFILE= of the unit, or ulimit -n), or write {max_connections} or less"
    );
    let needed = u64::try_from(needed).unwrap_or(u64::MAX);
    let raise = limit.current.is_some_and(|soft| soft < needed);
    Ok(FdBudget { connections, raise_to: raise.then(|| limit.maximum.unwrap_or(needed)) })
}

#[cfg(all(test, any(feature = "acl", feature = "gateway")))]
mod tests {
    use super::*;

    #[cfg(feature = "gateway")]
    #[test]
    fn the_gateways_connections_and_clients_are_counted() {
        let compute = |connections, sockets, soft, hard| {
            compute_gateway_limit(connections, sockets, Rlimit { current: soft, maximum: hard })
                .map_err(|error| error.to_string())
        };
        assert_eq!(compute(256, 1, Some(8192), Some(8192)), Ok(None));
        assert_eq!(compute(256, 1, Some(1024), Some(524_288)), Ok(Some(524_288)));
        assert_eq!(compute(256, 2, Some(1024), None), Ok(Some(2560)));
        assert_eq!(compute(10_000, 1, None, None), Ok(None));
        let error = compute(10_000, 1, Some(1024), Some(8192)).unwrap_err();
        assert!(error.contains("takes 10256 open files, and this process may have 8192"), "{error}");
        assert!(error.contains("or write 7936 or less"), "{error}");
        // Clients may be fewer, so that a low limit does not keep a gateway with few connections from its work.
        assert_eq!(compute(256, 1, Some(1024), Some(1024)), Ok(Some(1024)));
    }

    #[cfg(feature = "acl")]
    #[test]
    fn a_configured_number_of_connections_must_be_possible_and_the_default_is_made_to_fit() {
        let check = |configured, sockets, soft, hard, expected: Result<FdBudget, &str>| {
            let found = compute_fd_budget(configured, sockets, Rlimit { current: soft, maximum: hard });
            match (found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(expected)) => assert!(found.to_string().contains(expected), "{found}"),
                (found, expected) => panic!("{found:?} in place of {expected:?}"),
            }
        };
        let as_it_is = |connections| Ok(FdBudget { connections, raise_to: None });
        let raised = |connections, soft| Ok(FdBudget { connections, raise_to: Some(soft) });
        check(None, 1, Some(4096), Some(4096), as_it_is(1024));
        check(None, 1, Some(1024), Some(524_288), raised(1024, 524_288));
        check(None, 2, Some(1024), Some(1024), as_it_is(384));
        check(None, 1, Some(64), Some(64), raised(16, 64));
        check(Some(12_000), 1, Some(20_000), Some(20_000), as_it_is(12_000));
        check(Some(12_000), 2, Some(1024), Some(524_288), raised(12_000, 524_288));
        check(Some(12_000), 1, None, None, as_it_is(12_000));
        check(Some(12_000), 1, Some(1024), None, raised(12_000, 12_256));
        check(
            Some(12_000),
            2,
            Some(1024),
            Some(20_000),
            Err("takes 24256 open files, and this process may have 20000"),
        );
        check(Some(12_000), 2, Some(1024), Some(20_000), Err("or write 9872 or less"));
    }
}
