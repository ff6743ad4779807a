//! Logins of service accounts of Kubernetes at the ACL server, which asks the API server of their cluster. `tests/cluster/run` tries it
//! with a real one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use keyward_config::{Environment, Purpose, load};
use keyward_machine::clock::Clock;
use serde_json::{Value, json};
use wiremock::matchers::{body_partial_json, header, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::server::Server;
use crate::harness::served::Answer;

const AUDIENCE: &str = "https://acl.example.com";

struct Scene {
    cluster: MockServer,
    server: Server,
    token_file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Scene {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cluster = MockServer::start().await;
        let token_file = folder.path().join("token");
        std::fs::write(&token_file, "reviewer-1\n").unwrap();
        let (file, data) = (folder.path().join("keyward.toml"), folder.path().join("acl"));
        let text = format!(
            "[acl]\nlisten = \"tcp://127.0.0.1:0\"\ndata_dir = \"{}\"\n\
             [acl.method.cluster]\ntype = \"kubernetes\"\naudience = \"{AUDIENCE}\"\napi_url = \"{}\"\ntoken_file = \"{}\"\n\
             [acl.method.cluster.role.web]\nservice_accounts = [\"shop/web\"]\npolicies = [\"web\"]\n\
             [acl.method.cluster.role.shop]\nnamespaces = [\"shop\"]\n\
             [acl.method.cluster.role.other]\nnamespaces = [\"other\"]\n",
            data.display(),
            cluster.uri(),
            token_file.display(),
        );
        std::fs::write(&file, text).unwrap();
        let environment = Environment { variables: BTreeMap::new(), user: 0 };
        let outcome = load(&[file], &environment, Purpose::Check);
        let config = outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.errors));
        let server = Server::start(&config.acl.unwrap().service, Clock::System).await;
        Self { cluster, server, token_file, _folder: folder }
    }

    /// Lets the cluster answer a review of the token `jwt` for a reviewer.
    async fn answers(&self, reviewer: &str, status: u16, body: &Value) {
        self.cluster.reset().await;
        Mock::given(method("POST"))
            .and(path("/apis/authentication.k8s.io/v1/tokenreviews"))
            .and(header("authorization", format!("Bearer {reviewer}")))
            .and(body_partial_json(json!({
                "kind": "TokenReview", "spec": { "token": "a.b.canary", "audiences": [AUDIENCE] }
            })))
            .respond_with(ResponseTemplate::new(status).set_body_json(body))
            .mount(&self.cluster)
            .await;
    }

    async fn log_in(&self, role: &str) -> Answer {
        let body = json!({ "role": role, "jwt": "a.b.canary" }).to_string();
        self.server.send("POST", "/v1/auth/cluster/login", &[], body.as_bytes()).await
    }

    #[track_caller]
    fn refused(answer: &Answer, status: u16, expected: &str) {
        assert_eq!(answer.status, status, "{}", answer.error());
        assert!(answer.error().contains(expected) && !answer.error().contains("canary"), "{}", answer.error());
    }
}

fn review(status: &Value) -> Value {
    json!({ "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "status": status })
}

fn web() -> Value {
    review(&json!({
        "authenticated": true, "audiences": [AUDIENCE],
        "user": {
            "username": "system:serviceaccount:shop:web", "uid": "u-1",
            "extra": { "authentication.kubernetes.io/pod-name": ["web-0"] },
        },
    }))
}

#[tokio::test]
async fn a_service_account_logs_in_while_its_cluster_accepts_its_token() {
    let scene = Scene::start().await;
    scene.answers("reviewer-1", 201, &web()).await;
    let login = scene.log_in("web").await.json();
    assert_eq!(login["auth"]["policies"], json!(["web"]), "{login}");
    assert_eq!(login["auth"]["metadata"]["pod_name"], "web-0", "{login}");
    assert_eq!(scene.log_in("shop").await.status, 200);
    Scene::refused(&scene.log_in("other").await, 403, "namespace not authorized");
    Scene::refused(&scene.log_in("missing").await, 400, "invalid role name");
    // The pod is gone.
    scene.answers("reviewer-1", 201, &review(&json!({ "error": "token has been invalidated" }))).await;
    Scene::refused(&scene.log_in("web").await, 403, "token has been invalidated");
    // The server's own token was replaced.
    std::fs::write(&scene.token_file, "reviewer-2").unwrap();
    scene.answers("reviewer-2", 201, &web()).await;
    assert_eq!(scene.log_in("web").await.status, 200);
}

#[tokio::test]
async fn an_api_server_that_cannot_be_asked_is_an_outage_with_its_remedy() {
    let scene = Scene::start().await;
    scene.answers("reviewer-1", 403, &json!({ "kind": "Status", "message": "canary" })).await;
    Scene::refused(&scene.log_in("web").await, 503, "system:auth-delegator");
    scene.answers("reviewer-1", 401, &json!({})).await;
    Scene::refused(&scene.log_in("web").await, 503, "does not accept this server's own token");
    scene.answers("reviewer-1", 500, &json!({})).await;
    Scene::refused(&scene.log_in("web").await, 503, "returned HTTP 500");
    scene.answers("reviewer-1", 201, &json!([])).await;
    Scene::refused(&scene.log_in("web").await, 503, "did not return a TokenReview");
    std::fs::remove_file(&scene.token_file).unwrap();
    Scene::refused(&scene.log_in("web").await, 503, "cannot be used");
}
