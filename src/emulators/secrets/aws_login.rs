//! Logins by the auth method `aws` of the type `iam`: the signed request is sent to STS, which alone knows whose it is. Checks, order
//! and messages are those of the real method; principals are bound by their ARN, without a call to IAM.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use keyward_http::client::{Client, ClientResponse};
use serde_json::{Map, Value};
use url::Url;

use super::Role;
use super::cloud_services::CloudServices;
use super::login_method::VerifiedLogin;
use super::reply::{WrappableResponse, refusal};

/// The auth method `aws`.
#[derive(Debug, Clone)]
pub struct AwsMethod {
    /// STS, to which every request is sent, whatever host a login names.
    pub sts: CloudServices,
    /// Required value of `X-Vault-AWS-IAM-Server-ID`.
    pub server_id: Option<String>,
    /// Roles by name.
    pub roles: BTreeMap<String, AwsRole>,
}

/// A role of the type `iam`.
#[derive(Debug, Clone)]
pub struct AwsRole {
    /// Principals that are admitted, such as `arn:aws:iam::111122223333:role/web`.
    pub bound_iam_principal_arns: Vec<String>,
    /// Properties of the tokens.
    pub role: Role,
}

/// A login's request, as it is sent to STS.
struct CallerRequest {
    url: Url,
    headers: Map<String, Value>,
    body: String,
}

impl AwsMethod {
    pub(super) async fn verify<'a>(
        &'a self,
        client: &Client,
        body: &Value,
    ) -> Result<VerifiedLogin<'a>, WrappableResponse> {
        let bad = |message: &str| refusal(StatusCode::BAD_REQUEST, message);
        let request = CallerRequest::from_login(body).map_err(|message| bad(&message))?;
        if let Some(expected) = &self.server_id {
            let checked = request.check_server_id(expected);
            checked.map_err(|why| bad(&format!("error validating {SERVER_ID} header: {why}")))?;
        }
        let arn = request.ask(client).await.map_err(|why| bad(&format!("error making upstream request: {why}")))?;
        let (principal, friendly_name) =
            canonical(&arn).ok_or_else(|| bad(&format!("error parsing arn {arn:?}: unrecognized arn")))?;
        let name = body.get("role").and_then(Value::as_str).filter(|name| !name.is_empty()).unwrap_or(&friendly_name);
        let (name, role) = self
            .roles
            .get_key_value(&name.to_lowercase())
            .ok_or_else(|| bad(&format!("entry for role {name} not found")))?;
        if !role.bound_iam_principal_arns.contains(&principal) {
            return Err(bad(&format!("IAM Principal {arn:?} does not belong to the role {name:?}")));
        }
        let account = arn.split(':').nth(4).unwrap_or_default().to_owned();
        let metadata = [("account_id", account), ("auth_type", "iam".to_owned()), ("role_id", name.clone())];
        Ok((name, &role.role, metadata.map(|(name, value)| (name.to_owned(), value)).into()))
    }
}

const SERVER_ID: &str = "X-Vault-AWS-IAM-Server-ID";

impl CallerRequest {
    fn from_login(login: &Value) -> Result<Self, String> {
        const FIELDS: [&str; 4] =
            ["iam_http_request_method", "iam_request_url", "iam_request_body", "iam_request_headers"];
        let present = FIELDS.iter().filter(|name| login.get(**name).is_some()).count();
        if present == 0 {
            return Err("didn't supply required authentication values".to_owned());
        }
        if present < FIELDS.len() {
            return Err("supplied some of the auth values for the iam auth type but not all".to_owned());
        }
        let text = |name: &str| login.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("iam_http_request_method") != "POST" {
            return Err("invalid iam_http_request_method; currently only 'POST' is supported".to_owned());
        }
        let decode = |name: &str| {
            let bytes = STANDARD.decode(text(name)).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            bytes.filter(|text| !text.is_empty()).ok_or_else(|| format!("failed to base64 decode {name}"))
        };
        let url = Url::parse(&decode("iam_request_url")?).map_err(|_| "error parsing iam_request_url".to_owned())?;
        if url.query().is_some() {
            return Err("invalid request".to_owned());
        }
        let body = decode("iam_request_body")?;
        let is_valid = url::form_urlencoded::parse(body.as_bytes()).all(|(key, value)| match &*key {
            "Action" => value == "GetCallerIdentity",
            "Version" => true,
            _ => false,
        });
        if !is_valid {
            return Err("iam request body is invalid".to_owned());
        }
        let headers = decode("iam_request_headers")?;
        let headers: Map<String, Value> =
            serde_json::from_str(&headers).map_err(|_| "missing iam_request_headers".to_owned())?;
        // AWS takes others for parameters of the request.
        let unknown = headers.keys().find(|name| {
            let name = name.to_ascii_lowercase();
            name.starts_with("x-amz-") && !ALLOWED_HEADERS.contains(&name.as_str())
        });
        unknown.map_or(Ok(()), |name| Err(format!("invalid request header: {name}")))?;
        Ok(Self { url, headers, body })
    }

    /// Returns the values of a header, joined.
    fn header(&self, name: &str) -> Option<String> {
        let (_, value) = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        let texts: Vec<&str> = match value {
            Value::String(one) => vec![one],
            Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        Some(texts.join(","))
    }

    /// Requires the header that binds the request to this server, and its signature.
    fn check_server_id(&self, expected: &str) -> Result<(), String> {
        let value = self.header(SERVER_ID).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| format!("missing header {SERVER_ID:?}"))?;
        if value != expected {
            return Err(format!("expected {expected:?} but got {value:?}"));
        }
        let authorization = self.header("authorization").ok_or("missing Authorization header")?;
        let signed = authorization.split_once("SignedHeaders=").map_or("", |(_, rest)| rest);
        let signed = signed.split(',').next().unwrap_or_default();
        if signed.split(';').any(|name| name == SERVER_ID.to_ascii_lowercase()) {
            return Ok(());
        }
        Err("vault header wasn't signed".to_owned())
    }

    /// Sends the request to STS; returns the ARN of the caller.
    async fn ask(&self, client: &Client) -> Result<String, String> {
        let host = self.url.host_str().unwrap_or_default();
        let mut request = client.request(Method::POST, "/").header(header::HOST, host).body(self.body.clone());
        for name in self.headers.keys().filter(|name| !name.eq_ignore_ascii_case("content-length")) {
            let value = HeaderValue::from_str(&self.header(name).unwrap_or_default());
            let name = HeaderName::try_from(name.as_str());
            if let (Ok(name), Ok(value)) = (name, value) {
                request = request.header(name, value);
            }
        }
        let length = self.body.len();
        let response = client.send(request.header(header::CONTENT_LENGTH, length)).await;
        let ClientResponse { status, headers, body, .. } =
            response.map_err(|error| format!("error making request: Post \"https://{host}/\": {error}"))?;
        if headers.get(header::CONTENT_TYPE).is_none_or(|kind| kind != "text/xml") {
            return Err("body of GetCallerIdentity is invalid".to_owned());
        }
        let text = String::from_utf8_lossy(&body);
        if status != StatusCode::OK {
            return Err(format!("received error code {} from STS: {text}", status.as_u16()));
        }
        let arn = text.split_once("<Arn>").and_then(|(_, rest)| rest.split_once("</Arn>"));
        arn.map(|(arn, _)| arn.to_owned()).ok_or_else(|| "error parsing STS response".to_owned())
    }
}

/// Headers of AWS that a login may have, in lower case.
const ALLOWED_HEADERS: [&str; 6] = [
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-security-token",
    "x-amz-signature",
];

/// Returns the ARN that a role binds for a caller, and the principal's name: a session of a role counts as the role.
fn canonical(arn: &str) -> Option<(String, String)> {
    let parts: Vec<&str> = arn.split(':').collect();
    let ["arn", partition, "iam" | "sts", _, account, path] = parts.as_slice() else { return None };
    let parts: Vec<&str> = path.split('/').collect();
    let (kind, name) = match parts.as_slice() {
        ["assumed-role", name, _, ..] => ("role", name),
        [kind @ ("user" | "role" | "instance-profile"), .., name] => (*kind, name),
        _ => return None,
    };
    Some((format!("arn:{partition}:iam::{account}:{kind}/{name}"), (*name).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_a_role_counts_as_the_role() {
        let check = |arn: &str, expected: Option<&str>| {
            assert_eq!(canonical(arn).map(|(arn, _)| arn).as_deref(), expected, "{arn}");
        };
        check("arn:aws:sts::1:assumed-role/web/i-1", Some("arn:aws:iam::1:role/web"));
        check("arn:aws-cn:iam::1:user/path/ann", Some("arn:aws-cn:iam::1:user/ann"));
        check("arn:aws:sts::1:assumed-role/web", None);
        check("arn:aws:sts::1:federated-user/ann", None);
        check("arn:aws:s3:::bucket", None);
    }
}
