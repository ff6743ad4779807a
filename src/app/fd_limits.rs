//! Raises the process's limit of open files to what its configuration needs.

use anyhow::Context as _;
use keyward_config::OpenFiles;
#[cfg(feature = "acl")]
use keyward_http::server::ListenerLimits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the process's soft limit of open files up to its hard one if `files` needs more than the soft one.
pub(super) fn reserve(files: &OpenFiles) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let Some(soft) = compute_soft_limit(files, limit)? else { return Ok(()) };
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(soft), ..limit });
    // Without the other files, further clients wait, and a sink is written once there is one.
    if to_count(limit.current) >= files.least() {
        return Ok(());
    }
    raised.with_context(|| format!("cannot raise the limit of open files to {soft}"))
}

/// Returns the number of connections for each socket without a configured one: a listener's default, or as many as the hard
/// limit allows.
#[cfg(feature = "acl")]
pub(super) fn connections_per_socket(files: &OpenFiles) -> usize {
    share_connections(files, getrlimit(Resource::Nofile))
}

#[cfg(feature = "acl")]
fn share_connections(files: &OpenFiles, limit: Rlimit) -> usize {
    let free = to_count(limit.maximum).saturating_sub(files.least());
    (free / files.sockets.max(1)).clamp(16, ListenerLimits::default().connections)
}

/// Returns the soft limit to set; `None` if the current one is enough.
fn compute_soft_limit(files: &OpenFiles, limit: Rlimit) -> anyhow::Result<Option<u64>> {
    let least = files.least();
    let hard = to_count(limit.maximum);
    if !files.configured.is_empty() && least > hard {
        let parts: Vec<_> = files.configured.iter().map(|(part, _)| part.as_str()).collect();
        anyhow::bail!(
            "{} and {} files of keyward itself take {least} open files, and this process may have {hard}: raise its limit \
             (LimitNOFILE= of the unit, or ulimit -n), or write smaller numbers",
            parts.join(", "),
            OpenFiles::RESERVED
        );
    }
    let needed = u64::try_from(files.total()).unwrap_or(u64::MAX);
    // All that is possible: after a reload, old connections stay open for a while.
    Ok(limit.current.is_some_and(|soft| soft < needed).then(|| limit.maximum.unwrap_or(needed)))
}

/// Converts a limit; `None` is no limit.
fn to_count(limit: Option<u64>) -> usize {
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(configured: &[(&str, usize)], sockets: usize) -> OpenFiles {
        let configured = configured.iter().map(|(part, files)| ((*part).to_owned(), *files)).collect();
        OpenFiles { configured, sockets, locks: 0 }
    }

    #[test]
    fn the_soft_limit_is_raised_for_the_sum_of_all_parts() {
        let check = |files: OpenFiles, soft, hard, expected| {
            let limit = Rlimit { current: soft, maximum: hard };
            assert_eq!(compute_soft_limit(&files, limit).map_err(|error| error.to_string()), expected, "{files:?}");
        };
        let gateway = ("gateway.connections = 256", 256);
        check(files(&[], 0), Some(1024), Some(4096), Ok(None));
        check(files(&[], 1), Some(64), Some(64), Ok(Some(64)));
        check(files(&[gateway], 1), Some(8192), Some(8192), Ok(None));
        check(files(&[gateway], 1), Some(1024), Some(524_288), Ok(Some(524_288)));
        check(files(&[gateway], 2), Some(1024), None, Ok(Some(2560)));
        check(files(&[gateway], 1), None, None, Ok(None));
        // Clients may be fewer, so that a low limit does not keep a part with few connections from its work.
        check(files(&[gateway], 1), Some(1024), Some(1024), Ok(Some(1024)));
        check(OpenFiles { locks: 1000, ..files(&[], 0) }, Some(1024), None, Ok(Some(1256)));
        let proxy = ("listener.proxy.connections = 4000", 4000);
        check(files(&[proxy, ("acl.connections = 4000", 4000)], 1), Some(8256), Some(8256), Ok(Some(8256)));
        let error = "listener.proxy.connections = 4000, acl.connections = 4000 and 256 files of keyward itself take 8256 open \
                     files, and this process may have 8192: raise its limit (LimitNOFILE= of the unit, or ulimit -n), or \
                     write smaller numbers";
        let both = files(&[proxy, ("acl.connections = 4000", 4000)], 1);
        check(both, Some(1024), Some(8192), Err(error.to_owned()));
    }

    #[cfg(feature = "acl")]
    #[test]
    fn the_default_number_of_connections_is_made_to_fit() {
        let check = |files: OpenFiles, hard, expected| {
            let limit = Rlimit { current: Some(64), maximum: hard };
            assert_eq!(share_connections(&files, limit), expected, "{files:?}");
        };
        check(files(&[], 1), Some(4096), 1024);
        check(files(&[], 2), Some(1024), 384);
        check(files(&[("gateway.connections = 256", 256)], 2), Some(1024), 256);
        check(files(&[], 1), Some(64), 16);
        check(files(&[], 1), None, 1024);
    }
}
