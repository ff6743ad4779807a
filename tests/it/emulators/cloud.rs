//! The emulated Azure answers as the real one, signs its tokens, and fails on command.

use std::path::Path;
use std::time::{Duration, SystemTime};

use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use keyward_emulators::cloud::{Cloud, CloudOptions, Failure, FaultTarget, MachineKind};
use keyward_machine::tasks::TaskGroup;
use serde_json::{Value, json};

use crate::harness::cloud::options_with_shared_keys;
use crate::harness::not_run::is_root;
use crate::harness::python_script::PythonScript;

const ARM: &str = "https://management.azure.com/";

fn start(folder: &Path, change: impl FnOnce(&mut CloudOptions)) -> (Cloud, TaskGroup) {
    let mut options = options_with_shared_keys(folder.join("cloud"));
    change(&mut options);
    start_with(options)
}

fn start_with(options: CloudOptions) -> (Cloud, TaskGroup) {
    let mut tasks = TaskGroup::default();
    let cloud = Cloud::start(options, &mut tasks).unwrap();
    (cloud, tasks)
}

fn client(cloud: &Cloud) -> reqwest::Client {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(cloud.ca_file()).unwrap()).unwrap();
    reqwest::Client::builder().no_proxy().tls_certs_only([ca]).build().unwrap()
}

async fn machine_token(cloud: &Cloud, query: &str) -> (u16, Value) {
    let url = format!("{}metadata/identity/oauth2/token?api-version=2018-02-01{query}", cloud.metadata_url());
    let response = client(cloud).get(url).header("metadata", "true").send().await.unwrap();
    assert_eq!(response.headers()["server"], "keyward-emulated-cloud");
    (response.status().as_u16(), response.json().await.unwrap())
}

/// Verifies a token as a stranger does: discovery at the issuer, then its keys.
async fn verified(cloud: &Cloud, token: &str, audience: &str) -> Value {
    let http = client(cloud);
    let url = format!("{}.well-known/openid-configuration", cloud.issuer());
    let discovery: Value = http.get(url).send().await.unwrap().json().await.unwrap();
    assert_eq!(discovery["issuer"], cloud.issuer());
    let keys: JwkSet = http.get(discovery["jwks_uri"].as_str().unwrap()).send().await.unwrap().json().await.unwrap();
    let key = keys.find(&jsonwebtoken::decode_header(token).unwrap().kid.unwrap()).unwrap();
    let mut rules = Validation::new(Algorithm::RS256);
    rules.set_audience(&[audience]);
    rules.set_issuer(&[cloud.issuer()]);
    jsonwebtoken::decode(token, &DecodingKey::from_jwk(key).unwrap(), &rules).unwrap().claims
}

/// Takes another user's place, and asks for a token of the machine.
const ANOTHER_USER: &str = r#"
import os, sys, urllib.request
# Its files may be out of the other user's reach.
"x".encode("idna")
os.setgid(65534); os.setuid(65534)
request = urllib.request.Request(sys.argv[1], headers={"metadata": "true"})
try:
    answer = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode(), flush=True)
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metadata_service_of_one_user_refuses_others() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (own_user_only, expected) in [(true, "403 "), (false, "200 ")] {
        let folder = folder.path().join(own_user_only.to_string());
        std::fs::create_dir(&folder).unwrap();
        let (cloud, _tasks) = start(&folder, |options| options.own_user_only = own_user_only);
        assert_eq!(machine_token(&cloud, &format!("&resource={ARM}")).await.0, 200);
        let url =
            format!("{}metadata/identity/oauth2/token?api-version=2018-02-01&resource={ARM}", cloud.metadata_url());
        let answer = tokio::task::spawn_blocking(move || PythonScript::start(ANOTHER_USER, Path::new(&url)).line());
        let answer = answer.await.unwrap();
        assert!(answer.starts_with(expected), "{answer}");
        assert_eq!(answer.contains("not user 65534"), own_user_only, "{answer}");
    }
}

#[tokio::test]
async fn a_machine_token_is_signed_and_carries_the_claims_of_a_real_one() {
    let folder = tempfile::tempdir().unwrap();
    let (cloud, _tasks) = start(folder.path(), |_| {});
    let (status, body) = machine_token(&cloud, &format!("&resource={ARM}")).await;
    assert_eq!((status, &body["token_type"]), (200, &json!("Bearer")));
    assert!(body["expires_on"].is_string() && body["expires_in"].is_string());
    let claims = verified(&cloud, body["access_token"].as_str().unwrap(), ARM).await;
    assert_eq!(claims["oid"], cloud.identities().system.object_id);
    assert_eq!(claims["tid"], cloud.identities().tenant);
    assert_eq!(claims["xms_mirid"], cloud.machine_id());
    assert_eq!(claims["ver"], "1.0");

    let user = &cloud.identities().user;
    let (_, body) = machine_token(&cloud, &format!("&resource={ARM}&client_id={}", user.client_id)).await;
    let claims = verified(&cloud, body["access_token"].as_str().unwrap(), ARM).await;
    assert_eq!((&claims["oid"], &claims["xms_az_rid"]), (&json!(user.object_id), &json!(cloud.machine_id())));

    let (_, body) = machine_token(&cloud, "&resource=https://secrets.example/").await;
    let claims = verified(&cloud, body["access_token"].as_str().unwrap(), "https://secrets.example/").await;
    assert_eq!(claims.get("xms_mirid"), None, "resource ids are for the cloud's own audiences");
    assert_eq!(cloud.faults().requests(FaultTarget::Metadata), 3);
}

#[tokio::test]
async fn the_metadata_service_refuses_as_the_real_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let (cloud, _tasks) = start(folder.path(), |_| {});
    let (status, body) = machine_token(&cloud, "&resource=r&object_id=nobody").await;
    assert_eq!((status, &body["error_description"]), (400, &json!("Identity not found")));
    let (status, _) = machine_token(&cloud, "").await;
    assert_eq!(status, 400);
    let bare = format!("{}metadata/identity/oauth2/token?api-version=2018-02-01&resource=r", cloud.metadata_url());
    let response = client(&cloud).get(&bare).send().await.unwrap();
    assert_eq!(response.json::<Value>().await.unwrap()["error"], "bad_request_102");
    let response = client(&cloud).post(&bare).header("metadata", "true").send().await.unwrap();
    assert_eq!(response.status(), 405);
}

#[tokio::test]
async fn the_user_identity_is_found_by_its_resource_id_in_letters_of_either_case_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (cloud, _tasks) = start(folder.path(), |_| {});
    let (user, resource) = (cloud.identities().user.clone(), format!("&resource={ARM}"));
    let (_, body) = machine_token(&cloud, &format!("{resource}&client_id={}", user.client_id)).await;
    let claims = verified(&cloud, body["access_token"].as_str().unwrap(), ARM).await;
    let id = claims["xms_mirid"].as_str().unwrap().to_owned();
    let variables = cloud.variables_for_app_service();
    let app_token = async |query: &str| {
        let url = format!("{}?api-version=2019-08-01{query}", variables["IDENTITY_ENDPOINT"]);
        let request = client(&cloud).get(url).header("x-identity-header", &variables["IDENTITY_HEADER"]);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    for id in [id.clone(), id.to_uppercase(), id.replace('/', "%2F")] {
        let (status, body) = machine_token(&cloud, &format!("{resource}&msi_res_id={id}")).await;
        assert_eq!((status, &body["client_id"]), (200, &json!(user.client_id)), "{id}: {body}");
        let (status, body) = app_token(&format!("{resource}&mi_res_id={id}")).await;
        assert_eq!((status, &body["client_id"]), (200, &json!(user.client_id)), "{id}: {body}");
    }
    let system = &cloud.identities().system.object_id;
    for other in [format!("{id}2"), cloud.machine_id(), String::new(), format!("{id}&object_id={system}")] {
        let (status, body) = machine_token(&cloud, &format!("{resource}&msi_res_id={other}")).await;
        assert_eq!((status, &body["error_description"]), (400, &json!("Identity not found")), "{other}: {body}");
        assert_eq!(app_token(&format!("{resource}&mi_res_id={other}")).await.0, 400, "{other}");
    }
}

#[tokio::test]
async fn the_instance_document_names_machine_and_scale_set() {
    let folder = tempfile::tempdir().unwrap();
    let (cloud, _tasks) = start(folder.path(), |options| options.machine = MachineKind::ScaleSet);
    let url = format!("{}metadata/instance/compute?api-version=2021-02-01", cloud.metadata_url());
    let response = client(&cloud).get(&url).header("metadata", "true").send().await.unwrap();
    let body: Value = response.json().await.unwrap();
    assert_eq!((&body["name"], &body["vmScaleSetName"]), (&json!("keyward-set_0"), &json!("keyward-set")));
    assert_eq!(body["resourceId"], cloud.machine_id());
    cloud.faults().block_instance(true);
    let response = client(&cloud).get(&url).header("metadata", "true").send().await.unwrap();
    assert_eq!(response.status(), 404);
}

async fn exchange(cloud: &Cloud, fields: &[(&str, &str)]) -> (u16, Value) {
    let url = format!("{}{}/oauth2/v2.0/token", cloud.authority_url(), cloud.identities().tenant);
    let shared = [("grant_type", "client_credentials"), ("scope", "https://management.azure.com//.default")];
    let form: Vec<_> = shared.iter().chain(fields).collect();
    let response = client(cloud).post(url).form(&form).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

const BEARER: (&str, &str) = ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");

#[tokio::test]
async fn the_authority_takes_a_secret_or_the_projected_token() {
    let folder = tempfile::tempdir().unwrap();
    let (cloud, _tasks) = start(folder.path(), |_| {});
    let app = cloud.identities().application.client_id.clone();
    let secret = cloud.identities().client_secret.expose_secret().to_owned();
    let (status, body) = exchange(&cloud, &[("client_id", &app), ("client_secret", &secret)]).await;
    assert_eq!(status, 200, "{body}");
    verified(&cloud, body["access_token"].as_str().unwrap(), ARM).await;
    let (status, body) = exchange(&cloud, &[("client_id", &app), ("client_secret", "wrong")]).await;
    assert_eq!((status, &body["error_codes"]), (401, &json!([7_000_215])));

    let variables = cloud.variables_for_workload_identity();
    let assertion = std::fs::read_to_string(&variables["AZURE_FEDERATED_TOKEN_FILE"]).unwrap();
    let client_id = variables["AZURE_CLIENT_ID"].as_str();
    let (status, body) = exchange(&cloud, &[("client_id", client_id), ("client_assertion", &assertion), BEARER]).await;
    assert_eq!(status, 200, "{body}");
    let claims = verified(&cloud, body["access_token"].as_str().unwrap(), ARM).await;
    assert_eq!(claims["oid"], cloud.identities().workload.object_id);

    let (head, signature) = assertion.rsplit_once('.').unwrap();
    let forged: String = signature.chars().rev().collect();
    let forged = format!("{head}.{forged}");
    let (status, body) = exchange(&cloud, &[("client_id", client_id), ("client_assertion", &forged), BEARER]).await;
    assert_eq!((status, &body["error_codes"]), (400, &json!([50_027])));
}

#[tokio::test]
async fn an_expired_projected_token_is_refused_by_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let driven = keyward_machine::clock::TestClock::starting_at(SystemTime::now());
    let clock = keyward_machine::clock::Clock::Test(driven.clone());
    let (cloud, _tasks) = start(folder.path(), |options| options.clock = clock);
    let variables = cloud.variables_for_workload_identity();
    let assertion = std::fs::read_to_string(&variables["AZURE_FEDERATED_TOKEN_FILE"]).unwrap();
    driven.set_wall_by(7200);
    let fields = [("client_id", variables["AZURE_CLIENT_ID"].as_str()), ("client_assertion", &assertion), BEARER];
    let (status, body) = exchange(&cloud, &fields).await;
    assert_eq!((status, &body["error_codes"]), (401, &json!([700_024])));
}

#[tokio::test(start_paused = true)]
async fn the_projected_token_is_replaced_before_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let clock = keyward_machine::clock::Clock::Test(keyward_machine::clock::TestClock::starting_at(SystemTime::now()));
    let (cloud, _tasks) = start(folder.path(), |options| options.clock = clock);
    let path = cloud.variables_for_workload_identity()["AZURE_FEDERATED_TOKEN_FILE"].clone();
    let before = std::fs::read(&path).unwrap();
    tokio::time::sleep(Duration::from_mins(47)).await;
    assert_eq!(std::fs::read(&path).unwrap(), before);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_ne!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn injected_faults_fail_tokens_skew_the_clock_and_close_listeners() {
    let folder = tempfile::tempdir().unwrap();
    let (cloud, _tasks) = start(folder.path(), |_| {});
    let resource = format!("&resource={ARM}");
    let failure = Failure { status: 429, body: None, retry_after: Some(7) };
    cloud.faults().fail_next_tokens(1, 410);
    cloud.faults().fail_next_tokens_with(1, &failure);
    assert_eq!(machine_token(&cloud, &resource).await.0, 410);
    assert_eq!(machine_token(&cloud, &resource).await.0, 429);
    assert_eq!(machine_token(&cloud, &resource).await.0, 200);

    cloud.faults().skew(4000);
    cloud.faults().audience(Some("other".to_owned()));
    let (_, body) = machine_token(&cloud, &resource).await;
    let claims = keyward_credentials::jwt::UnverifiedClaims::decode(body["access_token"].as_str().unwrap()).unwrap();
    assert!(claims.nbf.unwrap() > SystemTime::now());
    assert_eq!(claims.aud, ["other"]);

    cloud.faults().refuse(true);
    let url = cloud.metadata_url().clone();
    let refused = async {
        while client(&cloud).get(url.clone()).send().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), refused).await.unwrap();
    cloud.faults().reset();
    let open = async {
        while client(&cloud).get(url.clone()).send().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), open).await.unwrap();
    assert_eq!(machine_token(&cloud, &resource).await.0, 200);
}

#[tokio::test]
async fn no_other_program_gets_the_port_of_a_closed_listener() {
    let folder = tempfile::tempdir().unwrap();
    let (cloud, _tasks) = start(folder.path(), |options| options.faults = Some(([127, 0, 0, 1], 0).into()));
    let key = cloud.faults_key().expose_secret();
    let request = client(&cloud).post(cloud.faults_url().unwrap()).header("x-faults-key", key);
    assert_eq!(request.body(r#"{"refuse":true}"#).send().await.unwrap().status(), 200);
    for url in [cloud.metadata_url(), cloud.authority_url()] {
        let address = ([127, 0, 0, 1], url.port().unwrap()).into();
        let error = tokio::net::TcpSocket::new_v4().unwrap().bind(address).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    }
}

#[tokio::test]
async fn fault_injection_over_http_requires_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let (cloud, _tasks) = start(folder.path(), |options| options.faults = Some(([127, 0, 0, 1], 0).into()));
    let fault = r#"{"fail-next-tokens":{"count":2,"status":503}}"#;
    let request = || client(&cloud).post(cloud.faults_url().unwrap()).body(fault);
    assert_eq!(request().send().await.unwrap().status(), 403);
    let key = cloud.faults_key().expose_secret();
    assert_eq!(request().header("x-faults-key", key).send().await.unwrap().status(), 200);
    assert_eq!(machine_token(&cloud, "&resource=r").await.0, 503);
}

#[tokio::test]
async fn a_second_start_keeps_ids_and_keys_and_files_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let options = || CloudOptions::in_folder(folder.path().join("cloud"));
    let (first, tasks) = start_with(options());
    let (tenant, ca) = (first.identities().tenant.clone(), std::fs::read(first.ca_file()).unwrap());
    drop((first, tasks));
    let (second, _tasks) = start_with(options());
    assert_eq!((&tenant, &ca), (&second.identities().tenant, &std::fs::read(second.ca_file()).unwrap()));
    machine_token(&second, "&resource=r").await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let home = folder.path().join("cloud");
    assert_eq!(mode(&home), 0o700);
    for entry in std::fs::read_dir(&home).unwrap().flatten() {
        let expected = if entry.path().is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&entry.path()), expected, "{}", entry.path().display());
    }
}

#[tokio::test]
async fn it_does_not_listen_where_other_machines_reach_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = CloudOptions::in_folder(folder.path().join("cloud"));
    options.authority = ([0, 0, 0, 0], 0).into();
    let error = Cloud::start(options, &mut TaskGroup::default()).unwrap_err();
    assert!(error.to_string().contains("loopback"), "{error}");
}
