//! The copies of a token that stay in the memory of a process that has nothing to do.

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::harness::agent::Agent;
use crate::harness::binary::ask;
use crate::harness::world::{World, in_a_network_of_its_own};

/// The places of a text in the writable memory of a process, each with what stands before it; `None` where that may not
/// be read.
fn copies(process: u32, text: &str) -> Option<Vec<String>> {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let mut memory = std::fs::File::open(format!("/proc/{process}/mem")).ok()?;
    let (mut found, mut room) = (BTreeMap::new(), vec![0; PIECE]);
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|mode| mode.starts_with("rw"))) {
        let range = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [start, end] = [range.0, range.1].map(|text| u64::from_str_radix(text, 16).unwrap());
        // Pieces overlap by more than a token's length.
        for at in (start..end).step_by(PIECE - 4096) {
            let length = usize::try_from(end - at).unwrap().min(PIECE);
            let bytes = &mut room[..length];
            // A part of the mapping may be gone by now.
            if memory.seek(SeekFrom::Start(at)).is_err() || memory.read_exact(bytes).is_err() {
                break;
            }
            for place in memchr::memmem::find_iter(bytes, text) {
                let before = bytes[place.saturating_sub(32)..place].escape_ascii();
                found.insert(at + place as u64, format!("{line}: {before}"));
            }
        }
    }
    Some(found.into_values().collect())
}

/// How much is read at once, in bytes.
const PIECE: usize = 1 << 20;

#[test]
fn few_copies_of_a_token_are_left_in_memory_after_requests_that_carried_it() {
    in_a_network_of_its_own(|| {
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
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        }
        // Connections to the server are closed after half a minute without a request.
        let mut left = Vec::new();
        for _ in 0..18 {
            // A look reads all of the process's memory, which costs too much to be done all the time.
            std::thread::sleep(Duration::from_secs(5));
            left = copies(agent.binary.id(), &token).unwrap();
            if left.len() <= 5 {
                return;
            }
        }
        panic!("{} copies are left: {left:#?}", left.len());
    });
}
