//! Each failure that was logged is followed by an event when it is over, with its length.

use std::time::Duration;

use keyward::emulators::secrets::{CannedResponse, Operation};
use keyward::tasks::TaskGroup;

use super::derived_tokens::{server, start};
use crate::harness::binary::{Binary, ask, eventually};

/// Waits for an event in the log, and returns its line.
fn logged(agent: &Binary, event: &str) -> String {
    let event = format!("event=\"{event}\"");
    eventually(Duration::from_mins(2), || {
        let output = agent.output();
        output.lines().find(|line| line.contains(&event)).map(str::to_owned).ok_or(format!("no {event}: {output}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_each_failure_is_logged_with_its_length() {
    let (mut tasks, folder) = (TaskGroup::default(), tempfile::tempdir().unwrap());
    let secrets = server(&mut tasks);
    let faults = secrets.faults();
    let outage = || Some(CannedResponse::error(500, "out of order"));
    faults.answer_always(Operation::Login, outage());
    faults.answer_always(Operation::Secret, outage());
    let path = |name: &str| folder.path().join(name);
    for name in ["blocked", "page"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    let sections = "[sink.blocked]\npath = \"FOLDER/blocked\"\n\
        [template.page]\ncontents = \"text\"\ndestination = \"FOLDER/page\"\n\
        [template.leased]\ncontents = '{{ with secret \"secret/data/example\" }}{{ .Data }}{{ end }}'\n\
        destination = \"FOLDER/leased\"\n\
        [listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/proxy.sock\"\n";
    let agent = start(&secrets, folder.path(), sections);
    let (agent, faults) = tokio::task::block_in_place(move || {
        logged(&agent, "token.login.failed");
        logged(&agent, "template.failed");
        faults.answer_always(Operation::Login, None);
        let session = logged(&agent, "session.recovered");
        assert!(session.contains("session=\"web\" was=\"login\" lasted=\""), "{session}");
        logged(&agent, "sink.write.failed");
        logged(&agent, "agent.secret.failed");
        for name in ["blocked", "page"] {
            std::fs::remove_dir(path(name)).unwrap();
        }
        faults.answer_always(Operation::Secret, None);
        for (event, name) in [
            ("sink.recovered", "sink=\"blocked\" lasted=\""),
            ("template.recovered", "template=\"page\" lasted=\""),
            ("agent.secret.recovered", "lasted=\""),
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
        assert!(line.contains("server=\"main\" lasted=\""), "{line}");
        let (ended, output) = agent.stop();
        assert!(ended.success(), "{output}");
    });
}
