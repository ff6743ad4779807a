//! Variables by which programs find an identity for tools.

use keyward_agent::identity::IdentityTokenOrigin;
use keyward_agent::identity_api::endpoint_path;
use keyward_agent::identity_tokens::IdentityTokenOptions;
use keyward_http::guard::AccessMode;
use keyward_http::server::Endpoint;
use keyward_machine::command::EnvVars;
use keyward_machine::secret_string::SecretString;

use super::{Listener, Serves, Sink, SinkOrigin};

/// Returns the listener whose endpoint programs call for an identity: clients of clouds know TCP alone.
pub fn tool_listener<'a>(identity: &str, listeners: &'a [Listener]) -> Option<&'a Listener> {
    let serves = |listener: &&Listener| {
        let is_served =
            matches!(&listener.serves, Serves::Identity(served) if served.iter().any(|name| name == identity));
        is_served && matches!(&listener.endpoint, Endpoint::Tcp(address) if address.port() != 0)
    };
    listeners.iter().find(serves)
}

/// Returns the variables of a program that uses an identity: of its endpoints, and of the file with its token.
///
/// # Errors
/// Neither a listener nor a file gives it to a program.
pub fn tool_variables(
    identity: &IdentityTokenOptions,
    listeners: &[Listener],
    sinks: &[Sink],
) -> Result<EnvVars, &'static str> {
    let mut variables = EnvVars::default();
    if let Some(listener) = tool_listener(&identity.name, listeners) {
        let url = |form: &str| {
            SecretString::from(format!("http://{}{}", address(listener), endpoint_path(&identity.name, form)))
        };
        // The header may have any value if the rules of callers decide.
        let key = match &listener.guard.admit {
            AccessMode::Key(key) => key.clone(),
            _ => SecretString::from("caller"),
        };
        if matches!(identity.origin, IdentityTokenOrigin::Cloud(_)) && !identity.resources.is_empty() {
            variables.set("IDENTITY_ENDPOINT", url("app-service"));
            variables.set("IDENTITY_HEADER", key.clone());
        }
        if identity.aws_role.is_some() {
            variables.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", url("aws"));
            variables.set("AWS_CONTAINER_AUTHORIZATION_TOKEN", key);
        }
    }
    let holds = |sink: &&Sink| matches!(&sink.origin, SinkOrigin::Identity(token) if token.identity == identity.name);
    let mut files = sinks.iter().filter(holds).map(|sink| sink.options.path.display().to_string());
    if let (Some(file), None) = (files.next(), files.next()) {
        variables.set("AZURE_FEDERATED_TOKEN_FILE", file.as_str().into());
        variables.set("ARM_OIDC_TOKEN_FILE_PATH", file.into());
    }
    if variables.names().next().is_none() {
        return Err(
            "no listener on a TCP address serves this identity, and no sink, or more than one, holds its token",
        );
    }
    Ok(variables)
}

fn address(listener: &Listener) -> String {
    match &listener.endpoint {
        Endpoint::Tcp(address) => address.to_string(),
        _ => String::new(),
    }
}

/// Names of all variables that [`tool_variables`] may set.
pub const TOOL_VARIABLES: [&str; 6] = [
    "ARM_OIDC_TOKEN_FILE_PATH",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AZURE_FEDERATED_TOKEN_FILE",
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
];
