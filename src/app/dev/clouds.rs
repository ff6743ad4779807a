//! The clouds of `keyward dev`: what its configuration says for each, and how its servers verify it.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::ValueEnum;
use keyward_emulators::cloud::{AwsNames, Cloud, CloudIdentities, CloudProvider, GcpNames};
use keyward_emulators::secrets::{
    AwsMethod, AwsRole, Bounds, CloudMethod, CloudServices, GcpMethod, GcpRole, GcpRoleKind, Role, SecretsOptions,
    Verification,
};
use keyward_machine::clock::Clock;
use url::Url;

use super::faults::Fault;

/// Cloud that `keyward dev` emulates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DevCloud {
    /// A virtual machine of Azure, and a workload identity
    #[default]
    Azure,
    /// A virtual machine of AWS with a role
    Aws,
    /// A virtual machine of Google Cloud with a service account
    Gcp,
}

/// The resource of the instance's identity: tokens for it name their machine.
const INSTANCE_RESOURCE: &str = "https://management.azure.com/";
/// The resource that the workload's identity is used for.
const WORKLOAD_RESOURCE: &str = "api://keyward-dev";
/// Names of the two servers, to which AWS's proofs are bound.
const ACL_ID: &str = "acl.keyward.dev";
/// Audience of Google Cloud's proofs for the ACL server.
const GCP_AUDIENCE: &str = "https://acl.keyward.dev/vault/machine";
const VAULT_ID: &str = "vault.keyward.dev";
/// Long enough to follow by eye, short enough to see renewals: one about every 40 s, a login every 5 min.
const WORKLOAD_TTL: Duration = Duration::from_mins(1);
const WORKLOAD_MAX_TTL: Duration = Duration::from_mins(5);

impl DevCloud {
    /// Returns the provider to emulate.
    pub(super) const fn provider(self) -> CloudProvider {
        match self {
            Self::Azure => CloudProvider::Azure,
            Self::Aws => CloudProvider::Aws,
            Self::Gcp => CloudProvider::Gcp,
        }
    }

    /// Returns the name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Azure => "Azure",
            Self::Aws => "AWS",
            Self::Gcp => "Google Cloud",
        }
    }

    /// Returns why a fault is none of this cloud.
    pub const fn reason_against(self, fault: Fault) -> Option<&'static str> {
        match (self, fault) {
            (Self::Aws, Fault::Audience) => Some("a signed request of AWS has no audience"),
            (Self::Gcp, Fault::Clock) => {
                Some("tokens of Google Cloud have no beginning, so that clocks that are ahead together do no harm")
            }
            _ => None,
        }
    }

    /// Returns the variables that point a session at the cloud. None is secret.
    pub(super) fn variables(self, cloud: &Cloud) -> BTreeMap<String, String> {
        let metadata = cloud.metadata_url();
        match self {
            Self::Azure => cloud.variables_for_workload_identity(),
            Self::Aws => BTreeMap::from([("AWS_EC2_METADATA_SERVICE_ENDPOINT".to_owned(), metadata.to_string())]),
            Self::Gcp => BTreeMap::from([("GCE_METADATA_HOST".to_owned(), metadata.authority().to_owned())]),
        }
    }

    /// Returns the path of the emulated Vault's auth method.
    pub(super) const fn mount(self) -> &'static str {
        match self {
            Self::Azure => "azure",
            Self::Aws => "aws",
            Self::Gcp => "gcp",
        }
    }

    /// Formats the ACL server's method and its role.
    pub(super) fn acl_method(self, cloud: &Cloud) -> String {
        let (ca, authority) = (cloud.ca_file(), cloud.authority_url());
        let ca = ca.display();
        match self {
            Self::Azure => format!(
                r#"[acl.method.cloud]
issuer = "{issuer}"
discovery_url = "{discovery}"
ca_file = "{ca}"
audience = "{INSTANCE_RESOURCE}"

[acl.method.cloud.role.machine]
principals = ["{principal}"]
subscriptions = ["{subscription}"]
resource_groups = ["{group}"]"#,
                issuer = cloud.issuer(),
                discovery = discovery(cloud),
                principal = cloud.identities().system.object_id,
                subscription = cloud.identities().subscription,
                group = CloudIdentities::RESOURCE_GROUP,
            ),
            Self::Aws => format!(
                r#"[acl.method.cloud]
type = "aws"
server_id = "{ACL_ID}"
sts_url = "{authority}"
ca_file = "{ca}"

[acl.method.cloud.role.machine]
accounts = ["{account}"]
roles = ["{role}"]"#,
                account = AwsNames::ACCOUNT,
                role = AwsNames::ROLE,
            ),
            Self::Gcp => format!(
                r#"[acl.method.cloud]
type = "gcp"
audience = "{GCP_AUDIENCE}"
jwks_url = "{authority}oauth2/v3/certs"
ca_file = "{ca}"

[acl.method.cloud.role.machine]
projects = ["{project}"]
service_accounts = ["{account}"]"#,
                project = GcpNames::PROJECT,
                account = GcpNames::ACCOUNT,
            ),
        }
    }

    /// Formats the method of the session `instance`.
    pub(super) fn instance_session(self) -> String {
        match self {
            Self::Azure => format!("[session.instance.cloud]\nrole = \"machine\"\nresource = \"{INSTANCE_RESOURCE}\""),
            Self::Aws => format!("[session.instance.aws]\nrole = \"machine\"\nserver_id = \"{ACL_ID}\""),
            Self::Gcp => {
                format!("[session.instance.gcp]\nrole = \"machine\"\naudience = \"{GCP_AUDIENCE}\"")
            }
        }
    }

    /// Formats the method of the session `workload`.
    pub(super) fn workload_session(self) -> String {
        match self {
            Self::Azure => format!(
                "[session.workload.cloud]\nrole = \"workload\"\nresource = \"{WORKLOAD_RESOURCE}\"\n\
                 authenticate_from_environment = true"
            ),
            Self::Aws => format!("[session.workload.aws]\nrole = \"workload\"\nserver_id = \"{VAULT_ID}\""),
            Self::Gcp => "[session.workload.gcp]\nrole = \"workload\"".to_owned(),
        }
    }

    /// Returns the identity that the session `workload` logs in with, for the comment above it.
    pub(super) const fn workload_identity(self) -> &'static str {
        match self {
            Self::Azure => "workload identity from the environment",
            Self::Aws | Self::Gcp => "the machine's identity",
        }
    }

    /// Returns the options of an emulated Vault whose role `workload` admits that identity.
    pub(super) fn vault(self, cloud: &Cloud) -> SecretsOptions {
        // Of Azure's tokens, those of this identity alone are admitted, whatever the cloud.
        let bounds =
            Bounds { service_principal_ids: vec![cloud.identities().workload.object_id.clone()], ..Bounds::default() };
        let role = Role {
            policies: vec!["dev".to_owned()],
            ttl: WORKLOAD_TTL,
            max_ttl: Some(WORKLOAD_MAX_TTL),
            bounds,
            ..Role::default()
        };
        let mut options = SecretsOptions::for_anyone(Clock::System, "workload", role.clone());
        let services = CloudServices { url: cloud.authority_url().clone(), ca_file: cloud.ca_file() };
        options.verification = Verification::Cloud {
            discovery: discovery(cloud),
            ca_file: cloud.ca_file(),
            audience: WORKLOAD_RESOURCE.to_owned(),
        };
        let method = match self {
            Self::Azure => return options,
            Self::Aws => {
                let role = AwsRole { bound_iam_principal_arns: vec![AwsNames::role_arn()], role };
                let roles = BTreeMap::from([("workload".to_owned(), role)]);
                CloudMethod::Aws(AwsMethod { sts: services, server_id: Some(VAULT_ID.to_owned()), roles })
            }
            Self::Gcp => {
                let role = GcpRole {
                    kind: GcpRoleKind::Gce,
                    bound_projects: vec![GcpNames::PROJECT.to_owned()],
                    bound_zones: Vec::new(),
                    bound_service_accounts: vec![GcpNames::ACCOUNT.to_owned()],
                    role,
                };
                CloudMethod::Gcp(GcpMethod { apis: services, roles: BTreeMap::from([("workload".to_owned(), role)]) })
            }
        };
        options.cloud_methods.insert(self.mount().to_owned(), method);
        options
    }
}

fn discovery(cloud: &Cloud) -> Url {
    let mut url = cloud.authority_url().clone();
    url.set_path(&format!("{}/.well-known/openid-configuration", cloud.identities().tenant));
    url
}
