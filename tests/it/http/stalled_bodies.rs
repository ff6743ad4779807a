//! Bodies that stop on their way through the gateway.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use crate::harness::front::Front;
use crate::harness::raw::Raw;

#[tokio::test]
async fn an_answer_of_the_platforms_that_stops_in_its_body_does_not_hold_a_connection_for_ever() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    let (tell, closed) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut piece = [0; 4096];
        let _ = stream.read(&mut piece);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nhalf";
        stream.write_all(head.as_bytes()).unwrap();
        while stream.read(&mut piece).is_ok_and(|count| count > 0) {}
        let _ = tell.send(());
    });
    let front = Front::with(|options, _| {
        options.upstream = upstream.parse().unwrap();
        options.response_timeout = Duration::from_secs(2);
    });
    let mut caller = Raw::tcp(front.address).await;
    let local = front.local();
    caller
        .send(format!("GET /api/v2/ping HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {local}\r\n\r\n", front.address))
        .await;
    let response = caller.rest().await;
    assert!(response.starts_with("HTTP/1.1 200 OK") && response.ends_with("half"), "{response}");
    tokio::time::timeout(Duration::from_secs(20), closed).await.expect("the platform's connection is closed").unwrap();
}
