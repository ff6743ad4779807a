//! Requests of each identity source, byte for byte, and its handling of unusual responses.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keyward_agent::identity::{
    CloudEndpoints, CloudIdentityOptions, IdentityError, IdentityErrorKind, IdentityOrigin, LoginFields,
    ManagedIdentity, ProviderVariables, SignedToken,
};
use keyward_machine::clock::Clock;
use serde_json::{Value, json};
use wiremock::matchers::{any, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::agent::identity::signed;

const RESOURCE: &str = "api://secrets/";

fn options(server: &MockServer) -> CloudIdentityOptions {
    CloudIdentityOptions {
        resource: RESOURCE.to_owned(),
        scope: None,
        from: IdentityOrigin::Instance(ManagedIdentity::System),
        overrides: LoginFields::default(),
        variables: ProviderVariables::default(),
        endpoints: CloudEndpoints {
            metadata: server.uri().parse().unwrap(),
            arc: server.uri().parse().unwrap(),
            arc_tokens: "/nonexistent".into(),
            arc_agent: "/nonexistent".into(),
            authority_ca: None,
            authority_is_local: false,
        },
    }
}

fn variables(pairs: &[(&str, &str)]) -> ProviderVariables {
    ProviderVariables::of_azure(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

async fn prove(options: &CloudIdentityOptions) -> Result<SignedToken, IdentityError> {
    options.build(Clock::System)?.prove().await.map(signed)
}

async fn serve(template: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(template).mount(&server).await;
    server
}

fn token(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

fn query(request: &Request) -> BTreeMap<String, String> {
    let pairs: Vec<_> = request.url.query_pairs().into_owned().collect();
    let map: BTreeMap<_, _> = pairs.iter().cloned().collect();
    assert_eq!(map.len(), pairs.len(), "no name twice: {pairs:?}");
    map
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Azure identity, key `resource`: identity information is requested for it.
#[tokio::test]
async fn the_metadata_request_has_the_resource_byte_for_byte() {
    let check = async |which: ManagedIdentity, named: Option<(&str, &str)>| {
        let server = serve(token(json!({"access_token": "a.b.c", "expires_on": "9"}))).await;
        let mut options = options(&server);
        options.from = IdentityOrigin::Instance(which);
        // Neither applies to a managed identity.
        options.scope = Some("other/.default".to_owned());
        options.variables = variables(&[("AZURE_CLIENT_ID", "other"), ("AZURE_AUTHORITY_HOST", "https://other")]);
        let proof = prove(&options).await.unwrap();
        assert_eq!((proof.jwt.expose_secret(), proof.audience.as_deref()), ("a.b.c", Some(RESOURCE)));
        let requests = server.received_requests().await.unwrap();
        let request = &requests[0];
        assert_eq!((request.method.as_str(), request.url.path()), ("GET", "/metadata/identity/oauth2/token"));
        assert_eq!(request.headers["metadata"], "true");
        let mut expected = map(&[("api-version", "2019-08-01"), ("resource", RESOURCE)]);
        expected.extend(named.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(query(request), expected);
        assert!(!request.headers.contains_key("x-identity-header") && !request.headers.contains_key("authorization"));
    };
    check(ManagedIdentity::System, None).await;
    check(ManagedIdentity::ObjectId("o".to_owned()), Some(("object_id", "o"))).await;
    check(ManagedIdentity::ClientId("c".to_owned()), Some(("client_id", "c"))).await;
}

/// Azure identity, key `scope`: used when obtaining a token.
#[tokio::test]
async fn a_managed_identity_of_the_environment_requests_the_scope_without_its_suffix() {
    let server = serve(token(json!({"access_token": "a.b.c"}))).await;
    let mut options = options(&server);
    options.from = IdentityOrigin::Environment;
    options.variables = variables(&[("AZURE_CLIENT_ID", "c")]);
    options.scope = Some("https://other//.default".to_owned());
    prove(&options).await.unwrap();
    let requests = server.received_requests().await.unwrap();
    let expected = map(&[("api-version", "2019-08-01"), ("client_id", "c"), ("resource", "https://other/")]);
    assert_eq!(query(&requests[0]), expected);
}

#[tokio::test]
async fn the_instance_document_is_requested_for_compute_only() {
    let server = MockServer::start().await;
    let of = |template| Mock::given(path("/metadata/identity/oauth2/token")).respond_with(template);
    of(token(json!({"access_token": "a.b.c"}))).mount(&server).await;
    let document = json!({"name": "vm", "subscriptionId": "11111111-2222-3333-4444-555555555555",
        "resourceGroupName": "rg", "vmScaleSetName": "", "resourceId": "/r", "userData": "canary"});
    let compute = Mock::given(path("/metadata/instance/compute"));
    compute.respond_with(ResponseTemplate::new(200).set_body_json(document)).mount(&server).await;
    let fields = prove(&options(&server)).await.unwrap().fields;
    assert_eq!((fields.vm_name.as_deref(), fields.vmss_name, fields.resource_id), (Some("vm"), None, None));
    let requests = server.received_requests().await.unwrap();
    assert_eq!(requests[1].url.query(), Some("api-version=2021-02-01"));
    assert_eq!(requests[1].headers["metadata"], "true");
}

#[tokio::test]
async fn app_service_is_sent_its_header_and_the_identity_by_its_own_names() {
    let check = async |old: bool, which: ManagedIdentity, expected: &[(&str, &str)]| {
        let server = serve(token(json!({"access_token": "a.b.c", "expires_on": "09/14/2017 00:00:00 +00:00"}))).await;
        let endpoint = format!("{}/msi/token", server.uri());
        let names = if old { ["MSI_ENDPOINT", "MSI_SECRET"] } else { ["IDENTITY_ENDPOINT", "IDENTITY_HEADER"] };
        let mut options = options(&server);
        options.from = IdentityOrigin::Instance(which);
        options.variables = variables(&[(names[0], endpoint.as_str()), (names[1], "canary")]);
        prove(&options).await.unwrap();
        let requests = server.received_requests().await.unwrap();
        assert_eq!((requests.len(), requests[0].url.path()), (1, "/msi/token"), "no instance document here");
        let header = if old { "secret" } else { "x-identity-header" };
        assert_eq!(requests[0].headers[header], "canary");
        assert_eq!(query(&requests[0]), map(expected));
    };
    let (client, object) = (|| ManagedIdentity::ClientId("c".into()), || ManagedIdentity::ObjectId("o".into()));
    let current = ("api-version", "2019-08-01");
    let resource = ("resource", RESOURCE);
    check(false, ManagedIdentity::System, &[current, resource]).await;
    check(false, client(), &[current, resource, ("client_id", "c")]).await;
    check(false, object(), &[current, resource, ("principal_id", "o")]).await;
    check(true, client(), &[("api-version", "2017-09-01"), resource, ("clientid", "c")]).await;
}

#[tokio::test]
async fn an_arc_challenge_reads_only_the_agents_own_key_files() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::create_dir(&tokens).unwrap();
    std::fs::write(tokens.join("a.key"), "the key\n").unwrap();
    std::fs::write(folder.path().join("x.key"), "canary").unwrap();
    let ask = async |named: &Path| {
        let server = MockServer::start().await;
        let realm = format!("Basic realm={}", named.display());
        let challenge = ResponseTemplate::new(401).insert_header("www-authenticate", realm.as_str());
        Mock::given(any()).respond_with(challenge).up_to_n_times(1).mount(&server).await;
        Mock::given(any()).respond_with(token(json!({"access_token": "a.b.c"}))).mount(&server).await;
        let mut options = options(&server);
        options.endpoints.arc_tokens = tokens.clone();
        let endpoint = format!("{}/metadata/identity/oauth2/token", server.uri());
        options.variables = variables(&[("IDENTITY_ENDPOINT", endpoint.as_str()), ("IMDS_ENDPOINT", "http://x")]);
        let proof = prove(&options).await;
        (proof, server.received_requests().await.unwrap())
    };
    let (proof, requests) = ask(&tokens.join("a.key")).await;
    assert_eq!(proof.unwrap().jwt.expose_secret(), "a.b.c");
    assert_eq!(requests.len(), 2);
    assert!(!requests[0].headers.contains_key("authorization"));
    assert_eq!(requests[1].headers["authorization"], "Basic the key");
    assert_eq!(query(&requests[1]), map(&[("api-version", "2020-06-01"), ("resource", RESOURCE)]));
    assert_eq!(requests[1].headers["metadata"], "true");

    for escape in [tokens.join("../x.key"), folder.path().join("x.key"), "/etc/shadow".into()] {
        let (proof, requests) = ask(&escape).await;
        let error = proof.unwrap_err();
        assert_eq!((error.kind, requests.len()), (IdentityErrorKind::Config, 1), "{error}");
        assert!(!error.to_string().contains("canary"));
    }
}

#[tokio::test]
async fn t30_unusual_responses_give_a_token_or_a_precise_error() {
    let check = async |template: ResponseTemplate, expected: Result<(), (IdentityErrorKind, &str)>| {
        let server = MockServer::start().await;
        Mock::given(path("/metadata/identity/oauth2/token")).respond_with(template).mount(&server).await;
        let mut options = options(&server);
        options.overrides.vm_name = Some("vm".to_owned());
        let source =
            options.build(Clock::Test(keyward_machine::clock::TestClock::starting_at(std::time::SystemTime::now())));
        let proof = source.unwrap().prove().await.map(signed);
        match (proof, expected) {
            (Ok(proof), Ok(())) => assert_eq!(proof.fields.vm_name.as_deref(), Some("vm")),
            (Err(error), Err((kind, text))) => {
                assert_eq!(error.kind, kind, "{error}");
                assert!(error.to_string().contains(text), "{error}");
            }
            (proof, expected) => panic!("{proof:?} instead of {expected:?}"),
        }
    };
    check(token(json!({"access_token": "t", "expires_on": 1_506_484_173})), Ok(())).await;
    check(token(json!({"access_token": "t", "expires_on": "1506484173"})), Ok(())).await;
    check(token(json!({"access_token": "t", "expires_in": "many"})), Ok(())).await;
    let large = ResponseTemplate::new(200).set_body_bytes(vec![b' '; 65 * 1024]);
    check(large, Err((IdentityErrorKind::Config, "larger than 65536 bytes"))).await;
    for status in [301, 302, 307, 308] {
        let elsewhere = ResponseTemplate::new(status).insert_header("location", "http://127.0.0.1:9/");
        check(elsewhere, Err((IdentityErrorKind::Config, "a redirect"))).await;
    }
}

#[tokio::test]
async fn an_html_page_in_place_of_a_token_is_quoted() {
    let server =
        serve(ResponseTemplate::new(200).set_body_string("<html>Sign in, eyJhbGciOi.eyJhdWQi.c2ln</html>")).await;
    // One failure first, so that the second proof is a single attempt.
    let clock = keyward_machine::clock::TestClock::starting_at(std::time::SystemTime::now());
    let source = options(&server).build(Clock::Test(clock.clone())).unwrap();
    let proving = async {
        let error = source.prove().await.unwrap_err();
        assert_eq!(error.kind, IdentityErrorKind::Transient);
        assert!(error.message.contains("<html>Sign in, [hidden]</html>"), "{error}");
    };
    let passing = async {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            clock.suspend(std::time::Duration::from_secs(20));
        }
    };
    tokio::select! {
        () = proving => {}
        () = passing => {}
    }
}

#[tokio::test]
async fn echoed_secrets_are_redacted_from_errors() {
    for repeated in ["canary secret", "canary+secret"] {
        let response_body = json!({"error": "invalid_request", "error_description": format!("you sent {repeated}!")});
        let server = serve(ResponseTemplate::new(400).set_body_json(response_body)).await;
        let mut options = options(&server);
        let endpoint = server.uri();
        options.variables = variables(&[("IDENTITY_ENDPOINT", &endpoint), ("IDENTITY_HEADER", "canary secret")]);
        let error = prove(&options).await.unwrap_err();
        assert!(error.message.contains("you sent [hidden]!"), "{error}");
        assert!(!format!("{error:?} {options:?}").contains("canary"));
    }
}

/// Runs another test of this binary with changed environment variables; returns true if it passed.
pub(super) fn passes(test: &str, variables: &[(&str, &str)]) -> bool {
    let test = format!("agent::{test}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&test, "--exact", "--test-threads=1"]).envs(variables.iter().copied());
    let output = command.env_remove("NO_PROXY").env_remove("no_proxy").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("running 1 test"), "there is no test {test}");
    output.status.success()
}

/// Address that closes each connection, and the number of those.
pub(super) fn trap() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let caught = Arc::new(AtomicUsize::new(0));
    let count = caught.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            drop(stream);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (address, caught)
}

/// vault#12613, vault#15021: a proxy answers in the place of the metadata service.
#[test]
fn local_services_are_called_without_a_proxy() {
    let (address, caught) = trap();
    let names = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"];
    let proxies = names.map(|name| (name, address.as_str()));
    for test in ["a_user_assigned_identity_is_requested_by_its_id", "app_service_gives_its_identity"] {
        assert!(passes(&format!("identity::{test}"), &proxies), "{test}");
    }
    assert!(passes("identity::an_arc_machine_answers_its_agents_challenge", &proxies));
    // Neither is a token endpoint on loopback, as for other programs that read these variables.
    assert!(passes("identity::an_error_about_a_refused_secret_does_not_hold_it", &proxies));
    assert_eq!(caught.load(Ordering::SeqCst), 0);
}

#[test]
fn the_sdk_reads_no_variables_of_the_process() {
    let (address, caught) = trap();
    let test = "identity::a_user_assigned_identity_is_requested_by_its_id";
    let app_service = [("IDENTITY_ENDPOINT", address.as_str()), ("IDENTITY_HEADER", "canary")];
    assert!(passes(test, &app_service));
    assert!(passes(test, &[("IDENTITY_ENDPOINT", address.as_str()), ("IMDS_ENDPOINT", &address)]), "Arc");
    assert!(passes(test, &[("MSI_ENDPOINT", address.as_str())]), "Cloud Shell");
    assert!(passes("identity::a_client_secret_logs_in", &[("AZURE_AUTHORITY_HOST", "http://nonsense")]));
    assert_eq!(caught.load(Ordering::SeqCst), 0);
}
