//! The AWS identity source: gets credentials, and signs a request for the caller's identity by them.

use std::path::PathBuf;
use std::sync::OnceLock;

use async_trait::async_trait;
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use serde_json::{Map, Value};

use super::AwsIdentityOptions;
use super::credentials::AwsCredentials;
use super::endpoints::{GLOBAL_REGION, sts_host, sts_url};
use super::selection::{self, SelectedCredentials};
use super::signature::UnsignedRequest;
use super::{instance, profile, web_identity};
use crate::identity::attempts::{MIN_VALIDITY, Persistence};
use crate::identity::error::{AttemptError, config_error};
use crate::identity::retry::IdentityEndpoint;
use crate::identity::transport::Transport;
use crate::identity::{IdentityError, IdentityProof, IdentitySource};
use crate::server_client::SignedCallerIdentity;

impl AwsIdentityOptions {
    /// Creates the source and checks the variables, without any request.
    ///
    /// # Errors
    /// The variables are incomplete or invalid.
    pub fn build(&self, clock: Clock) -> Result<Box<dyn IdentitySource>, IdentityError> {
        self.build_with(Persistence::new(clock))
    }

    pub(in crate::identity) fn build_with(
        &self,
        persistence: Persistence,
    ) -> Result<Box<dyn IdentitySource>, IdentityError> {
        let selected = self.select()?;
        if matches!(selected, SelectedCredentials::WebIdentity(_)) {
            sts_url(self.region.as_deref(), &self.variables)
                .map_err(|message| config_error(message.to_owned(), None))?;
        }
        Ok(Box::new(AwsSource { options: self.clone(), persistence, sts: OnceLock::new() }))
    }

    fn select(&self) -> Result<SelectedCredentials, IdentityError> {
        SelectedCredentials::select(&self.origin, &self.variables, &self.endpoints.metadata)
            .map_err(|(message, hint)| config_error(message, hint))
    }

    /// Returns the URLs that the source connects to for its credentials.
    pub fn urls(&self) -> Vec<url::Url> {
        match self.select() {
            Ok(SelectedCredentials::Instance(url)) => vec![url],
            Ok(SelectedCredentials::Container(endpoint)) => vec![endpoint.url().clone()],
            Ok(SelectedCredentials::WebIdentity(_)) => {
                sts_url(self.region.as_deref(), &self.variables).into_iter().collect()
            }
            Ok(SelectedCredentials::Environment | SelectedCredentials::Profile { .. }) | Err(_) => Vec::new(),
        }
    }

    /// Returns the files that the source reads for each proof.
    pub fn files(&self) -> Vec<PathBuf> {
        self.select().map(|selected| selected.files()).unwrap_or_default()
    }
}

/// The AWS identity of this machine, pod or process.
#[derive(Debug)]
struct AwsSource {
    options: AwsIdentityOptions,
    persistence: Persistence,
    sts: OnceLock<Transport>,
}

#[async_trait]
impl IdentitySource for AwsSource {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let credentials = self.get_credentials().await?;
        Ok(IdentityProof::CallerIdentity(Box::new(self.sign(&credentials))))
    }

    fn describe(&self) -> String {
        self.options.select().map_or_else(|error| error.source_name.to_owned(), |selected| selected.describe())
    }

    fn files(&self) -> Vec<PathBuf> {
        self.options.files()
    }
}

impl AwsSource {
    /// Gets credentials that are valid for another minute, with retries.
    async fn get_credentials(&self) -> Result<AwsCredentials, IdentityError> {
        let selected = self.options.select()?;
        let endpoint = match selected {
            SelectedCredentials::WebIdentity(_) => IdentityEndpoint::Authority,
            _ => IdentityEndpoint::LocalService,
        };
        let mut attempts = self.persistence.start(endpoint, selected.name());
        loop {
            let failure = match self.request(&selected).await {
                Ok(credentials) if self.expires_soon(&credentials) => AttemptError::Expiring,
                Ok(credentials) => return Ok(attempts.succeed(credentials)),
                Err(failure) => failure,
            };
            attempts.wait(&failure).await?;
        }
    }

    fn expires_soon(&self, credentials: &AwsCredentials) -> bool {
        let now = self.persistence.clock().now().wall;
        credentials
            .expires
            .is_some_and(|end| end.duration_since(now).is_ok_and(|rest| rest <= MIN_VALIDITY) || end <= now)
    }

    async fn request(&self, selected: &SelectedCredentials) -> Result<AwsCredentials, AttemptError> {
        let AwsIdentityOptions { variables, region, .. } = &self.options;
        match selected {
            SelectedCredentials::Environment => selection::from_environment(variables)
                .map_err(|(message, hint)| AttemptError::Setting { message, hint }),
            SelectedCredentials::Profile { file, name } => profile::read(file, name),
            SelectedCredentials::WebIdentity(identity) => {
                let sts = sts_url(region.as_deref(), variables).map_err(AttemptError::setting)?;
                web_identity::request(self.sts()?, &sts, identity).await
            }
            SelectedCredentials::Container(endpoint) if endpoint.is_https() => endpoint.request(self.sts()?).await,
            SelectedCredentials::Container(endpoint) => endpoint.request(Transport::machine()?).await,
            SelectedCredentials::Instance(url) => instance::request(Transport::machine()?, url).await,
        }
    }

    /// Signs a request for the caller's identity at STS, which only the server sends.
    fn sign(&self, credentials: &AwsCredentials) -> SignedCallerIdentity {
        let AwsIdentityOptions { server_id, region, .. } = &self.options;
        let host = sts_host(region.as_deref());
        // Those that AWS's SDKs sign.
        let length = CALLER_IDENTITY.len().to_string();
        let mut headers = vec![
            ("Content-Length", length.as_str()),
            ("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"),
        ];
        headers.extend(server_id.as_deref().map(|value| (SERVER_ID, value)));
        let request = UnsignedRequest {
            host: &host,
            region: region.as_deref().unwrap_or(GLOBAL_REGION),
            service: "sts",
            headers: &headers,
            body: CALLER_IDENTITY,
        };
        let signed = request.sign(credentials, self.persistence.clock().now().wall);
        let headers: Map<String, Value> = signed
            .iter()
            // The server takes it from the URL.
            .filter(|(name, _)| name != "Host")
            .map(|(name, value)| (name.clone(), Value::from(vec![value.expose_secret()])))
            .collect();
        let headers = SecretString::from(Value::Object(headers).to_string());
        SignedCallerIdentity { url: format!("https://{host}/"), body: CALLER_IDENTITY, headers }
    }

    fn sts(&self) -> Result<&Transport, AttemptError> {
        let endpoints = &self.options.endpoints;
        let build = || Transport::authority(endpoints.sts_ca.as_deref(), endpoints.sts_is_local);
        Transport::get_or_build(&self.sts, build)
    }
}

/// Header that binds a signed request to one server (developer.hashicorp.com, "AWS auth method").
const SERVER_ID: &str = "X-Vault-AWS-IAM-Server-ID";
const CALLER_IDENTITY: &str = "Action=GetCallerIdentity&Version=2011-06-15";
