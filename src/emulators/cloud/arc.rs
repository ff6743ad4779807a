//! Identity endpoint of an Arc machine. It issues tokens to callers that can read a challenge file, which only the
//! agent's group can.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State as AxumState};
use axum::response::Response;
use axum::routing::get;
use http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use keyward_machine::secret_string::SecretString;

use super::State;
use super::faults::FaultTarget;
use super::folder::write_private;
use super::identities::random_secret;
use super::metadata::{IDENTITY_PARAMETERS, check_request, error_response, token_response};
use super::tokens::Principal;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/arc/metadata/identity/oauth2/token", get(token))
}

async fn token(AxumState(state): AxumState<Arc<State>>, headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    if let Err(failure) = state.apply_faults(FaultTarget::Arc).await {
        return *failure;
    }
    let query = match check_request(&headers, query.as_deref()) {
        Ok(query) => query,
        Err(refusal) => return *refusal,
    };
    let Some(resource) = query.get("resource") else {
        return error_response(StatusCode::BAD_REQUEST, "invalid_request", "The resource is missing");
    };
    if IDENTITY_PARAMETERS.iter().any(|name| query.contains_key(*name)) {
        return error_response(StatusCode::BAD_REQUEST, "invalid_request", "Arc machines have one identity");
    }
    let Some(credential) = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Basic ")) else {
        return challenge(&state.arc_tokens);
    };
    if is_challenge_answered(&state.arc_tokens, credential) {
        token_response(&state, Principal::System, resource, "Arc machine")
    } else {
        error_response(StatusCode::UNAUTHORIZED, "unauthorized", "The key is not the one that was asked for")
    }
}

fn challenge(folder: &Path) -> Response {
    let path = folder.join(format!("{}.key", uuid::Uuid::new_v4()));
    let written = random_secret().is_some_and(|secret| write_private(&path, secret.as_bytes()).is_ok());
    let realm = HeaderValue::try_from(format!("Basic realm={}", path.display()));
    let (true, Ok(realm)) = (written, realm) else {
        return error_response(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "Cannot write the challenge file");
    };
    let mut response = error_response(StatusCode::UNAUTHORIZED, "unauthorized", "Read the file and send its content");
    response.headers_mut().insert(WWW_AUTHENTICATE, realm);
    response
}

/// Returns true if the key answers a challenge; each key is valid once.
fn is_challenge_answered(folder: &Path, credential: &[u8]) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let secret = std::fs::read_to_string(entry.path()).map(SecretString::from);
        let is_valid =
            secret.is_ok_and(|key| !key.expose_secret().is_empty() && keyward_machine::secret::ct_eq(&key, credential));
        if is_valid {
            // Best effort: a remaining key is valid only for this user, who can read it anyway.
            let _ = std::fs::remove_file(entry.path());
        }
        is_valid
    })
}
