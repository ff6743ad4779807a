//! Tokens of SPIFFE's Workload API, which a program on grpc-go and SPIFFE's own messages serves (`tests/clients/go-spiffe`).

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keyward_agent::identity::{IdentityError, IdentityErrorKind, IdentityMethod, SignedToken, WorkloadApiOptions};
use keyward_agent::server_client::ServerClient;
use keyward_machine::clock::Clock;
use serde_json::{Value, json};

use super::signed;
use crate::harness::secrets;
use crate::harness::workload_api::WorkloadApi;

/// A source of tokens of a running API.
struct Api(WorkloadApi);

impl Api {
    fn start() -> Self {
        Self(WorkloadApi::start())
    }

    fn options(&self, spiffe_id: Option<&str>) -> WorkloadApiOptions {
        let audience = "https://vault.example.com".to_owned();
        WorkloadApiOptions { socket: self.0.socket(), audience, spiffe_id: spiffe_id.map(str::to_owned) }
    }

    /// Checks a token's signature by the key of the trust domain.
    fn verify(&self, jwt: &str) {
        let pem = std::fs::read_to_string(self.0.key()).unwrap();
        let text: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let key = STANDARD.decode(text).unwrap();
        // The point is the end of the document.
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key[key.len() - 65..].to_vec());
        let (message, signature) = jwt.rsplit_once('.').unwrap();
        key.verify(message.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    }
}

async fn prove(options: WorkloadApiOptions) -> Result<SignedToken, IdentityError> {
    let upstream = ServerClient::build(&secrets::options("http://127.0.0.1:1")).unwrap();
    let method = IdentityMethod::WorkloadApi(Box::new(options));
    let source = method.build_for_one_attempt(Clock::System, &upstream, None).unwrap();
    source.prove().await.map(signed)
}

#[tokio::test]
async fn the_workload_api_gives_a_token_for_the_audience_and_the_identity() {
    let api = Api::start();
    for (id, expected) in
        [(None, "spiffe://example.org/web"), (Some("spiffe://example.org/other"), "spiffe://example.org/other")]
    {
        let token = prove(api.options(id)).await.unwrap();
        api.verify(token.jwt.expose_secret());
        let payload = token.jwt.expose_secret().split('.').nth(1).unwrap();
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
        assert_eq!((&claims["sub"], &claims["aud"]), (&json!(expected), &json!("https://vault.example.com")));
    }
}

#[tokio::test]
async fn a_process_without_a_registration_is_denied_and_an_agent_that_is_not_there_is_waited_for() {
    let mut api = Api::start();
    let check = async |options: WorkloadApiOptions, kind: IdentityErrorKind, text: &str| {
        let error = prove(options).await.unwrap_err();
        assert!(error.kind == kind && error.to_string().contains(text), "{error:?}");
    };
    check(api.options(Some("spiffe://example.org/missing")), IdentityErrorKind::Denied, "no identity issued").await;
    api.0.set("unregistered");
    check(api.options(None), IdentityErrorKind::Denied, "no registration entry").await;
    api.0.set("unavailable");
    check(api.options(None), IdentityErrorKind::Transient, "could not fetch the identity").await;
    api.0.set("registered");
    prove(api.options(None)).await.unwrap();
    let options = api.options(None);
    drop(api);
    check(options.clone(), IdentityErrorKind::NotReady, "agent.sock").await;
    // Something else listens there.
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("other.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    };
    let other = WorkloadApiOptions { socket, ..options };
    tokio::join!(answer, check(other, IdentityErrorKind::Transient, "incomplete response"));
}
