//! Selects the identity source by the configuration and the environment variables only; nothing is probed.

use std::path::{Path, PathBuf};

use keyward_machine::secret_string::SecretString;
use url::Url;

use super::error::{IdentityError, config_error};
use super::managed_identity_host::{self, ManagedIdentityHost};
use super::token_proxy::TokenProxy;
use super::{CloudIdentityOptions, IdentityOrigin, ManagedIdentity, ProviderVariables};

/// The selected source, and the sources that were skipped.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) selected: SelectedSource,
    /// Name of each skipped source, and the reason.
    pub(super) skipped: Vec<(&'static str, String)>,
}

/// A source with its parameters.
#[derive(Debug)]
pub(super) enum SelectedSource {
    /// A managed identity of this machine.
    Managed(ManagedIdentityHost, ManagedIdentity),
    /// A service principal by its secret.
    ClientSecret(ServicePrincipal, SecretString),
    /// A service principal by its certificate.
    ClientCertificate(ServicePrincipal, Certificate),
    /// A federated token from a file, exchanged at the authority or, if there is one, at the cluster's token proxy.
    Workload(ServicePrincipal, PathBuf, Option<TokenProxy>),
}

/// A service principal, and the authority that issues its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServicePrincipal {
    pub(super) authority: Url,
    pub(super) tenant: String,
    pub(super) client_id: String,
}

/// File of a client certificate, and how to use it.
#[derive(Debug, Clone)]
pub(super) struct Certificate {
    pub(super) path: PathBuf,
    /// Password of the file or of its key.
    pub(super) password: Option<SecretString>,
    /// True if the whole chain is sent, for trust by subject and issuer.
    pub(super) send_chain: bool,
}

const SECRET: &str = "client secret";
const CERTIFICATE: &str = "client certificate";
const WORKLOAD: &str = "workload identity";
const MANAGED: &str = "managed identity";

/// Selects the source.
pub(super) fn select_source(options: &CloudIdentityOptions) -> Result<Selection, IdentityError> {
    let arc_agent = || options.endpoints.arc_agent.exists();
    match &options.from {
        IdentityOrigin::Instance(managed_identity) => {
            let host = managed_identity_host::detect(&options.variables, &options.endpoints, arc_agent())?;
            host.check_identity(managed_identity)?;
            Ok(Selection { selected: SelectedSource::Managed(host, managed_identity.clone()), skipped: Vec::new() })
        }
        IdentityOrigin::Environment => from_environment(options),
    }
}

/// Selects in the order of Azure's SDKs: client secret, client certificate, workload identity, managed identity.
///
/// If only some of a source's variables are set, that is an error: the next source would be another identity.
fn from_environment(options: &CloudIdentityOptions) -> Result<Selection, IdentityError> {
    let variables = &options.variables;
    let allowed = AllowedSources::from_env(variables)?;
    let mut skipped = Vec::new();
    let mut chosen = None;
    if allowed.principal {
        chosen = select_principal(variables, allowed.workload, &mut skipped)?;
    } else {
        skipped.extend([SECRET, CERTIFICATE].map(|name| (name, EXCLUDED.to_owned())));
    }
    match (variables.get("AZURE_FEDERATED_TOKEN_FILE"), &chosen) {
        _ if !allowed.workload => skipped.push((WORKLOAD, EXCLUDED.to_owned())),
        (Some(_), Some(_)) => skipped.push((WORKLOAD, "a service principal takes precedence".to_owned())),
        (Some(file), None) => {
            let principal = principal(variables, FEDERATED_TOKEN_FILE)?;
            chosen = Some(SelectedSource::Workload(principal, file.into(), TokenProxy::from_variables(variables)?));
        }
        (None, None) if TokenProxy::from_variables(variables)?.is_some() => {
            let message = "AZURE_KUBERNETES_TOKEN_PROXY is set, but AZURE_FEDERATED_TOKEN_FILE is missing".to_owned();
            return Err(config_error(
                message,
                Some("a pod gets both with the label azure.workload.identity/use: \"true\""),
            ));
        }
        (None, _) => skipped.push((WORKLOAD, "AZURE_FEDERATED_TOKEN_FILE is not set".to_owned())),
    }
    if let Some(selected) = chosen {
        skipped.push((MANAGED, if allowed.managed { "it has the lowest precedence" } else { EXCLUDED }.to_owned()));
        return Ok(Selection { selected, skipped });
    }
    if !allowed.managed {
        let missing = if allowed.workload {
            "AZURE_FEDERATED_TOKEN_FILE, AZURE_TENANT_ID and AZURE_CLIENT_ID"
        } else {
            "AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH, AZURE_TENANT_ID and AZURE_CLIENT_ID"
        };
        return Err(config_error(format!("AZURE_TOKEN_CREDENTIALS selects a source that needs {missing}"), None));
    }
    reject_orphan_tenant(variables)?;
    // As in Azure's SDKs, the variable by itself names a user-assigned identity.
    let managed_identity = match variables.get("AZURE_CLIENT_ID") {
        Some(id) => ManagedIdentity::ClientId(id.to_owned()),
        None => ManagedIdentity::System,
    };
    let host = managed_identity_host::detect(variables, &options.endpoints, options.endpoints.arc_agent.exists())?;
    host.check_identity(&managed_identity)?;
    Ok(Selection { selected: SelectedSource::Managed(host, managed_identity), skipped })
}

/// Selects a client secret or a client certificate; `None` if the variables name neither. Adds the skipped ones to `skipped`.
fn select_principal(
    variables: &ProviderVariables,
    allows_workload: bool,
    skipped: &mut Vec<(&'static str, String)>,
) -> Result<Option<SelectedSource>, IdentityError> {
    let mut chosen = None;
    if let Some(secret) = variables.get("AZURE_CLIENT_SECRET") {
        let principal = principal(variables, "AZURE_CLIENT_SECRET")?;
        chosen = Some(SelectedSource::ClientSecret(principal, secret.into()));
    } else {
        skipped.push((SECRET, "AZURE_CLIENT_SECRET is not set".to_owned()));
    }
    match (variables.get("AZURE_CLIENT_CERTIFICATE_PATH"), &chosen) {
        (Some(_), Some(_)) => skipped.push((CERTIFICATE, "the client secret takes precedence".to_owned())),
        (Some(path), None) => {
            let principal = principal(variables, "AZURE_CLIENT_CERTIFICATE_PATH")?;
            let send_chain = variables.get("AZURE_CLIENT_SEND_CERTIFICATE_CHAIN").is_some_and(is_true);
            let password = variables.get("AZURE_CLIENT_CERTIFICATE_PASSWORD").map(SecretString::from);
            let certificate = Certificate { path: path.into(), password, send_chain };
            chosen = Some(SelectedSource::ClientCertificate(principal, certificate));
        }
        (None, _) => skipped.push((CERTIFICATE, "AZURE_CLIENT_CERTIFICATE_PATH is not set".to_owned())),
    }
    if chosen.is_none() {
        reject_incomplete_sources(variables, allows_workload)?;
    }
    Ok(chosen)
}

/// Sources that `AZURE_TOKEN_CREDENTIALS` allows.
struct AllowedSources {
    principal: bool,
    workload: bool,
    managed: bool,
}

impl AllowedSources {
    fn from_env(variables: &ProviderVariables) -> Result<Self, IdentityError> {
        let allowed = |principal, workload, managed| Ok(Self { principal, workload, managed });
        match variables.get("AZURE_TOKEN_CREDENTIALS").map(str::to_ascii_lowercase).as_deref() {
            // `prod` of Azure's SDKs: environment, workload identity and managed identity, without the tools of
            // developers.
            None | Some("prod") => allowed(true, true, true),
            Some("environmentcredential") => allowed(true, false, false),
            Some("workloadidentitycredential") => allowed(false, true, false),
            Some("managedidentitycredential") => allowed(false, false, true),
            Some(other) => Err(config_error(
                format!("AZURE_TOKEN_CREDENTIALS is {other:?}, which an agent cannot use"),
                Some(
                    "take prod, EnvironmentCredential, WorkloadIdentityCredential or ManagedIdentityCredential: the \
                     logins of developer tools belong to a person",
                ),
            )),
        }
    }
}

/// Returns the service principal; `because` is the variable that selects its source.
fn principal(variables: &ProviderVariables, because: &str) -> Result<ServicePrincipal, IdentityError> {
    let needed = ["AZURE_TENANT_ID", "AZURE_CLIENT_ID"];
    let missing: Vec<&str> = needed.into_iter().filter(|name| variables.get(name).is_none()).collect();
    let (Some(tenant), Some(client_id)) = (variables.get(needed[0]), variables.get(needed[1])) else {
        let verb = if missing.len() == 1 { "is" } else { "are" };
        let message = format!("{because} is set, but {} {verb} missing", missing.join(" and "));
        let hint = if because == FEDERATED_TOKEN_FILE && missing == [needed[1]] { NO_CLIENT_ID } else { SET_ALL };
        return Err(config_error(message, Some(hint)));
    };
    Ok(ServicePrincipal {
        authority: authority(variables)?,
        tenant: tenant.to_owned(),
        client_id: client_id.to_owned(),
    })
}

const FEDERATED_TOKEN_FILE: &str = "AZURE_FEDERATED_TOKEN_FILE";
const SET_ALL: &str = "set all of them, or none";
const NO_CLIENT_ID: &str = "a pod gets it by the annotation azure.workload.identity/client-id of its service account: add it there, and \
                            restart the pod";

fn authority(variables: &ProviderVariables) -> Result<Url, IdentityError> {
    // Any https host is accepted: sovereign clouds have authorities of their own.
    let written = variables.get("AZURE_AUTHORITY_HOST").unwrap_or("https://login.microsoftonline.com/");
    let bad = || {
        let message = "AZURE_AUTHORITY_HOST is not an https URL of only a host".to_owned();
        config_error(message, Some("write it like https://login.microsoftonline.com/"))
    };
    let url = Url::parse(written).map_err(|_| bad())?;
    let bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if url.scheme() == "https" && url.host().is_some() && bare && url.path() == "/" { Ok(url) } else { Err(bad()) }
}

/// Returns an error for variables of unsupported or incomplete sources.
fn reject_incomplete_sources(variables: &ProviderVariables, allows_workload: bool) -> Result<(), IdentityError> {
    let set = |name: &&str| variables.get(name).is_some();
    let user = ["AZURE_USERNAME", "AZURE_PASSWORD"];
    let workload = ["AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE"];
    // One of the two names no identity: Azure's SDKs then use a complete workload identity.
    let is_ignored = allows_workload && workload.iter().all(set) && !user.iter().all(set);
    if let Some(name) = user.iter().find(|name| set(name)).filter(|_| !is_ignored) {
        let message = format!("{name} is set, but user name and password are not supported");
        return Err(config_error(message, Some("use a federated token, a certificate or a client secret")));
    }
    let certificate_options = ["AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_CLIENT_SEND_CERTIFICATE_CHAIN"];
    if let Some(name) = certificate_options.iter().find(|name| set(name)) {
        let message = format!("{name} is set, but AZURE_CLIENT_CERTIFICATE_PATH is missing");
        return Err(config_error(message, Some("set all of them, or none")));
    }
    Ok(())
}

/// Returns an error for a tenant without a source. By itself, `AZURE_CLIENT_ID` names a managed identity.
fn reject_orphan_tenant(variables: &ProviderVariables) -> Result<(), IdentityError> {
    if variables.get("AZURE_TENANT_ID").is_none() {
        return Ok(());
    }
    let client = if variables.get("AZURE_CLIENT_ID").is_some() { "" } else { ", and so is AZURE_CLIENT_ID" };
    let message = format!(
        "AZURE_TENANT_ID is set, but AZURE_FEDERATED_TOKEN_FILE, AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH \
         is missing{client}"
    );
    Err(config_error(
        message,
        Some("a pod gets them all with the label azure.workload.identity/use: \"true\"; or unset the tenant"),
    ))
}

fn is_true(text: &str) -> bool {
    text == "1" || text.eq_ignore_ascii_case("true")
}

const EXCLUDED: &str = "AZURE_TOKEN_CREDENTIALS selects another";

impl SelectedSource {
    /// Describes the source for logs. Ids are not secret.
    pub(super) fn describe(&self) -> String {
        let with_principal = |name: &str, principal: &ServicePrincipal| {
            let host = principal.authority.host_str().unwrap_or_default();
            format!("{name} (client_id {} in tenant {} at {host})", principal.client_id, principal.tenant)
        };
        match self {
            Self::Managed(host, ManagedIdentity::System) => host.name().to_owned(),
            Self::Managed(host, ManagedIdentity::ObjectId(id)) => format!("{} (object_id {id})", host.name()),
            Self::Managed(host, ManagedIdentity::ClientId(id)) => format!("{} (client_id {id})", host.name()),
            Self::ClientSecret(principal, _) => with_principal(SECRET, principal),
            Self::ClientCertificate(principal, _) => with_principal(CERTIFICATE, principal),
            Self::Workload(principal, _, None) => with_principal(WORKLOAD, principal),
            Self::Workload(principal, _, Some(proxy)) => {
                format!("{} by the token proxy {}", with_principal(WORKLOAD, principal), proxy.address())
            }
        }
    }

    /// Returns the files that each proof reads.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Managed(..) | Self::ClientSecret(..) => Vec::new(),
            Self::ClientCertificate(_, certificate) => vec![certificate.path.clone()],
            Self::Workload(_, file, proxy) => {
                let ca_file = proxy.as_ref().and_then(TokenProxy::ca_file).map(Path::to_owned);
                std::iter::once(file.clone()).chain(ca_file).collect()
            }
        }
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Managed(host, _) => host.name(),
            Self::ClientSecret(..) => SECRET,
            Self::ClientCertificate(..) => CERTIFICATE,
            Self::Workload(..) => WORKLOAD,
        }
    }
}

#[cfg(test)]
mod tests;
