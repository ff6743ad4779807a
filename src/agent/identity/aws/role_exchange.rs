//! Credentials of a role for tools, by a signed token of the machine: `AssumeRoleWithWebIdentity` with any token whose issuer AWS trusts.

use std::sync::OnceLock;
use std::time::Duration;

use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use url::Url;

use super::credentials::AwsCredentials;
use super::endpoints::{AwsEndpoints, sts_url};
use super::web_identity::{self, RoleRequest};
use crate::identity::attempts::Persistence;
use crate::identity::error::{AttemptError, config_error};
use crate::identity::retry::IdentityEndpoint;
use crate::identity::transport::Transport;
use crate::identity::{IdentityError, ProviderVariables};

/// Options of a role whose credentials tools get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsRoleOptions {
    /// ARN of the role.
    pub role_arn: String,
    /// Audience of the token, as the identity provider in AWS has it.
    pub audience: String,
    /// Name of the role's session in AWS's audit.
    pub session_name: String,
    /// Lifetime of the credentials; `None` for AWS's default, an hour.
    pub duration: Option<Duration>,
    /// Region of STS; `None` for that of the environment, or the global endpoint.
    pub region: Option<String>,
    /// Variables of AWS, read once.
    pub variables: ProviderVariables,
    /// URLs of AWS's services.
    pub endpoints: AwsEndpoints,
}

impl AwsRoleOptions {
    /// Returns the URL of STS.
    ///
    /// # Errors
    /// A variable of the environment is invalid.
    pub fn url(&self) -> Result<Url, IdentityError> {
        sts_url(self.region.as_deref(), &self.variables).map_err(|message| config_error(message.to_owned(), None))
    }
}

/// Exchanges tokens for credentials of one role.
#[derive(Debug)]
pub(crate) struct AwsRoleExchange {
    options: AwsRoleOptions,
    persistence: Persistence,
    sts: OnceLock<Transport>,
}

impl AwsRoleExchange {
    pub(crate) const fn new(options: AwsRoleOptions, clock: Clock) -> Self {
        Self { options, persistence: Persistence::new(clock), sts: OnceLock::new() }
    }

    /// Exchanges a token, with retries of temporary failures.
    pub(crate) async fn exchange(&self, token: &SecretString) -> Result<AwsCredentials, IdentityError> {
        let url = self.options.url()?;
        let mut attempts = self.persistence.start(IdentityEndpoint::Authority, "AWS STS");
        loop {
            match self.send(&url, token).await {
                Ok(credentials) => return Ok(attempts.succeed(credentials)),
                Err(failure) => attempts.wait(&failure).await?,
            }
        }
    }

    async fn send(&self, url: &Url, token: &SecretString) -> Result<AwsCredentials, AttemptError> {
        let AwsRoleOptions { role_arn, session_name, duration, endpoints, .. } = &self.options;
        let build = || Transport::authority(endpoints.sts_ca.as_deref(), endpoints.sts_is_local);
        let transport = Transport::get_or_build(&self.sts, build)?;
        let request = RoleRequest { role_arn, session_name, duration: *duration };
        web_identity::exchange(transport, url, &request, token).await
    }
}
