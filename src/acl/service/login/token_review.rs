//! Asks the API server of a Kubernetes cluster whose a service account's token is.

use std::path::PathBuf;

use http::{Method, StatusCode, header};
use keyward_http::client::Client;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use parking_lot::Mutex;
use serde_json::json;
use url::Url;

use super::call_slots::CallSlots;
use crate::model::kubernetes_identity::{KubernetesError, TokenReview};
use crate::service::issuer_keys::CaSource;

/// Connection to the API server of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesApiOptions {
    /// URL of the API server.
    pub url: Url,
    /// CA certificates to trust.
    pub ca_certificates: CaSource,
    /// File with the token that may create `TokenReview`s; read at each login, as it is replaced.
    pub token_file: PathBuf,
    /// Audience that tokens of logins must be for.
    pub audience: String,
}

/// Client of the API server.
#[derive(Debug)]
pub(super) struct TokenReviewer {
    pub(super) options: KubernetesApiOptions,
    /// Built at the first login.
    client: Mutex<Option<Client>>,
    slots: CallSlots,
}

const PATH: &str = "apis/authentication.k8s.io/v1/tokenreviews";

impl TokenReviewer {
    pub(super) fn new(options: KubernetesApiOptions) -> Self {
        Self { options, client: Mutex::default(), slots: CallSlots::new() }
    }

    /// Asks for the owner of a token.
    pub(super) async fn review(&self, unverified: &SecretString) -> Result<TokenReview, KubernetesError> {
        let unavailable = KubernetesError::Unavailable;
        let _slot = self.slots.take().await.map_err(|error| unavailable(error.to_string()))?;
        let file = self.options.token_file.display();
        let own = secret::read_file(&self.options.token_file).map_err(|error| {
            unavailable(format!("this server's token in {file} cannot be used: {}", format_chain(&error)))
        })?;
        let authorization = secret::header_value("Bearer ", &own)
            .ok_or_else(|| unavailable(format!("this server's token in {file} has characters that no token has")))?;
        let client = self.client().map_err(unavailable)?;
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": unverified.expose_secret(), "audiences": [self.options.audience] },
        });
        let call = client
            .request(Method::POST, PATH)
            .header(header::AUTHORIZATION, authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.to_string());
        let response = client.send(call).await.map_err(|error| unavailable(error.to_string()))?;
        match response.status {
            StatusCode::CREATED | StatusCode::OK => TokenReview::parse(&response.body)
                .ok_or_else(|| unavailable(format!("{} did not return a TokenReview", client.server()))),
            StatusCode::UNAUTHORIZED => {
                Err(unavailable(format!("{} does not accept this server's own token in {file}", client.server())))
            }
            StatusCode::FORBIDDEN => Err(unavailable(format!(
                "{} does not let this server's own token in {file} create TokenReviews: bind it to the ClusterRole \
                 system:auth-delegator",
                client.server()
            ))),
            status => Err(unavailable(format!("{} returned HTTP {}", client.server(), status.as_u16()))),
        }
    }

    fn client(&self) -> Result<Client, String> {
        let mut client = self.client.lock();
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let options = self.options.ca_certificates.client_options(self.options.url.clone());
        let built = options.build().map_err(|error| format_chain(&error))?;
        Ok(client.insert(built).clone())
    }
}
