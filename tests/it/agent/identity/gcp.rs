//! Google Cloud: identity tokens of the metadata server, and tokens that a service account signs.

use std::time::{Duration, SystemTime};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use keyward_agent::identity::{
    GcpEndpoints, GcpIdentityOptions, GcpOrigin, IdentityError, IdentityMethod, ProviderVariables, SignedToken,
};
use keyward_agent::server_client::ServerClient;
use keyward_machine::clock::{Clock, TestClock};
use serde_json::{Value, json};
use wiremock::matchers::{header, method, path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::signed;
use super::tls_front::TlsFront;
use crate::harness::secrets::options as server_options;

const EMAIL: &str = "web@project.iam.gserviceaccount.com";
const ACCOUNTS: &str = "/computeMetadata/v1/instance/service-accounts/default";

fn options(server: &MockServer, origin: GcpOrigin) -> GcpIdentityOptions {
    let host = ("GCE_METADATA_HOST".to_owned(), server.address().to_string());
    GcpIdentityOptions {
        audience: origin.audience_of_role("web"),
        origin,
        variables: ProviderVariables::of_gcp([host]),
        endpoints: GcpEndpoints::provider(),
    }
}

async fn prove(options: &GcpIdentityOptions, clock: Clock) -> Result<SignedToken, IdentityError> {
    options.build(clock)?.prove().await.map(signed)
}

fn instance() -> GcpOrigin {
    GcpOrigin::Instance { service_account: "default".to_owned() }
}

fn driven(seconds: u64) -> Clock {
    Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)))
}

#[tokio::test]
async fn the_identity_token_of_an_instance_names_the_role_as_its_audience() {
    let server = MockServer::start().await;
    let claims = BASE64_URL_SAFE_NO_PAD.encode(r#"{"aud":"http://vault/web","exp":4102444800}"#);
    let token = format!("eyJhbGciOiJSUzI1NiJ9.{claims}.c2ln");
    Mock::given(method("GET"))
        .and(path(format!("{ACCOUNTS}/identity")))
        .and(header("metadata-flavor", "Google"))
        .and(query_param("audience", "http://vault/web"))
        .and(query_param("format", "full"))
        .respond_with(ResponseTemplate::new(200).set_body_string(format!("{token}\n")))
        .expect(1)
        .mount(&server)
        .await;
    let proof = prove(&options(&server, instance()), driven(1_700_000_000)).await.unwrap();
    assert_eq!(proof.jwt.expose_secret(), token);
    assert_eq!(proof.audience.as_deref(), Some("http://vault/web"));
    assert_eq!(proof.claims.unwrap().aud, ["http://vault/web"]);
}

#[tokio::test]
async fn a_body_that_is_no_token_is_refused_and_not_quoted() {
    for body in ["", "canary", "canary.canary", "<html>a.b.c</html>", "a b.c.d"] {
        let server = MockServer::start().await;
        Mock::given(method("GET")).respond_with(ResponseTemplate::new(200).set_body_string(body)).mount(&server).await;
        let upstream = ServerClient::build(&server_options("http://127.0.0.1:1")).unwrap();
        let method = IdentityMethod::Gcp(Box::new(options(&server, instance())));
        let source = method.build_for_one_attempt(Clock::System, &upstream, None).unwrap();
        let error = source.prove().await.unwrap_err().to_string();
        assert!(error.contains("not a signed token") && !error.contains("canary"), "{body}: {error}");
    }
}

#[tokio::test]
async fn google_signs_for_the_machine_or_for_a_named_service_account() {
    let server = MockServer::start().await;
    let get = |at: &str| Mock::given(method("GET")).and(path(format!("{ACCOUNTS}/{at}")));
    get("email").respond_with(ResponseTemplate::new(200).set_body_string(EMAIL)).mount(&server).await;
    let access = json!({ "access_token": "canary-access", "expires_in": 3600, "token_type": "Bearer" });
    get("token").respond_with(ResponseTemplate::new(200).set_body_json(access)).mount(&server).await;
    let other = "ci@project.iam.gserviceaccount.com";
    for account in [EMAIL, other] {
        Mock::given(method("POST"))
            .and(path(format!("/v1/projects/-/serviceAccounts/{account}:signJwt")))
            .and(header("authorization", "Bearer canary-access"))
            .respond_with(
                ResponseTemplate::new(200).set_body_json(json!({ "keyId": "1", "signedJwt": "eyJh.eyJz.c2ln" })),
            )
            .expect(1)
            .mount(&server)
            .await;
    }
    let front = TlsFront::start(server.address()).await;
    for account in [None, Some(other.to_owned())] {
        let expected = account.clone().unwrap_or_else(|| EMAIL.to_owned());
        let mut options = options(&server, GcpOrigin::SignJwt { service_account: account });
        options.endpoints.credentials = front.url.parse().unwrap();
        options.endpoints.credentials_ca = Some(front.ca_file());
        options.endpoints.credentials_is_local = true;
        let proof = prove(&options, driven(1_700_000_000)).await.unwrap();
        assert_eq!((proof.jwt.expose_secret(), proof.audience.as_deref()), ("eyJh.eyJz.c2ln", Some("vault/web")));
        let requests = server.received_requests().await.unwrap();
        let body: Value = serde_json::from_slice(&requests.last().unwrap().body).unwrap();
        let claims: Value = serde_json::from_str(body["payload"].as_str().unwrap()).unwrap();
        let wanted =
            json!({ "sub": expected, "iss": expected, "aud": "vault/web", "iat": 1_700_000_000, "exp": 1_700_000_600 });
        assert_eq!(claims, wanted);
    }
}

#[tokio::test]
async fn the_key_of_a_service_account_signs_without_a_call() {
    let server = MockServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.json");
    let private = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = private.as_der().unwrap();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        BASE64_STANDARD.encode(der.as_ref() as &[u8])
    );
    let key =
        json!({ "type": "service_account", "client_email": EMAIL, "private_key_id": "key-1", "private_key": pem });
    std::fs::write(&file, key.to_string()).unwrap();
    let options = options(&server, GcpOrigin::Key { file });
    let proof = prove(&options, driven(1_700_000_000)).await.unwrap();
    let (signed, signature) = proof.jwt.expose_secret().rsplit_once('.').unwrap();
    let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, private.public_key().as_ref());
    public.verify(signed.as_bytes(), &decode(signature)).unwrap();
    let header: Value = serde_json::from_slice(&decode(signed.split('.').next().unwrap())).unwrap();
    assert_eq!(header, json!({ "alg": "RS256", "typ": "JWT", "kid": "key-1" }));
    assert_eq!(proof.claims.unwrap().aud, ["vault/web"]);
    assert!(server.received_requests().await.unwrap().is_empty());
}
