//! Audits of the real agent: what is recorded, what shows a change, and what a device that fails costs.

#[cfg(all(feature = "acl", feature = "gateway"))]
mod servers;
mod threads;

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::agent::Agent;
use crate::harness::binary::{Binary, ask, eventually, run};
use crate::harness::refused_calls::{can_refuse_calls, without};
use crate::harness::world::{World, run_in_network_namespace};

const PROXY: &str = "[listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/proxy.sock\"\n\
    deny = [\"sys/raw/*\"]\n";

const KEY: &str = "canary-audit-key-0123456789-0123456789";

/// The world's configuration with an API proxy and an audit of these settings.
fn with_audit(settings: &str) -> impl FnOnce(String) -> String {
    let audit = format!("[audit.main]\nkey_file = \"FOLDER/audit.key\"\n{settings}");
    move |text| {
        let folder = Path::new(&text[text.find("unix://").unwrap() + 7..text.find("/api.sock").unwrap()]).to_owned();
        std::fs::write(folder.join("audit.key"), KEY).unwrap();
        std::fs::create_dir_all(folder.join("audit")).unwrap();
        format!("{text}{PROXY}{audit}")
    }
}

const FILE: &str = "path = \"FOLDER/audit/audit.jsonl\"\n";

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Responses that were recorded, by path.
fn responses(agent: &Agent, path: &str) -> Vec<Value> {
    let all = lines(&agent.path("audit/audit.jsonl"));
    all.into_iter().filter(|line| line["type"] == "response" && line["path"] == path).collect()
}

/// `keyward audit verify` of the agent's files: exit code and what it says.
fn verify(agent: &Agent, more: &[&str]) -> (i32, String) {
    let (file, key) = (agent.path("audit/audit.jsonl"), agent.path("audit.key"));
    let mut arguments = vec!["audit", "verify", file.to_str().unwrap(), "--key-file", key.to_str().unwrap()];
    arguments.extend(more);
    let (code, out, error) = run(&arguments, &[]);
    (code, out + &error)
}

#[test]
fn t37_each_request_has_its_record_without_a_secret_and_a_changed_or_cut_audit_is_found() {
    run_in_network_namespace(|| {
        let world = World::start();
        let mut agent =
            Agent::ready(&world, &[], with_audit(&format!("{FILE}checkpoint_file = \"FOLDER/checkpoint\"\n")));
        let token: Value = agent.get("/agent/v1/token");
        let proxy = agent.path("proxy.sock");
        assert_eq!(ask(&proxy, "GET", "/v1/auth/token/lookup-self").unwrap().0, 200);
        assert_eq!(ask(&proxy, "GET", "/v1/sys/raw/x?token=canary-query").unwrap().0, 403);
        assert_eq!(ask(&agent.socket(), "GET", "/agent/v1/token?session=stranger").unwrap().0, 404);
        agent.binary.signal(Signal::TERM);
        assert!(agent.binary.wait(Duration::from_secs(20)).success());

        let uid = rustix::process::geteuid().as_raw();
        let file = agent.path("audit/audit.jsonl");
        let all = lines(&file);
        assert_eq!((&all[0]["type"], &all.last().unwrap()["type"]), (&"start".into(), &"stop".into()), "{all:#?}");
        let check = |path: &str, expected: &[(&str, Value)]| {
            let found = responses(&agent, path).pop().unwrap_or_else(|| panic!("no {path} in {all:#?}"));
            for (key, value) in expected {
                assert_eq!(&found[key], value, "{key} of {found:#}");
            }
            assert_eq!((&found["caller"]["uid"], found["caller"]["pid"].is_u64()), (&uid.into(), true), "{found:#}");
            found
        };
        let session = token["session"].clone();
        let text = |text: &str| Value::from(text);
        let read = check(
            "/agent/v1/token",
            &[("decision", text("refused")), ("status", 404.into()), ("route", text("token")), ("part", text("agent"))],
        );
        assert!(read["session"].is_null(), "{read:#}");
        let reads = responses(&agent, "/agent/v1/token");
        let granted = reads.iter().find(|record| record["decision"] == "granted").unwrap();
        assert_eq!((&granted["session"], &granted["status"]), (&session, &200.into()));
        let hash = granted["accessor"].as_str().unwrap();
        assert!(hash.starts_with("hmac-sha256:"), "{granted:#}");
        let proxied = check(
            "/v1/auth/token/lookup-self",
            &[
                ("decision", text("granted")),
                ("status", 200.into()),
                ("upstream_status", 200.into()),
                ("session", session),
            ],
        );
        assert_eq!(proxied["accessor"], hash, "the same token");
        let request = all.iter().find(|line| line["type"] == "request" && line["id"] == proxied["id"]).unwrap();
        assert!(request["seq"].as_u64() < proxied["seq"].as_u64() && request["status"].is_null(), "{request:#}");
        check("/v1/sys/raw/x", &[("decision", text("refused")), ("rule", text("deny")), ("status", 403.into())]);

        let bytes = std::fs::read_to_string(&file).unwrap();
        let accessor = token["accessor"].as_str().unwrap();
        for secret in [token["token"].as_str().unwrap(), accessor, "canary", KEY] {
            assert!(!bytes.contains(secret), "the audit holds a secret");
        }
        let key = agent.path("audit.key").display().to_string();
        let arguments = ["audit", "show", file.to_str().unwrap(), "--key-file", &key, "--accessor", accessor];
        let (code, out, error) = run(&arguments, &[]);
        assert!(code == 0 && out.lines().count() >= 3 && out.contains("GET /agent/v1/token"), "{out}{error}");
        let checkpoint = agent.path("checkpoint").display().to_string();
        let (code, output) = verify(&agent, &["--checkpoint", &checkpoint]);
        assert!(code == 0 && output.contains("1 checkpoint found") && output.contains("an orderly stop"), "{output}");

        let other = agent.path("audit.key").display().to_string();
        let (code, _, error) = run(&["audit", "show", &other], &[]);
        assert!(code == 1 && error.contains("audit.key holds no record of an audit"), "{code} {error}");

        // A record edited, and the tail cut.
        std::fs::write(&file, bytes.replacen("\"uid\":", "\"uid\":1", 1)).unwrap();
        let (code, output) = verify(&agent, &[]);
        assert!(code == 1 && output.contains("was changed or inserted"), "{output}");
        let cut: String = bytes.split_inclusive('\n').take(2).collect();
        std::fs::write(&file, cut).unwrap();
        assert_eq!(verify(&agent, &[]).0, 0, "nothing in the file shows it");
        let (code, output) = verify(&agent, &["--checkpoint", &checkpoint]);
        assert!(code == 1 && output.contains("are missing at the end"), "{output}");
    });
}

#[test]
fn the_chain_goes_on_after_a_kill_a_torn_line_a_reload_and_a_rotation_by_another_tool() {
    run_in_network_namespace(|| {
        let world = World::start();
        let mut agent = Agent::ready(&world, &[], with_audit(FILE));
        let file = agent.path("audit/audit.jsonl");
        agent.get("/agent/v1/token");
        agent.binary.signal(Signal::KILL);
        agent.binary.wait(Duration::from_secs(20));
        let mut torn = std::fs::read(&file).unwrap();
        torn.extend_from_slice(b"{\"v\":1,\"seq\":9");
        std::fs::write(&file, torn).unwrap();
        agent.restart(&[]);
        eventually(Duration::from_secs(30), || match ask(&agent.socket(), "GET", "/readyz") {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}: {}", agent.binary.output())),
        });
        let again = lines(&file).into_iter().rfind(|line| line["type"] == "start").unwrap();
        assert_eq!((&again["previous"], &again["torn_bytes"]), (&"killed".into(), &14.into()), "{again:#}");
        assert!(again["seq"].as_u64().unwrap() > 1, "{again:#}");

        std::fs::rename(&file, agent.path("audit/audit.jsonl.1")).unwrap();
        agent.reload("ok");
        agent.get("/agent/v1/token");
        eventually(Duration::from_secs(10), || if file.exists() { Ok(()) } else { Err(agent.binary.output()) });
        assert_eq!(lines(&file)[0]["type"], "continue");
        std::fs::remove_file(&file).unwrap();
        agent.get("/agent/v1/token");
        assert!(file.exists(), "a file that was removed is made again at once");
        let removed = verify(&agent, &[]);
        assert!(removed.0 == 1 && removed.1.contains("missing"), "{}", removed.1);
        agent.edit(|text| text.replace("[audit.main]", "[audit.main]\nmax_size_mib = 1\nkeep = 2"));
        agent.reload("ok");
        for _ in 0..2600 {
            agent.get("/agent/v1/token");
        }
        let (first, second) = (agent.path("audit/audit.jsonl.1"), agent.path("audit/audit.jsonl.2"));
        assert!(first.metadata().unwrap().len() <= 1024 * 1024 && second.exists(), "{}", agent.binary.output());
        let (code, out, error) = run(
            &["audit", "verify", first.to_str().unwrap(), "--key-file", agent.path("audit.key").to_str().unwrap()],
            &[],
        );
        assert!(code == 0, "each file is verified alone: {out}{error}");
        agent.edit(|text| text.replace("[audit.main]", "[audit.other]"));
        agent.reload("ok");
        let (status, _) = agent.binary.stop();
        assert!(status.success());
    });
}

#[test]
fn heads_that_the_http_server_refuses_have_records_and_forged_lines_and_missing_files_are_errors() {
    run_in_network_namespace(|| {
        let world = World::start();
        let mut agent = Agent::ready(&world, &[], with_audit(FILE));
        let proxy = agent.path("proxy.sock");
        let long = format!("GET /agent/v1/token HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(20_000));
        for (socket, head, status, rule) in
            [(&agent.socket(), &*long, 431, "head_size"), (&proxy, "BROKEN\r\n\r\n", 400, "malformed")]
        {
            let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, format!("HTTP/1.1 {status}").as_bytes());
            drop(stream);
            let uid = rustix::process::geteuid().as_raw();
            eventually(Duration::from_secs(10), || {
                let all = lines(&agent.path("audit/audit.jsonl"));
                let found = all.iter().find(|record| record["rule"] == rule);
                match found {
                    Some(found) if found["status"] == status && found["caller"]["uid"] == uid => Ok(()),
                    _ => Err(format!("no record of {status}: {all:#?}")),
                }
            });
        }
        agent.binary.signal(Signal::TERM);
        assert!(agent.binary.wait(Duration::from_secs(20)).success());
        let file = agent.path("audit/audit.jsonl");
        let shown = || run(&["audit", "show", file.to_str().unwrap()], &[]);
        assert_eq!((verify(&agent, &[]).0, shown().0), (0, 0));

        let bytes = std::fs::read_to_string(&file).unwrap();
        let forged = r#"{"v":1,"seq":1,"type":"response","path":"/forged","decision":"granted","status":200}"#;
        std::fs::write(&file, format!("{forged}\n{bytes}")).unwrap();
        let (code, output) = verify(&agent, &[]);
        assert!(code == 1 && output.contains("audit.jsonl:1: the line does not end with a MAC"), "{output}");
        let (code, out, error) = shown();
        assert!(
            code == 1 && error.contains("audit.jsonl:1: the line is not a record") && !out.contains("/forged"),
            "{out}{error}"
        );

        std::fs::write(&file, &bytes).unwrap();
        std::fs::write(agent.path("audit/audit.jsonl.2"), "").unwrap();
        let (code, output) = verify(&agent, &[]);
        assert!(code == 1 && output.contains("audit.jsonl.1: the file is missing"), "{output}");
        let (code, _, error) = shown();
        assert!(code == 1 && error.contains("audit.jsonl.1: the file is missing"), "{error}");
    });
}

#[test]
fn a_file_that_was_moved_away_without_a_reload_costs_no_older_file_when_it_is_full() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], with_audit(&format!("{FILE}max_size_mib = 1\nkeep = 3\n")));
        let file = agent.path("audit/audit.jsonl");
        let older = [1, 2].map(|number| agent.path(&format!("audit/audit.jsonl.{number}")));
        for path in &older {
            std::fs::write(path, path.display().to_string()).unwrap();
        }
        std::fs::rename(&file, agent.path("audit/elsewhere")).unwrap();
        eventually(Duration::from_mins(2), || {
            for _ in 0..200 {
                let (status, body) = ask(&agent.socket(), "GET", "/agent/v1/token").unwrap();
                assert_eq!(status, 200, "{body}: {}", agent.binary.output());
            }
            if file.exists() { Ok(()) } else { Err(agent.binary.output()) }
        });
        assert_eq!(lines(&file)[0]["type"], "continue");
        for path in &older {
            assert_eq!(std::fs::read_to_string(path).unwrap(), path.display().to_string(), "it was moved or replaced");
        }
        assert!(agent.path("audit/elsewhere").metadata().unwrap().len() > 1 << 19, "the rest of the chain is kept");
    });
}

#[test]
fn a_disk_that_cannot_sync_refuses_requests_whose_records_must_be_synced_and_is_reported_for_others() {
    const FDATASYNC: u32 = 75;
    const EIO: u32 = 5;
    if !can_refuse_calls() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        for (fsync, status, fails) in [("always", 503, true), ("interval", 200, true), ("never", 200, false)] {
            let setup = without(&[(FDATASYNC, -1, 0, EIO)]);
            let agent = Agent::start_after(&world, &setup, with_audit(&format!("{FILE}fsync = \"{fsync}\"\n")));
            let body = eventually(Duration::from_secs(30), || match ask(&agent.socket(), "GET", "/agent/v1/token")? {
                (found, body) if found == status && (found == 200 || body.contains("KW-1505")) => Ok(body),
                other => Err(format!("{fsync}: {other:?} {}", agent.binary.output())),
            });
            assert_eq!(body.contains("\"token\""), status == 200, "{fsync}: {body}");
            if fails {
                agent.logs("event=\"audit.failed\"");
                agent.logs("Input/output error");
            }
            let responses = responses(&agent, "/agent/v1/token");
            let is_kept = responses.iter().any(|record| record["status"] == 200 && record["decision"] == "granted");
            assert_eq!(is_kept, status == 200, "{fsync}: {responses:#?}");
            if fsync == "interval" {
                // A record that can be written does not mend a sync that failed.
                agent.get("/agent/v1/token");
                assert_eq!(agent.metric("keyward_audit_failing{audit=\"main\"}"), 1, "{}", agent.binary.output());
                assert!(!agent.binary.output().contains("audit.recovered"), "{}", agent.binary.output());
            }
            let (status, output) = agent.binary.stop();
            assert!(status.success() && output.contains("audit.failed") == fails, "{fsync}: {output}");
        }
    });
}

/// Sets up an agent whose audit is on a disk of 128 KiB, and fills that.
fn with_full_disk(world: &World, fail: &str) -> Agent {
    let agent = Agent::ready(world, &[], move |text| {
        let text = with_audit(&format!("{FILE}fail = \"{fail}\"\n"))(text);
        let folder = &text[text.find("unix://").unwrap() + 7..text.find("/api.sock").unwrap()];
        let mounted = ["-t", "tmpfs", "-o", "mode=0700,size=128k", "tmpfs", &format!("{folder}/audit")];
        assert!(Command::new("mount").args(mounted).status().unwrap().success());
        text
    });
    let full = std::fs::write(agent.path("audit/filler"), vec![0; 1 << 20]).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    agent
}

#[test]
fn a_full_disk_refuses_requests_of_a_closed_audit_and_lets_them_through_an_open_one() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = with_full_disk(&world, "closed");
        let proxy = agent.path("proxy.sock");
        let lookups = || world.secrets.faults().counts().total();
        // The last page of the file may have room for some records.
        let refused = eventually(Duration::from_secs(10), || match ask(&agent.socket(), "GET", "/agent/v1/token")? {
            (503, body) => Ok(body),
            other => Err(format!("{other:?}")),
        });
        assert!(refused.contains("the audit main cannot keep a record") && refused.contains("KW-1505"), "{refused}");
        let before = lookups();
        for _ in 0..5 {
            assert_eq!(ask(&proxy, "GET", "/v1/auth/token/lookup-self").unwrap().0, 503);
        }
        assert_eq!(lookups(), before, "nothing is forwarded");
        let component = agent.components()["audit/main"].clone();
        assert!(component["ready"] == false && component["required"] == true, "{component}");
        agent.logs("audit.failed");
        assert_eq!(agent.binary.output().matches("audit.failed").count(), 1, "one line an outage");
        std::fs::remove_file(agent.path("audit/filler")).unwrap();
        // It becomes ready by itself: callers that wait for readiness send nothing.
        eventually(Duration::from_secs(10), || match ask(&agent.socket(), "GET", "/readyz")? {
            (200, _) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        agent.get("/agent/v1/token");
        let lost = lines(&agent.path("audit/audit.jsonl"));
        let lost: u64 =
            lost.iter().filter(|line| line["type"] == "lost").map(|line| line["records"].as_u64().unwrap()).sum();
        assert!(lost >= 6, "{lost} records are counted as lost");
        let (code, output) = verify(&agent, &[]);
        assert!(code == 0 && output.contains("it could not keep"), "{output}");
        drop(agent);

        let agent = with_full_disk(&world, "open");
        let lost = "keyward_audit_records_total{audit=\"main\",outcome=\"lost\"}";
        eventually(Duration::from_secs(10), || {
            agent.get("/agent/v1/token");
            if agent.metric(lost) > 3 { Ok(()) } else { Err(agent.binary.output()) }
        });
        assert_eq!(agent.metric("keyward_audit_failing{audit=\"main\"}"), 1);
        let component = agent.components()["audit/main"].clone();
        assert!(component["ready"] == false && component["required"] == false, "{component}");
        assert_eq!(agent.binary.output().matches("audit.failed").count(), 1, "one line an outage");
    });
}

#[test]
fn a_collector_that_stops_reading_costs_bounded_memory_and_the_chain_is_whole_once_it_reads_again() {
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("collector.sock");
        let collector = UnixListener::bind(&socket).unwrap();
        let settings = |fail: &str| format!("kind = \"socket\"\npath = \"{}\"\nfail = \"{fail}\"\n", socket.display());
        let agent = Agent::ready(&world, &[], with_audit(&settings("open")));
        let (mut stopped, _) = collector.accept().unwrap();
        let memory = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", agent.binary.id())).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().to_owned();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        let before = memory();
        let lost = "keyward_audit_records_total{audit=\"main\",outcome=\"lost\"}";
        eventually(Duration::from_mins(2), || {
            for _ in 0..200 {
                agent.get("/agent/v1/token");
            }
            if agent.metric(lost) > 300 { Ok(()) } else { Err(agent.binary.output()) }
        });
        assert!(memory() < before + 24 * 1024, "{before} KiB before, {} after", memory());
        agent.logs("reads nothing");

        // The same with a closed audit: requests are refused.
        agent.edit(|text| text.replace("fail = \"open\"", "fail = \"closed\""));
        agent.reload("ok");
        let (second, _) = collector.accept().unwrap();
        eventually(Duration::from_mins(2), || match ask(&agent.socket(), "GET", "/agent/v1/token")? {
            (503, body) if body.contains("KW-1505") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = (&second).read_to_string(&mut text);
            sender.send(text).unwrap();
        });
        eventually(Duration::from_secs(20), || match ask(&agent.socket(), "GET", "/agent/v1/token")? {
            (200, _) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        let key = agent.path("audit.key").display().to_string();
        let (status, output) = agent.binary.stop();
        assert!(status.success(), "{output}");
        let second = receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        let mut first = String::new();
        let _ = stopped.read_to_string(&mut first);
        for (name, text) in [("first", first), ("second", second)] {
            let file = folder.path().join(name);
            std::fs::write(&file, &text).unwrap();
            let (code, out, error) = run(&["audit", "verify", file.to_str().unwrap(), "--key-file", &key], &[]);
            // The first connection ended within a line.
            let torn = error
                .lines()
                .all(|line| line.contains("does not end with a MAC") || line.contains("it could not keep"));
            assert!(code == 0 || (name == "first" && torn), "{name}: {out}{error}");
        }
    });
}

/// Collects what is sent to the socket of journald, in a `/run` of its own.
fn journald() -> UnixDatagram {
    let status = Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]).status().expect("mount, of util-linux");
    assert!(status.success(), "a mount namespace of its own");
    std::fs::create_dir_all("/run/systemd/journal").unwrap();
    let socket = UnixDatagram::bind("/run/systemd/journal/socket").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

#[test]
fn journald_gets_an_entry_for_each_record_and_they_verify_as_one_chain() {
    run_in_network_namespace(|| {
        let (world, journald) = (World::start(), journald());
        let mut agent = Agent::ready(&world, &[], with_audit("kind = \"journald\"\n"));
        agent.get("/agent/v1/token");
        assert_eq!(ask(&agent.path("proxy.sock"), "GET", "/v1/sys/raw/x").unwrap().0, 403);
        agent.binary.signal(Signal::TERM);
        assert!(agent.binary.wait(Duration::from_secs(20)).success());
        let (mut messages, mut datagram) = (String::new(), vec![0; 64 << 10]);
        while let Ok(length) = journald.recv(&mut datagram) {
            let entry = std::str::from_utf8(&datagram[..length]).unwrap();
            let message = entry.strip_prefix("PRIORITY=6\nSYSLOG_IDENTIFIER=keyward-audit\nMESSAGE=").expect(entry);
            assert!(message.ends_with('\n') && message.matches('\n').count() == 1, "{entry}");
            messages += message;
        }
        for part in ["\"type\":\"start\"", "\"route\":\"token\"", "\"path\":\"/v1/sys/raw/x\"", "\"type\":\"stop\""] {
            assert!(messages.contains(part), "{part}: {messages}");
        }
        let verify = |text: &str| {
            let key = agent.path("audit.key");
            let mut child = Command::new(env!("CARGO_BIN_EXE_keyward"))
                .args(["audit", "verify", "-", "--key-file", key.to_str().unwrap()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
        };
        let (code, text) = verify(&messages);
        assert!(code == Some(0) && text.contains("an orderly stop"), "{text}");
        let without_second: String =
            messages.split_inclusive('\n').enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| line).collect();
        let (code, text) = verify(&without_second);
        assert!(code == Some(1) && text.contains("missing"), "an entry that journald has dropped: {text}");
    });
}

#[test]
fn followed_records_are_shown_as_they_come_also_after_a_rotation_by_another_tool() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], with_audit(FILE));
        let (file, folder) = (agent.path("audit/audit.jsonl"), tempfile::tempdir().unwrap());
        agent.get("/agent/v1/token");
        let arguments = ["audit", "follow", file.to_str().unwrap(), "--route", "token", "-o", "json"];
        let mut follow = Binary::start(&arguments, &[], folder.path());
        let shows = |decision: &str| {
            eventually(Duration::from_secs(20), || {
                let expected = format!("\"decision\":\"{decision}\"");
                if follow.output().contains(&expected) { Ok(()) } else { Err(follow.output()) }
            });
        };
        eventually(Duration::from_secs(20), || {
            // Records from before the command follows the file are not shown.
            agent.get("/agent/v1/token");
            if follow.output().is_empty() {
                Err(format!("{:?} {}", lines(&file), agent.binary.output()))
            } else {
                Ok(())
            }
        });
        shows("granted");
        assert_eq!(ask(&agent.path("proxy.sock"), "GET", "/v1/auth/token/lookup-self").unwrap().0, 200);
        std::fs::rename(&file, agent.path("audit/audit.old")).unwrap();
        agent.reload("ok");
        agent.get("/agent/v1/token");
        eventually(Duration::from_secs(20), || if file.exists() { Ok(()) } else { Err(agent.binary.output()) });
        assert_eq!(ask(&agent.socket(), "GET", "/agent/v1/token?session=stranger").unwrap().0, 404);
        shows("refused");
        follow.signal(Signal::INT);
        assert_eq!(follow.wait(Duration::from_secs(10)).code(), Some(0), "{}", follow.output());
        let output = follow.output();
        assert!(!output.contains("lookup-self"), "another route: {output}");
    });
}
