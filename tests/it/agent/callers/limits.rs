//! Sessions, rates and connections of callers; what a refusal tells, and where it is recorded.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{Cgroup, TOKEN, ask_as, cannot_run, client, parse, start};
use crate::harness::binary::eventually;
use crate::harness::world::{RESOURCE, World, run_in_network_namespace};

#[test]
fn a_refusal_names_the_process_and_what_it_lacks_and_is_logged_and_counted() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let unit = Cgroup::new("/keyward-test-NAME.service");
        let world = World::start();
        let agent = start(&world, "[caller.web]\nuid = \"33\"\nroutes = [\"status\"]\n", "");
        let (status, body) = ask_as(Some(&unit), "2000 2000", &agent.socket(), TOKEN);
        assert_eq!(status, 403);
        for part in ["no [caller.NAME] matches this process", "uid 2000", "gid 2000", unit.unit()] {
            assert!(body.contains(part), "{part}: {body}");
        }
        assert!(!body.contains("web") && !body.contains("uid 33"), "other callers are not told: {body}");
        let (status, body) = ask_as(Some(&unit), "33 33", &agent.socket(), TOKEN);
        assert_eq!(status, 403);
        assert!(
            body.contains("caller web") && body.contains("route token") && body.contains("granted: status"),
            "{body}"
        );
        agent.logs("event=\"caller.refused\"");
        let refused = |caller: &str, reason: &str| {
            let labels = format!("caller=\"{caller}\",listener=\"local\",reason=\"{reason}\"");
            agent.metric(&format!("keyward_caller_refused_total{{{labels}}}"))
        };
        assert_eq!((refused("", "unmatched"), refused("web", "route")), (1, 1), "{}", agent.binary.output());
        for _ in 0..100 {
            ask_as(Some(&unit), "2000 2000", &agent.socket(), TOKEN);
        }
        let lines = agent.binary.output().lines().filter(|line| line.contains("reason=\"unmatched\"")).count();
        assert!((1..=6).contains(&lines), "{lines} lines of 101 refusals");
        let status: Value = agent.get("/agent/v1/status");
        let callers = &status["callers"];
        assert_eq!(callers["unmatched"], 101, "{callers}");
        assert_eq!(
            (&callers["callers"][0]["name"], &callers["callers"][0]["refused"]),
            (&"web".into(), &1.into()),
            "{callers}"
        );
        assert_eq!(callers["callers"][0]["matches"], "uid 33");
        assert!(callers["kernel"]["cgroups"].as_bool().unwrap(), "{callers}");
    });
}

#[test]
fn a_caller_has_its_own_rate_and_its_own_connections() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        let callers = "[caller.slow]\nuid = \"2000\"\nroutes = [\"token\"]\nrequests_per_second = 5\n\
             [caller.narrow]\nuid = \"2001\"\nroutes = [\"token\"]\nconnections = 2\n";
        let agent = start(&world, callers, "");
        let socket = agent.socket();
        let socket = socket.to_str().unwrap();
        let mut steps = vec![("connect", socket)];
        steps.extend([("request", TOKEN); 40]);
        let statuses: Vec<u16> = client(None, "2000 2000", &steps).iter().map(|line| parse(line).0).collect();
        let granted = statuses.iter().filter(|status| **status == 200).count();
        // Five at once, and a few more while the others are sent.
        assert!((5..20).contains(&granted) && statuses.contains(&429), "{statuses:?}");
        assert_eq!(ask_as(None, "0 0", &agent.socket(), TOKEN).0, 200, "others are not slowed");

        // The client keeps each socket open until it ends.
        let keep = r#"
            use POSIX; use IO::Socket::UNIX;
            my ($path) = @ARGV; $) = "2001 2001"; POSIX::setgid(2001); POSIX::setuid(2001);
            my @all;
            for (1..4) {
                my $s = IO::Socket::UNIX->new(Peer => $path) or die; push @all, $s;
                print $s "GET /agent/v1/token HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\r\n";
                my $line = <$s>; print substr($line, 9, 3), "\n";
            }"#;
        let output = Command::new("perl").args(["-e", keep, socket]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "200\n200\n429\n429\n");
        eventually(Duration::from_secs(10), || {
            let (status, body) = ask_as(None, "2001 2001", &agent.socket(), TOKEN);
            if status == 200 { Ok(()) } else { Err(body) }
        });
    });
}

#[test]
fn a_caller_uses_only_the_sessions_that_it_is_granted() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        let callers = format!(
            "[session.other]\nmount = \"azure\"\n[session.other.cloud]\nrole = \"web\"\nresource = \"{RESOURCE}\"\n\
             [caller.one]\nuid = \"2000\"\nroutes = [\"token\", \"status\", \"proxy\"]\nsessions = [\"other\"]\n"
        );
        let agent = start(&world, &callers, "");
        let get = |path: &str| ask_as(None, "2000 2000", &agent.socket(), path);
        assert_eq!(get("GET /agent/v1/token?session=web").0, 403);
        assert_eq!(get("GET /agent/v1/token?session=nowhere").0, 403, "the answer does not tell which there are");
        let (status, body) = get("GET /agent/v1/status");
        let mut document: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(status, 200);
        assert_eq!(document["sessions"].as_object_mut().unwrap().keys().collect::<Vec<_>>(), ["other"]);
        let (status, body) = get(TOKEN);
        assert!(status == 200 && body.contains("\"session\":\"other\""), "its one session needs no name: {body}");
        let proxied = ask_as(None, "2000 2000", &agent.path("proxy.sock"), "GET /v1/secret/data/web");
        assert!(proxied.0 == 403 && proxied.1.contains("may not use this listener"), "{proxied:?}");
    });
}

#[test]
fn a_reload_puts_other_rules_into_force_and_without_callers_the_socket_decides_as_before() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        let rules = "[caller.web]\nuid = \"2000\"\nroutes = [\"token\"]\n";
        let agent = start(&world, rules, "");
        let ask = |user: &str| ask_as(None, &format!("{user} {user}"), &agent.socket(), TOKEN).0;
        assert_eq!((ask("2000"), ask("2001"), ask("0")), (200, 403, 200));
        agent.edit(|text| text.replace("uid = \"2000\"", "uid = \"2001\""));
        agent.reload("ok");
        assert_eq!((ask("2000"), ask("2001"), ask("0")), (403, 200, 200));
        agent.edit(|text| text.split("[caller.").next().unwrap().to_owned());
        agent.reload("ok");
        assert_eq!((ask("2000"), ask("2001"), ask("0")), (403, 403, 200), "the agent's user and the socket's group");
    });
}
