//! Calls of AWS's Security Token Service, which alone knows whose a signature is.

use std::collections::BTreeMap;

use http::{Method, StatusCode, header};
use keyward_http::client::Client;
use parking_lot::Mutex;
use serde_json::Value;
use url::Url;

use super::call_slots::CallSlots;
use crate::model::aws_identity::{AwsError, BODY, CallerRequest, StsEndpoint};
use crate::service::issuer_keys::CaSource;

/// Connection to STS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StsOptions {
    /// URL that requests are sent to instead of AWS's own, such as a private endpoint. The signed host stays.
    pub url: Option<Url>,
    /// CA certificates to trust.
    pub ca_certificates: CaSource,
}

/// Client of the endpoints of STS.
#[derive(Debug)]
pub(super) struct StsClient {
    options: StsOptions,
    /// By endpoint, built at the first login.
    clients: Mutex<BTreeMap<StsEndpoint, Client>>,
    slots: CallSlots,
}

impl StsClient {
    pub(super) fn new(options: StsOptions) -> Self {
        Self { options, clients: Mutex::default(), slots: CallSlots::new() }
    }

    /// Sends a request; returns the answer, which names the caller.
    pub(super) async fn call(&self, request: &CallerRequest) -> Result<Vec<u8>, AwsError> {
        let unavailable =
            |error: &dyn std::fmt::Display| AwsError::Unavailable(format!("error making request: {error}"));
        let _slot = self.slots.take().await.map_err(|error| unavailable(&error))?;
        let client = self.client(&request.endpoint).map_err(|error| unavailable(&error))?;
        let mut call = client.request(Method::POST, "/").header(header::HOST, &request.endpoint.host).body(BODY);
        for (name, value) in request.headers.iter().filter(|(name, _)| *name != "content-length") {
            call = call.header(*name, value.expose_secret());
        }
        // JSON has one reading; it is not part of the signature.
        let response = client.send(call.header(header::ACCEPT, "application/json")).await;
        let response = response.map_err(|error| unavailable(&format!("giving up after one attempt: {error}")))?;
        if response.status == StatusCode::OK {
            return Ok(response.body);
        }
        let status = response.status.as_u16();
        if response.status.is_server_error() || response.status == StatusCode::TOO_MANY_REQUESTS {
            return Err(AwsError::Unavailable(format!(
                "received error code {status} from STS; giving up after one attempt"
            )));
        }
        Err(AwsError::Refused { status, code: error_code(&response.body) })
    }

    fn client(&self, endpoint: &StsEndpoint) -> Result<Client, String> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(endpoint) {
            return Ok(client.clone());
        }
        let url = match &self.options.url {
            Some(url) => url.clone(),
            None => Url::parse(&format!("https://{}/", endpoint.host)).map_err(|error| error.to_string())?,
        };
        let options = self.options.ca_certificates.client_options(url);
        let client = options.build().map_err(|error| keyward_telemetry::error_chain::format_chain(&error))?;
        clients.insert(endpoint.clone(), client.clone());
        Ok(client)
    }
}

/// Returns the code of an error, such as `SignatureDoesNotMatch`. The message may repeat parts of the request.
fn error_code(body: &[u8]) -> String {
    let document: Option<Value> = serde_json::from_slice(body).ok();
    let code = document.as_ref().and_then(|document| document.pointer("/Error/Code")?.as_str());
    let code = code.map(str::to_owned).or_else(|| {
        let text = String::from_utf8_lossy(body);
        let (code, _) = text.split_once("<Code>")?.1.split_once("</Code>")?;
        Some(code.to_owned())
    });
    let plain = code.filter(|code| code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    plain.unwrap_or_else(|| "no code".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_code_of_an_error_is_told() {
        let check = |body: &str, expected: &str| assert_eq!(error_code(body.as_bytes()), expected, "{body}");
        check(r#"{"Error":{"Code":"ExpiredToken","Message":"canary"}}"#, "ExpiredToken");
        check(
            "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>canary</Message></Error></ErrorResponse>",
            "SignatureDoesNotMatch",
        );
        check(r#"{"Error":{"Code":"canary canary"}}"#, "no code");
        check("<html>", "no code");
        check("", "no code");
    }
}
