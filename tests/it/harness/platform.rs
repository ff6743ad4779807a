//! The emulated Terraform Enterprise, and requests to it by plain HTTP.

use http::{HeaderMap, Method, StatusCode};
use keyward_emulators::platform::{MintedToken, Platform, PlatformOptions};
use keyward_machine::tasks::TaskGroup;
use serde_json::{Value, json};

/// An emulated platform with a first token.
pub(crate) struct Emulated {
    pub(crate) platform: Platform,
    pub(crate) first: MintedToken,
    client: reqwest::Client,
    _tasks: TaskGroup,
}

/// A response as it came.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answered {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The body, if the status is this one.
    #[track_caller]
    pub(crate) fn with(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self.body
    }

    /// Detail of the first error of a refusal.
    #[track_caller]
    pub(crate) fn refused(self, status: u16) -> String {
        let body = self.with(status);
        let error = &body["errors"][0];
        format!("{} {}", text(&error["title"]), text(&error["detail"]))
    }
}

/// A text in a document; empty where there is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Emulated {
    pub(crate) fn start() -> Self {
        Self::with(PlatformOptions::default())
    }

    pub(crate) fn with(options: PlatformOptions) -> Self {
        let mut tasks = TaskGroup::default();
        let platform = Platform::start(options, &mut tasks).unwrap();
        let first = platform.faults().mint("first");
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().build().unwrap();
        Self { platform, first, client, _tasks: tasks }
    }

    pub(crate) fn token(&self) -> &str {
        self.first.token.expose_secret()
    }

    /// Sends a request with a token, or without; `path` may be an absolute URL.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: Option<Vec<u8>>,
    ) -> Answered {
        let url = if path.starts_with('/') { format!("{}{path}", self.platform.url()) } else { path.to_owned() };
        let mut request = self.client.request(method, url).header("content-type", "application/vnd.api+json");
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.body(body.unwrap_or_default()).send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into());
        Answered { status, headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        self.send(Method::GET, path, Some(self.token()), None).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answered {
        self.send(Method::DELETE, path, Some(self.token()), None).await
    }

    /// A `POST` with these attributes.
    pub(crate) async fn post(&self, path: &str, attributes: Value) -> Answered {
        self.post_as(self.token(), path, attributes).await
    }

    pub(crate) async fn post_as(&self, token: &str, path: &str, attributes: Value) -> Answered {
        let body = json!({"data": {"attributes": attributes}}).to_string();
        self.send(Method::POST, path, Some(token), Some(body.into_bytes())).await
    }

    /// Makes something; gives its id.
    pub(crate) async fn make(&self, path: &str, attributes: Value) -> String {
        text(&self.post(path, attributes).await.with(201)["data"]["id"])
    }
}
