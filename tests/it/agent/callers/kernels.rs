//! Older kernels, played by a filter of system calls, and user namespaces.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use serde_json::Value;

use super::{Cgroup, TOKEN, ask_as, cannot_run, client, parse, start};
use crate::harness::agent::Agent;
use crate::harness::refused_calls::{ENOSYS, can_refuse_calls, without};
use crate::harness::world::{World, run_in_network_namespace};

// Of x86_64.
const GETSOCKOPT: u32 = 55;
const IOCTL: u32 = 16;
const PIDFD_OPEN: u32 = 434;
const PIDFD_GET_INFO: u32 = 0xc040_ff0b;
const SO_PEERPIDFD: u32 = 77;
const ENOTTY: u32 = 25;
const ENOPROTOOPT: u32 = 92;

#[test]
fn on_older_kernels_callers_are_told_apart_as_well_and_what_is_missing_is_said_once() {
    if cannot_run() || !can_refuse_calls() {
        return;
    }
    run_in_network_namespace(|| {
        let info = (IOCTL, 1, PIDFD_GET_INFO, ENOTTY);
        let peer = (GETSOCKOPT, 2, SO_PEERPIDFD, ENOPROTOOPT);
        let open = (PIDFD_OPEN, -1, 0, ENOSYS);
        let (web, other) = (Cgroup::new("/keyward-test-NAME.service"), Cgroup::new("/keyward-test-NAME.service"));
        let world = World::start();
        let callers = format!("[caller.web]\nuid = \"2000\"\nunit = \"{}\"\nroutes = [\"token\"]\n", web.unit());
        for (refused, missing) in [
            (vec![info], "pidfd_info"),
            (vec![info, peer], "peer_pidfd, pidfd_info"),
            (vec![info, peer, open], "peer_pidfd, pidfd_info, pidfd_open"),
        ] {
            let agent = start(&world, &callers, &without(&refused));
            let ask = |cgroup, ids| ask_as(Some(cgroup), ids, &agent.socket(), TOKEN).0;
            let granted = [ask(&web, "2000 2000"), ask(&web, "2001 2001"), ask(&other, "2000 2000")];
            assert_eq!(granted, [200, 403, 403], "without {missing}: {}", agent.binary.output());
            let socket = agent.socket();
            let connect = ("connect", socket.to_str().unwrap());
            let orphan =
                client(Some(&web), "2000 2000", &[connect, ("request", TOKEN), ("pass", ""), ("request", TOKEN)]);
            assert_eq!((parse(&orphan[0]).0, parse(&orphan[1]).0), (200, 403), "without {missing}: {orphan:?}");
            let changed = [connect, ("request", TOKEN), ("become", "2001 2001"), ("request", TOKEN)];
            let changed = client(Some(&web), "", &changed);
            assert_eq!((parse(&changed[0]).0, parse(&changed[1]).0), (200, 403), "without {missing}: {changed:?}");
            agent.logs("caller.facts.missing");
            let lines = agent.binary.output();
            assert_eq!(lines.matches("event=\"caller.facts.missing\"").count(), 1, "{lines}");
            assert!(lines.contains(&format!("missing=\"{missing}\"")), "{lines}");
            let kernel: Value = agent.get("/agent/v1/status")["callers"]["kernel"].take();
            assert_eq!(kernel["pidfd_info"], false, "{kernel}");
        }
    });
}

#[test]
fn users_without_an_id_in_the_agents_user_namespace_are_nobody_and_those_of_callers_are_their_own() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        let nobody = "[caller.nobody]\nuid = \"65534\"\nroutes = [\"token\"]\n[caller.group]\ngroup = \"65534\"\nroutes = [\"token\"]\n";
        // In a namespace of its own the agent sees each other user as 65534.
        let agent = start(&world, nobody, "exec unshare --user --map-root-user \"$0\" \"$@\"");
        let (status, body) = ask_as(None, "2000 2000", &agent.socket(), TOKEN);
        assert!(status == 403 && body.contains("uid unknown"), "{status} {body}");
        assert_eq!(ask_as(None, "65534 65534", &agent.socket(), TOKEN).0, 403);
        agent.logs("all_users");
        drop(agent);
        // A caller that is root in a namespace of its own is its user.
        let agent = start(&world, nobody, "");
        let output = std::process::Command::new("setpriv")
            .args([
                "--reuid",
                "2000",
                "--regid",
                "2000",
                "--clear-groups",
                "unshare",
                "--user",
                "--map-root-user",
                "perl",
                "-e",
            ])
            .args([super::CLIENT, "", "", "connect"])
            .arg(agent.socket())
            .args(["request", TOKEN])
            .output()
            .unwrap();
        let line = String::from_utf8(output.stdout).unwrap();
        assert!(
            line.starts_with("403 ") && line.contains("uid 2000"),
            "{line}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(ask_as(None, "65534 65534", &agent.socket(), TOKEN).0, 200, "the real user 65534");
    });
}

#[test]
fn a_socket_of_a_group_without_an_id_in_the_agents_user_namespace_admits_no_stranger() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        // The folder gives its group to the socket. In its namespace the agent sees every group but its own as 65534.
        let edit = |text: String| {
            let folder = &text[text.find("unix://").unwrap() + 7..text.find("/api.sock").unwrap()];
            std::os::unix::fs::chown(folder, None, Some(2002)).unwrap();
            std::fs::set_permissions(folder, Permissions::from_mode(0o2711)).unwrap();
            text.replace("/api.sock\"\n", "/api.sock\"\nmode = \"0666\"\n")
        };
        let agent = Agent::ready_after(&world, "exec unshare --user --map-root-user \"$0\" \"$@\"", edit);
        let folder = agent.socket().parent().unwrap().to_owned();
        std::fs::set_permissions(folder, Permissions::from_mode(0o2711)).unwrap();
        assert_eq!(std::fs::metadata(agent.socket()).unwrap().gid(), 2002);
        let (status, body) = ask_as(None, "2001 2001", &agent.socket(), TOKEN);
        assert!(status == 403 && body.contains("this user is neither the agent's"), "{status} {body}");
    });
}

#[test]
fn t04_callers_over_loopback_are_known_by_the_user_and_the_cgroup_of_their_socket() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let (web, other) = (Cgroup::new("/keyward-test-NAME.service"), Cgroup::new("/keyward-test-NAME.service"));
        let world = World::start();
        let callers = format!(
            "[listener.tcp]\naddress = \"tcp://127.0.0.1:8300\"\n\
             [caller.web]\nuid = \"2000\"\nunit = \"{}\"\nroutes = [\"token\"]\n[caller.gid]\ngid = \"2001\"\nroutes = [\"token\"]\n",
            web.unit()
        );
        let agent = start(&world, &callers, "");
        let ask = |cgroup, ids| ask_as(Some(cgroup), ids, "127.0.0.1:8300".as_ref(), TOKEN);
        assert_eq!(ask(&web, "2000 2000").0, 200, "{}", agent.binary.output());
        for (cgroup, ids) in [(&web, "2001 2001"), (&other, "2000 2000"), (&other, "2001 2001")] {
            let (status, body) = ask(cgroup, ids);
            assert!(status == 403 && body.contains(&format!("uid {}", &ids[..4])), "{ids}: {body}");
        }
    });
}
