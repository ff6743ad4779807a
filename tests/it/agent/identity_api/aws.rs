//! Credentials of a role of AWS, with the SDKs of AWS for Go and Python: by the endpoint of container credentials, and by `credential_process`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use super::{KEY, Scene};
use crate::agent::identity::tls_front::TlsFront;
use crate::harness::world::run_in_network_namespace;

const ROLE: &str = "arn:aws:iam::123456789012:role/web";

/// STS, which gives credentials of a life for any signed token.
struct Sts {
    calls: Arc<AtomicU64>,
    server: MockServer,
    front: TlsFront,
    runtime: tokio::runtime::Runtime,
}

impl Sts {
    fn start(life: Duration) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let calls = Arc::new(AtomicU64::new(0));
        let (server, front) = runtime.block_on(async {
            let server = MockServer::start().await;
            let counted = Arc::clone(&calls);
            let respond = move |_: &Request| {
                let number = counted.fetch_add(1, Ordering::Relaxed);
                let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + life;
                let credentials = json!({ "AccessKeyId": format!("ASIA{number}"), "SecretAccessKey": "canary-secret",
                    "SessionToken": "canary-session", "Expiration": end.as_secs_f64().floor() });
                let result = json!({ "AssumeRoleWithWebIdentityResult": { "Credentials": credentials } });
                ResponseTemplate::new(200).set_body_json(json!({ "AssumeRoleWithWebIdentityResponse": result }))
            };
            Mock::given(method("POST")).respond_with(respond).mount(&server).await;
            let front = TlsFront::start(server.address()).await;
            (server, front)
        });
        Self { calls, server, front, runtime }
    }

    /// Variables by which the agent finds it.
    fn setup(&self) -> String {
        format!("export AWS_ENDPOINT_URL_STS={} SSL_CERT_FILE={}", self.front.url, self.front.ca_file().display())
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Fields of the first request.
    fn first_form(&self) -> BTreeMap<String, String> {
        let requests = self.runtime.block_on(self.server.received_requests()).unwrap();
        url::form_urlencoded::parse(&requests[0].body).into_owned().collect()
    }
}

const IDENTITY: &str = "[identity.aws.cloud]\n[identity.aws.aws_role]\nrole_arn = \"arn:aws:iam::123456789012:role/web\"\n\
    audience = \"api://aws\"\nduration = \"1h\"\n[listener.commands]\nkind = \"identity\"\naddress = \"unix://FOLDER/tools.sock\"\n";

#[test]
fn the_sdk_of_aws_gets_no_expired_credentials_in_three_hours_and_each_life_costs_one_call() {
    run_in_network_namespace(|| {
        // An hour is eight seconds here.
        let sts = Sts::start(Duration::from_secs(8));
        let scene = Scene::start_after(Duration::from_hours(1), IDENTITY, "", &sts.setup());
        let calls = |_: &Scene| sts.calls();
        scene.assert_one_call_a_life(1, calls, |scene| {
            let file = scene.agent.path("identity.key").display().to_string();
            let url = scene.url("aws", "aws");
            scene.sdks(
                &["aws", "25"],
                &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url), ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file)],
            )
        });
        let form = sts.first_form();
        assert_eq!(
            (&*form["RoleArn"], &*form["RoleSessionName"], &*form["DurationSeconds"]),
            (ROLE, "keyward", "3600")
        );
        scene.assert_one_call_a_life(1, calls, |scene| {
            let profile = scene.agent.path("aws.config");
            let command = env!("CARGO_BIN_EXE_keyward");
            let config = scene.agent.config.display();
            let text =
                format!("[default]\ncredential_process = {command} aws-credentials --identity aws --config {config}\n");
            std::fs::write(&profile, text).unwrap();
            let profile = profile.display().to_string();
            scene.sdks(
                &["aws", "25"],
                &[("AWS_CONFIG_FILE", &profile), ("PATH", "/usr/bin:/bin"), ("HOME", "/nonexistent")],
            )
        });
        let (status, log) = scene.agent.binary.stop();
        assert!(status.success() && !log.contains("canary"), "{log}");
    });
}

#[test]
fn credentials_of_a_role_are_given_for_the_key_alone() {
    run_in_network_namespace(|| {
        let sts = Sts::start(Duration::from_hours(1));
        let scene = Scene::start_after(Duration::from_hours(1), IDENTITY, "", &sts.setup());
        let url = scene.url("aws", "aws");
        let given = scene.ask(&url, &[("Authorization", KEY)]);
        assert_eq!(
            (given.status, given.body["AccessKeyId"].as_str(), given.body["RoleArn"].as_str()),
            (200, Some("ASIA0"), Some(ROLE))
        );
        assert_eq!(scene.ask(&url, &[]).status, 401);
        assert_eq!(scene.ask(&url, &[("Authorization", "wrong")]).status, 403);
        let none = scene.ask(&scene.url("azure", "aws"), &[("Authorization", KEY)]);
        assert!(none.status == 403 && none.body["message"].as_str().unwrap().contains("no role of AWS"), "{none:?}");
        // The token that is exchanged is none of the listed resources.
        let token = format!("{}?resource=api://aws", scene.url("aws", "token"));
        let refused = scene.ask(&token, &[("X-Keyward-Key", KEY)]);
        assert_eq!(refused.status, 403, "{refused:?}");
        assert_eq!(sts.calls(), 1);
    });
}
