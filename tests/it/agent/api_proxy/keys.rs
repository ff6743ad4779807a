//! The key of a listener on TCP: in a separate header, so that a caller can send its own token as well.

use base64::Engine as _;
use keyward_http::guard::AccessMode;
use keyward_machine::secret_string::SecretString;
use serde_json::json;

use crate::harness::raw::Raw;
use crate::harness::scripted::reply;
use crate::harness::vault::{Proxied, fetch};

const KEY: &str = "0123456789abcdef";
const OTHER: &str = "another-key-of-16";

fn keyed() -> Proxied {
    Proxied::admitting(AccessMode::Key(SecretString::from(KEY)), |_, _| {})
}

#[tokio::test]
async fn the_key_in_its_own_header_leaves_a_callers_token_its_place() {
    let proxied = keyed();
    let with_key = |method: &str, path: &str| proxied.request(method, path).header("x-keyward-key", KEY);
    let bearer = "Bearer mine".to_owned();
    for (name, value) in [("x-vault-token", "mine".to_owned()), ("authorization", bearer)] {
        let response = fetch(with_key("GET", "secret/data/web").header(name, &value)).await;
        assert_eq!(response.status, 200, "{response:?}");
        let request = proxied.vault.last();
        assert_eq!(request.header(name), value, "{request:?}");
        assert!(!format!("{:?}", request.headers).contains("tok1"), "{request:?}");
    }
    assert_eq!(fetch(with_key("GET", "secret/data/web")).await.status, 200);
    assert_eq!(proxied.vault.last().token(), "tok1", "who brings none is given the session's");
    assert!(
        proxied.vault.requests().iter().all(|request| !format!("{:?}", request.headers).contains(KEY)),
        "the key stays here"
    );

    // A wrapping token is used where a caller's own goes, and not with the session's.
    proxied.vault.answers(|request| reply(200, &[], json!({ "data": { "of": request.token() } }).to_string()));
    let unwrapped = fetch(with_key("POST", "sys/wrapping/unwrap").header("x-vault-token", "wrapping")).await;
    assert_eq!((unwrapped.status, &unwrapped.json()["data"]["of"]), (200, &json!("wrapping")));
    assert_eq!(fetch(with_key("POST", "sys/wrapping/unwrap")).await.status, 403);
}

#[tokio::test]
async fn the_key_in_two_headers_is_not_forwarded() {
    let proxied = keyed();
    for (name, value) in [("x-vault-token", KEY.to_owned()), ("authorization", format!("Bearer {KEY}"))] {
        let response = fetch(proxied.request("GET", "a").header("x-keyward-key", KEY).header(name, value)).await;
        assert_eq!(response.status, 200, "{response:?}");
        let request = proxied.vault.last();
        assert_eq!((request.token(), format!("{:?}", request.headers).contains(KEY)), ("tok1", false), "{request:?}");
    }
    let open = Proxied::start();
    assert_eq!(fetch(open.request("GET", "a").header("x-keyward-key", KEY)).await.status, 200);
    assert_eq!(open.vault.last().header("x-keyward-key"), "", "where no key is asked for it goes nowhere either");
}

#[tokio::test]
async fn a_wrong_or_repeated_key_is_refused() {
    let proxied = keyed();
    let refused = async |headers: &[(&str, &str)], status: u16| {
        let request =
            headers.iter().fold(proxied.request("GET", "a"), |request, (name, value)| request.header(*name, *value));
        let response = fetch(request).await;
        assert_eq!(response.status, status, "{headers:?}: {response:?}");
        assert!(!response.text.contains(KEY) && !response.text.contains(OTHER));
        response
    };
    refused(&[("x-keyward-key", OTHER)], 403).await;
    refused(&[("x-keyward-key", OTHER), ("x-vault-token", KEY)], 403).await;
    refused(&[("x-keyward-key", "")], 403).await;
    refused(&[("x-keyward-key", KEY), ("x-keyward-key", KEY)], 400).await;
    refused(&[("x-vault-token", "mine")], 403).await;
    let missing = refused(&[], 401).await;
    assert!(missing.error().contains("X-Keyward-Key"), "{missing:?}");
    assert!(proxied.vault.requests().is_empty());
}

#[tokio::test]
async fn a_name_and_password_in_authorization_are_no_token() {
    let basic = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode("me:secret"));
    let proxied = Proxied::start();
    let response = fetch(proxied.request("GET", "secret/data/web").header("authorization", &basic)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let forwarded = proxied.vault.last();
    assert_eq!((forwarded.token(), forwarded.header("authorization")), ("tok1", ""), "{forwarded:?}");
    let own = proxied.request("GET", "a").header("authorization", &basic).header("x-vault-token", "mine");
    assert_eq!(fetch(own).await.status, 200);
    assert_eq!(proxied.vault.last().token(), "mine");

    let keyed = keyed();
    assert_eq!(fetch(keyed.request("GET", "a").header("authorization", &basic)).await.status, 401);
    let both = keyed.request("GET", "a").header("authorization", &basic).header("x-vault-token", KEY);
    assert_eq!(fetch(both).await.status, 200);
    let request = format!(
        "GET /v1/a HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nAuthorization: {basic}\r\n\
         Authorization: Bearer mine\r\nX-Keyward-Key: {KEY}\r\n\r\n"
    );
    assert_eq!(Raw::tcp(keyed.address).await.ask(request).await.status, 200);
    let forwarded = keyed.vault.last();
    let sent: Vec<_> = forwarded.headers.get_all("authorization").iter().map(|value| value.to_str().unwrap()).collect();
    assert!(sent.contains(&"Bearer mine") && forwarded.token().is_empty(), "{forwarded:?}");
}
