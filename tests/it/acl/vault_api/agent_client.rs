//! The ACL server between the emulated Azure and the agent's client, over the network.

use std::time::Duration;

use keyward_acl::service::issuer_keys::{CaSource, KeyDocument};
use keyward_acl::service::login::MethodOptions;
use keyward_agent::login::{AuthMethodKind, LoginFailureKind, classify};
use keyward_agent::server_client::{self, CallError, LoginRequest, ServerClient, ServerKind, TokenVerdict};
use keyward_agent::token::ClientToken;
use keyward_emulators::cloud::{Cloud, MachineKind};
use keyward_http::client::{self, ProxyMode, ServerAddress, TlsOptions};
use keyward_machine::clock::{Clock, TestClock};
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use serde_json::Value;

use super::server::{Server, options};
use crate::harness::cloud::options_with_shared_keys;
use crate::harness::issuer::{AUDIENCE, Issuer};

const ARM: &str = "https://management.azure.com/";

struct Joined {
    cloud: Cloud,
    _tasks: TaskGroup,
    _server: Server,
    agent: ServerClient,
    clock: TestClock,
    _folder: tempfile::TempDir,
}

impl Joined {
    async fn start(machine: MachineKind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = TestClock::starting_at(std::time::SystemTime::now());
        let mut of_cloud = options_with_shared_keys(folder.path().join("cloud"));
        of_cloud.machine = machine;
        let mut tasks = TaskGroup::default();
        let cloud = Cloud::start(of_cloud, &mut tasks).unwrap();

        let mut options = options(folder.path(), &Issuer::start());
        let Some(MethodOptions::Azure(method)) = options.methods.get_mut("cloud") else { panic!("it is Azure's") };
        assert_eq!(method.trust.audience, AUDIENCE);
        ARM.clone_into(&mut method.trust.audience);
        method.trust.issuer = cloud.issuer();
        let discovery = format!("{}.well-known/openid-configuration", cloud.issuer());
        method.keys.source = KeyDocument::Discovery(discovery.parse().unwrap());
        method.keys.ca_certificates = CaSource::File(cloud.ca_file());
        let names = cloud.identities();
        for (name, role) in &mut method.roles {
            role.bounds = keyward_acl::model::azure_identity::BoundClaims::default();
            match name.as_str() {
                "principal" => role.bounds.principals = vec![names.system.object_id.clone()],
                "set" => {
                    role.bounds.subscriptions = vec![names.subscription.clone()];
                    role.bounds.scale_sets =
                        cloud.machine_id().split('/').next_back().map(str::to_owned).into_iter().collect();
                }
                _ => role.bounds.subscriptions = vec![names.subscription.clone()],
            }
        }
        let server = Server::start(&options, Clock::Test(clock.clone())).await;
        let agent = ServerClient::build(&server_client::ServerClientOptions {
            name: "access".into(),
            kind: ServerKind::Keyward,
            client: client::ClientOptions {
                address: ServerAddress::Url(server.url.parse().unwrap()),
                tls: TlsOptions::default(),
                proxy: ProxyMode::Direct,
                connect_timeout: Duration::from_secs(5),
                response_timeout: Duration::from_secs(10),
            },
            login_timeout: Duration::from_secs(30),
        })
        .unwrap();
        Self { cloud, _tasks: tasks, _server: server, agent, clock, _folder: folder }
    }

    /// Requests a JWT of the machine's system-assigned or user-assigned identity.
    async fn jwt(&self, query: &str) -> SecretString {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let path = "metadata/identity/oauth2/token?api-version=2018-02-01";
        let url = format!("{}{path}&resource={ARM}{query}", self.cloud.metadata_url());
        let body: Value = http.get(url).header("metadata", "true").send().await.unwrap().json().await.unwrap();
        SecretString::from(body["access_token"].as_str().unwrap())
    }

    /// Stops or starts the emulated Azure's responses, and waits for the effect.
    async fn stop_azure_responses(&self, close: bool) {
        self.cloud.faults().refuse(close);
        let authority = ("127.0.0.1", self.cloud.authority_url().port().unwrap());
        while tokio::net::TcpStream::connect(authority).await.is_err() != close {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn login(&self, role: &str, jwt: &SecretString) -> Result<ClientToken, CallError> {
        let body = LoginRequest {
            role,
            jwt,
            subscription_id: Some(&self.cloud.identities().subscription),
            resource_group_name: None,
            vm_name: None,
            vmss_name: None,
            resource_id: None,
        };
        let response = self.agent.login("cloud", None, None, &body).await?;
        assert!(!response.lease.renewable && response.lease.ttl > Duration::from_secs(590));
        assert_eq!(response.policies, ["web-read", "web-write"]);
        Ok(response.secret)
    }
}

#[tokio::test]
async fn the_agents_client_logs_in_looks_up_and_revokes_with_emulated_azure_tokens() {
    let joined = Joined::start(MachineKind::VirtualMachine).await;
    let jwt = joined.jwt("").await;
    let token = joined.login("principal", &jwt).await.unwrap();
    let found = joined.agent.lookup_self(&token, None).await.unwrap();
    assert!(!found.lease.renewable && !found.lease.ttl.is_zero());
    let refused = joined.agent.renew_self(&token, None).await.unwrap_err();
    assert_eq!(refused.verdict(), TokenVerdict::Refused, "{refused}");
    joined.agent.revoke_self(&token, None).await.unwrap();
    assert!(joined.agent.lookup_self(&token, None).await.unwrap_err().is_token_dead());

    let user = joined.jwt(&format!("&client_id={}", joined.cloud.identities().user.client_id)).await;
    joined.login("group", &user).await.unwrap();
    let refused = joined.login("principal", &user).await.unwrap_err();
    assert_eq!(classify(AuthMethodKind::Other, &refused).0, LoginFailureKind::Refused, "{refused}");

    // The agent recognizes a clock skew by the text.
    joined.clock.set_wall_by(-3600);
    let refused = joined.login("principal", &jwt).await.unwrap_err();
    assert_eq!(classify(AuthMethodKind::Other, &refused).0, LoginFailureKind::NotYet, "{refused}");
    joined.clock.set_wall_by(3600 * 26);
    let refused = joined.login("principal", &jwt).await.unwrap_err();
    assert_eq!(classify(AuthMethodKind::Other, &refused).0, LoginFailureKind::Expired, "{refused}");
}

#[tokio::test]
async fn a_scale_set_instance_is_identified_by_signed_claims() {
    let joined = Joined::start(MachineKind::ScaleSet).await;
    let jwt = joined.jwt("").await;
    joined.login("set", &jwt).await.unwrap();
}

#[tokio::test]
async fn the_agent_treats_an_issuer_outage_as_temporary() {
    let joined = Joined::start(MachineKind::VirtualMachine).await;
    let jwt = joined.jwt("").await;
    joined.stop_azure_responses(true).await;
    let refused = joined.login("principal", &jwt).await.unwrap_err();
    assert_eq!(classify(AuthMethodKind::Other, &refused).0, LoginFailureKind::Unavailable, "{refused}");
    joined.stop_azure_responses(false).await;
    joined.clock.suspend(Duration::from_secs(6));
    joined.login("principal", &jwt).await.unwrap();
}
