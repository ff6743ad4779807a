//! Terraform's remote service discovery: the services of the gateway, and those of the platform that it does not serve.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use super::body::GatewayBody;
use super::local_response::{local_response, method_not_allowed};
use super::upstream::Upstream;

/// Path of the document, on the gateway and on the platform.
pub(super) const PATH: &str = "/.well-known/terraform.json";

/// Services by their names. Paths instead of URLs: clients resolve them against the address they use.
const OWN_SERVICES: [(&str, &str); 6] = [
    ("modules.v1", "/api/registry/v1/modules/"),
    ("providers.v1", "/api/registry/v1/providers/"),
    ("state.v2", "/api/v2/"),
    ("tfe.v2", "/api/v2/"),
    ("tfe.v2.1", "/api/v2/"),
    ("tfe.v2.2", "/api/v2/"),
];

/// Largest document of the platform, in bytes.
const MAX_DOCUMENT: usize = 64 * 1024;

/// Longest wait for the platform's document: the gateway's own services do not depend on it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Time until the platform's document is read again.
const MAX_AGE: Duration = Duration::from_mins(10);

/// The same after a failure: callers need no token, and must not make one call of the platform each.
const RETRY_AFTER: Duration = Duration::from_mins(1);

/// Serves the document.
#[derive(Debug)]
pub(super) struct Discovery {
    upstream: Arc<Upstream>,
    /// The platform's address, which its relative services are resolved against.
    address: Url,
    /// Services of the platform that the gateway does not serve, and until when they are believed.
    others: Mutex<Option<(Map<String, Value>, Instant)>>,
}

impl Discovery {
    pub(super) fn new(upstream: Arc<Upstream>, address: Url) -> Self {
        Self { upstream, address, others: Mutex::default() }
    }

    /// Answers a request for the document.
    pub(super) async fn respond(&self, method: &Method) -> Response<GatewayBody> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return method_not_allowed("service discovery takes GET", "GET, HEAD");
        }
        let mut services = self.others().await;
        services.extend(OWN_SERVICES.map(|(name, path)| (name.to_owned(), Value::from(path))));
        local_response(StatusCode::OK, "application/json", Value::Object(services).to_string().into())
    }

    /// Returns the other services; those of the last document while the platform does not respond.
    async fn others(&self) -> Map<String, Value> {
        let mut others = self.others.lock().await;
        if let Some((services, until)) = &*others
            && Instant::now() < *until
        {
            return services.clone();
        }
        let headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json")),
            (USER_AGENT, HeaderValue::from_static(concat!("keyward/", env!("CARGO_PKG_VERSION")))),
        ]);
        let fetched = tokio::time::timeout(TIMEOUT, self.upstream.fetch_document(PATH, &headers, MAX_DOCUMENT)).await;
        let fetched = fetched.ok().flatten().and_then(|document| other_services(&document, &self.address));
        let max_age = if fetched.is_some() { MAX_AGE } else { RETRY_AFTER };
        let services = fetched.or_else(|| others.take().map(|(services, _)| services)).unwrap_or_default();
        *others = Some((services.clone(), Instant::now() + max_age));
        services
    }
}

/// Returns the services that the gateway does not serve, with absolute addresses. Logins are left out: the gateway's token
/// replaces them, and they are no address.
fn other_services(document: &[u8], platform: &Url) -> Option<Map<String, Value>> {
    let services: Map<String, Value> = serde_json::from_slice(document).ok()?;
    let base = platform.join(PATH).ok()?;
    let is_other = |name: &str| OWN_SERVICES.iter().all(|(own, _)| *own != name) && !name.starts_with("login.");
    let absolute = |(name, address): (String, Value)| {
        let address = base.join(address.as_str()?).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        is_other(&name).then(|| (name, Value::from(String::from(address))))
    };
    Some(services.into_iter().filter_map(absolute).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn services_that_the_gateway_does_not_serve_are_those_of_the_platform() {
        let platform = Url::parse("https://tfe.example.com").unwrap();
        let document = json!({
            "tfe.v2": "https://tfe.example.com/api/v2/", "modules.v1": "/elsewhere/", "login.v1": {"client": "x"},
            "motd.v1": "/api/motd/", "versions.v1": "https://versions.example.com/v1/", "components.v3": "c/",
            "odd.v1": 7, "script.v1": "javascript:x",
        });
        let expected = json!({
            "motd.v1": "https://tfe.example.com/api/motd/", "versions.v1": "https://versions.example.com/v1/",
            "components.v3": "https://tfe.example.com/.well-known/c/",
        });
        let found = other_services(document.to_string().as_bytes(), &platform).unwrap();
        assert_eq!(Value::Object(found), expected);
        assert_eq!(other_services(b"<html>", &platform), None);
    }
}
