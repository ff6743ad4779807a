//! Copies of a token that remain in the memory of an idle process.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use keyward_emulators::secrets::{LoginMethod, Operation, Role, Secrets, SecretsOptions};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;

use crate::harness::agent::Agent;
use crate::harness::binary::{Binary, ask, eventually};
use crate::harness::not_run::not_run;
use crate::harness::refused_calls::{ENOMEM, ENOSYS, can_refuse_calls, without};
use crate::harness::world::{World, run_in_network_namespace};

/// The places of a text in the writable memory of a process outside its memory for secrets, each with what stands before it;
/// `None` where that may not be read.
fn copies(process: u32, text: &str) -> Option<Vec<String>> {
    let protected = protected_mappings(process);
    find_copies(process, text, |mapping| !protected.iter().any(|start| mapping.starts_with(start)))
}

/// Beginnings, such as `7f0000000000-`, of the mappings that are left out of core files (`proc_pid_smaps(5)`). Memory for secrets
/// is, of either kind; that of `memfd_secret(2)` cannot be read here at all.
fn protected_mappings(process: u32) -> Vec<String> {
    let smaps = std::fs::read_to_string(format!("/proc/{process}/smaps")).unwrap_or_default();
    let (mut current, mut protected) = ("", Vec::new());
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if flags.split(' ').any(|flag| flag == "dd") {
                protected.push(format!("{}-", current.split('-').next().unwrap()));
            }
        } else if line.split(' ').next().is_some_and(|word| !word.ends_with(':')) {
            current = line;
        }
    }
    protected
}

/// The places of a text in the writable mappings of a process that `takes` accepts, by their lines in `/proc/PID/maps`.
fn find_copies(process: u32, text: &str, takes: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let mut memory = std::fs::File::open(format!("/proc/{process}/mem")).ok()?;
    let mut pages = std::fs::File::open(format!("/proc/{process}/pagemap")).ok()?;
    let (mut found, mut room) = (BTreeMap::new(), vec![0; PIECE]);
    let is_writable = |line: &&str| line.split(' ').nth(1).is_some_and(|mode| mode.starts_with("rw"));
    for line in maps.lines().filter(is_writable).filter(|line| takes(line)) {
        let range = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [range.0, range.1].map(|text| u64::from_str_radix(text, 16).unwrap());
        for (start, end) in used(&mut pages, start, end) {
            // Pieces overlap by more than a token's length.
            for at in (start..end).step_by(PIECE - 4096) {
                let length = usize::try_from(end - at).unwrap().min(PIECE);
                let bytes = &mut room[..length];
                // A part of the mapping may be unmapped by now.
                if memory.seek(SeekFrom::Start(at)).is_err() || memory.read_exact(bytes).is_err() {
                    break;
                }
                for place in memchr::memmem::find_iter(bytes, text) {
                    let before = bytes[place.saturating_sub(32)..place].escape_ascii();
                    found.insert(at + place as u64, format!("{line}: {before}"));
                }
            }
        }
    }
    Some(found.into_values().collect())
}

/// How much is read at once, in bytes.
const PIECE: usize = 1 << 20;

/// The parts of a mapping that are in memory or swapped out (`proc_pid_pagemap(5)`): the allocator reserves far more.
fn used(pages: &mut std::fs::File, start: u64, end: u64) -> Vec<(u64, u64)> {
    const PAGE: u64 = 4096;
    let mut entries = vec![0; usize::try_from((end - start) / PAGE * 8).unwrap()];
    // Special mappings have no entries and cannot be read.
    if pages.seek(SeekFrom::Start(start / PAGE * 8)).is_err() || pages.read_exact(&mut entries).is_err() {
        return Vec::new();
    }
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for (index, entry) in entries.chunks_exact(8).enumerate() {
        // In memory (bit 63), or swapped out (bit 62).
        if entry[7] & 0xc0 == 0 {
            continue;
        }
        let at = start + index as u64 * PAGE;
        match parts.last_mut() {
            Some((_, end)) if *end == at => *end += PAGE,
            _ => parts.push((at, at + PAGE)),
        }
    }
    parts
}

#[test]
fn t26_no_copy_of_a_token_is_left_outside_its_memory_after_requests_that_carried_it() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            text + "\n[listener.vault]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/vault.sock\"\n"
        });
        let token = agent.sink("token");
        if copies(agent.binary.id(), &token).is_none() {
            not_run("the memory of another process may not be read here");
            return;
        }
        let socket = agent.path("vault.sock");
        let (status, body) = ask(&agent.socket(), "GET", "/agent/v1/token").unwrap();
        assert!(status == 200 && body.contains(&token), "{status}");
        let pad = "x".repeat(300);
        for round in 0..40 {
            let (status, body) = ask(&socket, "GET", "/v1/secret/data/nowhere").unwrap();
            assert!((200..500).contains(&status), "{status} {body}");
            // Heads of several lengths, and with bodies of several lengths.
            let mut stream = UnixStream::connect(&socket).unwrap();
            let body = "y".repeat(100 * round);
            write!(
                stream,
                "POST /v1/nowhere HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nX-Pad: {}\r\nConnection: close\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                &pad[..round * 7],
                body.len()
            )
            .unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).unwrap();
            assert!(response.starts_with("HTTP/1.1 "), "{response}");
        }
        // Ends the connections to the server, which would be kept for half a minute without a request.
        world.set_vault_offline(true);
        eventually(Duration::from_mins(2), || {
            let left = copies(agent.binary.id(), &token).unwrap();
            if left.is_empty() { Ok(()) } else { Err(format!("{} copies are left: {left:#?}", left.len())) }
        });
    });
}

#[test]
fn t26_no_copy_of_local_keys_and_seal_keys_is_left_outside_their_memory_also_of_replaced_ones() {
    let keys = |round: u8| [format!("l0cal-key-{round}-9c1d7f"), format!("5eal-key-{round}-{}", "4b8e02a6".repeat(4))];
    run_in_network_namespace(|| {
        let (world, folder) = (World::start(), tempfile::tempdir().unwrap());
        let [local, seal] = ["local.key", "seal.key"].map(|name| folder.path().join(name));
        let write = |round: u8| {
            for (path, key) in [&local, &seal].into_iter().zip(keys(round)) {
                std::fs::write(path, key).unwrap();
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
            }
        };
        write(0);
        let agent = Agent::ready(&world, &[], |text| {
            let sealed = format!("mount = \"azure\"\nseal_key_file = {seal:?}");
            text.replace("mount = \"azure\"", &sealed)
                + &format!("\n[listener.tcp]\naddress = \"tcp://127.0.0.1:8200\"\nkey_file = {local:?}\n")
        });
        agent.sink("token");
        if copies(agent.binary.id(), &keys(0)[0]).is_none() {
            not_run("the memory of another process may not be read here");
            return;
        }
        for round in 0..3 {
            if round > 0 {
                write(round);
                agent.reload("ok");
            }
            let [local, _] = keys(round);
            for path in ["/agent/v1/token", "/agent/v1/status", "/v1/nowhere"].repeat(10) {
                let mut stream = TcpStream::connect("127.0.0.1:8200").unwrap();
                let head = format!("Host: localhost\r\nX-Vault-Request: true\r\nX-Keyward-Key: {local}");
                write!(stream, "GET {path} HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n").unwrap();
                let mut response = String::new();
                stream.read_to_string(&mut response).unwrap();
                assert!(response.starts_with("HTTP/1.1 200") || response.starts_with("HTTP/1.1 404"), "{response}");
            }
            for (length, expected) in [(12_000, "200"), (20_000, "431"), (40_000, "431")] {
                let mut stream = TcpStream::connect("127.0.0.1:8200").unwrap();
                let head = format!("Host: localhost\r\nX-Vault-Request: true\r\nX-Keyward-Key: {local}");
                let pad = "x".repeat(length);
                // In pieces: the buffer grows with each.
                let head =
                    format!("GET /agent/v1/token HTTP/1.1\r\n{head}\r\nX-Pad: {pad}\r\nConnection: close\r\n\r\n");
                for piece in head.as_bytes().chunks(9_000) {
                    std::thread::sleep(Duration::from_millis(20));
                    if stream.write_all(piece).is_err() {
                        break;
                    }
                }
                let mut response = Vec::new();
                let _ = stream.read_to_end(&mut response);
                let response = String::from_utf8_lossy(&response);
                assert!(
                    response.starts_with(&format!("HTTP/1.1 {expected}")) || response.is_empty(),
                    "{length}: {response}"
                );
            }
            eventually(Duration::from_mins(1), || {
                let left = |key: &String| copies(agent.binary.id(), key).unwrap();
                let old: Vec<_> = (0..round).flat_map(keys).flat_map(|key| left(&key)).collect();
                let current = keys(round).map(|key| left(&key));
                if current.iter().all(Vec::is_empty) && old.is_empty() {
                    Ok(())
                } else {
                    Err(format!("current: {current:#?}, replaced: {old:#?}"))
                }
            });
        }
    });
}

#[test]
fn t26_no_copy_of_a_large_secret_is_left_after_its_requests_its_cache_entry_and_its_template() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], |text| {
            text + "\n[listener.vault]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/vault.sock\"\n[listener.vault.cache]\n"
        });
        let base = std::fs::read_to_string(&agent.config).unwrap();
        let send = |method: &str, path: &str, body: &str| {
            let mut stream = UnixStream::connect(agent.path("vault.sock")).unwrap();
            let head = format!(
                "Host: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\nContent-Length: {}",
                body.len()
            );
            write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).unwrap();
            assert!(response.starts_with("HTTP/1.1 20"), "{method} {path}: {:?}", response.lines().next());
            response
        };
        // Sizes around those of buffers that grow: of hyper, of the client, of templates.
        for size in [30_000, 100_000, 300_000, 900_000] {
            let mark = format!("l4rge-secret-{size}-");
            let secret = mark.repeat(size / mark.len());
            send("POST", "/v1/secret/data/large", &format!("{{\"data\":{{\"password\":\"{secret}\"}}}}"));
            // From the server, and then from the cache.
            for _ in 0..2 {
                assert!(send("GET", "/v1/secret/data/large", "").contains(&secret));
            }
            if copies(agent.binary.id(), &mark).is_none() {
                not_run("the memory of another process may not be read here");
                return;
            }
            let contents =
                "{{ with secret \"secret/data/large\" }}{{ .Data.data.password }}{{ .Data.data | toJSON }}{{ end }}";
            agent.edit(|_| {
                format!("{base}\n[template.large]\ncontents = '{contents}'\ndestination = \"FOLDER/{size}\"\n")
            });
            agent.reload("ok");
            assert!(agent.sink(&size.to_string()).len() > 2 * secret.len());
            agent.edit(|_| base.clone());
            agent.reload("ok");
            send("POST", "/agent/v1/cache-clear", "{\"type\":\"all\"}");
            eventually(Duration::from_mins(1), || {
                let left = copies(agent.binary.id(), &mark).unwrap();
                if left.is_empty() {
                    Ok(())
                } else {
                    Err(format!("{} copies of {size}: {:#?}", left.len(), &left[..1]))
                }
            });
        }
    });
}

/// Numbers of system calls of x86_64.
const MEMFD_SECRET: u32 = 447;
const MLOCK: u32 = 149;

#[test]
fn t25_on_older_kernels_tokens_stand_in_locked_memory_and_a_limit_that_forbids_it_is_reported() {
    if !can_refuse_calls() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        let size = |agent: &Agent, protection: &str| {
            let (_, text) = ask(&agent.socket(), "GET", "/metrics").unwrap();
            let name = format!("keyward_protected_memory_bytes{{protection=\"{protection}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok()).unwrap()
        };
        let missing = (MEMFD_SECRET, -1, 0, ENOSYS);
        for (refused, protection) in [(vec![missing], "locked"), (vec![missing, (MLOCK, -1, 0, ENOMEM)], "unlocked")] {
            let agent = Agent::ready_after(&world, &without(&refused), |text| text);
            let token = agent.sink("token");
            assert!(size(&agent, protection) > 0 && size(&agent, "secret_memory") == 0, "{}", agent.binary.output());
            if protection == "unlocked" {
                agent.logs("event=\"memory.unlocked\"");
            }
            let output = agent.binary.output();
            let is_reported = output.matches("event=\"memory.unlocked\"").count() == 1;
            assert_eq!(is_reported, protection == "unlocked", "{output}");
            let component = agent.get("/agent/v1/status")["components"]["memory"].take();
            assert_eq!(component["warning"]["reason"].is_string(), protection == "unlocked", "{component}");
            let process = agent.binary.id();
            let Some(all) = find_copies(process, &token, |_| true) else {
                not_run("the memory of another process may not be read here");
                return;
            };
            assert!(!all.is_empty(), "memory of the older kind can be read, so that this scan finds the token");
            eventually(Duration::from_mins(1), || {
                let left = copies(process, &token).unwrap();
                if left.is_empty() { Ok(()) } else { Err(format!("{left:#?}")) }
            });
        }
    });
}

const JWT: &str = "eyJhbGciOiJub25lIn0.e30.c2lnbmVkLWJ5LW5vYm9keS1hdC1hbGwtZm9yLXRoaXMtdGVzdA";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_replaced_token_is_left_in_memory_by_the_agents_own_calls() {
    let (mut tasks, folder) = (TaskGroup::default(), tempfile::tempdir().unwrap());
    let role = Role { ttl: Duration::from_secs(8), ..Role::default() };
    let roles = BTreeMap::from([("ci".to_owned(), role.clone())]);
    let method = LoginMethod::jwt(vec![SecretString::from(JWT)], roles);
    let options = SecretsOptions {
        methods: BTreeMap::from([("jwt".to_owned(), method)]),
        ..SecretsOptions::for_anyone(Clock::System, "dev", role)
    };
    let secrets = Secrets::start(options, &mut tasks).unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("jwt"), JWT).unwrap();
    let config = format!(
        "[server.main]\nkind = \"vault\"\naddress = \"{}\"\n[session.web.jwt]\nrole = \"ci\"\nfile = \"FOLDER/jwt\"\n\
         [sink.token]\npath = \"FOLDER/token\"\n[listener.local]\naddress = \"unix://FOLDER/api.sock\"\n",
        secrets.url()
    );
    std::fs::write(path("keyward.toml"), config.replace("FOLDER", &folder.path().display().to_string())).unwrap();
    tokio::task::block_in_place(|| {
        let agent =
            Binary::start(&["run", "--config", &path("keyward.toml").display().to_string()], &[], folder.path());
        let next_token = |before: &str| {
            eventually(Duration::from_mins(1), || match std::fs::read_to_string(path("token")) {
                Ok(text) if !text.is_empty() && text != before => Ok(text),
                other => Err(format!("{other:?}: {}", agent.output())),
            })
        };
        let first = next_token("");
        if copies(agent.id(), &first).is_none() {
            not_run("the memory of another process may not be read here");
            return;
        }
        let check = || assert_eq!(ask(&path("api.sock"), "POST", "/agent/v1/check").unwrap().0, 200);
        check();
        eventually(Duration::from_mins(1), || {
            let counts = secrets.faults().counts();
            let enough = counts.get(Operation::Lookup) >= 1 && counts.get(Operation::Renew) >= 2;
            if enough { Ok(()) } else { Err(format!("{counts:?}")) }
        });
        secrets.faults().revoke_all();
        check();
        let second = next_token(&first);
        eventually(Duration::from_secs(30), || {
            let left = copies(agent.id(), &first).unwrap();
            if left.is_empty() { Ok(()) } else { Err(format!("{} copies are left: {left:#?}", left.len())) }
        });
        let left = copies(agent.id(), JWT).unwrap();
        assert!(left.is_empty(), "{} copies of the login's proof are left: {left:#?}", left.len());
        let left = copies(agent.id(), &second).unwrap();
        assert!(left.is_empty(), "{} copies of the current token: {left:#?}", left.len());
    });
}

#[cfg(feature = "gateway")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_copy_of_platform_tokens_is_left_outside_their_memory_by_the_calls_that_make_them() {
    use crate::harness::platform::Emulated;

    let (platform, folder) = (Emulated::start(), tempfile::tempdir().unwrap());
    platform.platform.faults().limit(None);
    let team = platform.make("/api/v2/organizations/example/teams", serde_json::json!({"name": "ops"})).await;
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("parent"), platform.token()).unwrap();
    let write = |requests_per_second: u32| {
        let here = folder.path().display();
        let config = format!(
            "[gateway]\nupstream = \"{}\"\nlisten = \"unix://{here}/gateway.sock\"\nlocal_token_file = \"{here}/local\"\n\
             requests_per_second = {requests_per_second}\n[gateway.mint]\nkind = \"team\"\nowner = \"{team}\"\n\
             organization = \"example\"\nparent_token_file = \"{here}/parent\"\n",
            platform.platform.url()
        );
        std::fs::write(path("keyward.toml"), config).unwrap();
    };
    let minted = async || {
        let tokens = platform.get("/api/v2/organizations/example/team-tokens").await.with(200);
        let tokens = tokens["data"].as_array().unwrap();
        tokens.iter().map(|token| token["id"].to_string()).collect::<Vec<_>>()
    };
    let next = async |before: &[String], agent: &Binary| {
        for _ in 0..2400 {
            match minted().await {
                tokens if tokens.len() == 1 && tokens != before => return tokens,
                _ => tokio::time::sleep(Duration::from_millis(25)).await,
            }
        }
        panic!("{}", agent.output())
    };
    write(500);
    let config = path("keyward.toml").display().to_string();
    let agent = Binary::start(&["run", "--config", &config], &[], folder.path());
    let mut current = next(&[], &agent).await;
    if copies(agent.id(), TOKEN_MARK).is_none() {
        not_run("the memory of another process may not be read here");
        return;
    }
    // Each reload makes a token of its own and deletes the one before.
    for round in 1..4 {
        write(500 + round);
        agent.signal(rustix::process::Signal::HUP);
        current = next(&current, &agent).await;
    }
    tokio::task::block_in_place(|| {
        eventually(Duration::from_mins(1), || {
            let left = copies(agent.id(), TOKEN_MARK).unwrap();
            if left.is_empty() { Ok(()) } else { Err(format!("{} copies: {left:#?}", left.len())) }
        });
    });
}

/// Part of each token of the emulated platform, and of nothing else that the gateway has.
const TOKEN_MARK: &str = ".atlasv1.";
