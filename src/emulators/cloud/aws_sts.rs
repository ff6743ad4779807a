//! AWS Security Token Service: `GetCallerIdentity`, for whoever signs it with credentials of the emulated account.

use std::sync::Arc;

use axum::Router;
use axum::extract::State as AxumState;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, StatusCode, Uri};
use keyward_machine::secret;
use serde_json::{Value, json};

use super::State;
use super::aws_account::AwsNames;
use super::aws_signature::{Authorization, SignedRequest, StsError};
use super::faults::FaultTarget;
use super::serve::json_response;

pub(super) fn routes() -> Router<Arc<State>> {
    // A server that appends the URL's path to its endpoint sends two slashes.
    Router::new().fallback(call)
}

async fn call(
    AxumState(state): AxumState<Arc<State>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::Authority).await {
        return *failure;
    }
    let query = uri.query().unwrap_or_default();
    let request = SignedRequest { method: &method, path: uri.path(), query, headers: &headers, body: &body };
    let wants_json = headers.get(ACCEPT).is_some_and(|kind| kind == "application/json");
    match identify(&state, request) {
        Ok(()) if wants_json => json_response(StatusCode::OK, &caller_identity_in_json()),
        Ok(()) => xml(StatusCode::OK, caller_identity()),
        Err(error) if wants_json => {
            let body = json!({ "Code": error.code, "Message": error.message, "Type": "Sender" });
            json_response(error.status, &json!({ "Error": body, "RequestId": uuid::Uuid::new_v4().to_string() }))
        }
        Err(error) => xml(error.status, error_document(&error)),
    }
}

fn identify(state: &State, request: SignedRequest<'_>) -> Result<(), StsError> {
    let authorization = Authorization::parse(request.headers)?;
    let now = state.shifted_now();
    let unknown =
        || StsError::forbidden("InvalidClientTokenId", "The security token included in the request is invalid.");
    let credentials = state.aws.find(authorization.access_key_id).ok_or_else(unknown)?;
    authorization.verify(request, &credentials.secret_access_key, now)?;
    let token = request.headers.get("x-amz-security-token").map(HeaderValue::as_bytes).unwrap_or_default();
    if !secret::ct_eq(&credentials.session_token, token) {
        return Err(unknown());
    }
    if credentials.expires <= now {
        let message = "The security token included in the request is expired";
        return Err(StsError::forbidden("ExpiredToken", message));
    }
    let form: Vec<(String, String)> = url::form_urlencoded::parse(request.body).into_owned().collect();
    let get = |name: &str| form.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
    if request.method != Method::POST || get("Action") != "GetCallerIdentity" || get("Version") != "2011-06-15" {
        let message = format!("Could not find operation {} for version {}", get("Action"), get("Version"));
        return Err(StsError::bad_request("InvalidAction", message));
    }
    Ok(())
}

fn caller_identity_in_json() -> Value {
    let user = format!("{}:{}", AwsNames::ROLE_ID, AwsNames::INSTANCE);
    let caller = json!({ "Account": AwsNames::ACCOUNT, "Arn": AwsNames::session_arn(), "UserId": user });
    json!({ "GetCallerIdentityResponse": {
        "GetCallerIdentityResult": caller, "ResponseMetadata": { "RequestId": uuid::Uuid::new_v4().to_string() },
    }})
}

fn caller_identity() -> String {
    let (arn, role, instance, account) =
        (AwsNames::session_arn(), AwsNames::ROLE_ID, AwsNames::INSTANCE, AwsNames::ACCOUNT);
    let request = uuid::Uuid::new_v4();
    format!(
        "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n  \
         <GetCallerIdentityResult>\n    <Arn>{arn}</Arn>\n    <UserId>{role}:{instance}</UserId>\n    \
         <Account>{account}</Account>\n  </GetCallerIdentityResult>\n  <ResponseMetadata>\n    \
         <RequestId>{request}</RequestId>\n  </ResponseMetadata>\n</GetCallerIdentityResponse>\n"
    )
}

fn error_document(error: &StsError) -> String {
    let StsError { code, message, .. } = error;
    let message = message.replace('&', "&amp;").replace('<', "&lt;");
    let request = uuid::Uuid::new_v4();
    format!(
        "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n  <Error>\n    <Type>Sender</Type>\n    \
         <Code>{code}</Code>\n    <Message>{message}</Message>\n  </Error>\n  <RequestId>{request}</RequestId>\n\
         </ErrorResponse>\n"
    )
}

fn xml(status: StatusCode, body: String) -> Response {
    let mut response = (status, body).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    response
}
