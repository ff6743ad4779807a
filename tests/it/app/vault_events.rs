//! Vault's events in the running program: a server of WebSockets that does not know keyward plays them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::acl::third_party_clients::{clients, scripts};
use crate::harness::agent::Agent;
use crate::harness::binary::{eventually, run};
use crate::harness::event_server::{EventServer, Reply, written};
use crate::harness::world::{World, run_in_network_namespace};

const TEMPLATE: &str = "\n[templates]\nevents = true\n\n[template.app]\n\
    contents = '{{ with secret \"secret/data/app\" }}{{ .Data.data.password }}{{ end }}'\n\
    destination = \"FOLDER/app\"\ndebounce = \"0s\"\n";

/// `tests/clients/vault_events.py`.
struct Server {
    process: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(clients().join("bin/python"));
        command.arg("vault_events.py").current_dir(scripts()).env_clear().env("PYTHONDONTWRITEBYTECODE", "1");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, input, lines: BufReader::new(output) }
    }

    /// Waits for the next line that it prints.
    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn address(&mut self) -> SocketAddr {
        ([127, 0, 0, 1], u16::try_from(self.next()["port"].as_u64().unwrap()).unwrap()).into()
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn events_of_a_server_of_websockets_change_the_file_of_the_running_program() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.put("app", &json!({ "password": "p0" }));
        let mut websockets = Server::start();
        let address = websockets.address();
        let front = world.block_on(EventServer::start(world.secrets.url()));
        front.reply_always(Reply::Relay(address));
        let agent = Agent::ready(&world, &[], |text| text.replace(world.secrets.url(), &front.url()) + TEMPLATE);
        assert_eq!(websockets.next()["path"], "/v1/sys/events/subscribe/kv*?json=true");
        let has = |expected: &str| {
            eventually(Duration::from_secs(20), || match std::fs::read_to_string(agent.path("app")) {
                Ok(text) if text == expected => Ok(()),
                other => Err(format!("{other:?}: {}", agent.binary.output())),
            });
        };
        has("p0");
        eventually(Duration::from_secs(20), || {
            let components = agent.get("/agent/v1/status")["components"].take();
            let entry = &components["events/web"];
            let is_shown = entry["ready"] == true && entry["note"] == "follows the server's events";
            if is_shown { Ok(()) } else { Err(entry.to_string()) }
        });
        for number in 1..=3 {
            world.put("app", &json!({ "password": format!("p{number}") }));
            websockets.send(&written("app", number + 1));
            has(&format!("p{number}"));
        }
        assert_eq!(agent.metric("keyward_secret_events_total{session=\"web\",outcome=\"read\"}"), 3);
        websockets.send("ping");
        assert_eq!(websockets.next()["answered"], 3, "pings of the server");
        // It restarts, and a change in between has no event.
        world.put("app", &json!({ "password": "p4" }));
        websockets.send("");
        assert_eq!(websockets.next()["closed"], 1012);
        assert_eq!(websockets.next()["extensions"], 0);
        has("p4");
        assert_eq!(agent.metric("keyward_secret_events_connected{session=\"web\"}"), 1);
        agent.logs("the server closed it (1012): restarts");
        let config = agent.config.display().to_string();
        let (code, text, _) = run(&["status", "--config", &config], &[]);
        assert!(text.contains("follows the server's events"), "{code}: {text}");
    });
}
