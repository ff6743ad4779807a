//! Real identity sources of a session in driven time, each with an emulated service behind it, and the auth method of the emulated Vault
//! that verifies it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyward_agent::identity::{
    AwsCredentialOrigin, AwsEndpoints, AwsIdentityOptions, CiTokenOptions, CiTokenOrigin, GcpEndpoints,
    GcpIdentityOptions, GcpOrigin, IdentityMethod, JwtFileOptions, ProviderVariables,
};
use keyward_emulators::cloud::{AwsNames, Cloud, CloudProvider, FaultTarget, GcpNames};
use keyward_emulators::secrets::{
    AwsMethod, AwsRole, CloudMethod, CloudServices, GcpMethod, GcpRole, GcpRoleKind, LoginMethod, Role, SecretsOptions,
};
use keyward_http::server::ListenerLimits;
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use tokio::task::JoinSet;

use super::cloud::options_with_shared_keys;
use super::scripted::{self, FREE, whole};
use crate::agent::identity::TlsFront;

/// Method by which a session proves itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestedMethod {
    /// `aws` by the instance profile.
    Aws,
    /// `gcp` of the type `gce`.
    GoogleMachine,
    /// `gcp` of the type `iam`, signed by Google.
    GoogleSigned,
    /// `jwt` with `ci = "github-actions"`.
    GitHubActions,
    /// `jwt` with `variable`.
    Variable,
    /// `jwt` with `file`.
    File,
}

impl TestedMethod {
    pub(crate) const ALL: [Self; 6] =
        [Self::Aws, Self::GoogleMachine, Self::GoogleSigned, Self::GitHubActions, Self::Variable, Self::File];
}

/// A method with the service that it asks.
#[derive(Debug)]
pub(crate) struct RealIdentity {
    pub(crate) method: IdentityMethod,
    pub(crate) mount: &'static str,
    service: Service,
    folder: tempfile::TempDir,
    _tasks: TaskGroup,
}

#[derive(Debug)]
enum Service {
    /// A cloud, and its endpoints that a proof calls.
    Cloud(Box<Cloud>, &'static [FaultTarget]),
    Job(Arc<JobService>),
    File(PathBuf),
    Nothing,
}

/// The service of a CI system, which gives tokens to its jobs.
#[derive(Debug, Default)]
struct JobService {
    requests: AtomicU64,
    is_missing: AtomicBool,
    hangs: AtomicBool,
    front: std::sync::OnceLock<TlsFront>,
    servers: parking_lot::Mutex<JoinSet<()>>,
}

impl RealIdentity {
    /// Starts the service of a method in the current runtime, and adds the auth method to a server.
    pub(crate) async fn start(tested: TestedMethod, clock: &Clock, role: Role, server: &mut SecretsOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut tasks = TaskGroup::default();
        let jwt = job_token();
        let mut start_cloud = |provider| {
            let mut options = options_with_shared_keys(folder.path().join("cloud"));
            (options.provider, options.clock) = (provider, clock.clone());
            Box::new(Cloud::start(options, &mut tasks).unwrap())
        };
        let job = |origin, variables| {
            IdentityMethod::CiJob(Box::new(CiTokenOptions { origin, variables, ca: None, is_local: true }))
        };
        let (method, mount, service) = match tested {
            TestedMethod::Aws => {
                let cloud = start_cloud(CloudProvider::Aws);
                server.cloud_methods.insert("aws".to_owned(), aws_method(&cloud, role));
                let method = IdentityMethod::Aws(Box::new(aws_options(&cloud)));
                (method, "aws", Service::Cloud(cloud, &[FaultTarget::Metadata, FaultTarget::Instance]))
            }
            TestedMethod::GoogleMachine | TestedMethod::GoogleSigned => {
                let cloud = start_cloud(CloudProvider::Gcp);
                let is_signed = tested == TestedMethod::GoogleSigned;
                let kind = if is_signed { GcpRoleKind::Iam } else { GcpRoleKind::Gce };
                server.cloud_methods.insert("gcp".to_owned(), gcp_method(&cloud, kind, role));
                let method = IdentityMethod::Gcp(Box::new(gcp_options(&cloud, is_signed)));
                let targets: &[FaultTarget] = &[FaultTarget::Metadata, FaultTarget::Instance, FaultTarget::Authority];
                (method, "gcp", Service::Cloud(cloud, targets))
            }
            TestedMethod::GitHubActions => {
                let service = Arc::new(JobService::default());
                let method = service.start(&jwt).await;
                (method, "jwt", Service::Job(service))
            }
            TestedMethod::Variable => {
                let variable = ("ID_TOKEN".to_owned(), jwt.clone());
                let variables = ProviderVariables::of_ci([variable], Some("ID_TOKEN"));
                (job(CiTokenOrigin::Variable("ID_TOKEN".to_owned()), variables), "jwt", Service::Nothing)
            }
            TestedMethod::File => {
                let file = folder.path().join("token.jwt");
                std::fs::write(&file, &jwt).unwrap();
                let method = IdentityMethod::Jwt(JwtFileOptions { file: file.clone(), remove: false });
                (method, "jwt", Service::File(file))
            }
        };
        if mount == "jwt" {
            let roles = BTreeMap::from([("dev".to_owned(), role_of(server))]);
            server.methods.insert("jwt".to_owned(), LoginMethod::jwt(vec![SecretString::from(jwt.as_str())], roles));
        }
        Self { method, mount, service, folder, _tasks: tasks }
    }

    /// Makes proofs fail, or succeed again. What no service gives cannot be taken away.
    pub(crate) fn set_missing(&self, is_missing: bool) {
        match &self.service {
            Service::Cloud(cloud, _) if is_missing => cloud.faults().fail_next_tokens(10_000, 503),
            Service::Cloud(cloud, _) => cloud.faults().reset(),
            Service::Job(job) => job.is_missing.store(is_missing, Ordering::Relaxed),
            Service::File(file) if is_missing => std::fs::rename(file, self.folder.path().join("away")).unwrap(),
            Service::File(file) => std::fs::rename(self.folder.path().join("away"), file).unwrap(),
            Service::Nothing => {}
        }
    }

    /// Makes the service hang, or answer again.
    pub(crate) fn hang(&self, hangs: bool) {
        match &self.service {
            Service::Cloud(cloud, _) => {
                cloud.faults().delay(if hangs { Duration::from_hours(2) } else { Duration::ZERO });
            }
            Service::Job(job) => job.hangs.store(hangs, Ordering::Relaxed),
            Service::File(_) | Service::Nothing => {}
        }
    }

    /// Returns the number of requests to the service.
    pub(crate) fn requests(&self) -> u64 {
        match &self.service {
            Service::Cloud(cloud, targets) => targets.iter().map(|target| cloud.faults().requests(*target)).sum(),
            Service::Job(job) => job.requests.load(Ordering::Relaxed),
            Service::File(_) | Service::Nothing => 0,
        }
    }
}

/// Returns the role that the server gives to everyone.
fn role_of(server: &SecretsOptions) -> Role {
    server.roles["dev"].clone()
}

fn services(cloud: &Cloud) -> CloudServices {
    CloudServices { url: cloud.authority_url().clone(), ca_file: cloud.ca_file() }
}

fn aws_method(cloud: &Cloud, role: Role) -> CloudMethod {
    let role = AwsRole { bound_iam_principal_arns: vec![AwsNames::role_arn()], role };
    let roles = BTreeMap::from([("dev".to_owned(), role)]);
    CloudMethod::Aws(AwsMethod { sts: services(cloud), server_id: Some("vault.example.com".to_owned()), roles })
}

fn aws_options(cloud: &Cloud) -> AwsIdentityOptions {
    AwsIdentityOptions {
        origin: AwsCredentialOrigin::Instance,
        server_id: Some("vault.example.com".to_owned()),
        region: None,
        variables: ProviderVariables::default(),
        endpoints: AwsEndpoints { metadata: cloud.metadata_url().clone(), ..AwsEndpoints::provider() },
    }
}

fn gcp_method(cloud: &Cloud, kind: GcpRoleKind, role: Role) -> CloudMethod {
    let role = GcpRole {
        kind,
        bound_projects: Vec::new(),
        bound_zones: Vec::new(),
        bound_service_accounts: vec![GcpNames::ACCOUNT.to_owned()],
        role,
    };
    CloudMethod::Gcp(GcpMethod { apis: services(cloud), roles: BTreeMap::from([("dev".to_owned(), role)]) })
}

fn gcp_options(cloud: &Cloud, is_signed: bool) -> GcpIdentityOptions {
    let origin = if is_signed {
        GcpOrigin::SignJwt { service_account: None }
    } else {
        GcpOrigin::Instance { service_account: "default".to_owned() }
    };
    GcpIdentityOptions {
        audience: origin.audience_of_role("dev"),
        origin,
        variables: ProviderVariables::default(),
        endpoints: GcpEndpoints {
            metadata: cloud.metadata_url().clone(),
            credentials: cloud.authority_url().clone(),
            credentials_ca: Some(cloud.ca_file()),
            credentials_is_local: true,
        },
    }
}

/// A token whose claims do not end.
fn job_token() -> String {
    format!("eyJhbGciOiJSUzI1NiJ9.{}.c2ln", URL_SAFE_NO_PAD.encode(r#"{"sub":"job"}"#))
}

impl JobService {
    async fn start(self: &Arc<Self>, jwt: &str) -> IdentityMethod {
        let (service, body) = (Arc::clone(self), serde_json::json!({ "value": jwt }).to_string());
        let answer = move |_| {
            let (service, body) = (Arc::clone(&service), body.clone());
            async move {
                service.requests.fetch_add(1, Ordering::Relaxed);
                if service.hangs.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                let status = if service.is_missing.load(Ordering::Relaxed) { 503 } else { 200 };
                whole(status, "application/json", body)
            }
        };
        let address = scripted::serve(FREE, answer, ListenerLimits::default(), &mut self.servers.lock());
        let front = TlsFront::start(&address).await;
        let variables = [
            ("ACTIONS_ID_TOKEN_REQUEST_URL".to_owned(), front.url.clone()),
            ("ACTIONS_ID_TOKEN_REQUEST_TOKEN".to_owned(), "job".to_owned()),
        ];
        let options = CiTokenOptions {
            origin: CiTokenOrigin::GitHubActions { audience: None },
            variables: ProviderVariables::of_ci(variables, None),
            ca: Some(front.ca_file()),
            is_local: true,
        };
        self.front.set(front).unwrap_or_else(|_| panic!("it is started once"));
        IdentityMethod::CiJob(Box::new(options))
    }
}
