//! Templates rendered once, without their tasks: for a trial, and for a program that is started by hand.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use keyward_agent::secrets::{SecretRequest, SecretResponse};
use keyward_agent::server_client::{self, CallError, ServerClient, TokenVerdict};
use keyward_agent::templates::{Dependency, Rendered, Resolved, Template, TemplateError, TemplateSource, WrittenFile};
use keyward_agent::token::ClientToken;
use keyward_config::Session;
use keyward_http::client::{self, ProxyMode, ServerAddress, TlsOptions};
use keyward_machine::clock::Clock;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;

use super::one_shot_login::LoggedIn;

/// Result of one rendering.
#[derive(Debug)]
pub struct OneShotText {
    /// The rendered text.
    pub text: String,
    /// Further files that the template would write, by path.
    pub files: BTreeMap<PathBuf, WrittenFile>,
}

/// Client that reads the secrets of one rendering.
#[derive(Debug)]
pub struct OneShotReader {
    upstream: ServerClient,
    token: Option<ClientToken>,
    namespace: Option<String>,
    /// Peer of the requests, in words.
    peer: &'static str,
}

impl OneShotReader {
    /// Creates a reader through the running agent's API proxy, which adds the session's token and namespace; `key` is the
    /// listener's key.
    pub fn via_api_proxy(session: &Session, proxy: ServerAddress, key: Option<SecretString>) -> anyhow::Result<Self> {
        let client = client::ClientOptions {
            address: proxy,
            tls: TlsOptions::default(),
            proxy: ProxyMode::Direct,
            connect_timeout: Duration::from_secs(5),
            // The agent's own time for it comes first.
            response_timeout: session.upstream.client.response_timeout + Duration::from_secs(30),
        };
        let options = server_client::ServerClientOptions { client, ..session.upstream.clone() };
        let token = key.map(|key| ClientToken::parse(key).context("the listener's key is not valid in a header"));
        Ok(Self {
            upstream: ServerClient::build(&options)?,
            token: token.transpose()?,
            namespace: None,
            peer: "the agent's API proxy",
        })
    }

    /// Creates a reader with the token of a separate login.
    pub fn with_login(session: &Session, logged_in: &LoggedIn) -> Self {
        let token = Some(logged_in.token.secret.clone());
        Self {
            upstream: logged_in.upstream().clone(),
            token,
            namespace: session.login.namespace.clone(),
            peer: "the server",
        }
    }

    /// Reads one secret.
    pub async fn read(&self, path: &str) -> Result<SecretResponse, CallError> {
        self.upstream.request_secret(self.token.as_ref(), &SecretRequest::read(path), self.namespace.as_deref()).await
    }

    /// Renders a template; reads its secrets until none is missing.
    pub async fn render(&self, text: TemplateSource) -> Result<OneShotText, RenderError> {
        let folders = text.folders.clone();
        let template = Template::compile(text).map_err(RenderError::Template)?;
        let mut resolved = BTreeMap::new();
        loop {
            match template.render(Arc::new(resolved.clone()), Clock::System.now().wall) {
                Rendered::Complete { text, files } => return Ok(OneShotText { text, files }),
                Rendered::Failed(wrong) => return Err(RenderError::Template(vec![wrong])),
                Rendered::Unresolved(needs) => {
                    for need in needs {
                        let result = match &need {
                            Dependency::Secret(request) => self.request(request).await?,
                            Dependency::File(path) => match secret::read_text_beneath(&folders, path) {
                                Ok(text) => Resolved::Text(Arc::new(text)),
                                Err(error) => Resolved::Absent(format_chain(&error).into()),
                            },
                        };
                        resolved.insert(need, result);
                    }
                }
            }
        }
    }

    async fn request(&self, request: &SecretRequest) -> Result<Resolved, RenderError> {
        match self.upstream.request_secret(self.token.as_ref(), request, self.namespace.as_deref()).await {
            Ok(response) => Ok(Resolved::Secret(Arc::new(response))),
            Err(error @ CallError::Unreachable { .. }) => Err(RenderError::Unreachable(error)),
            Err(error) if error.verdict() == TokenVerdict::Unavailable => {
                Err(RenderError::Unavailable { peer: self.peer, source: error })
            }
            Err(error) => {
                let is_missing = matches!(error, CallError::Status { status: 404, .. });
                let problem = if is_missing { "does not exist" } else { "is not available" };
                Ok(Resolved::Absent(format!("the secret {} {problem}: {error}", request.path).into()))
            }
        }
    }
}

/// Reason why a template was not rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The template is invalid, or a secret that it reads does not exist.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Template(Vec<TemplateError>),
    /// No agent or server answers.
    #[error(transparent)]
    Unreachable(CallError),
    /// The server or the way to it is in trouble, or the session of the API proxy has no token.
    #[error("{peer} does not respond as expected")]
    Unavailable {
        /// Peer of the request, in words.
        peer: &'static str,
        /// Its response, or that there was none.
        source: CallError,
    },
}
