//! Each failure that was logged is followed by an event when it is over, with its length.

use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation};
use keyward_machine::tasks::TaskGroup;
use serde_json::Value;

use super::derived_tokens::{server, start, start_with};
use crate::harness::binary::{Binary, ask, eventually, run};

/// Waits for an event in the log, and returns its line.
fn logged(agent: &Binary, event: &str) -> String {
    let event = format!("event=\"{event}\"");
    eventually(Duration::from_mins(2), || {
        let output = agent.output();
        output.lines().find(|line| line.contains(&event)).map(str::to_owned).ok_or(format!("no {event}: {output}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_for_operators_have_a_code_in_log_status_and_readiness() {
    let (mut tasks, folder) = (TaskGroup::default(), tempfile::tempdir().unwrap());
    let secrets = server(&mut tasks);
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("blocked")).unwrap();
    std::fs::write(path("seal.key"), "0123456789-0123456789-0123456789-0123456789").unwrap();
    std::fs::write(path("web.secrets"), "damaged").unwrap();
    let sections = "[sink.blocked]\npath = \"FOLDER/blocked\"\n\
        [templates]\npersist = true\n\
        [template.secret]\ncontents = '{{ with secret \"secret/data/example\" }}{{ .Data }}{{ end }}'\n\
        destination = \"FOLDER/secret\"\n\
        [listener.health]\nkind = \"health\"\naddress = \"unix://FOLDER/health.sock\"\n";
    tokio::task::block_in_place(|| {
        let agent = start_with(&secrets, folder.path(), "seal_key_file = \"FOLDER/seal.key\"\n", sections);
        let rejected = logged(&agent, "secrets.state.refused");
        assert!(rejected.contains(" code=\"KW-1305\"") && rejected.contains(" moved_to=\""), "{rejected}");
        let failed = logged(&agent, "sink.write.failed");
        assert!(failed.contains(" code=\"KW-1404\""), "{failed}");
        let ready: Value = eventually(Duration::from_mins(1), || {
            let (_, body) = ask(&path("health.sock"), "GET", "/readyz")?;
            let ready: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
            let components = &ready["components"];
            let rest = ["session/web", "template/secret"].iter().all(|name| components[name]["ready"] == true);
            if rest && components["sink/blocked"]["code"] == "KW-1404" { Ok(ready) } else { Err(body) }
        });
        assert_eq!(ready["components"]["session/web"].get("code"), None, "{ready}");
        let config = path("keyward.toml").display().to_string();
        let (code, _, error) = run(&["healthcheck", "--config", &config], &[]);
        assert!(code == 4 && error.starts_with("error: sink/blocked: ") && error.ends_with(" [KW-1404]\n"), "{error}");
        let (ended, output) = agent.stop();
        assert!(ended.success(), "{output}");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_each_failure_is_logged_with_its_length() {
    let (mut tasks, folder) = (TaskGroup::default(), tempfile::tempdir().unwrap());
    let secrets = server(&mut tasks);
    let faults = secrets.faults();
    let outage = || Some(CannedResponse::error(500, "out of order"));
    faults.respond_always(Operation::Login, outage());
    faults.respond_always(Operation::Secret, outage());
    faults.respond_always(Operation::CreateToken, outage());
    let path = |name: &str| folder.path().join(name);
    for name in ["blocked", "page"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    let sections = "[sink.blocked]\npath = \"FOLDER/blocked\"\n\
        [sink.child]\npath = \"FOLDER/child\"\n[sink.child.derived_token]\nttl = \"1h\"\n\
        [template.page]\ncontents = \"text\"\ndestination = \"FOLDER/page\"\n\
        [template.leased]\ncontents = '{{ with secret \"secret/data/example\" }}{{ .Data }}{{ end }}'\n\
        destination = \"FOLDER/leased\"\n\
        [listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/proxy.sock\"\n";
    let agent = start(&secrets, folder.path(), sections);
    let (agent, faults) = tokio::task::block_in_place(move || {
        logged(&agent, "token.login.failed");
        logged(&agent, "template.failed");
        faults.respond_always(Operation::Login, None);
        let session = logged(&agent, "session.recovered");
        assert!(session.contains("session=\"web\" was=\"login\" lasted_seconds="), "{session}");
        logged(&agent, "sink.write.failed");
        logged(&agent, "agent.secret.failed");
        logged(&agent, "token.derived.failed");
        for name in ["blocked", "page"] {
            std::fs::remove_dir(path(name)).unwrap();
        }
        faults.respond_always(Operation::Secret, None);
        faults.respond_always(Operation::CreateToken, None);
        for (event, name) in [
            ("sink.recovered", "sink=\"blocked\" lasted_seconds="),
            ("template.recovered", "template=\"page\" lasted_seconds="),
            ("agent.secret.recovered", "lasted_seconds="),
            ("token.derived.recovered", "output=\"sink child\" lasted_seconds="),
        ] {
            let line = logged(&agent, event);
            assert!(line.contains(name), "{line}");
        }
        (agent, faults)
    });
    let socket = folder.path().join("proxy.sock");
    let call = || tokio::task::block_in_place(|| ask(&socket, "GET", "/v1/secret/data/example").unwrap().0);
    faults.go_away().await;
    assert_eq!(call(), 502);
    faults.come_back().await;
    assert_eq!(call(), 200);
    tokio::task::block_in_place(|| {
        let line = logged(&agent, "proxy.upstream.recovered");
        assert!(line.contains("server=\"main\" lasted_seconds="), "{line}");
        let (ended, output) = agent.stop();
        assert!(ended.success(), "{output}");
    });
}
