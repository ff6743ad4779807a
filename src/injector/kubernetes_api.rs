//! Calls of the Kubernetes API: one Secret, and one `MutatingWebhookConfiguration`.

use std::path::PathBuf;
use std::time::Duration;

use http::{Method, StatusCode};
use keyward_http::client::{
    BuildError, Client, ClientOptions, ProxyMode, RequestBuilder, ServerAddress, TlsOptions, TransportError,
};
use keyward_telemetry::metrics::Metrics;
use serde_json::{Value, json};
use url::Url;

use super::metrics::{ApiCallLabels, InjectorMetrics};

/// The API server, and the pod's rights at it.
#[derive(Debug, Clone)]
pub struct KubernetesApiOptions {
    /// Address of the API server.
    pub address: Url,
    /// CA bundle of the API server.
    pub ca_file: PathBuf,
    /// Token of the service account, read for each call: the kubelet replaces it.
    pub token_file: PathBuf,
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Name of the `MutatingWebhookConfiguration`.
    pub webhook_configuration: String,
}

/// Client of the Kubernetes API.
#[derive(Debug)]
pub struct KubernetesApi {
    client: Client,
    options: KubernetesApiOptions,
    metrics: InjectorMetrics,
}

/// Time limit of a call.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which the API server ends a watch. What has changed unseen is found then.
const WATCH_TIME: Duration = Duration::from_mins(5);

impl KubernetesApi {
    /// Builds the client. Sends nothing yet.
    pub fn new(options: KubernetesApiOptions, metrics: &Metrics) -> Result<Self, BuildError> {
        let client = ClientOptions {
            address: ServerAddress::Url(options.address.clone()),
            tls: TlsOptions { ca_file: Some(options.ca_file.clone()), ..TlsOptions::default() },
            // The API server is within the cluster.
            proxy: ProxyMode::Direct,
            connect_timeout: Duration::from_secs(5),
            response_timeout: TIMEOUT,
        };
        Ok(Self { client: client.build()?, options, metrics: metrics.get() })
    }

    /// Reads the Secret.
    pub(crate) async fn read_secret(&self) -> Result<Value, ApiError> {
        self.call(Method::GET, &self.secret_path(), None).await
    }

    /// Replaces the Secret by one that was read and changed.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] if somebody else has changed it since.
    pub(crate) async fn replace_secret(&self, secret: &Value) -> Result<(), ApiError> {
        let body = (JSON, secret.to_string());
        self.call(Method::PUT, &self.secret_path(), Some(body)).await.map(drop)
    }

    /// Reads the `MutatingWebhookConfiguration`.
    pub(crate) async fn read_webhooks(&self) -> Result<Value, ApiError> {
        self.call(Method::GET, &self.webhooks_path(), None).await
    }

    /// Changes the `MutatingWebhookConfiguration` by a JSON patch.
    pub(crate) async fn patch_webhooks(&self, operations: &[Value]) -> Result<(), ApiError> {
        let body = (JSON_PATCH, json!(operations).to_string());
        self.call(Method::PATCH, &self.webhooks_path(), Some(body)).await.map(drop)
    }

    /// Returns once the `MutatingWebhookConfiguration` may have changed since `version`, at the latest after some minutes.
    pub(crate) async fn wait_for_change(&self, version: &str) -> Result<(), ApiError> {
        let selector = format!("metadata.name={}", self.options.webhook_configuration);
        let seconds = WATCH_TIME.as_secs().to_string();
        let query = [
            ("watch", "true"),
            ("fieldSelector", selector.as_str()),
            ("resourceVersion", version),
            ("timeoutSeconds", seconds.as_str()),
        ];
        let request = self.request(Method::GET, WEBHOOKS, None).await?.query(&query);
        let mut response = self.client.open(request, TIMEOUT).await?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            let body = response.read_all(TIMEOUT, MAX_BODY).await?.body;
            return Err(refused(status, WEBHOOKS, &body));
        }
        // An event, or the end of the watch.
        response.chunk(WATCH_TIME + TIMEOUT).await?;
        Ok(())
    }

    fn secret_path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets/{}", self.options.namespace, self.options.secret)
    }

    fn webhooks_path(&self) -> String {
        format!("{WEBHOOKS}/{}", self.options.webhook_configuration)
    }

    async fn call(&self, method: Method, path: &str, body: Option<(&'static str, String)>) -> Result<Value, ApiError> {
        let result = self.send(method, path, body).await;
        let outcome = match &result {
            Ok(_) => "ok",
            Err(ApiError::Conflict) => "conflict",
            Err(_) => "failed",
        };
        self.metrics.api_calls.get_or_create(&ApiCallLabels { outcome }).inc();
        result
    }

    async fn send(&self, method: Method, path: &str, body: Option<(&'static str, String)>) -> Result<Value, ApiError> {
        let request = self.request(method, path, body).await?;
        let response = self.client.send(request).await?;
        match response.status {
            StatusCode::OK | StatusCode::CREATED => {
                serde_json::from_slice(&response.body).map_err(|_| ApiError::Malformed { path: path.to_owned() })
            }
            StatusCode::CONFLICT => Err(ApiError::Conflict),
            status => Err(refused(status, path, &response.body)),
        }
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, String)>,
    ) -> Result<RequestBuilder, ApiError> {
        let file = &self.options.token_file;
        let token = tokio::fs::read_to_string(file).await;
        let token = token.map_err(|source| ApiError::Token { path: file.clone(), source })?;
        let mut request = self.client.request(method, path).bearer_auth(token.trim());
        if let Some((kind, text)) = body {
            request = request.header("content-type", kind).body(text);
        }
        Ok(request)
    }
}

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";

/// Largest body of an error.
const MAX_BODY: usize = 64 * 1024;

/// Makes an error of a response. Its message is a `Status` of Kubernetes, which names what was refused and to whom.
fn refused(status: StatusCode, path: &str, body: &[u8]) -> ApiError {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = body["message"].as_str().unwrap_or("without a message");
    let message = message.chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect();
    ApiError::Refused { status: status.as_u16(), path: path.to_owned(), message }
}

/// Reason why a call of the Kubernetes API failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Somebody else has changed the object.
    #[error("another replica has changed the object")]
    Conflict,
    /// The API server refused the call.
    #[error("the Kubernetes API answers {path} with {status}: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Path of the call.
        path: String,
        /// Message of the API server.
        message: String,
    },
    /// The answer is no object.
    #[error("the Kubernetes API answers {path} with something else than an object")]
    Malformed {
        /// Path of the call.
        path: String,
    },
    /// The service account's token cannot be read.
    #[error("cannot read the service account's token {}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// There was no complete answer.
    #[error(transparent)]
    Transport(#[from] TransportError),
}
