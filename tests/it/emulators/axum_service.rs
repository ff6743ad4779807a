//! Routers of the emulators on keyward's own HTTP server.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use keyward_emulators::axum_service;
use keyward_http::server::{Endpoint, Listener, ListenerLimits};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::harness::raw::Raw;

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_holds_a_handler_for_half_a_minute() {
    let listener = Listener::bind(&Endpoint::Tcp(([127, 0, 0, 1], 0).into())).unwrap();
    let address = listener.tcp_address().unwrap();
    let service = axum_service(Router::new().route("/", post(async |body: String| body)));
    let mut servers = JoinSet::new();
    servers.spawn(listener.serve(service, ListenerLimits::default(), CancellationToken::new()));
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\n";
    assert_eq!(Raw::tcp(address).await.ask(format!("{head}all of i")).await.body, "all of i");
    let mut slow = Raw::tcp(address).await;
    slow.send(head).await;
    let started = Instant::now();
    for part in ["a", "l", "l"] {
        slow.send(part).await;
        tokio::time::sleep(Duration::from_secs(9)).await;
    }
    assert_eq!(slow.answer().await.unwrap().status, 400);
    assert_eq!(started.elapsed().as_secs(), 30);
}
