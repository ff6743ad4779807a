//! Which source gives the identity, decided by the configuration and the variables alone: nothing is probed.

use std::path::PathBuf;

use secrecy::SecretString;
use url::Url;

use super::error::{IdentityError, mistake};
use super::managed_identity_host::{self, Host};
use super::token_proxy::TokenProxy;
use super::{From, ManagedIdentity, Options, Variables};

/// The source that was chosen, and what was looked at before it.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) selected: Selected,
    /// Name of each source passed over, and why.
    pub(super) passed_over: Vec<(&'static str, String)>,
}

/// A source with what it needs.
#[derive(Debug)]
pub(super) enum Selected {
    /// A managed identity of this machine.
    Managed(Host, ManagedIdentity),
    /// A service principal by its secret.
    ClientSecret(Principal, SecretString),
    /// A service principal by its certificate.
    ClientCertificate(Principal, Certificate),
    /// A federated token from a file, exchanged at the authority or, where there is one, at the cluster's token proxy.
    Workload(Principal, PathBuf, Option<TokenProxy>),
}

/// Who asks the token endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Principal {
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
    /// Whether to send the whole chain, for trust by subject and issuer.
    pub(super) send_chain: bool,
}

const SECRET: &str = "client secret";
const CERTIFICATE: &str = "client certificate";
const WORKLOAD: &str = "workload identity";
const MANAGED: &str = "managed identity";

/// Chooses the source.
pub(super) fn choose(options: &Options) -> Result<Choice, IdentityError> {
    let arc_agent = || options.endpoints.arc_agent.exists();
    match &options.from {
        From::Instance(which) => {
            let host = managed_identity_host::detect(&options.variables, &options.endpoints, arc_agent())?;
            host.accepts(which)?;
            Ok(Choice { selected: Selected::Managed(host, which.clone()), passed_over: Vec::new() })
        }
        From::Environment => from_environment(options),
    }
}

/// The provider's order: client secret, client certificate, workload identity, managed identity. A source that some
/// variable means and others leave incomplete is an error: the next one would be another identity.
fn from_environment(options: &Options) -> Result<Choice, IdentityError> {
    let variables = &options.variables;
    let wanted = Wanted::of(variables)?;
    let mut passed_over = Vec::new();
    let mut chosen = None;
    if wanted.principal {
        if let Some(secret) = variables.get("AZURE_CLIENT_SECRET") {
            let principal = principal(variables, "AZURE_CLIENT_SECRET")?;
            chosen = Some(Selected::ClientSecret(principal, secret.into()));
        } else {
            passed_over.push((SECRET, "AZURE_CLIENT_SECRET is not set".to_owned()));
        }
        match (variables.get("AZURE_CLIENT_CERTIFICATE_PATH"), &chosen) {
            (Some(_), Some(_)) => passed_over.push((CERTIFICATE, "the client secret comes first".to_owned())),
            (Some(path), None) => {
                let principal = principal(variables, "AZURE_CLIENT_CERTIFICATE_PATH")?;
                let send_chain = variables.get("AZURE_CLIENT_SEND_CERTIFICATE_CHAIN").is_some_and(is_true);
                let password = variables.get("AZURE_CLIENT_CERTIFICATE_PASSWORD").map(SecretString::from);
                let certificate = Certificate { path: path.into(), password, send_chain };
                chosen = Some(Selected::ClientCertificate(principal, certificate));
            }
            (None, _) => passed_over.push((CERTIFICATE, "AZURE_CLIENT_CERTIFICATE_PATH is not set".to_owned())),
        }
        if chosen.is_none() {
            refuse_leftovers(variables)?;
        }
    } else {
        passed_over.extend([SECRET, CERTIFICATE].map(|name| (name, BY_SELECTION.to_owned())));
    }
    match (variables.get("AZURE_FEDERATED_TOKEN_FILE"), &chosen) {
        _ if !wanted.workload => passed_over.push((WORKLOAD, BY_SELECTION.to_owned())),
        (Some(_), Some(_)) => passed_over.push((WORKLOAD, "a service principal comes first".to_owned())),
        (Some(file), None) => {
            let principal = principal(variables, "AZURE_FEDERATED_TOKEN_FILE")?;
            chosen = Some(Selected::Workload(principal, file.into(), TokenProxy::from_variables(variables)?));
        }
        (None, None) if TokenProxy::from_variables(variables)?.is_some() => {
            let message = "AZURE_KUBERNETES_TOKEN_PROXY is set, but AZURE_FEDERATED_TOKEN_FILE is missing".to_owned();
            return Err(mistake(message, Some("a pod gets both with the label azure.workload.identity/use: \"true\"")));
        }
        (None, _) => passed_over.push((WORKLOAD, "AZURE_FEDERATED_TOKEN_FILE is not set".to_owned())),
    }
    if let Some(selected) = chosen {
        passed_over.push((MANAGED, if wanted.managed { "it comes last" } else { BY_SELECTION }.to_owned()));
        return Ok(Choice { selected, passed_over });
    }
    if !wanted.managed {
        let missing = if wanted.workload {
            "AZURE_FEDERATED_TOKEN_FILE, AZURE_TENANT_ID and AZURE_CLIENT_ID"
        } else {
            "AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH, AZURE_TENANT_ID and AZURE_CLIENT_ID"
        };
        return Err(mistake(format!("AZURE_TOKEN_CREDENTIALS selects a source that needs {missing}"), None));
    }
    refuse_a_tenant_without_source(variables)?;
    let which = match variables.get("AZURE_CLIENT_ID") {
        Some(id) => ManagedIdentity::ClientId(id.to_owned()),
        None => ManagedIdentity::System,
    };
    let host = managed_identity_host::detect(variables, &options.endpoints, options.endpoints.arc_agent.exists())?;
    host.accepts(&which)?;
    Ok(Choice { selected: Selected::Managed(host, which), passed_over })
}

/// The sources that `AZURE_TOKEN_CREDENTIALS` leaves.
struct Wanted {
    principal: bool,
    workload: bool,
    managed: bool,
}

impl Wanted {
    fn of(variables: &Variables) -> Result<Self, IdentityError> {
        let wanted = |principal, workload, managed| Ok(Self { principal, workload, managed });
        match variables.get("AZURE_TOKEN_CREDENTIALS").map(str::to_ascii_lowercase).as_deref() {
            None | Some("prod") => wanted(true, true, true),
            Some("environmentcredential") => wanted(true, false, false),
            Some("workloadidentitycredential") => wanted(false, true, false),
            Some("managedidentitycredential") => wanted(false, false, true),
            Some(other) => Err(mistake(
                format!("AZURE_TOKEN_CREDENTIALS is {other:?}, which an agent cannot use"),
                Some(
                    "take prod, EnvironmentCredential, WorkloadIdentityCredential or ManagedIdentityCredential: the \
                     logins of developer tools belong to a person",
                ),
            )),
        }
    }
}

/// Who asks, where `because` is the variable that means this source.
fn principal(variables: &Variables, because: &str) -> Result<Principal, IdentityError> {
    let needed = ["AZURE_TENANT_ID", "AZURE_CLIENT_ID"];
    let missing: Vec<&str> = needed.into_iter().filter(|name| variables.get(name).is_none()).collect();
    let (Some(tenant), Some(client_id)) = (variables.get(needed[0]), variables.get(needed[1])) else {
        let message = format!("{because} is set, but {} is missing", missing.join(" and "));
        return Err(mistake(message, Some("set all of them, or none")));
    };
    Ok(Principal { authority: authority(variables)?, tenant: tenant.to_owned(), client_id: client_id.to_owned() })
}

fn authority(variables: &Variables) -> Result<Url, IdentityError> {
    let written = variables.get("AZURE_AUTHORITY_HOST").unwrap_or("https://login.microsoftonline.com/");
    let bad = || {
        let message = "AZURE_AUTHORITY_HOST is no https URL of a host alone".to_owned();
        mistake(message, Some("write it like https://login.microsoftonline.com/"))
    };
    let url = Url::parse(written).map_err(|_| bad())?;
    let bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if url.scheme() == "https" && url.host().is_some() && bare && url.path() == "/" { Ok(url) } else { Err(bad()) }
}

/// Variables that mean a service principal in a way that is not there, or not whole.
fn refuse_leftovers(variables: &Variables) -> Result<(), IdentityError> {
    let set = |name: &&str| variables.get(name).is_some();
    if let Some(name) = ["AZURE_USERNAME", "AZURE_PASSWORD"].iter().find(|name| set(name)) {
        let message = format!("{name} is set, but user name and password are not supported");
        return Err(mistake(message, Some("use a federated token, a certificate or a client secret")));
    }
    let of_certificate = ["AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_CLIENT_SEND_CERTIFICATE_CHAIN"];
    if let Some(name) = of_certificate.iter().find(|name| set(name)) {
        let message = format!("{name} is set, but AZURE_CLIENT_CERTIFICATE_PATH is missing");
        return Err(mistake(message, Some("set all of them, or none")));
    }
    Ok(())
}

/// `AZURE_CLIENT_ID` alone names a managed identity; a tenant means a source that is not there.
fn refuse_a_tenant_without_source(variables: &Variables) -> Result<(), IdentityError> {
    if variables.get("AZURE_TENANT_ID").is_none() {
        return Ok(());
    }
    let client = if variables.get("AZURE_CLIENT_ID").is_some() { "" } else { ", and AZURE_CLIENT_ID" };
    let message = format!(
        "AZURE_TENANT_ID is set, but AZURE_FEDERATED_TOKEN_FILE, AZURE_CLIENT_SECRET or AZURE_CLIENT_CERTIFICATE_PATH \
         is missing{client}"
    );
    Err(mistake(
        message,
        Some("a pod gets them all with the label azure.workload.identity/use: \"true\"; or unset the tenant"),
    ))
}

fn is_true(text: &str) -> bool {
    text == "1" || text.eq_ignore_ascii_case("true")
}

const BY_SELECTION: &str = "AZURE_TOKEN_CREDENTIALS selects another";

impl Selected {
    /// The source in a few words. Ids are not secret.
    pub(super) fn describe(&self) -> String {
        let of = |name: &str, principal: &Principal| {
            let host = principal.authority.host_str().unwrap_or_default();
            format!("{name} (client_id {} in tenant {} at {host})", principal.client_id, principal.tenant)
        };
        match self {
            Self::Managed(host, ManagedIdentity::System) => host.name().to_owned(),
            Self::Managed(host, ManagedIdentity::ObjectId(id)) => format!("{} (object_id {id})", host.name()),
            Self::Managed(host, ManagedIdentity::ClientId(id)) => format!("{} (client_id {id})", host.name()),
            Self::ClientSecret(principal, _) => of(SECRET, principal),
            Self::ClientCertificate(principal, _) => of(CERTIFICATE, principal),
            Self::Workload(principal, _, None) => of(WORKLOAD, principal),
            Self::Workload(principal, _, Some(proxy)) => {
                format!("{} by the token proxy {}", of(WORKLOAD, principal), proxy.address())
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
