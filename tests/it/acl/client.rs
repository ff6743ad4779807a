//! Client of the ACL API: requests, parsed responses, retries and timeouts.

mod calls;

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use keyward_acl::client::{
    AclClient, AclClientError, AclClientOptions, Namespace, NewToken, Policy, QueryOptions, Role, Token,
};
use keyward_acl::model::id::Id;
use keyward_http::client::{ServerAddress, TransportError};
use keyward_machine::secret_string::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use wiremock::matchers::{any, header};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

const ID: &str = "6a1253d2-1785-24fd-91c2-f8e78c745511";
const SECRET: &str = "45a3bd52-07c7-47a4-52fd-0745e0cfe967";

fn id() -> Id {
    ID.parse().unwrap()
}

fn options(server: &MockServer, path: &str) -> AclClientOptions {
    let mut options = AclClientOptions::for_url(format!("{}{path}", server.uri()).parse().unwrap());
    options.token = Some(SecretString::from(SECRET));
    options
}

/// Mock server with one response to everything, and a client of it.
async fn mock_server(status: u16, body: impl Into<Vec<u8>>) -> (MockServer, AclClient) {
    let server = MockServer::start().await;
    let response = ResponseTemplate::new(status).set_body_raw(body, "application/json");
    Mock::given(any()).respond_with(response).mount(&server).await;
    let client = AclClient::new(&options(&server, "")).unwrap();
    (server, client)
}

/// Returns method, path with query, and body of the last request.
async fn sent(server: &MockServer) -> (String, Value) {
    let requests = server.received_requests().await.unwrap();
    let request = requests.last().expect("a request");
    let query = request.url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let body = if request.body.is_empty() { Value::Null } else { request.body_json().unwrap() };
    (format!("{} {}{query}", request.method, request.url.path()), body)
}

fn token() -> Value {
    json!({"AccessorID": ID, "SecretID": SECRET, "Description": "web", "Local": true, "CreateIndex": 3,
        "ModifyIndex": 4, "CreateTime": "2030-01-02T03:04:05.000000006Z", "Hash": "h"})
}

#[tokio::test]
async fn the_token_is_sent_in_a_header_only_and_never_printed() {
    let (server, client) = mock_server(200, token().to_string()).await;
    let read: Token = client.read::<Token>(&id(), &QueryOptions::default()).await.unwrap().value;
    let request: &Request = &server.received_requests().await.unwrap()[0];
    assert_eq!(request.headers["x-service-token"].to_str().unwrap(), SECRET);
    assert!(!request.url.as_str().contains(SECRET));
    let text = format!("{client:?} {read:?} {} {:?}", serde_json::to_string(&read).unwrap(), options(&server, ""));
    assert!(!text.contains(SECRET), "{text}");
    let other = client.with_token(SecretString::from("other"));
    other.read_self(&QueryOptions::default()).await.unwrap();
    assert_eq!(server.received_requests().await.unwrap()[1].headers["x-service-token"].to_str().unwrap(), "other");
    let broken =
        client.with_token(SecretString::from("two\nlines")).read_self(&QueryOptions::default()).await.unwrap_err();
    assert!(matches!(&broken, AclClientError::Invalid { .. }) && !broken.to_string().contains("two"), "{broken:?}");
    let (server, client) = mock_server(400, format!("bad token {SECRET}")).await;
    let error = client.read_self(&QueryOptions::default()).await.unwrap_err();
    assert!(!format!("{error:?} {error}").contains(SECRET), "{error:?}");
    drop(server);
}

#[tokio::test]
async fn a_base_path_prefixes_each_path_and_names_stay_one_segment() {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(404)).mount(&server).await;
    let client = AclClient::new(&options(&server, "/access/")).unwrap();
    client.read_by_name::<Role>("a/b?c#d e", &QueryOptions::default()).await.unwrap_err();
    assert_eq!(sent(&server).await.0, "GET /access/v1/acl/role/name/a%2Fb%3Fc%23d%20e");
    let before = server.received_requests().await.unwrap().len();
    for name in ["", ".", ".."] {
        let refused = client.delete::<Namespace>(name).await.unwrap_err();
        assert!(matches!(refused, AclClientError::Invalid { .. }), "{name}: {refused:?}");
    }
    assert_eq!(server.received_requests().await.unwrap().len(), before, "nothing is sent for what is no name");
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_token() {
    let (elsewhere, _client) = mock_server(200, token().to_string()).await;
    let server = MockServer::start().await;
    let away = ResponseTemplate::new(307).insert_header("Location", format!("{}/v1/acl/token/self", elsewhere.uri()));
    Mock::given(any()).respond_with(away).mount(&server).await;
    let client = AclClient::new(&options(&server, "")).unwrap();
    let error = client.read_self(&QueryOptions::default()).await.unwrap_err();
    assert!(matches!(error, AclClientError::Unexpected { status: 307, .. }), "{error:?}");
    assert!(elsewhere.received_requests().await.unwrap().is_empty());
}

#[tokio::test]
async fn responses_of_newer_and_older_servers_and_hidden_secrets_are_accepted() {
    let newer = json!({"AccessorID": ID, "SecretID": "<hidden>", "Policies": null, "Roles": null,
        "ServiceIdentities": [{"ServiceName": "web", "Datacenters": null}], "NodeIdentities": [],
        "TemplatedPolicies": [{"TemplateName": "t", "TemplateVariables": null, "TemplateID": "x"}], "Local": false,
        "CreateTime": "0001-01-01T00:00:00Z", "Legacy": false, "Fresh": {"deep": [1, 2]}, "AuthMethod": "",
        "Namespace": "team", "ExpandedPolicies": null, "AgentACLDefaultPolicy": "deny"});
    let (server, client) = mock_server(200, newer.to_string()).await;
    let (token, expansion) = client.read_token_expanded(&id(), &QueryOptions::default()).await.unwrap().value;
    assert!(token.secret_id.is_none() && token.create_time.is_none() && token.auth_method.is_none());
    assert_eq!(token.links.service_identities[0].service_name, "web");
    assert_eq!((token.namespace.as_deref(), expansion.agent_acl_default_policy.as_str()), (Some("team"), "deny"));
    assert!(expansion.expanded_policies.is_empty());
    drop(server);
    for garbage in ["", "null", "[]", "{\"AccessorID\": 7}", "<html>", "{\"AccessorID\": \"hush-hush\"}"] {
        let (_server, client) = mock_server(200, garbage).await;
        let error = client.read_self(&QueryOptions::default()).await.unwrap_err();
        assert!(matches!(error, AclClientError::Unexpected { status: 200, .. }), "{garbage}: {error:?}");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
}

#[tokio::test]
async fn response_headers_become_metadata_of_the_read() {
    let server = MockServer::start().await;
    let response = ResponseTemplate::new(200)
        .set_body_string("[]")
        .insert_header("X-Service-Index", "42")
        .insert_header("X-Service-KnownLeader", "true")
        .insert_header("X-Service-LastContact", "15")
        .insert_header("X-Service-Results-Filtered-By-ACLs", "true")
        .insert_header("X-Service-Results-Unreadable", "true")
        .insert_header("Date", "Sun, 06 Nov 1994 08:49:37 GMT");
    Mock::given(any()).respond_with(response).mount(&server).await;
    let client = AclClient::new(&options(&server, "")).unwrap();
    let reading = client.list::<Namespace>(&(), &QueryOptions::default()).await.unwrap();
    assert_eq!((reading.index, reading.known_leader, reading.filtered_by_acls), (42, true, true));
    assert!(reading.unreadable);
    assert_eq!(reading.last_contact, Duration::from_millis(15));
    assert_eq!(reading.date, Some(UNIX_EPOCH + Duration::from_secs(784_111_777)));
    let (_server, client) = mock_server(200, "[]").await;
    let reading = client.list::<Namespace>(&(), &QueryOptions::default()).await.unwrap();
    assert_eq!((reading.index, reading.known_leader, reading.filtered_by_acls), (1, false, false));
    assert!(!reading.unreadable);
}

#[tokio::test]
async fn a_server_that_knows_consuls_headers_alone_gets_the_token_and_its_index_is_read() {
    let server = MockServer::start().await;
    let response = ResponseTemplate::new(200)
        .set_body_string("[]")
        .insert_header("X-Consul-Index", "42")
        .insert_header("X-Consul-KnownLeader", "true")
        .insert_header("X-Consul-LastContact", "15")
        .insert_header("X-Consul-Results-Filtered-By-ACLs", "true");
    Mock::given(header("X-Consul-Token", SECRET)).respond_with(response).with_priority(1).mount(&server).await;
    let anonymous = "Permission denied: anonymous token lacks permission 'acl:read'";
    let refused = ResponseTemplate::new(403).set_body_string(anonymous);
    Mock::given(any()).respond_with(refused).with_priority(2).mount(&server).await;
    let client = AclClient::new(&options(&server, "")).unwrap();
    let reading = client.list::<Policy>(&(), &QueryOptions::default()).await.unwrap();
    assert_eq!((reading.index, reading.known_leader, reading.filtered_by_acls), (42, true, true));
    assert_eq!((reading.last_contact, reading.unreadable), (Duration::from_millis(15), false));
    let error = client.with_token(SecretString::from("other")).list::<Policy>(&(), &QueryOptions::default()).await;
    assert!(matches!(error, Err(AclClientError::PermissionDenied(_))), "{error:?}");
}

#[tokio::test]
async fn deleting_an_absent_record_returns_false_in_both_server_dialects() {
    for (status, body, expected) in
        [(200, "false", Ok(false)), (404, "Cannot find token to delete", Ok(false)), (200, "true\n", Ok(true))]
    {
        let (_server, client) = mock_server(status, body).await;
        assert_eq!(client.delete::<Token>(&id()).await, expected, "{status} {body}");
    }
    let no_path = "Invalid URL path: not a recognized HTTP API endpoint";
    let (_server, client) = mock_server(404, no_path).await;
    let error = client.delete::<Namespace>("team").await.unwrap_err();
    assert!(matches!(error, AclClientError::NotSupported { since: Some("1.7.0"), .. }), "{error:?}");
    let (_server, client) = mock_server(404, no_path).await;
    let error = client.list::<Role>(&None, &QueryOptions::default()).await.unwrap_err();
    assert!(matches!(error, AclClientError::NotSupported { since: Some("1.5.0"), .. }), "{error:?}");
}

/// Server that closes its first connections without a response, then responds.
async fn unsteady(first: usize) -> (SocketAddr, std::sync::Arc<std::sync::atomic::AtomicUsize>, JoinSet<()>) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let request_count = std::sync::Arc::new(AtomicUsize::new(0));
    let counter = std::sync::Arc::clone(&request_count);
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await.unwrap();
            if counter.fetch_add(1, Ordering::SeqCst) >= first {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]").await.unwrap();
            }
        }
    });
    (address, request_count, serving)
}

#[tokio::test]
async fn a_read_is_tried_three_times_and_a_write_once() {
    use std::sync::atomic::Ordering;
    let client = |address: SocketAddr| {
        AclClient::new(&AclClientOptions::for_url(format!("http://{address}").parse().unwrap())).unwrap()
    };
    let (address, request_count, _serving) = unsteady(2).await;
    assert!(client(address).list::<Policy>(&(), &QueryOptions::default()).await.unwrap().value.is_empty());
    assert_eq!(request_count.load(Ordering::SeqCst), 3);
    let (address, request_count, _serving) = unsteady(3).await;
    let error = client(address).list::<Policy>(&(), &QueryOptions::default()).await.unwrap_err();
    assert!(matches!(error, AclClientError::Transport(TransportError::Broken { .. })), "{error:?}");
    assert_eq!(request_count.load(Ordering::SeqCst), 3);
    let (address, request_count, _serving) = unsteady(1).await;
    let error = client(address).create::<Token>(&NewToken::default()).await.unwrap_err();
    assert!(matches!(error, AclClientError::Transport(TransportError::Broken { .. })), "{error:?}");
    assert_eq!(request_count.load(Ordering::SeqCst), 1, "a write is not repeated");
    client(address).delete::<Token>(&id()).await.unwrap_err();
    assert_eq!(request_count.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn blocking_reads_extend_the_timeout_by_the_wait_and_others_do_not() {
    let server = MockServer::start().await;
    let slow = ResponseTemplate::new(200).set_body_string("[]").set_delay(Duration::from_millis(400));
    Mock::given(any()).respond_with(slow).mount(&server).await;
    let mut options = options(&server, "");
    options.http.connect_timeout = Duration::from_millis(200);
    options.http.response_timeout = Duration::from_millis(200);
    let client = AclClient::new(&options).unwrap();
    let waiting = QueryOptions { index: 1, wait: Some(Duration::from_millis(500)), ..QueryOptions::default() };
    client.list::<Policy>(&(), &waiting).await.unwrap();
    let error = client.list::<Policy>(&(), &QueryOptions::default()).await.unwrap_err();
    assert!(matches!(error, AclClientError::Transport(TransportError::TimedOut { .. })), "{error:?}");
}

#[tokio::test]
async fn the_client_connects_to_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("acl.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 4096];
        let length = stream.read(&mut buffer).await.unwrap();
        buffer.truncate(length);
        assert!(buffer.starts_with(b"GET /v1/acl/policies HTTP/1.1\r\n"));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]").await.unwrap();
    });
    let mut options = AclClientOptions::for_url("http://localhost/".parse().unwrap());
    options.http.address = ServerAddress::Unix(path);
    AclClient::new(&options).unwrap().list::<Policy>(&(), &QueryOptions::default()).await.unwrap();
    serving.join_all().await;
    let plain = AclClient::new(&AclClientOptions::for_url("http://access.example.com/".parse().unwrap())).unwrap_err();
    assert!(plain.to_string().contains("would send secrets in the clear"), "{plain}");
}
