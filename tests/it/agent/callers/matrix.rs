//! Every user in every cgroup on every route.

use super::{Cgroup, TOKEN, cannot_run, client, parse, start};
use crate::harness::world::{World, run_in_network_namespace};

/// A letter for each route: its socket and a request of it.
const ROUTES: [(char, &str, &str); 6] = [
    ('t', "api.sock", TOKEN),
    ('r', "api.sock", "POST /agent/v1/check"),
    ('p', "proxy.sock", "GET /v1/secret/data/web"),
    ('c', "proxy.sock", "GET /v1/secret/data/registry"),
    ('s', "api.sock", "GET /agent/v1/status"),
    ('h', "api.sock", "GET /readyz"),
];

#[test]
fn five_users_in_four_cgroups_get_exactly_the_six_routes_that_they_are_granted() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        // The machine's cgroups are those of every run of the tests on it.
        let (uid, id) = (format!("0d5ea1a2-7c39-4d3f-9b7e-{:012x}", std::process::id()), "ab".repeat(32));
        let web = Cgroup::new("/keyward-test-NAME.service");
        let cron = Cgroup::new("/keyward-test-NAME.service");
        let pod_path = format!("/kubepods.slice/kubepods-pod{}.slice/cri-containerd-{id}.scope", uid.replace('-', "_"));
        let (pod, other) = (Cgroup::new(&pod_path), Cgroup::new("/keyward-test-NAME/nested"));
        let callers = format!(
            "[caller.web]\nuid = \"33\"\nunit = \"{}\"\nroutes = [\"token\", \"proxy\"]\n\
             [caller.web.proxy]\nallow = [\"GET secret/data/web\"]\n\
             [caller.cron]\nuid = [\"1000\", \"2000\"]\nunit = \"{}\"\nroutes = [\"credentials\", \"status\"]\n\
             [caller.pod]\npod = \"{uid}\"\nroutes = [\"token\", \"health\"]\n",
            web.unit(),
            cron.unit()
        );
        let world = World::start();
        let agent = start(&world, &callers, "");
        let token = agent.sink("token");
        let mut wrong = Vec::new();
        for (cgroup, name, granted) in [
            (&web, "web", [(0, "trpcsh"), (33, "tp"), (1000, ""), (2000, ""), (65534, "")]),
            (&cron, "cron", [(0, "trpcsh"), (33, ""), (1000, "cs"), (2000, "cs"), (65534, "")]),
            (&pod, "pod", [(0, "th"), (33, "th"), (1000, "th"), (2000, "th"), (65534, "th")]),
            (&other, "other", [(0, "trpcsh"), (33, ""), (1000, ""), (2000, ""), (65534, "")]),
        ] {
            for (user, expected) in granted {
                let sockets = ROUTES.map(|(_, socket, _)| agent.path(socket).display().to_string());
                let steps = ROUTES.iter().zip(&sockets);
                let steps: Vec<_> = steps
                    .flat_map(|((.., request), socket)| [("connect", socket.as_str()), ("request", request)])
                    .collect();
                let lines = client(Some(cgroup), &format!("{user} {user}"), &steps);
                assert_eq!(lines.len(), ROUTES.len(), "{lines:?}");
                for ((letter, ..), line) in ROUTES.iter().zip(&lines) {
                    let (status, body) = parse(line);
                    if (status != 403) != expected.contains(*letter) {
                        wrong.push(format!("uid {user} in {name}, {letter}: {line}"));
                    }
                    if status == 403 {
                        let secret = [token.as_str(), "canary"].iter().any(|secret| body.contains(secret));
                        assert!(
                            !secret && (body.contains(&format!("uid {user}")) || body.contains("caller")),
                            "{body}"
                        );
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), agent.binary.output());
    });
}
