//! What kind of host this is, by the variables that each kind sets.

use secrecy::SecretString;
use url::Url;

use super::error::{Class, IdentityError, mistake};
use super::{Endpoints, ManagedIdentity, Variables};

/// Where this machine's identity tokens come from.
#[derive(Debug)]
pub(super) enum Host {
    /// The metadata service of a virtual machine.
    Metadata,
    /// App Service, Functions, Container Apps.
    AppService { endpoint: Url, header: SecretString, form: Form },
    /// An Arc machine.
    Arc { endpoint: Url },
}

/// Which form of App Service's endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `IDENTITY_ENDPOINT`, version 2019-08-01.
    Current,
    /// `MSI_ENDPOINT`, version 2017-09-01: Functions on Linux in a consumption plan.
    Old,
}

/// Tells the kind of host. `arc_agent` is whether the Arc agent's program is there.
pub(super) fn detect(variables: &Variables, endpoints: &Endpoints, arc_agent: bool) -> Result<Host, IdentityError> {
    let get = |name| variables.get(name);
    let url = |name: &str, written: &str| {
        let url = Url::parse(written).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        url.ok_or_else(|| mistake(format!("{name} is no http URL"), None))
    };
    let partial = |set: &str, missing: &str| {
        let message = format!("{set} is set, but {missing} is missing");
        Err(mistake(message, Some("the platform sets both; pass both on to the agent, or none")))
    };
    match (get("IDENTITY_ENDPOINT"), get("IDENTITY_HEADER"), get("IMDS_ENDPOINT")) {
        (Some(_), Some(_), _) if get("IDENTITY_SERVER_THUMBPRINT").is_some() => {
            Err(mistake("managed identities of Service Fabric are not supported".to_owned(), None))
        }
        (Some(endpoint), Some(header), _) => Ok(Host::AppService {
            endpoint: url("IDENTITY_ENDPOINT", endpoint)?,
            header: header.into(),
            form: Form::Current,
        }),
        (Some(endpoint), None, Some(_)) => arc(url("IDENTITY_ENDPOINT", endpoint)?),
        (Some(_), None, None) => partial("IDENTITY_ENDPOINT", "IDENTITY_HEADER (App Service) or IMDS_ENDPOINT (Arc)"),
        (None, Some(_), _) => partial("IDENTITY_HEADER", "IDENTITY_ENDPOINT"),
        (None, None, _) => match (get("MSI_ENDPOINT"), get("MSI_SECRET")) {
            (Some(endpoint), Some(secret)) => Ok(Host::AppService {
                endpoint: url("MSI_ENDPOINT", endpoint)?,
                header: secret.into(),
                form: Form::Old,
            }),
            (Some(_), None) => Err(mistake(
                "MSI_ENDPOINT is set, but MSI_SECRET is missing: Cloud Shell, whose identity is a person's, is not \
                 supported"
                    .to_owned(),
                None,
            )),
            (None, Some(_)) => partial("MSI_SECRET", "MSI_ENDPOINT"),
            (None, None) if arc_agent => {
                let mut endpoint = endpoints.arc.clone();
                endpoint.set_path("/metadata/identity/oauth2/token");
                arc(endpoint)
            }
            (None, None) => Ok(Host::Metadata),
        },
    }
}

/// An Arc machine's agent listens on loopback; what answers its challenge is sent nowhere else.
fn arc(endpoint: Url) -> Result<Host, IdentityError> {
    if crate::http::client::is_loopback(&endpoint) {
        Ok(Host::Arc { endpoint })
    } else {
        Err(mistake("IDENTITY_ENDPOINT of an Arc machine is not on loopback".to_owned(), None))
    }
}

impl Host {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Metadata => "metadata service",
            Self::AppService { .. } => "App Service identity endpoint",
            Self::Arc { .. } => "Arc agent",
        }
    }

    /// Refuses an identity that this host cannot give: another one must never come in its place.
    pub(super) fn accepts(&self, which: &ManagedIdentity) -> Result<(), IdentityError> {
        let given = match which {
            ManagedIdentity::System => return Ok(()),
            ManagedIdentity::ObjectId(_) => "object_id",
            ManagedIdentity::ClientId(_) => "client_id",
        };
        let message = match self {
            Self::Arc { .. } => format!("an Arc machine has its own identity only, {given} cannot be used"),
            Self::AppService { form: Form::Old, .. } if given == "object_id" => {
                "this host's endpoint (MSI_ENDPOINT) knows client ids only, object_id cannot be used".to_owned()
            }
            Self::Metadata | Self::AppService { .. } => return Ok(()),
        };
        let hint = Some("give no identity, or run where it is assigned");
        Err(IdentityError { class: Class::Config, source_name: self.name(), message, hint, retry_after: None })
    }
}
