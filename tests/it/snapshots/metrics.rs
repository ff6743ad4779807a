//! The metrics of an agent with every part: names, types, help texts and names of labels. Values are left out, and so are metrics
//! that nothing has set yet, as the program does not print them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::Transcript;
use super::redact::Redactions;
use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually};
use crate::harness::world::{World, run_in_network_namespace};

const PARTS: &str = r#"
[sink.failing]
path = "FOLDER/folder"
required = false

[listener.proxy]
kind = "api_proxy"
address = "unix://FOLDER/proxy.sock"

[listener.proxy.cache]
max_age = "1h"

[template.conf]
contents = '{{ with secret "secret/data/app" }}{{ .Data.data.password }}{{ end }}'
destination = "FOLDER/conf"
command = ["/bin/true"]

[env_template.PASSWORD]
contents = '{{ with secret "secret/data/app" }}{{ .Data.data.password }}{{ end }}'

[process]
command = ["/bin/sleep", "3600"]

[acl]
listen = "unix://FOLDER/acl.sock"
data_dir = "FOLDER/acl"

[gateway]
upstream = "PLATFORM"
listen = "tcp://127.0.0.1:8800"
token_file = "FOLDER/platform.token"
local_token_file = "FOLDER/local.token"
"#;

/// The families of a text in the OpenMetrics format, by name: its description and the names of its labels.
fn families(text: &str) -> BTreeMap<String, String> {
    let mut families: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(comment) = line.strip_prefix("# ") {
            let name = comment.split(' ').nth(1).unwrap();
            name.clone_into(&mut current);
            let family = families.entry(current.clone()).or_default();
            family.0.extend([line, "\n"]);
        } else {
            let (sample, _) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let labels = labels.trim_end_matches('}').split(',').filter_map(|label| label.split_once('='));
            let labels: Vec<&str> = labels.map(|(name, _)| name).collect();
            let sample = format!("{name}{{{}}}\n", labels.join(","));
            let family = families.get_mut(&current).unwrap();
            if !family.1.contains(&sample) {
                family.1.push(sample);
            }
        }
    }
    families.into_iter().map(|(name, (comment, samples))| (name, comment + &samples.concat())).collect()
}

#[test]
fn metrics_of_every_part() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.put("app", &json!({ "password": "one" }));
        let platform_token = world.platform.faults().mint("gateway").token;
        let agent = Agent::start(&world, &[], |text| {
            let folder = text.split_once("unix://").unwrap().1.split_once("/api.sock").unwrap().0.to_owned();
            std::fs::create_dir(format!("{folder}/folder")).unwrap();
            std::fs::write(format!("{folder}/platform.token"), platform_token.expose_secret()).unwrap();
            let parts = PARTS.replace("PLATFORM", world.platform.url());
            // Checks of the token come after some seconds, and would be counted by chance.
            text.replace("mount = \"azure\"", "mount = \"azure\"\ncheck_interval = \"off\"") + &parts
        });
        agent.sink("token");
        agent.sink("conf");
        agent.sink("local.token");
        // Calls through each listener, a refused one, and an output that is deleted from outside.
        let metrics = || ask(&agent.socket(), "GET", "/metrics").map(|(_, text)| text).unwrap_or_default();
        eventually(Duration::from_secs(30), || ask(&agent.socket(), "GET", "/metrics").map(|_| ()));
        eventually(Duration::from_secs(30), || {
            ask(&agent.path("proxy.sock"), "GET", "/v1/secret/data/app").map(|_| ())
        });
        eventually(Duration::from_secs(30), || ask(&agent.path("acl.sock"), "GET", "/v1/acl/roles").map(|_| ()));
        let refused = "GET /v1/secret/data/app HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        raw(&agent.path("proxy.sock"), refused);
        std::fs::remove_file(agent.path("conf")).unwrap();
        agent.logs("template.restored");
        agent.reload("ok");
        let call = |path: &str| {
            let local = std::fs::read_to_string(agent.path("local.token")).unwrap();
            let request = reqwest::Client::new().get(format!("http://127.0.0.1:8800{path}")).bearer_auth(local.trim());
            world.block_on(async { request.send().await.unwrap().status() })
        };
        call("/api/v2/account/details");
        // These values follow from timing.
        let late = [
            "session_failures{",
            "secret_calls_total{",
            "sink_failures_total{",
            "template_commands_total{",
            "starts_total{",
        ];
        eventually(Duration::from_secs(20), || {
            let text = metrics();
            match late.iter().find(|name| !text.contains(*name)) {
                None => Ok(()),
                Some(name) => Err(format!("no {name}: {text}\n{}", agent.binary.output())),
            }
        });
        let mut transcript = Transcript::new(Redactions::default());
        for (name, text) in families(&metrics()) {
            transcript.add(&name, &text);
        }
        transcript.compare("metrics");
    });
}

/// Sends a request as it stands, and waits for the end of the response.
fn raw(socket: &std::path::Path, request: &str) {
    use std::io::{Read as _, Write as _};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 4"), "{response}");
}
