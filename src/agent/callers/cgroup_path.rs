//! Unit and pod of a cgroup's path. Pure.
//!
//! Only the way from the root counts. Users and containers may own a part of the tree and name the cgroups below it as
//! they like, so a name further down proves nothing.

/// Returns the system manager's unit of a cgroup, such as `nginx.service`: the first segment that is not a slice. Never
/// returns a unit of a user manager, because the user chose its name.
pub(crate) fn unit(path: &str) -> Option<&str> {
    let part = path
        .strip_prefix('/')?
        .split('/')
        .find(|part| part.rsplit_once('.').is_none_or(|(_, kind)| kind != "slice"))?;
    // systemd puts `_` before a name that the kernel could mistake for a file of its own.
    let name = part.strip_prefix('_').unwrap_or(part);
    let (stem, kind) = name.rsplit_once('.')?;
    (!stem.is_empty() && UNIT_KINDS.contains(&kind)).then_some(name)
}

/// Kinds of units whose processes have a cgroup of their own.
pub const UNIT_KINDS: [&str; 5] = ["service", "scope", "socket", "mount", "swap"];

/// Returns the UID of the pod that owns a container's cgroup, in kubelet's naming for containerd and CRI-O with either
/// cgroup driver. Monitor processes beside a container (conmon) do not count.
pub(super) fn pod(path: &str) -> Option<String> {
    let mut parts = path.strip_prefix('/')?.split('/').peekable();
    // kubelet's `--cgroup-root`, as kind sets it.
    let below = match *parts.peek()? {
        "kubelet.slice" => "kubelet-kubepods",
        "kubelet" => "",
        _ => "kubepods",
    };
    if below != "kubepods" {
        parts.next();
    }
    let first = parts.next()?;
    let uid = if first == "kubepods" && below != "kubelet-kubepods" {
        let next = parts.next()?;
        let part = if matches!(next, "burstable" | "besteffort") { parts.next()? } else { next };
        part.strip_prefix("pod")?.to_owned()
    } else if first.strip_suffix(".slice") == Some(below) {
        let next = parts.next()?;
        let class = |name: &str| next == format!("{below}-{name}.slice");
        let part = if class("burstable") || class("besteffort") { parts.next()? } else { next };
        let name = part.strip_suffix(".slice")?.strip_prefix(below)?;
        let name = ["-burstable", "-besteffort"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        name.strip_prefix("-pod")?.replace('_', "-")
    } else {
        return None;
    };
    let container = parts.next()?;
    let id = container.strip_suffix(".scope").unwrap_or(container);
    let id = ["cri-containerd-", "crio-"].iter().find_map(|runtime| id.strip_prefix(runtime)).unwrap_or(id);
    let is_container = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    pod_uid(&uid).filter(|_| is_container)
}

/// Returns a pod's UID in its usual form: a UUID, or for static pods 32 hexadecimal digits.
pub(super) fn pod_uid(text: &str) -> Option<String> {
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let dashes = |text: &str| text.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    let is_uid = (text.len() == 32 && hex(text)) || (dashes(text) && hex(&text.replace('-', "")));
    is_uid.then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_first_part_that_is_no_slice() {
        for (path, expected) in [
            ("/system.slice/nginx.service", Some("nginx.service")),
            ("/system.slice/nginx.service/worker", Some("nginx.service")),
            ("/system.slice/system-getty.slice/getty@tty1.service", Some("getty@tty1.service")),
            ("/user.slice/user-1000.slice/session-3.scope", Some("session-3.scope")),
            ("/init.scope", Some("init.scope")),
            ("/system.slice/_cpu.service", Some("cpu.service")),
            // A user names the units of its own manager.
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/nginx.service", Some("user@1000.service")),
            ("/docker/0123/system.slice/nginx.service", None),
            ("/system.slice", None),
            ("/", None),
            ("nginx.service", None),
            ("/.service", None),
        ] {
            assert_eq!(unit(path), expected, "{path}");
        }
    }

    #[test]
    fn the_pod_of_a_container_is_known_for_both_runtimes_and_both_drivers() {
        let uid = "0d5ea1a2-7c39-4d3f-9b7e-1f2e3d4c5b6a";
        let id = "ab".repeat(32);
        let under = uid.replace('-', "_");
        let found = |path: String| pod(&path);
        let besteffort = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod";
        for path in [
            format!("/kubepods.slice/kubepods-pod{under}.slice/cri-containerd-{id}.scope"),
            format!("{besteffort}{under}.slice/cri-containerd-{id}.scope"),
            format!("{besteffort}{under}.slice/crio-{id}.scope/app"),
            format!("/kubepods/burstable/pod{uid}/{id}"),
            format!("/kubepods/pod{uid}/{id}"),
            format!("/kubelet/kubepods/pod{uid}/{id}"),
            format!(
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{under}.slice/cri-containerd-{id}.scope"
            ),
        ] {
            assert_eq!(found(path.clone()).as_deref(), Some(uid), "{path}");
        }
        let static_pod = "0123456789abcdef0123456789abcdef";
        assert_eq!(found(format!("/kubepods/burstable/pod{static_pod}/{id}")).as_deref(), Some(static_pod));
        for path in [
            format!("{besteffort}{under}.slice/crio-conmon-{id}.scope"),
            format!("{besteffort}{under}.slice"),
            format!(
                "/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod{under}.slice/crio-{id}.scope"
            ),
            format!("/kubepods/pod{uid}x/{id}"),
            format!("/kubepods/pod{uid}/../{id}"),
            format!("/kubepods.slice/other-pod{under}.slice/crio-{id}.scope"),
            format!("/kubelet.slice/kubepods/pod{uid}/{id}"),
        ] {
            assert_eq!(found(path.clone()), None, "{path}");
        }
    }
}
