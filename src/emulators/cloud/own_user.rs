//! Refuses callers of other users: on a machine with several, each of them could take the emulated machine's tokens.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use http::StatusCode;
use keyward_http::peer::{KernelSupport, PeerIdentity, PeerKernel, PeerReader};
use serde_json::json;

use super::serve::json_response;

/// Restricts routes to root and the user of this process. Returns the reader of identities for their listener.
pub(super) fn restrict(routes: Router) -> (Router, Option<Arc<PeerReader>>) {
    let kernel = Arc::new(PeerKernel::new(KernelSupport::probe()));
    let reader = Arc::new(PeerReader::new(kernel, Vec::new()));
    (routes.layer(middleware::from_fn(refuse_other_users)), Some(reader))
}

async fn refuse_other_users(request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Arc<PeerIdentity>>().and_then(|identity| identity.facts().uid);
    let own = rustix::process::geteuid().as_raw();
    match caller {
        Some(caller) if !is_admitted(caller, own) => {
            let description =
                format!("keyward dev serves only root and user {own}, who started it, and not user {caller}");
            json_response(StatusCode::FORBIDDEN, &json!({ "error": "forbidden", "error_description": description }))
        }
        // Some kernels do not tell whose a TCP connection is; the guide says so.
        _ => next.run(request).await,
    }
}

const fn is_admitted(caller: u32, own: u32) -> bool {
    caller == 0 || caller == own
}

#[cfg(test)]
mod tests {
    use super::is_admitted;

    #[test]
    fn root_and_the_own_user_are_admitted() {
        assert!(is_admitted(0, 1000) && is_admitted(1000, 1000) && is_admitted(0, 0));
        assert!(!is_admitted(1001, 1000) && !is_admitted(1000, 0));
    }
}
