//! Detects the kind of Azure host by the environment variables that each kind sets.

use keyward_machine::secret_string::SecretString;
use url::Url;

use super::error::{IdentityError, IdentityErrorKind, config_error};
use super::{CloudEndpoints, ManagedIdentity, ProviderVariables};

/// Kind of host, which decides where managed identity tokens come from.
#[derive(Debug)]
pub(super) enum ManagedIdentityHost {
    /// The metadata service of a virtual machine.
    Metadata,
    /// App Service, Functions, Container Apps.
    AppService { endpoint: Url, header: SecretString, form: AppServiceApi },
    /// An Arc machine.
    Arc { endpoint: Url },
}

/// Version of App Service's identity endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppServiceApi {
    /// `IDENTITY_ENDPOINT`, version 2019-08-01.
    Current,
    /// `MSI_ENDPOINT`, version 2017-09-01: Functions on Linux in a consumption plan.
    Old,
}

/// Detects the kind of host. `arc_agent` is true if the Arc agent's program is installed.
pub(super) fn detect(
    variables: &ProviderVariables,
    endpoints: &CloudEndpoints,
    arc_agent: bool,
) -> Result<ManagedIdentityHost, IdentityError> {
    let get = |name| variables.get(name);
    let url = |name: &str, written: &str| {
        let url = Url::parse(written).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        url.ok_or_else(|| config_error(format!("{name} is not an http URL"), None))
    };
    let partial = |set: &str, missing: &str| {
        let message = format!("{set} is set, but {missing} is missing");
        Err(config_error(message, Some("the platform sets both; pass both on to the agent, or none")))
    };
    // The order of Azure's SDKs. Service Fabric sets App Service's two variables and a third one, so it comes first.
    match (get("IDENTITY_ENDPOINT"), get("IDENTITY_HEADER"), get("IMDS_ENDPOINT")) {
        (Some(_), Some(_), _) if get("IDENTITY_SERVER_THUMBPRINT").is_some() => {
            Err(config_error("managed identities of Service Fabric are not supported".to_owned(), None))
        }
        (Some(endpoint), Some(header), _) => Ok(ManagedIdentityHost::AppService {
            endpoint: url("IDENTITY_ENDPOINT", endpoint)?,
            header: header.into(),
            form: AppServiceApi::Current,
        }),
        (Some(endpoint), None, Some(_)) => arc(url("IDENTITY_ENDPOINT", endpoint)?),
        (Some(_), None, None) => partial("IDENTITY_ENDPOINT", "IDENTITY_HEADER (App Service) or IMDS_ENDPOINT (Arc)"),
        (None, Some(_), _) => partial("IDENTITY_HEADER", "IDENTITY_ENDPOINT"),
        // Functions on Linux in a consumption plan set only these. Azure Machine Learning sets the same pair.
        (None, None, _) => match (get("MSI_ENDPOINT"), get("MSI_SECRET")) {
            (Some(endpoint), Some(secret)) => Ok(ManagedIdentityHost::AppService {
                endpoint: url("MSI_ENDPOINT", endpoint)?,
                header: secret.into(),
                form: AppServiceApi::Old,
            }),
            (Some(_), None) => Err(config_error(
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
            (None, None) => Ok(ManagedIdentityHost::Metadata),
        },
    }
}

/// Checks that an Arc agent listens on loopback, since the key of its challenge is sent there.
fn arc(endpoint: Url) -> Result<ManagedIdentityHost, IdentityError> {
    if keyward_http::client::is_loopback(&endpoint) {
        Ok(ManagedIdentityHost::Arc { endpoint })
    } else {
        Err(config_error("IDENTITY_ENDPOINT of an Arc machine is not on loopback".to_owned(), None))
    }
}

impl ManagedIdentityHost {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Metadata => "metadata service",
            Self::AppService { .. } => "App Service identity endpoint",
            Self::Arc { .. } => "Arc agent",
        }
    }

    /// Returns an error for an identity that this host cannot provide, so that another one never takes its place.
    pub(super) fn check_identity(&self, managed_identity: &ManagedIdentity) -> Result<(), IdentityError> {
        let parameter = match managed_identity {
            ManagedIdentity::System => return Ok(()),
            ManagedIdentity::ObjectId(_) => "object_id",
            ManagedIdentity::ClientId(_) => "client_id",
        };
        let message = match self {
            Self::Arc { .. } => format!("an Arc machine has only its own identity, {parameter} cannot be used"),
            Self::AppService { form: AppServiceApi::Old, .. } if parameter == "object_id" => {
                "this host's endpoint (MSI_ENDPOINT) knows only client ids, object_id cannot be used".to_owned()
            }
            Self::Metadata | Self::AppService { .. } => return Ok(()),
        };
        let hint = Some("remove the configured identity, or run where it is assigned");
        Err(IdentityError {
            kind: IdentityErrorKind::Config,
            source_name: self.name(),
            message,
            hint,
            retry_after: None,
        })
    }
}
