//! Options of the auth methods in the configuration file.

use std::collections::BTreeMap;
use std::time::Duration;

use super::sts::StsOptions;
use super::token_review::KubernetesApiOptions;
use crate::model::aws_identity::{AwsBounds, AwsTrust};
use crate::model::azure_identity::{BoundClaims, IssuerConfig};
use crate::model::google_identity::GoogleBounds;
use crate::model::kubernetes_identity::KubernetesBounds;
use crate::service::issuer_keys::{CaSource, IssuerKeyOptions};

/// Options of an auth method in the configuration file, by the kind of its identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MethodOptions {
    /// Tokens of Azure identities.
    Azure(TokenMethodOptions<BoundClaims>),
    /// Identity tokens of machines of Google Cloud.
    Google(TokenMethodOptions<GoogleBounds>),
    /// Signed requests of AWS principals.
    Aws(AwsMethodOptions),
    /// Tokens of service accounts of Kubernetes.
    Kubernetes(KubernetesMethodOptions),
}

/// Options of a method that verifies signed tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenMethodOptions<B> {
    /// Trusted issuer and audience.
    pub trust: IssuerConfig,
    /// Location of the issuer's keys.
    pub keys: IssuerKeyOptions,
    /// Login roles by name.
    pub roles: BTreeMap<String, LoginRoleOptions<B>>,
}

/// Options of a method that asks AWS whose a signed request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsMethodOptions {
    /// Requests that are sent.
    pub trust: AwsTrust,
    /// Connection to STS.
    pub sts: StsOptions,
    /// Login roles by name.
    pub roles: BTreeMap<String, LoginRoleOptions<AwsBounds>>,
}

/// Options of a method that asks a Kubernetes cluster whose a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesMethodOptions {
    /// Connection to the cluster's API server.
    pub api: KubernetesApiOptions,
    /// Login roles by name.
    pub roles: BTreeMap<String, LoginRoleOptions<KubernetesBounds>>,
}

/// Options of a login role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginRoleOptions<B> {
    /// Identities that may log in.
    pub bounds: B,
    /// Names of the policies of its tokens.
    pub policies: Vec<String>,
    /// Lifetime of its tokens.
    pub ttl: Duration,
}

/// Properties that every login role has, whatever its bounds are.
#[derive(Debug, Clone, Copy)]
pub struct RoleSummary<'a> {
    /// Name.
    pub name: &'a str,
    /// Names of the policies of its tokens.
    pub policies: &'a [String],
    /// Lifetime of its tokens.
    pub ttl: Duration,
    /// Error text of its bounds, if they are invalid.
    pub bounds_error: Option<&'static str>,
}

impl MethodOptions {
    /// Returns the login roles.
    pub fn roles(&self) -> Vec<RoleSummary<'_>> {
        match self {
            Self::Azure(method) => summarize(&method.roles, BoundClaims::validation_error),
            Self::Google(method) => summarize(&method.roles, GoogleBounds::validation_error),
            Self::Aws(method) => summarize(&method.roles, AwsBounds::validation_error),
            Self::Kubernetes(method) => summarize(&method.roles, KubernetesBounds::validation_error),
        }
    }

    /// Returns the CA certificates for the connections to whoever verifies the proofs.
    pub const fn ca_certificates(&self) -> &CaSource {
        match self {
            Self::Azure(method) => &method.keys.ca_certificates,
            Self::Google(method) => &method.keys.ca_certificates,
            Self::Aws(method) => &method.sts.ca_certificates,
            Self::Kubernetes(method) => &method.api.ca_certificates,
        }
    }

    /// Describes the proofs that are accepted, for people.
    pub fn describe(&self) -> String {
        let tokens =
            |trust: &IssuerConfig| format!("tokens of issuer {} for audience {}", trust.issuer, trust.audience);
        match self {
            Self::Azure(method) => tokens(&method.trust),
            Self::Google(method) => format!("{}, which name a machine of Google Cloud", tokens(&method.trust)),
            Self::Aws(method) => format!("requests that AWS principals sign for {}", method.trust.server_id),
            Self::Kubernetes(method) => format!(
                "tokens of service accounts for audience {} that {} accepts",
                method.api.audience, method.api.url
            ),
        }
    }
}

fn summarize<B>(
    roles: &BTreeMap<String, LoginRoleOptions<B>>,
    validate: fn(&B) -> Option<&'static str>,
) -> Vec<RoleSummary<'_>> {
    let mut summaries = Vec::new();
    for (name, role) in roles {
        let bounds_error = validate(&role.bounds);
        summaries.push(RoleSummary { name, policies: &role.policies, ttl: role.ttl, bounds_error });
    }
    summaries
}
