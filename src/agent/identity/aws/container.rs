//! Credentials of a container: the endpoints of ECS and of EKS Pod Identity
//! (docs.aws.amazon.com, "Container credential provider").

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use http::HeaderValue;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use url::{Host, Url};

use super::credentials::AwsCredentials;
use crate::identity::ProviderVariables;
use crate::identity::error::AttemptError;
use crate::identity::transport::Transport;

/// Endpoint of a container's credentials, and the token that it requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerEndpoint {
    url: Url,
    token: Option<EndpointToken>,
}

/// Token of an endpoint, which goes into the header `Authorization`.
#[derive(Clone, PartialEq, Eq)]
enum EndpointToken {
    /// Text of `AWS_CONTAINER_AUTHORIZATION_TOKEN`, a secret.
    Text(String),
    /// File of `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE`, read for each request.
    File(PathBuf),
}

impl std::fmt::Debug for EndpointToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text"),
            Self::File(file) => f.debug_tuple("File").field(file).finish(),
        }
    }
}

impl ContainerEndpoint {
    /// Reads the variables of an endpoint.
    ///
    /// # Errors
    /// No endpoint, or one at another address than the SDKs send the token to: message and advice.
    pub(super) fn from_variables(variables: &ProviderVariables) -> Result<Self, (String, Option<&'static str>)> {
        const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
        const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
        let url = match (variables.get(RELATIVE), variables.get(FULL)) {
            (Some(path), _) if path.starts_with('/') => {
                Url::parse(&format!("http://{ECS}{path}")).map_err(|_| (format!("{RELATIVE} is not a path"), None))?
            }
            (Some(_), _) => return Err((format!("{RELATIVE} does not start with a slash"), None)),
            (None, Some(text)) => {
                let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
                let url = url.ok_or_else(|| (format!("{FULL} is not an http URL"), None))?;
                if url.scheme() != "https" && !is_endpoint_host(url.host().as_ref()) {
                    let advice =
                        "AWS's SDKs too send the token only to https, loopback, and the addresses of ECS and EKS";
                    return Err((format!("{FULL} names another host over plain http"), Some(advice)));
                }
                url
            }
            (None, None) => {
                let advice = "ECS and EKS Pod Identity set one of them";
                return Err((format!("neither {RELATIVE} nor {FULL} is set"), Some(advice)));
            }
        };
        let file = variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        let text = variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        let token = file.map(|file| EndpointToken::File(file.into()));
        Ok(Self { url, token: token.or_else(|| text.map(|text| EndpointToken::Text(text.to_owned()))) })
    }

    /// Returns the file of the endpoint's token, if it is in one.
    pub(super) fn token_file(&self) -> Option<&Path> {
        match &self.token {
            Some(EndpointToken::File(file)) => Some(file),
            Some(EndpointToken::Text(_)) | None => None,
        }
    }

    /// Returns the endpoint's URL.
    pub(super) const fn url(&self) -> &Url {
        &self.url
    }

    /// Returns true if the endpoint is reached over TLS, with the system's certificates.
    pub(super) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Requests the credentials.
    pub(super) async fn request(&self, transport: &Transport) -> Result<AwsCredentials, AttemptError> {
        let mut request = transport.http.get(self.url.clone());
        let mut transport = transport.clone();
        if let Some(token) = &self.token {
            let token = match token {
                EndpointToken::Text(text) => SecretString::from(text.as_str()),
                EndpointToken::File(file) => {
                    secret::read_file(file).map_err(|error| AttemptError::NoAssertion(format_chain(&error)))?
                }
            };
            let mut value = HeaderValue::from_str(token.expose_secret())
                .map_err(|_| AttemptError::setting("the token of the container endpoint does not fit into a header"))?;
            value.set_sensitive(true);
            request = request.header(http::header::AUTHORIZATION, value);
            transport = transport.with_redacted_secret(token);
        }
        AwsCredentials::parse(&transport.send(request).await?)
    }
}

/// Address of ECS's endpoint.
const ECS: Ipv4Addr = Ipv4Addr::new(169, 254, 170, 2);
/// Addresses of EKS Pod Identity's endpoint.
const EKS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23))];

fn is_endpoint_host(host: Option<&Host<&str>>) -> bool {
    let address = match host {
        Some(Host::Ipv4(address)) => IpAddr::V4(*address),
        Some(Host::Ipv6(address)) => IpAddr::V6(*address),
        Some(Host::Domain(name)) => return *name == "localhost",
        None => return false,
    };
    address.is_loopback() || address == IpAddr::V4(ECS) || EKS.contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_of_the_sdks_get_the_token() {
        let check = |name: &str, value: &str, expected: Result<&str, &str>| {
            let variables = ProviderVariables::of_aws([(name.to_owned(), value.to_owned())]);
            let endpoint = ContainerEndpoint::from_variables(&variables).map_err(|(message, _)| message);
            let url = endpoint.as_ref().map(|endpoint| endpoint.url.as_str()).map_err(String::as_str);
            assert_eq!(url, expected, "{value}");
        };
        let relative = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
        check(relative, "/v2/credentials/1", Ok("http://169.254.170.2/v2/credentials/1"));
        check(relative, "@evil.example/", Err("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not start with a slash"));
        let full = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
        for allowed in [
            "http://169.254.170.23/v1/credentials",
            "http://[fd00:ec2::23]/v1/credentials",
            "http://127.0.0.1:1338/a",
            "http://localhost:1338/a",
            "https://credentials.example/a",
        ] {
            check(full, allowed, Ok(allowed));
        }
        for refused in ["http://169.254.169.254/a", "http://credentials.example/a", "http://localhost.example/a"] {
            let message = "AWS_CONTAINER_CREDENTIALS_FULL_URI names another host over plain http";
            check(full, refused, Err(message));
        }
        check(full, "file:///etc/passwd", Err("AWS_CONTAINER_CREDENTIALS_FULL_URI is not an http URL"));
    }
}
