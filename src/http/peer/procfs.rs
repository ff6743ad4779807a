//! Files of `/proc/PID`, for kernels that report less by a process's descriptor. Their reader checks afterwards that the process
//! still lives, so that the id meant that process all the time.

use std::io;

/// User and group of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessOwner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Reads the effective user and group of a process.
///
/// # Errors
/// There is no such process, or this process may not see it.
pub(super) fn owner(pid: u32) -> io::Result<ProcessOwner> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    parse_owner(&status).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Reads the supplementary groups of a process.
pub(super) fn groups(pid: u32) -> io::Result<Vec<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(field(&status, "Groups:").unwrap_or_default().split_whitespace().filter_map(|id| id.parse().ok()).collect())
}

/// Reads the path of a process's cgroup of version 2; `None` if it has none.
pub(super) fn cgroup(pid: u32) -> io::Result<Option<String>> {
    Ok(parse_cgroup(&std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?))
}

/// Reads the start time of a process, in clock ticks since the boot. With the id it names one process.
pub(super) fn start_time(pid: u32) -> io::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_start_time(&stat).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// The ids are the real, the effective, the saved and the one for files.
fn parse_owner(status: &str) -> Option<ProcessOwner> {
    let effective = |name| field(status, name)?.split_whitespace().nth(1)?.parse().ok();
    Some(ProcessOwner { uid: effective("Uid:")?, gid: effective("Gid:")? })
}

fn parse_cgroup(text: &str) -> Option<String> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A cgroup that was removed under its processes, and one outside this process's cgroup namespace.
    let is_resolvable =
        path.starts_with('/') && !path.ends_with(" (deleted)") && !path.split('/').any(|part| part == "..");
    is_resolvable.then(|| path.to_owned())
}

/// Parses the start time from `/proc/PID/stat`. The name in parentheses may contain anything; state is the first field
/// after it, start time the 20th. `None` for a zombie.
fn parse_start_time(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let is_over = matches!(fields.next()?, "Z" | "X" | "x");
    fields.nth(18)?.parse().ok().filter(|_| !is_over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_parsed_whatever_name_the_program_has() {
        let status = "Name:\tUid: 7\nUid:\t1000\t1001\t0\t1000\nGid:\t5\t6\t7\t8\nGroups:\t4 24 \n";
        assert_eq!(parse_owner(status), Some(ProcessOwner { uid: 1001, gid: 6 }));
        assert_eq!(parse_owner("Uid:\t1\n"), None);
        let other_fields = (3..=21).map(|at| at.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(parse_start_time(&format!("12 (a) 1 (b)) S {other_fields} 998877 5")), Some(21));
        assert_eq!(parse_start_time(&format!("12 (a) Z {other_fields} 998877 5")), None, "it has ended");
        assert_eq!(parse_start_time("12 (a"), None);
    }

    #[test]
    fn a_cgroup_that_is_gone_or_outside_the_namespace_is_none() {
        let path = |text| parse_cgroup(text);
        assert_eq!(path("4:memory:/x\n0::/system.slice/a.service\n").as_deref(), Some("/system.slice/a.service"));
        assert_eq!(path("0::/\n").as_deref(), Some("/"));
        for text in ["4:memory:/x\n", "0::/a (deleted)\n", "0::/../b\n", "0::a\n"] {
            assert_eq!(path(text), None, "{text}");
        }
    }

    #[test]
    fn this_process_is_read() {
        let pid = std::process::id();
        assert_eq!(owner(pid).unwrap().uid, rustix::process::geteuid().as_raw());
        assert_eq!(start_time(pid).unwrap(), start_time(pid).unwrap());
        assert_eq!(owner(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
