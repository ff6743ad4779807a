//! Logins of AWS principals and of machines of Google Cloud at the ACL server, which asks an emulated cloud.

use std::collections::BTreeMap;
use std::time::SystemTime;

use keyward_agent::identity::{
    AwsCredentialOrigin, AwsEndpoints, AwsIdentityOptions, GcpEndpoints, GcpIdentityOptions, GcpOrigin, IdentityMethod,
    ProviderVariables,
};
use keyward_agent::login::{AuthMethodKind, Login, LoginError, LoginOptions};
use keyward_agent::server_client::{ServerClient, ServerKind};
use keyward_agent::token::Token;
use keyward_config::{Environment, Purpose, load};
use keyward_emulators::cloud::{Cloud, CloudProvider, FaultTarget, GcpNames};
use keyward_machine::clock::{Clock, TestClock};
use keyward_machine::tasks::TaskGroup;

use super::server::Server;
use crate::harness::cloud::options_with_shared_keys;
use crate::harness::secrets::options as server_options;

struct Scene {
    cloud: Cloud,
    server: Server,
    upstream: ServerClient,
    clock: TestClock,
    _tasks: TaskGroup,
    _folder: tempfile::TempDir,
}

impl Scene {
    /// Starts the server with the method `cloud`, whose text `configuration` returns.
    async fn start(provider: CloudProvider, configuration: impl FnOnce(&Cloud) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut tasks = TaskGroup::default();
        let clock = TestClock::starting_at(SystemTime::now());
        let mut options = options_with_shared_keys(folder.path().join("cloud"));
        (options.provider, options.clock) = (provider, Clock::Test(clock.clone()));
        let cloud = Cloud::start(options, &mut tasks).unwrap();
        let file = folder.path().join("keyward.toml");
        let data = folder.path().join("acl").display().to_string();
        let method = configuration(&cloud);
        let text =
            format!("[acl]\nlisten = \"tcp://127.0.0.1:0\"\ndata_dir = \"{data}\"\n[acl.method.cloud]\n{method}");
        std::fs::write(&file, text).unwrap();
        let environment = Environment { variables: BTreeMap::new(), user: 0 };
        let outcome = load(&[file], &environment, Purpose::Check);
        let config = outcome.config.unwrap_or_else(|| panic!("{:?}", outcome.errors));
        let server = Server::start(&config.acl.unwrap().service, Clock::Test(clock.clone())).await;
        let mut options = server_options(&server.url);
        options.kind = ServerKind::Keyward;
        let upstream = ServerClient::build(&options).unwrap();
        Self { cloud, server, upstream, clock, _tasks: tasks, _folder: folder }
    }

    async fn log_in(&self, role: &str, method: IdentityMethod) -> Result<Token, LoginError> {
        let clock = Clock::Test(self.clock.clone());
        let source = method.build_for_one_attempt(clock.clone(), &self.upstream, None).unwrap();
        let proof = source.prove().await.unwrap();
        let options = LoginOptions {
            role: role.to_owned(),
            mount: "cloud".to_owned(),
            namespace: None,
            wrap_ttl: None,
            auth_method: AuthMethodKind::Other,
        };
        Login::new(self.upstream.clone(), options).login(&proof, &clock).await
    }

    fn aws(&self, server_id: &str, region: Option<&str>) -> IdentityMethod {
        IdentityMethod::Aws(Box::new(AwsIdentityOptions {
            origin: AwsCredentialOrigin::Instance,
            server_id: (!server_id.is_empty()).then(|| server_id.to_owned()),
            region: region.map(str::to_owned),
            variables: ProviderVariables::default(),
            endpoints: AwsEndpoints { metadata: self.cloud.metadata_url().clone(), ..AwsEndpoints::provider() },
        }))
    }

    fn google(&self, role: &str, audience: Option<&str>) -> IdentityMethod {
        let origin = GcpOrigin::Instance { service_account: "default".to_owned() };
        IdentityMethod::Gcp(Box::new(GcpIdentityOptions {
            audience: audience.map_or_else(|| origin.audience_of_role(role), ToOwned::to_owned),
            origin,
            variables: ProviderVariables::default(),
            endpoints: GcpEndpoints { metadata: self.cloud.metadata_url().clone(), ..GcpEndpoints::provider() },
        }))
    }

    /// Requests that the server has sent to the cloud.
    fn asked(&self) -> u64 {
        self.cloud.faults().requests(FaultTarget::Authority)
    }
}

#[track_caller]
fn refused(tried: Result<Token, LoginError>, expected: &str) {
    let error = keyward_telemetry::error_chain::format_chain(&tried.unwrap_err());
    assert!(error.contains(expected), "{error}");
}

fn aws_method(cloud: &Cloud) -> String {
    let (url, ca) = (cloud.authority_url(), cloud.ca_file());
    format!(
        "type = \"aws\"\nserver_id = \"acl.example.com\"\nregions = [\"eu-west-1\"]\nsts_url = \"{url}\"\nca_file = \"{}\"\n\
         [acl.method.cloud.role.web]\naccounts = [\"111122223333\"]\nroles = [\"keyward-vm\"]\npolicies = [\"machines\"]\n\
         [acl.method.cloud.role.account]\naccounts = [\"111122223333\"]\n\
         [acl.method.cloud.role.other-account]\naccounts = [\"999922223333\"]\nroles = [\"keyward-vm\"]\n\
         [acl.method.cloud.role.other-role]\naccounts = [\"111122223333\"]\nroles = [\"keyward\"]\n\
         [acl.method.cloud.role.user]\naccounts = [\"111122223333\"]\nusers = [\"keyward-vm\"]\n",
        ca.display()
    )
}

#[tokio::test]
async fn a_role_of_aws_logs_in_by_a_request_that_it_signed_for_this_server() {
    let scene = Scene::start(CloudProvider::Aws, aws_method).await;
    let token = scene.log_in("web", scene.aws("acl.example.com", None)).await.unwrap();
    assert_eq!(token.policies, ["machines"]);
    scene.log_in("account", scene.aws("acl.example.com", Some("eu-west-1"))).await.unwrap();
    let login = scene.server.look_up(token.secret.secret().expose_secret()).await.json();
    assert_eq!(login["data"]["meta"]["principal_name"], "keyward-vm", "{login}");
    for role in ["other-account", "other-role", "user"] {
        refused(scene.log_in(role, scene.aws("acl.example.com", None)).await, "not authorized");
    }
    refused(scene.log_in("missing", scene.aws("acl.example.com", None)).await, "invalid role name");
}

#[tokio::test]
async fn what_is_not_for_this_server_never_reaches_aws() {
    let scene = Scene::start(CloudProvider::Aws, aws_method).await;
    refused(scene.log_in("web", scene.aws("", None)).await, "missing header");
    refused(scene.log_in("web", scene.aws("other.example.com", None)).await, "expected \"acl.example.com\"");
    refused(scene.log_in("web", scene.aws("acl.example.com", Some("us-west-2"))).await, "does not allow");
    let body = serde_json::json!({ "role": "web", "jwt": "a.b.c" }).to_string();
    let answer = scene.server.send("POST", "/v1/auth/cloud/login", &[], body.as_bytes()).await;
    assert_eq!((answer.status, answer.error()), (400, "iam_http_request_method is required".to_owned()));
    assert_eq!(scene.asked(), 0);
}

#[tokio::test]
async fn a_signature_that_aws_does_not_accept_is_a_refusal_and_a_silent_aws_an_outage() {
    let scene = Scene::start(CloudProvider::Aws, aws_method).await;
    // AWS's clock decides too.
    scene.cloud.faults().skew(3600);
    refused(scene.log_in("web", scene.aws("acl.example.com", None)).await, "from STS: SignatureDoesNotMatch");
    scene.cloud.faults().reset();
    // The machine has its credentials already; the session of the metadata service needs one request.
    let method = scene.aws("acl.example.com", None);
    let source = method.build_for_one_attempt(Clock::Test(scene.clock.clone()), &scene.upstream, None).unwrap();
    let proof = source.prove().await.unwrap();
    let options = LoginOptions {
        role: "web".to_owned(),
        mount: "cloud".to_owned(),
        namespace: None,
        wrap_ttl: None,
        auth_method: AuthMethodKind::Other,
    };
    let login = Login::new(scene.upstream.clone(), options);
    let clock = Clock::Test(scene.clock.clone());
    scene.cloud.faults().fail_next_tokens(1, 503);
    refused(login.login(&proof, &clock).await, "received error code 503 from STS");
    login.login(&proof, &clock).await.unwrap();
    // Whoever has the proof can use it here, for the same roles, until it is five minutes old.
    scene.clock.suspend(std::time::Duration::from_secs(301));
    refused(login.login(&proof, &clock).await, "Signature expired");
}

fn google_method(cloud: &Cloud) -> String {
    let (url, ca) = (cloud.authority_url(), cloud.ca_file());
    format!(
        "type = \"gcp\"\naudience = \"http://vault/web\"\njwks_url = \"{url}oauth2/v3/certs\"\nca_file = \"{}\"\n\
         [acl.method.cloud.role.web]\nprojects = [\"{}\"]\nzones = [\"{}\"]\ninstance_ids = [\"{}\"]\n\
         service_accounts = [\"{}\"]\npolicies = [\"machines\"]\n\
         [acl.method.cloud.role.other]\nprojects = [\"another\"]\n\
         [acl.method.cloud.role.zone]\nprojects = [\"{}\"]\nzones = [\"europe-west1\"]\n",
        ca.display(),
        GcpNames::PROJECT,
        GcpNames::ZONE,
        GcpNames::INSTANCE_ID,
        GcpNames::ACCOUNT,
        GcpNames::PROJECT,
    )
}

#[tokio::test]
async fn a_machine_of_google_cloud_logs_in_by_its_identity_token() {
    let scene = Scene::start(CloudProvider::Gcp, google_method).await;
    let token = scene.log_in("web", scene.google("web", None)).await.unwrap();
    assert_eq!(token.policies, ["machines"]);
    let login = scene.server.look_up(token.secret.secret().expose_secret()).await.json();
    assert_eq!(login["data"]["meta"]["instance_name"], GcpNames::INSTANCE, "{login}");
    let audience = Some("http://vault/web");
    refused(scene.log_in("other", scene.google("other", audience)).await, "the project is not in bound values");
    refused(scene.log_in("zone", scene.google("zone", audience)).await, "the zone is not in bound values");
    // The usual audience of another role, as a login at another server has it.
    refused(scene.log_in("web", scene.google("other", None)).await, "expected audience");
    scene.cloud.faults().skew(-7200);
    refused(scene.log_in("web", scene.google("web", None)).await, "the identity token expired");
}
