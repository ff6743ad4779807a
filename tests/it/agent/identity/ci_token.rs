//! Tokens of CI jobs: from a variable, and from the services of GitHub Actions and Azure DevOps.

use keyward_agent::identity::{
    CiTokenOptions, CiTokenOrigin, IdentityError, IdentityErrorKind, ProviderVariables, SignedToken,
};
use keyward_machine::clock::Clock;
use serde_json::json;
use wiremock::matchers::{header, method, path, query_param};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::signed;
use super::tls_front::TlsFront;

const TOKEN: &str = "eyJh.eyJzdWIiOiJyZXBvOmEvYiJ9.c2ln";

fn options(origin: CiTokenOrigin, variables: &[(&str, &str)]) -> CiTokenOptions {
    let all = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let name = match &origin {
        CiTokenOrigin::Variable(name) => Some(name.clone()),
        CiTokenOrigin::GitHubActions { .. } | CiTokenOrigin::AzureDevOps { .. } => None,
    };
    let variables = ProviderVariables::of_ci(all, name.as_deref());
    CiTokenOptions { origin, variables, ca: None, is_local: true }
}

async fn prove(options: &CiTokenOptions) -> Result<SignedToken, IdentityError> {
    options.build(Clock::System)?.prove().await.map(signed)
}

fn github() -> CiTokenOrigin {
    CiTokenOrigin::GitHubActions { audience: Some("https://vault.example.com".to_owned()) }
}

#[tokio::test]
async fn the_named_variable_alone_is_read_and_kept() {
    let variable = CiTokenOrigin::Variable("VAULT_ID_TOKEN".to_owned());
    let set = [("VAULT_ID_TOKEN", TOKEN), ("VAULT_TOKEN", "canary"), ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "canary")];
    let options_of_job = options(variable.clone(), &set);
    assert_eq!(options_of_job.variables.pairs().count(), 1);
    assert_eq!(prove(&options_of_job).await.unwrap().jwt.expose_secret(), TOKEN);
    let error = prove(&options(variable, &[])).await.unwrap_err();
    assert_eq!(error.kind, IdentityErrorKind::Config);
    assert!(error.to_string().contains("the variable VAULT_ID_TOKEN is not set"), "{error}");
}

#[tokio::test]
async fn github_gives_a_token_for_the_audience_for_each_login() {
    let server = MockServer::start().await;
    Mock::given(method("GET"))
        .and(path("/token"))
        .and(query_param("api-version", "2.0"))
        .and(query_param("audience", "https://vault.example.com"))
        .and(header("authorization", "Bearer canary-request"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "count": 1, "value": TOKEN })))
        .expect(2)
        .mount(&server)
        .await;
    let front = TlsFront::start(server.address()).await;
    let url = format!("{}token?api-version=2.0", front.url);
    let set = [("ACTIONS_ID_TOKEN_REQUEST_URL", url.as_str()), ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "canary-request")];
    let mut options = options(github(), &set);
    options.ca = Some(front.ca_file());
    for _ in 0..2 {
        assert_eq!(prove(&options).await.unwrap().jwt.expose_secret(), TOKEN);
    }
}

#[tokio::test]
async fn azure_devops_gives_a_token_for_the_service_connection() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(path("/p/_apis/oidctoken"))
        .and(query_param("api-version", "7.1"))
        .and(query_param("serviceConnectionId", "connection-1"))
        .and(header("authorization", "Bearer canary-access"))
        .and(header("content-type", "application/json"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "oidcToken": TOKEN })))
        .mount(&server)
        .await;
    let front = TlsFront::start(server.address()).await;
    let url = format!("{}p/_apis/oidctoken", front.url);
    let origin = CiTokenOrigin::AzureDevOps { service_connection: "connection-1".to_owned() };
    let mut options = options(origin, &[("SYSTEM_OIDCREQUESTURI", &url), ("SYSTEM_ACCESSTOKEN", "canary-access")]);
    options.ca = Some(front.ca_file());
    assert_eq!(prove(&options).await.unwrap().jwt.expose_secret(), TOKEN);
}

#[tokio::test]
async fn a_refusal_hides_the_bearer_token_and_what_is_missing_is_named() {
    let server = MockServer::start().await;
    let echo = |request: &Request| {
        let sent = request.headers["authorization"].to_str().unwrap().to_owned();
        ResponseTemplate::new(401).set_body_json(json!({ "message": format!("bad credentials: {sent}") }))
    };
    Mock::given(method("GET")).respond_with(echo).mount(&server).await;
    let front = TlsFront::start(server.address()).await;
    let set =
        [("ACTIONS_ID_TOKEN_REQUEST_URL", front.url.as_str()), ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "canary-request")];
    let mut with_all = options(github(), &set);
    with_all.ca = Some(front.ca_file());
    let error = prove(&with_all).await.unwrap_err().to_string();
    assert!(error.contains("bad credentials") && !error.contains("canary"), "{error}");

    let error = prove(&options(github(), &set[..1])).await.unwrap_err().to_string();
    assert!(error.contains("ACTIONS_ID_TOKEN_REQUEST_TOKEN is not set (the job needs the permission"), "{error}");
    let plain = [("ACTIONS_ID_TOKEN_REQUEST_URL", "http://example.com/"), ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "canary")];
    let error = prove(&options(github(), &plain)).await.unwrap_err().to_string();
    assert!(error.contains("is not an https URL") && !error.contains("canary"), "{error}");
}
