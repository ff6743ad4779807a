//! The origin of AWS credentials: as the configuration chooses it, or in the order of AWS's SDKs.

use std::path::PathBuf;

use url::Url;

use super::container::ContainerEndpoint;
use super::credentials::AwsCredentials;
use crate::identity::ProviderVariables;

/// Origin of AWS credentials, as the configuration chooses it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AwsCredentialOrigin {
    /// The first that the environment names: access key, web identity, container; else the machine's instance profile.
    #[default]
    Automatic,
    /// The variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.
    Environment,
    /// A profile of a credentials file.
    Profile {
        /// Path of the file.
        file: PathBuf,
        /// Name of the profile.
        name: String,
    },
    /// The token file of `AWS_WEB_IDENTITY_TOKEN_FILE`, exchanged for the role of `AWS_ROLE_ARN`.
    WebIdentity,
    /// The endpoint of ECS or of EKS Pod Identity.
    Container,
    /// The instance profile, by the metadata service.
    Instance,
}

/// Selected origin with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SelectedCredentials {
    Environment,
    Profile { file: PathBuf, name: String },
    WebIdentity(WebIdentity),
    Container(ContainerEndpoint),
    Instance(Url),
}

/// A web identity: a signed token, and the role that it is exchanged for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WebIdentity {
    pub(super) token_file: PathBuf,
    pub(super) role_arn: String,
    pub(super) session_name: String,
}

impl SelectedCredentials {
    /// Selects in the order of AWS's SDKs, without profiles: a service has none unless its configuration names one.
    ///
    /// # Errors
    /// Only some of an origin's variables are set, or one is invalid: message and advice.
    pub(super) fn select(
        origin: &AwsCredentialOrigin,
        variables: &ProviderVariables,
        metadata: &Url,
    ) -> Result<Self, (String, Option<&'static str>)> {
        let is_set = |names: &[&str]| names.iter().any(|name| variables.get(name).is_some());
        match origin {
            AwsCredentialOrigin::Profile { file, name } => Ok(Self::Profile { file: file.clone(), name: name.clone() }),
            AwsCredentialOrigin::Environment => from_environment(variables).map(|_| Self::Environment),
            AwsCredentialOrigin::WebIdentity => WebIdentity::from_variables(variables).map(Self::WebIdentity),
            AwsCredentialOrigin::Container => ContainerEndpoint::from_variables(variables).map(Self::Container),
            AwsCredentialOrigin::Automatic if is_set(&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]) => {
                from_environment(variables).map(|_| Self::Environment)
            }
            AwsCredentialOrigin::Automatic if is_set(&["AWS_WEB_IDENTITY_TOKEN_FILE"]) => {
                WebIdentity::from_variables(variables).map(Self::WebIdentity)
            }
            AwsCredentialOrigin::Automatic
                if is_set(&["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"]) =>
            {
                ContainerEndpoint::from_variables(variables).map(Self::Container)
            }
            AwsCredentialOrigin::Instance | AwsCredentialOrigin::Automatic => instance(variables, metadata),
        }
    }

    /// Returns the name for logs and errors.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Environment => "AWS environment variables",
            Self::Profile { .. } => "AWS profile",
            Self::WebIdentity(_) => "AWS web identity",
            Self::Container(_) => "AWS container endpoint",
            Self::Instance(_) => "EC2 metadata service",
        }
    }

    /// Describes it for logs and status.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Profile { file, name } => format!("{} {name} of {}", self.name(), file.display()),
            Self::WebIdentity(identity) => format!("{} (role {})", self.name(), identity.role_arn),
            Self::Environment | Self::Container(_) | Self::Instance(_) => self.name().to_owned(),
        }
    }

    /// Returns the files that are read for each proof.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Profile { file, .. } => vec![file.clone()],
            Self::WebIdentity(identity) => vec![identity.token_file.clone()],
            Self::Container(endpoint) => endpoint.token_file().map(ToOwned::to_owned).into_iter().collect(),
            Self::Environment | Self::Instance(_) => Vec::new(),
        }
    }
}

fn instance(
    variables: &ProviderVariables,
    metadata: &Url,
) -> Result<SelectedCredentials, (String, Option<&'static str>)> {
    if variables.get("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err((
            "AWS_EC2_METADATA_DISABLED is true, and the environment names no other credentials".to_owned(),
            Some("unset it, or set the variables of an access key, a web identity or a container"),
        ));
    }
    let Some(text) = variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") else {
        return Ok(SelectedCredentials::Instance(metadata.clone()));
    };
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or_else(|| ("AWS_EC2_METADATA_SERVICE_ENDPOINT is not an http URL".to_owned(), None))?;
    Ok(SelectedCredentials::Instance(url))
}

/// Reads the access key of the environment.
pub(super) fn from_environment(
    variables: &ProviderVariables,
) -> Result<AwsCredentials, (String, Option<&'static str>)> {
    match (variables.get("AWS_ACCESS_KEY_ID"), variables.get("AWS_SECRET_ACCESS_KEY")) {
        (Some(id), Some(secret)) => AwsCredentials::new(id, secret, variables.get("AWS_SESSION_TOKEN"))
            .map_err(|reason| (format!("the environment {reason}"), None)),
        (id, _) => {
            let missing = if id.is_some() { "AWS_SECRET_ACCESS_KEY" } else { "AWS_ACCESS_KEY_ID" };
            Err((format!("{missing} is not set"), Some("set both variables of an access key, or none")))
        }
    }
}

impl WebIdentity {
    fn from_variables(variables: &ProviderVariables) -> Result<Self, (String, Option<&'static str>)> {
        let get = |name| {
            variables.get(name).ok_or_else(|| {
                (
                    format!("{name} is not set"),
                    Some("EKS sets AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN for a service account with a role"),
                )
            })
        };
        let token_file = PathBuf::from(get("AWS_WEB_IDENTITY_TOKEN_FILE")?);
        let role_arn = get("AWS_ROLE_ARN")?.to_owned();
        let session_name = variables.get("AWS_ROLE_SESSION_NAME").unwrap_or("keyward").to_owned();
        Ok(Self { token_file, role_arn, session_name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(origin: &AwsCredentialOrigin, variables: &[(&str, &str)]) -> Result<&'static str, String> {
        let variables =
            ProviderVariables::of_aws(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let metadata = Url::parse("http://169.254.169.254/").unwrap();
        SelectedCredentials::select(origin, &variables, &metadata)
            .map(|selected| selected.name())
            .map_err(|(message, _)| message)
    }

    #[test]
    fn the_environment_selects_in_the_order_of_the_sdks_and_half_an_origin_is_an_error() {
        let check = |variables: &[(&str, &str)], expected: Result<&str, &str>| {
            let selected = select(&AwsCredentialOrigin::Automatic, variables);
            assert_eq!(selected, expected.map_err(str::to_owned), "{variables:?}");
        };
        let key = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "secret")];
        let web = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn:aws:iam::1:role/web")];
        let ecs = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/1")];
        check(&[], Ok("EC2 metadata service"));
        check(&key, Ok("AWS environment variables"));
        check(&[key.as_slice(), &web, &ecs].concat(), Ok("AWS environment variables"));
        check(&[web.as_slice(), &ecs].concat(), Ok("AWS web identity"));
        check(&ecs, Ok("AWS container endpoint"));
        check(&key[..1], Err("AWS_SECRET_ACCESS_KEY is not set"));
        check(&key[1..], Err("AWS_ACCESS_KEY_ID is not set"));
        check(&web[..1], Err("AWS_ROLE_ARN is not set"));
        check(
            &[("AWS_EC2_METADATA_DISABLED", "TRUE")],
            Err("AWS_EC2_METADATA_DISABLED is true, and the environment names no other credentials"),
        );
        check(
            &[("AWS_ACCESS_KEY_ID", "AK ID"), ("AWS_SECRET_ACCESS_KEY", "secret")],
            Err("the environment has an access key id with characters that none has"),
        );
    }

    #[test]
    fn a_named_origin_is_taken_whatever_else_is_set() {
        let key = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "secret")];
        assert_eq!(select(&AwsCredentialOrigin::Instance, &key), Ok("EC2 metadata service"));
        assert!(select(&AwsCredentialOrigin::WebIdentity, &key).is_err());
        assert!(select(&AwsCredentialOrigin::Container, &key).is_err());
    }
}
