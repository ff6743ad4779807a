//! The signed token of a CI job: from a variable, or from the service of the CI system.

use std::path::PathBuf;
use std::sync::OnceLock;

use async_trait::async_trait;
use keyward_credentials::jwt::UnverifiedClaims;
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use reqwest::RequestBuilder;
use serde_json::{Map, Value};
use url::Url;

use super::attempts::Persistence;
use super::error::{AttemptError, config_error};
use super::retry::IdentityEndpoint;
use super::token_response;
use super::transport::Transport;
use super::{IdentityError, IdentityProof, IdentitySource, LoginFields, ProviderVariables, SignedToken};

/// Options of a CI job's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiTokenOptions {
    /// Origin of the token.
    pub origin: CiTokenOrigin,
    /// Variables of the job, read once.
    pub variables: ProviderVariables,
    /// PEM file to trust for the CI system instead of the system's certificates; set by tests only.
    pub ca: Option<PathBuf>,
    /// True if the CI system's service runs on this machine, so that no proxy is used.
    pub is_local: bool,
}

/// Origin of a CI job's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CiTokenOrigin {
    /// The variable of this name, as GitLab (`id_tokens`) and HCP Terraform (`TFC_WORKLOAD_IDENTITY_TOKEN`) set it.
    Variable(String),
    /// GitHub Actions, for this audience (docs.github.com, "`OpenID` Connect reference").
    GitHubActions {
        /// Audience of the token; `None` for GitHub's default, the URL of the repository's owner.
        audience: Option<String>,
    },
    /// Azure DevOps, for a service connection (learn.microsoft.com, "Oidctoken - Create").
    AzureDevOps {
        /// Id of the service connection.
        service_connection: String,
    },
}

/// Request of a token: where, and with which bearer token.
struct TokenRequest {
    url: Url,
    bearer: SecretString,
    /// Field of the response that holds the token.
    field: &'static str,
    is_post: bool,
}

impl CiTokenOptions {
    /// Creates the source and checks the variables, without any request.
    ///
    /// # Errors
    /// A variable is missing or invalid.
    pub fn build(&self, clock: Clock) -> Result<Box<dyn IdentitySource>, IdentityError> {
        self.build_with(Persistence::new(clock))
    }

    pub(super) fn build_with(&self, persistence: Persistence) -> Result<Box<dyn IdentitySource>, IdentityError> {
        match &self.origin {
            CiTokenOrigin::Variable(name) => self.variable(name).map(drop)?,
            CiTokenOrigin::GitHubActions { .. } | CiTokenOrigin::AzureDevOps { .. } => self.request().map(drop)?,
        }
        Ok(Box::new(CiTokenSource { options: self.clone(), persistence, transport: OnceLock::new() }))
    }

    /// Returns the URLs that the source connects to.
    pub fn urls(&self) -> Vec<Url> {
        self.request().map(|request| request.url).into_iter().collect()
    }

    fn variable(&self, name: &str) -> Result<&str, IdentityError> {
        self.variables.get(name).ok_or_else(|| {
            let hint = "the job has to request the token: id_tokens of GitLab, workload identity of HCP Terraform";
            config_error(format!("the variable {name} is not set"), Some(hint))
        })
    }

    fn request(&self) -> Result<TokenRequest, IdentityError> {
        let get = |name: &str, hint| {
            self.variables.get(name).ok_or_else(|| config_error(format!("the variable {name} is not set"), Some(hint)))
        };
        let url = |name: &str, text: &str| {
            let url = Url::parse(text).ok().filter(|url| url.scheme() == "https" && url.has_host());
            url.ok_or_else(|| config_error(format!("{name} is not an https URL"), None))
        };
        match &self.origin {
            CiTokenOrigin::GitHubActions { audience } => {
                const URL: &str = "ACTIONS_ID_TOKEN_REQUEST_URL";
                let hint = "the job needs the permission id-token: write";
                let mut url = url(URL, get(URL, hint)?)?;
                url.query_pairs_mut().extend_pairs(audience.as_ref().map(|audience| ("audience", audience)));
                let bearer = get("ACTIONS_ID_TOKEN_REQUEST_TOKEN", hint)?.into();
                Ok(TokenRequest { url, bearer, field: "value", is_post: false })
            }
            CiTokenOrigin::AzureDevOps { service_connection } => {
                const URL: &str = "SYSTEM_OIDCREQUESTURI";
                let mut url = url(URL, get(URL, "keyward has to run in a job of Azure DevOps")?)?;
                url.query_pairs_mut()
                    .append_pair("api-version", "7.1")
                    .append_pair("serviceConnectionId", service_connection);
                let hint = "pass it to the step: env: SYSTEM_ACCESSTOKEN: $(System.AccessToken)";
                let bearer = get("SYSTEM_ACCESSTOKEN", hint)?.into();
                Ok(TokenRequest { url, bearer, field: "oidcToken", is_post: true })
            }
            CiTokenOrigin::Variable(_) => Err(config_error("a variable needs no request".to_owned(), None)),
        }
    }

    const fn name(&self) -> &'static str {
        match self.origin {
            CiTokenOrigin::Variable(_) => "CI job's variable",
            CiTokenOrigin::GitHubActions { .. } => "GitHub Actions",
            CiTokenOrigin::AzureDevOps { .. } => "Azure DevOps",
        }
    }
}

/// Identity source of a CI job.
#[derive(Debug)]
struct CiTokenSource {
    options: CiTokenOptions,
    persistence: Persistence,
    transport: OnceLock<Transport>,
}

#[async_trait]
impl IdentitySource for CiTokenSource {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let jwt = match &self.options.origin {
            CiTokenOrigin::Variable(name) => SecretString::from(self.options.variable(name)?.trim()),
            CiTokenOrigin::GitHubActions { .. } | CiTokenOrigin::AzureDevOps { .. } => {
                self.request_with_retries().await?
            }
        };
        let claims = UnverifiedClaims::decode(jwt.expose_secret()).ok();
        let signed = SignedToken { jwt, fields: LoginFields::default(), claims, audience: None };
        Ok(IdentityProof::Signed(Box::new(signed)))
    }

    fn describe(&self) -> String {
        match &self.options.origin {
            CiTokenOrigin::Variable(name) => format!("the signed token in the variable {name}"),
            CiTokenOrigin::GitHubActions { .. } => "the job's token of GitHub Actions".to_owned(),
            CiTokenOrigin::AzureDevOps { .. } => "the job's token of Azure DevOps".to_owned(),
        }
    }
}

impl CiTokenSource {
    async fn request_with_retries(&self) -> Result<SecretString, IdentityError> {
        let request = self.options.request()?;
        let mut attempts = self.persistence.start(IdentityEndpoint::Authority, self.options.name());
        loop {
            match self.send(&request).await {
                Ok(token) => return Ok(attempts.succeed(token)),
                Err(failure) => attempts.wait(&failure).await?,
            }
        }
    }

    async fn send(&self, request: &TokenRequest) -> Result<SecretString, AttemptError> {
        let build = || Transport::authority(self.options.ca.as_deref(), self.options.is_local);
        let transport = Transport::get_or_build(&self.transport, build)?.with_redacted_secret(request.bearer.clone());
        let url = request.url.clone();
        let http: RequestBuilder =
            if request.is_post { transport.http.post(url).json(&Map::new()) } else { transport.http.get(url) };
        let body = transport.send(http.bearer_auth(request.bearer.expose_secret())).await?;
        let mut document: Map<String, Value> = serde_json::from_slice(&body)
            .map_err(|_| AttemptError::Unreadable(format!("{} bytes that are not a JSON object", body.len())))?;
        match document.remove(request.field) {
            Some(Value::String(token)) if token_response::is_signed_token(&token) => Ok(token.into()),
            Some(_) => Err(AttemptError::Unreadable(format!("{} is not a signed token", request.field))),
            None => Err(AttemptError::Unreadable(format!("{} is missing", request.field))),
        }
    }
}
