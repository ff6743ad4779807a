//! `[acl.method.NAME]`: an auth method with fixed roles, for the identities of one cloud or cluster.

use std::path::PathBuf;
use std::time::Duration;

use keyward_acl::model::aws_identity::{AwsBounds, AwsTrust, is_region};
use keyward_acl::model::azure_identity::{BoundClaims, IssuerConfig};
use keyward_acl::model::google_identity::{GOOGLE_ISSUER, GoogleBounds};
use keyward_acl::model::jwks_url::{self, JwksUrlError};
use keyward_acl::model::kubernetes_identity::KubernetesBounds;
use keyward_acl::model::token::{MAX_TTL, MIN_TTL};
use keyward_acl::service::issuer_keys::{CaSource, IssuerKeyOptions, KeyDocument};
use keyward_acl::service::login::{
    AwsMethodOptions, KubernetesApiOptions, KubernetesMethodOptions, LoginRoleOptions, MethodOptions, StsOptions,
    TokenMethodOptions,
};
use keyward_telemetry::error_code::ErrorCode;
use url::Url;

use super::name;
use crate::need::PathUse;
use crate::reader::Reader;
use crate::values::{self, ValueError, invalid, invalid_secret};

/// Cloud, or cluster, whose identities a method admits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Azure,
    Google,
    Aws,
    Kubernetes,
}

/// Files of a pod's service account, and the API server's address in the cluster (kubernetes.io, "Accessing the Kubernetes API from a
/// Pod").
const POD_CA_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
const POD_TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const POD_API_URL: &str = "https://kubernetes.default.svc";

/// Default lifetime of tokens.
const DEFAULT_TTL: Duration = Duration::from_hours(1);

/// Public keys of Google, in the form that its discovery document names.
const GOOGLE_KEYS: &str = "https://www.googleapis.com/oauth2/v3/certs";

/// Reads a method. Returns `None`, with errors recorded, if required settings are missing.
pub(super) fn read(name: &str, mut reader: Reader<'_>) -> Option<MethodOptions> {
    if name == "token" {
        let message = "the name token is reserved for the token API's paths";
        reader.scope.diagnostics.error(reader.at, &reader.path, message, "choose another name");
    }
    let kinds = [("azure", Kind::Azure), ("gcp", Kind::Google), ("aws", Kind::Aws), ("kubernetes", Kind::Kubernetes)];
    let options = match reader.choice("type", &kinds).unwrap_or_default() {
        Kind::Azure => azure(&mut reader),
        Kind::Google => google(&mut reader),
        Kind::Aws => aws(&mut reader),
        Kind::Kubernetes => kubernetes(&mut reader),
    };
    if reader.locate("role").is_none() {
        let advice = format!("write [{}.role.NAME], or nobody can log in", reader.path);
        reader.scope.diagnostics.warning(reader.at, &reader.key("role"), (ErrorCode::UnusedSection, "no role"), advice);
    }
    reader.finish();
    options
}

fn azure(reader: &mut Reader<'_>) -> Option<MethodOptions> {
    let issuer = reader.required("issuer", "the issuer of the tokens, such as \"https://sts.windows.net/TENANT/\"");
    let audience = reader.required("audience", "the audience of the tokens: the agent's resource, byte for byte");
    let discovery = reader.parse_text("discovery_url", parse_jwks_url);
    let jwks = reader.parse_text("jwks_url", parse_jwks_url);
    match (reader.locate("discovery_url"), reader.locate("jwks_url")) {
        (None, None) => reader.missing("discovery_url", "the URL of the issuer's discovery document; or set jwks_url"),
        (Some(_), Some(_)) => reader.conflict("jwks_url", "discovery_url", "the keys have one source"),
        _ => {}
    }
    let ca_certificates = ca_certificates(reader);
    let roles = read_roles(reader, azure_bounds);
    let source = discovery.map(KeyDocument::Discovery).or_else(|| jwks.map(KeyDocument::Jwks))?;
    Some(MethodOptions::Azure(TokenMethodOptions {
        trust: IssuerConfig { issuer: issuer?.value, audience: audience?.value },
        keys: IssuerKeyOptions { source, ca_certificates },
        roles,
    }))
}

fn google(reader: &mut Reader<'_>) -> Option<MethodOptions> {
    let advice =
        "the audience of the tokens: the session's audience, or \"http://vault/ROLE\" of a session without one";
    let audience = reader.required("audience", advice);
    let jwks = reader.parse_text("jwks_url", parse_jwks_url).or_else(|| parse_jwks_url(GOOGLE_KEYS).ok());
    let ca_certificates = ca_certificates(reader);
    let roles = read_roles(reader, google_bounds);
    Some(MethodOptions::Google(TokenMethodOptions {
        trust: IssuerConfig { issuer: GOOGLE_ISSUER.to_owned(), audience: audience?.value },
        keys: IssuerKeyOptions { source: KeyDocument::Jwks(jwks?), ca_certificates },
        roles,
    }))
}

fn aws(reader: &mut Reader<'_>) -> Option<MethodOptions> {
    let advice = "the name of this server that sessions sign: their server_id. It keeps a login of another server from counting here";
    let server_id = reader.required("server_id", advice);
    let regions = reader.list("regions").unwrap_or_default();
    let regions = regions.iter().filter_map(|text| reader.parse(text, region)).collect();
    let url = reader.parse_text("sts_url", parse_sts_url);
    let ca_certificates = ca_certificates(reader);
    let roles = read_roles(reader, aws_bounds);
    Some(MethodOptions::Aws(AwsMethodOptions {
        trust: AwsTrust { server_id: server_id?.value, regions },
        sts: StsOptions { url, ca_certificates },
        roles,
    }))
}

fn kubernetes(reader: &mut Reader<'_>) -> Option<MethodOptions> {
    let advice = "the audience of the tokens: a name of this server, which pods request tokens for";
    let audience = reader.required("audience", advice);
    let is_in_pod = reader.locate("api_url").is_none();
    let url = reader.parse_text("api_url", parse_api_url).or_else(|| parse_api_url(POD_API_URL).ok());
    let ca_certificates = ca_certificates(reader);
    let token_file = reader.text("token_file").and_then(|text| {
        let path = reader.parse(&text, values::secret_file_path)?;
        reader.record_path(&text, &path, PathUse::ReadSecret);
        Some(path)
    });
    if !is_in_pod && reader.locate("token_file").is_none() {
        reader.missing("token_file", "the file with a token of the cluster that may create TokenReviews");
    }
    let ca_certificates = match ca_certificates {
        CaSource::System if is_in_pod => CaSource::File(PathBuf::from(POD_CA_FILE)),
        other => other,
    };
    let roles = read_roles(reader, kubernetes_bounds);
    Some(MethodOptions::Kubernetes(KubernetesMethodOptions {
        api: KubernetesApiOptions {
            url: url?,
            ca_certificates,
            token_file: token_file.unwrap_or_else(|| PathBuf::from(POD_TOKEN_FILE)),
            audience: audience?.value,
        },
        roles,
    }))
}

fn ca_certificates(reader: &mut Reader<'_>) -> CaSource {
    reader.file("ca_file").map_or(CaSource::System, CaSource::File)
}

/// Bounds as they were read, with the error text if they are invalid.
type ReadBounds<B> = (B, Option<&'static str>);

fn read_roles<B, R>(reader: &mut Reader<'_>, bounds: fn(&mut Reader<'_>) -> ReadBounds<B>) -> R
where
    R: FromIterator<(String, LoginRoleOptions<B>)>,
{
    let role = |(name, table): (String, Reader<'_>)| (name, read_role(table, bounds));
    reader.tables("role").into_iter().map(role).collect()
}

fn read_role<B>(mut reader: Reader<'_>, bounds: fn(&mut Reader<'_>) -> ReadBounds<B>) -> LoginRoleOptions<B> {
    let (bounds, mistake) = bounds(&mut reader);
    if let Some(mistake) = mistake {
        let (message, advice) = mistake.split_once("; ").unwrap_or((mistake, ""));
        reader.scope.diagnostics.error(reader.at, &reader.path, message, advice);
    }
    let policies = reader.list("policies").unwrap_or_default();
    let policies = policies.iter().filter_map(|text| reader.parse(text, name)).collect();
    let ttl = reader.duration("ttl", DEFAULT_TTL, MIN_TTL..=MAX_TTL);
    reader.finish();
    LoginRoleOptions { bounds, policies, ttl }
}

fn azure_bounds(reader: &mut Reader<'_>) -> ReadBounds<BoundClaims> {
    let bounds = BoundClaims {
        principals: texts(reader, "principals"),
        subscriptions: texts(reader, "subscriptions"),
        resource_groups: texts(reader, "resource_groups"),
        scale_sets: texts(reader, "scale_sets"),
        virtual_machines: texts(reader, "virtual_machines"),
    };
    let mistake = bounds.validation_error();
    (bounds, mistake)
}

fn google_bounds(reader: &mut Reader<'_>) -> ReadBounds<GoogleBounds> {
    let bounds = GoogleBounds {
        projects: texts(reader, "projects"),
        zones: texts(reader, "zones"),
        instance_ids: texts(reader, "instance_ids"),
        service_accounts: texts(reader, "service_accounts"),
    };
    let mistake = bounds.validation_error();
    (bounds, mistake)
}

fn aws_bounds(reader: &mut Reader<'_>) -> ReadBounds<AwsBounds> {
    let bounds =
        AwsBounds { accounts: texts(reader, "accounts"), roles: texts(reader, "roles"), users: texts(reader, "users") };
    let mistake = bounds.validation_error();
    (bounds, mistake)
}

fn kubernetes_bounds(reader: &mut Reader<'_>) -> ReadBounds<KubernetesBounds> {
    let bounds = KubernetesBounds {
        namespaces: texts(reader, "namespaces"),
        service_accounts: texts(reader, "service_accounts"),
    };
    let mistake = bounds.validation_error();
    (bounds, mistake)
}

fn texts(reader: &mut Reader<'_>, name: &'static str) -> Vec<String> {
    reader.list(name).unwrap_or_default().into_iter().map(|text| text.value).collect()
}

fn region(text: &str) -> Result<String, ValueError> {
    if is_region(text) {
        return Ok(text.to_owned());
    }
    invalid("is not the name of a region", "write a region such as \"eu-west-1\"")
}

/// Parses the URL of an issuer's keys or of its discovery document.
fn parse_jwks_url(text: &str) -> Result<Url, ValueError> {
    parse_url(text, "would fetch keys without TLS")
}

/// Parses the URL that stands in for AWS's own of STS.
fn parse_sts_url(text: &str) -> Result<Url, ValueError> {
    parse_url(text, "would ask for identities without TLS")
}

/// Parses the URL of a cluster's API server.
fn parse_api_url(text: &str) -> Result<Url, ValueError> {
    parse_url(text, "would send tokens without TLS")
}

fn parse_url(text: &str, insecure: &'static str) -> Result<Url, ValueError> {
    match jwks_url::parse_jwks_url(text) {
        Ok(url) => Ok(url),
        Err(JwksUrlError::Malformed) => invalid("is not a URL", "write \"https://HOST/PATH\""),
        Err(JwksUrlError::NotBare) => {
            invalid_secret("contains a user, a query or a fragment", "write \"https://HOST/PATH\"")
        }
        Err(JwksUrlError::Insecure) => invalid(insecure, "use https://; http:// is for loopback only"),
    }
}
