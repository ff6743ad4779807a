//! AWS: each origin of credentials, and the signed request that a login sends.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keyward_agent::identity::{
    AwsCredentialOrigin, AwsEndpoints, AwsIdentityOptions, IdentityError, IdentityErrorKind, IdentityMethod,
    IdentityProof, ProviderVariables,
};
use keyward_agent::login::{AuthMethodKind, Login, LoginOptions};
use keyward_agent::server_client::{ServerClient, SignedCallerIdentity};
use keyward_machine::clock::{Clock, TestClock};
use serde::Deserialize;
use serde_json::{Value, json};
use wiremock::matchers::{header, method, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::tls_front::TlsFront;
use crate::harness::secrets::options as server_options;

fn variables(pairs: &[(&str, &str)]) -> ProviderVariables {
    ProviderVariables::of_aws(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

fn options(pairs: &[(&str, &str)]) -> AwsIdentityOptions {
    AwsIdentityOptions {
        origin: AwsCredentialOrigin::Automatic,
        server_id: None,
        region: None,
        variables: variables(pairs),
        endpoints: AwsEndpoints::provider(),
    }
}

async fn prove(options: &AwsIdentityOptions, clock: Clock) -> Result<SignedCallerIdentity, IdentityError> {
    match options.build(clock)?.prove().await? {
        IdentityProof::CallerIdentity(signed) => Ok(*signed),
        other => panic!("{other:?}"),
    }
}

/// Returns the error of one attempt, without the retries of a running session.
async fn fail_once(options: AwsIdentityOptions) -> IdentityError {
    let upstream = ServerClient::build(&server_options("http://127.0.0.1:1")).unwrap();
    let method = IdentityMethod::Aws(Box::new(options));
    method.build_for_one_attempt(Clock::System, &upstream, None).unwrap().prove().await.unwrap_err()
}

fn headers(signed: &SignedCallerIdentity) -> BTreeMap<String, Vec<String>> {
    serde_json::from_str(signed.headers.expose_secret()).unwrap()
}

/// Returns the access key id that signed a request.
fn signer(signed: &SignedCallerIdentity) -> String {
    let authorization = headers(signed)["Authorization"].concat();
    let scope = authorization.split_once("Credential=").unwrap().1;
    scope.split_once('/').unwrap().0.to_owned()
}

fn document(id: &str) -> Value {
    json!({ "Code": "Success", "AccessKeyId": id, "SecretAccessKey": "canary-secret", "Token": "canary-token",
        "Expiration": "2099-01-01T00:00:00Z" })
}

/// A case of the fixture that AWS's SDK has signed.
#[derive(Deserialize)]
struct SignedCase {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    time: u64,
    region: String,
    server_id: String,
    url: String,
    headers: BTreeMap<String, Vec<String>>,
}

#[tokio::test]
async fn requests_are_signed_byte_for_byte_as_the_sdk_of_aws_signs_them() {
    let cases: Vec<SignedCase> = serde_json::from_str(include_str!("../../fixtures/aws_signatures.json")).unwrap();
    assert!(cases.len() >= 6);
    for case in cases {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let options = AwsIdentityOptions {
            server_id: given(&case.server_id),
            region: given(&case.region),
            ..options(&[
                ("AWS_ACCESS_KEY_ID", &case.access_key_id),
                ("AWS_SECRET_ACCESS_KEY", &case.secret_access_key),
                ("AWS_SESSION_TOKEN", &case.session_token),
            ])
        };
        let clock = TestClock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_secs(case.time));
        let signed = prove(&options, Clock::Test(clock)).await.unwrap();
        assert_eq!(signed.url, case.url);
        // The SDK writes the header's name as Go does.
        let lower = |headers: BTreeMap<String, Vec<String>>| -> BTreeMap<String, Vec<String>> {
            headers.into_iter().map(|(name, values)| (name.to_ascii_lowercase(), values)).collect()
        };
        assert_eq!(lower(headers(&signed)), lower(case.headers), "{}", case.time);
    }
}

#[tokio::test]
async fn a_login_sends_the_signed_request_in_the_fields_of_the_aws_method() {
    let server = MockServer::start().await;
    let auth = json!({ "auth": { "client_token": "hvs.x", "accessor": "a", "lease_duration": 60, "renewable": true,
        "policies": ["web"], "token_type": "service" } });
    Mock::given(path("/v1/auth/aws/login"))
        .respond_with(ResponseTemplate::new(200).set_body_json(auth))
        .mount(&server)
        .await;
    let key = [("AWS_ACCESS_KEY_ID", "AKID1"), ("AWS_SECRET_ACCESS_KEY", "canary-secret")];
    let options = AwsIdentityOptions { server_id: Some("vault.example".to_owned()), ..options(&key) };
    let proof = options.build(Clock::System).unwrap().prove().await.unwrap();
    assert!(!format!("{proof:?} {options:?}").contains("canary") && !format!("{proof:?}").contains("Signature"));

    let upstream = ServerClient::build(&server_options(&server.uri())).unwrap();
    let login_options = LoginOptions {
        role: "web".to_owned(),
        mount: "aws".to_owned(),
        namespace: None,
        wrap_ttl: None,
        auth_method: AuthMethodKind::Other,
    };
    let token = Login::new(upstream, login_options).login(&proof, &Clock::System).await.unwrap();
    assert_eq!(token.policies, ["web"]);
    let body: Value = serde_json::from_slice(&server.received_requests().await.unwrap()[0].body).unwrap();
    assert_eq!((&body["role"], &body["iam_http_request_method"]), (&json!("web"), &json!("POST")));
    let decoded =
        |name: &str| String::from_utf8(BASE64_STANDARD.decode(body[name].as_str().unwrap()).unwrap()).unwrap();
    assert_eq!(decoded("iam_request_url"), "https://sts.amazonaws.com/");
    assert_eq!(decoded("iam_request_body"), "Action=GetCallerIdentity&Version=2011-06-15");
    let headers: BTreeMap<String, Vec<String>> = serde_json::from_str(&decoded("iam_request_headers")).unwrap();
    assert_eq!(headers["X-Vault-AWS-IAM-Server-ID"], ["vault.example"]);
    assert!(headers["Authorization"][0].contains("x-vault-aws-iam-server-id"), "{headers:?}");
}

/// Answers as version 2 of the metadata service does, and refuses what version 1 would accept.
async fn metadata_service(credentials: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    let session = ResponseTemplate::new(200).set_body_string("canary-session==");
    Mock::given(method("PUT"))
        .and(path("/latest/api/token"))
        .and(header("x-aws-ec2-metadata-token-ttl-seconds", "60"))
        .respond_with(session)
        .mount(&server)
        .await;
    let with_session = |at: &str| Mock::given(method("GET")).and(path(at)).and(header(SESSION, "canary-session=="));
    let list = ResponseTemplate::new(200).set_body_string("web-role");
    with_session("/latest/meta-data/iam/security-credentials/").respond_with(list).mount(&server).await;
    with_session("/latest/meta-data/iam/security-credentials/web-role").respond_with(credentials).mount(&server).await;
    Mock::given(method("GET")).respond_with(ResponseTemplate::new(401)).with_priority(9).mount(&server).await;
    server
}

const SESSION: &str = "x-aws-ec2-metadata-token";

#[tokio::test]
async fn an_instance_profile_is_read_by_version_2_of_the_metadata_service_alone() {
    let server = metadata_service(ResponseTemplate::new(200).set_body_json(document("ASIAINSTANCE"))).await;
    let options = options(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &server.uri())]);
    let signed = prove(&options, Clock::System).await.unwrap();
    assert_eq!(signer(&signed), "ASIAINSTANCE");
    assert_eq!(headers(&signed)["X-Amz-Security-Token"], ["canary-token"]);
    let requests = server.received_requests().await.unwrap();
    assert_eq!(requests[0].method.as_str(), "PUT");
    assert!(requests[1..].iter().all(|request| request.headers.contains_key(SESSION)), "{requests:?}");
}

#[tokio::test]
async fn credentials_that_have_ended_are_not_used() {
    let mut ended = document("ASIAENDED");
    ended["Expiration"] = json!("2020-01-01T00:00:00Z");
    let server = metadata_service(ResponseTemplate::new(200).set_body_json(ended)).await;
    let options = options(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &server.uri())]);
    let error = fail_once(options).await;
    assert_eq!(error.kind, IdentityErrorKind::NotReady, "{error}");
}

#[tokio::test]
async fn a_container_endpoint_gets_its_token_and_an_echo_of_it_stays_hidden() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "canary-pod-token\n").unwrap();
    let server = MockServer::start().await;
    let ok = ResponseTemplate::new(200).set_body_json(document("ASIAPOD"));
    Mock::given(header("authorization", "canary-pod-token")).respond_with(ok).up_to_n_times(1).mount(&server).await;
    let echo = |request: &Request| {
        let sent = request.headers["authorization"].to_str().unwrap().to_owned();
        ResponseTemplate::new(403).set_body_json(json!({ "code": "Denied", "message": format!("no {sent}") }))
    };
    Mock::given(method("GET")).respond_with(echo).mount(&server).await;
    let url = format!("{}/v1/credentials", server.uri());
    let options = options(&[
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file.display().to_string()),
    ]);
    assert_eq!(signer(&prove(&options, Clock::System).await.unwrap()), "ASIAPOD");
    let error = prove(&options, Clock::System).await.unwrap_err().to_string();
    assert!(error.contains("Denied") && !error.contains("canary"), "{error}");
}

#[tokio::test]
async fn a_web_identity_is_exchanged_at_sts_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "eyJh.eyJz.c2ln").unwrap();
    let server = MockServer::start().await;
    let body = json!({ "AssumeRoleWithWebIdentityResponse": { "AssumeRoleWithWebIdentityResult": { "Credentials": {
        "AccessKeyId": "ASIAWEB", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": 4.0e9 } } } });
    let refused = json!({ "Error": { "Code": "AccessDenied", "Message": "Not authorized: eyJh.eyJz.c2ln" } });
    Mock::given(method("POST"))
        .and(header("accept", "application/json"))
        .respond_with(ResponseTemplate::new(200).set_body_json(body))
        .up_to_n_times(1)
        .mount(&server)
        .await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(403).set_body_json(refused)).mount(&server).await;
    let front = TlsFront::start(server.address()).await;
    let mut options = options(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", &file.display().to_string()),
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/web"),
        ("AWS_ENDPOINT_URL_STS", &front.url),
    ]);
    options.endpoints.sts_ca = Some(front.ca_file());
    options.endpoints.sts_is_local = true;
    assert_eq!(signer(&prove(&options, Clock::System).await.unwrap()), "ASIAWEB");
    let form = server.received_requests().await.unwrap()[0].body.clone();
    let form: BTreeMap<String, String> = url::form_urlencoded::parse(&form).into_owned().collect();
    assert_eq!(form["Action"], "AssumeRoleWithWebIdentity");
    assert_eq!(form["RoleArn"], "arn:aws:iam::123456789012:role/web");
    assert_eq!(form["WebIdentityToken"], "eyJh.eyJz.c2ln");
    let error = prove(&options, Clock::System).await.unwrap_err().to_string();
    assert!(error.contains("AccessDenied") && !error.contains("eyJh"), "{error}");
}

#[tokio::test]
async fn no_credentials_are_taken_from_a_service_that_answers_something_else() {
    for body in ["", "<html>sign in</html>", "{\"Code\":\"Failed\"}", "\"canary\""] {
        let server = metadata_service(ResponseTemplate::new(200).set_body_string(body)).await;
        let options = AwsIdentityOptions {
            origin: AwsCredentialOrigin::Instance,
            ..options(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &server.uri())])
        };
        let error = fail_once(options).await.to_string();
        assert!(error.contains("not credentials of AWS") && !error.contains("canary"), "{error}");
    }
}
