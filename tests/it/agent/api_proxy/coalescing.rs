//! Equal requests that share one response: only where it fits all of them.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::harness::log;
use crate::harness::not_run::is_root;
use crate::harness::raw::Raw;
use crate::harness::vault::{Proxied, cache, until};

const HOUR: Duration = Duration::from_hours(1);

/// A process of another user that sends a request and waits for the end of the connection. It is killed when dropped.
struct OtherUser(Child);

impl OtherUser {
    fn get(address: SocketAddr, path: &str) -> Self {
        let (ip, port) = (address.ip(), address.port());
        let request = format!("GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\nX-Vault-Request: true\\r\\n\\r\\n");
        let script = format!("exec 3<>/dev/tcp/{ip}/{port}; printf '{request}' >&3; exec cat <&3");
        let child = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("setpriv, of util-linux");
        Self(child)
    }
}

impl Drop for OtherUser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn request(path: &str, header: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n{header}\r\n")
}

#[tokio::test]
async fn a_users_exhausted_share_refuses_no_other_user_of_the_same_request() {
    if !is_root() {
        return;
    }
    log::keep();
    let proxied = Proxied::with(|options, upstream| {
        (options.connections, options.cache) = (4, Some(cache(HOUR, HOUR)));
        upstream.client.connect_timeout = Duration::from_secs(2);
    });
    let _slow = [(); 2].map(|()| OtherUser::get(proxied.address, "/v1/never"));
    until(|| proxied.vault.open() == 2).await;
    let _refused = OtherUser::get(proxied.address, "/v1/secret/data/web");
    let counts = |line: &str| proxied.metrics.text().contains(line);
    until(|| counts("keyward_cache_requests_total{listener=\"vault\",outcome=\"miss\"} 1")).await;
    // The other user's request is first, and waits for a connection.
    let response = proxied.get("secret/data/web").await;
    assert_eq!((response.status, response.cache()), (200, "MISS"), "{response:?}");
    assert!(counts("keyward_local_requests_total{listener=\"vault\",code=\"503\"} 1"), "{}", proxied.metrics.text());
    assert_eq!(proxied.get("secret/data/web").await.cache(), "HIT");
    assert!(!log::text().contains("proxy.upstream.failed"), "{}", log::text());
}

#[tokio::test]
async fn a_caller_without_a_free_connection_gets_a_stale_response_or_a_503_and_no_outage_is_reported() {
    log::keep();
    let proxied = Proxied::with(|options, upstream| {
        (options.connections, options.cache) = (1, Some(cache(Duration::ZERO, HOUR)));
        upstream.client.connect_timeout = Duration::from_millis(300);
    });
    assert_eq!(proxied.get("secret/data/web").await.cache(), "MISS");
    let mut slow = Raw::tcp(proxied.address).await;
    slow.send(request("/v1/never", "")).await;
    until(|| proxied.vault.open() == 1).await;
    let stale = proxied.get("secret/data/web").await;
    assert_eq!((stale.status, stale.cache()), (200, "STALE"), "{stale:?}");
    let refused = proxied.get("secret/data/other").await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.error().starts_with("no connection to the server test at 127.0.0.1:"), "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"));
    assert!(!log::text().contains("proxy.upstream.failed"), "{}", log::text());
}

#[tokio::test]
async fn a_no_cache_request_does_not_share_the_response_to_an_earlier_request() {
    let proxied = Proxied::with(|options, _| options.cache = Some(cache(HOUR, HOUR)));
    let gate = Arc::new(Semaphore::new(0));
    proxied.vault.holds(Arc::clone(&gate));
    let mut earlier = Raw::tcp(proxied.address).await;
    earlier.send(request("/v1/secret/data/web", "")).await;
    until(|| proxied.vault.open() == 1).await;
    let mut fresh = Raw::tcp(proxied.address).await;
    fresh.send(request("/v1/secret/data/web", "Cache-Control: no-cache\r\n")).await;
    until(|| proxied.vault.open() == 2).await;
    gate.add_permits(10);
    for caller in [&mut earlier, &mut fresh] {
        assert_eq!(caller.answer().await.unwrap().status, 200);
    }
    assert_eq!(proxied.get("secret/data/web").await.cache(), "HIT");
    assert_eq!(proxied.vault.requests().len(), 2);
}
