//! The cache of an API proxy while a write is in flight: neither a reload nor a restart brings the older value back.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use keyward_emulators::secrets::Operation;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually};
use crate::harness::world::{World, run_in_network_namespace};

/// Sends a request to the proxy; returns the whole response.
fn request(socket: &Path, method: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let head = "Host: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\n";
    let line = format!("{method} /v1/secret/data/example HTTP/1.1\r\n");
    write!(stream, "{line}{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn a_write_in_flight_at_a_reload_or_a_stop_leaves_no_older_value_in_the_cache() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.put("example", &json!({ "text": "first" }));
        let mut agent = Agent::ready(&world, &[], |text| {
            text.replace("mount = \"azure\"", "mount = \"azure\"\nseal_key_file = \"FOLDER/seal.key\"")
                + "[listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/proxy.sock\"\n\
                   [listener.proxy.cache]\nmax_age = \"1h\"\npersist = true\n"
        });
        let (faults, socket) = (world.secrets.faults(), agent.path("proxy.sock"));
        for (old, new, is_reload) in [("first", "second", true), ("second", "third", false)] {
            for _ in 0..2 {
                let response = request(&socket, "GET", "");
                assert!(response.contains(old), "{response} {}", agent.binary.output());
            }
            faults.hang_only(Operation::Secret);
            let before = faults.counts().get(Operation::Secret);
            let (path, body) = (socket.clone(), json!({ "data": { "text": new } }).to_string());
            let write = std::thread::spawn(move || request(&path, "POST", &body));
            eventually(Duration::from_secs(10), || match faults.counts().get(Operation::Secret) {
                now if now > before => Ok(()),
                now => Err(format!("{now} calls: {}", agent.binary.output())),
            });
            if is_reload {
                agent.edit(|text| text.replace("proxy.sock\"\n", "proxy.sock\"\nmode = \"0600\"\n"));
                agent.reload("ok");
                agent.logs("cache.resumed");
            } else {
                agent.binary.signal(Signal::TERM);
                agent.logs("agent.stopping");
            }
            faults.set_unresponsive(false);
            let written = write.join().unwrap();
            assert!(written.starts_with("HTTP/1.1 20"), "{written} {}", agent.binary.output());
            if !is_reload {
                assert!(agent.binary.wait(Duration::from_secs(20)).success(), "{}", agent.binary.output());
                agent.restart(&[]);
                eventually(Duration::from_secs(30), || match ask(&agent.socket(), "GET", "/readyz") {
                    Ok((200, _)) => Ok(()),
                    other => Err(format!("{other:?}: {}", agent.binary.output())),
                });
            }
            let response = request(&socket, "GET", "");
            assert!(response.contains(new), "{response} {}", agent.binary.output());
        }
    });
}
