//! Commands that other programs run for the machine's identity: `keyward kube-token` for clients of Kubernetes, and
//! `keyward aws-credentials` for AWS's SDKs (`credential_process`).

use clap::Args;
use keyward_agent::identity_api::endpoint_path;
use keyward_config::Environment;
use serde_json::{Value, json};

use super::agent_client::{AgentAddress, AgentClient, REQUEST_TIMEOUT};
use super::agent_listener::RequiredListener;
use super::{Exit, print_error, print_line};

/// Print a token of the machine's identity for kubectl and other clients of Kubernetes.
#[derive(Debug, Args)]
pub(super) struct KubeToken {
    /// Identity, as in `[identity.NAME]`
    #[arg(short, long, value_name = "NAME")]
    identity: String,
    /// Resource of the token; the default is the API server of AKS
    #[arg(long, value_name = "RESOURCE", default_value = AKS)]
    resource: String,
    #[command(flatten)]
    at: AgentAddress,
}

/// Print AWS credentials of the machine's identity, as `credential_process` of AWS's SDKs.
#[derive(Debug, Args)]
pub(super) struct AwsCredentials {
    /// Identity, as in `[identity.NAME]` with its table `aws_role`
    #[arg(short, long, value_name = "NAME")]
    identity: String,
    #[command(flatten)]
    at: AgentAddress,
}

/// Application of AKS in Entra ID (learn.microsoft.com, "Use kubelogin to authenticate users in Azure Kubernetes Service").
const AKS: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";

impl KubeToken {
    pub(super) fn run(&self) -> Exit {
        let response = ask(&self.at, &self.identity, "token", &[("resource", &self.resource)]);
        let response = match response {
            Ok(response) => response,
            Err(exit) => return exit,
        };
        let status = json!({ "token": response["token"], "expirationTimestamp": response["expires_at"] });
        let credential = json!({ "apiVersion": requested_version(), "kind": "ExecCredential", "status": status });
        print_line(&credential.to_string());
        Exit::Ok
    }
}

impl AwsCredentials {
    pub(super) fn run(&self) -> Exit {
        let response = match ask(&self.at, &self.identity, "aws", &[]) {
            Ok(response) => response,
            Err(exit) => return exit,
        };
        // docs.aws.amazon.com, "Sourcing credentials with an external process".
        let credentials = json!({
            "Version": 1, "AccessKeyId": response["AccessKeyId"], "SecretAccessKey": response["SecretAccessKey"],
            "SessionToken": response["Token"], "Expiration": response["Expiration"],
        });
        print_line(&credentials.to_string());
        Exit::Ok
    }
}

fn ask(at: &AgentAddress, identity: &str, form: &str, query: &[(&str, &str)]) -> Result<Value, Exit> {
    if let Err(error) = keyward_machine::os::forbid_core_dumps() {
        print_error(&error.to_string());
        return Err(Exit::Failed);
    }
    let agent = AgentClient::connect(at, RequiredListener::Identity(identity))?;
    let path = endpoint_path(identity, form);
    agent.expect(agent.get(path.trim_start_matches('/'), query, REQUEST_TIMEOUT))
}

/// Returns the version of the answer that the client asks for, as `KUBERNETES_EXEC_INFO` has it.
fn requested_version() -> String {
    const CURRENT: &str = "client.authentication.k8s.io/v1";
    let info = Environment::current().variables.remove("KUBERNETES_EXEC_INFO");
    let info: Value = info.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let version = info["apiVersion"].as_str().filter(|version| *version == "client.authentication.k8s.io/v1beta1");
    version.unwrap_or(CURRENT).to_owned()
}
