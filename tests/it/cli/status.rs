//! `keyward status` of an agent whose response the test writes: states that real agents are rarely in.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::harness::binary::run;

/// Runs `keyward status` with an agent that answers so; returns its output.
fn status(answer: &Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let body = answer.to_string();
    let agent = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + &body).as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    let (code, output, error) = run(&["status", "--address", &address, "-c", "/nowhere/keyward.toml"], &[]);
    assert_eq!(code, 0, "{output}{error}");
    assert!(agent.join().unwrap().starts_with("GET /agent/v1/status HTTP/1.1\r\n"));
    output
}

fn session(failures: u64) -> Value {
    json!({
        "serving": false, "policies": [], "identity": "metadata service", "server": "https://vault.example.com",
        "role": "web", "next_step": "login", "next_step_at": "2026-01-31T09:00:00Z", "failures": failures,
        "last_error": "connection refused", "last_error_code": "KW-3001",
    })
}

#[test]
fn status_counts_one_failure_in_the_singular() {
    let answer = |failures| json!({"version": "1.0.0", "ready": false, "sessions": {"web": session(failures)}});
    let text = status(&answer(1));
    let wanted = "keyward 1.0.0: NOT READY\nsession web: NO TOKEN; no policies\n  as metadata service\n  \
                  at https://vault.example.com, role web\n  next: login at 2026-01-31T09:00:00Z\n  \
                  1 failure in a row: connection refused [KW-3001]\n";
    assert_eq!(text, wanted);
    assert!(status(&answer(2)).contains("\n  2 failures in a row: connection refused [KW-3001]\n"));
}

#[test]
fn status_names_a_listener_that_does_not_serve_with_the_reason() {
    let component = |ready, reason| json!({"ready": ready, "required": true, "started": ready, "reason": reason});
    let components = json!({
        "listener/local": component(true, Value::Null),
        "listener/proxy": component(false, json!("not serving yet")),
        "derived_token/proxy/web": component(false, json!("not created yet")),
    });
    let text = status(&json!({"version": "1.0.0", "ready": false, "sessions": {}, "components": components}));
    let wanted =
        "keyward 1.0.0: NOT READY\nderived_token/proxy/web: not created yet\nlistener/proxy: not serving yet\n";
    assert_eq!(text, wanted);
}
