//! What of a token stays in the memory of a process that has nothing to do.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually};
use crate::harness::world::World;

/// The places of a text in the writable memory of a process, each with what stands before it; `None` where that may not
/// be read.
fn copies(process: u32, text: &str) -> Option<Vec<String>> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let mut memory = std::fs::File::open(format!("/proc/{process}/mem")).ok()?;
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|mode| mode.starts_with("rw"))) {
        let range = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [range.0, range.1].map(|text| u64::from_str_radix(text, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        // A part of the mapping may be gone by now.
        if memory.seek(SeekFrom::Start(start)).is_err() || memory.read_exact(&mut bytes).is_err() {
            continue;
        }
        found.extend(memchr::memmem::find_iter(&bytes, text).map(|at| {
            let before = &bytes[at.saturating_sub(32)..at];
            format!("{line}: {}", before.escape_ascii())
        }));
    }
    Some(found)
}

#[test]
fn few_copies_of_a_token_are_left_in_memory_once_there_is_nothing_to_do() {
    let world = World::start();
    let agent = Agent::ready(&world, &[], |text| {
        text + "\n[listener.vault]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/vault.sock\"\n"
    });
    let token = agent.sink("token");
    if copies(agent.binary.id(), &token).is_none() {
        eprintln!("not run: the memory of another process may not be read here");
        return;
    }
    let socket = agent.path("vault.sock");
    let pad = "x".repeat(300);
    for round in 0..40 {
        let (status, body) = ask(&socket, "GET", "/v1/auth/token/lookup-self").unwrap();
        assert_eq!(status, 200, "{body}");
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
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    }
    // Connections to the server are closed after half a minute without a request.
    eventually(Duration::from_secs(90), || match copies(agent.binary.id(), &token) {
        Some(found) if found.len() <= 5 => Ok(()),
        found => Err(format!("{found:#?}")),
    });
}
