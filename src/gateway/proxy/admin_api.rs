//! The gateway's own endpoints, which require the local token.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use keyward_credentials::credential_watch::{Availability, CredentialWatch};
use keyward_machine::clock::Clock;
use keyward_telemetry::health::Health;
use keyward_telemetry::status_registry::StatusRegistry;
use keyward_telemetry::time_format::format_rfc3339;
use serde_json::{Value, json};

use super::body::GatewayBody;
use super::local_response::{error_response, local_response, method_not_allowed};
use super::platform_info::PlatformInfo;
use super::token_state::{TokenState, wall_time};
use super::usage_stats::UsageStats;
use crate::api_changelog::{Changelog, Endpoint};
use crate::availability::Product;
use crate::changes_api;
use crate::jsonapi_error::MEDIA_TYPE;
use crate::local_token::AcceptedTokens;
use keyward_http::server::IncomingBody;

/// The endpoints below `/v1/platform/`.
#[derive(Debug)]
pub(super) struct AdminApi {
    pub(super) platform: Arc<PlatformInfo>,
    pub(super) tokens: Arc<TokenState>,
    /// Watch of the tokens that callers may present.
    pub(super) local: CredentialWatch<AcceptedTokens>,
    pub(super) usage: Arc<UsageStats>,
    pub(super) status_registry: StatusRegistry,
    pub(super) health: Health,
    pub(super) clock: Clock,
}

impl AdminApi {
    /// Handles a request below `/v1/platform/`.
    pub(super) fn serve(
        &self,
        name: &str,
        request: &Request<IncomingBody>,
        origin: Option<&str>,
    ) -> Response<GatewayBody> {
        if !matches!(name, "changes" | "report" | "tokens" | "status") {
            let paths = "nothing is at this path; below /v1/platform/ are changes, report, tokens and status";
            return error_response(StatusCode::NOT_FOUND, paths);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return method_not_allowed("this path takes GET", "GET, HEAD");
        }
        let body = match name {
            "changes" => {
                let query = request.uri().query().unwrap_or_default();
                let changes_api::ChangesResponse { status, body } =
                    changes_api::respond(origin.unwrap_or_default(), query);
                return local_response(status, MEDIA_TYPE, body);
            }
            "report" => self.report(),
            "tokens" => self.tokens(),
            _ => self.status(),
        };
        local_response(StatusCode::OK, "application/json", body.to_string().into())
    }

    /// Builds the status of the process, for `keyward status` where no local API listens. Sessions are omitted: they
    /// are shown to callers of that API only.
    fn status(&self) -> Value {
        serde_json::to_value(self.status_registry.collect(&self.health, BTreeMap::new())).unwrap_or_default()
    }

    /// Builds the report of calls that the API history is about, by client, with their replacements.
    fn report(&self) -> Value {
        let count = self.usage.deprecated_calls();
        let calls: Vec<Value> = count
            .iter()
            .map(|(call, count)| {
                let change = count.change;
                let successor = change.changelog.replacement.as_ref().or(change.documentation.successor.as_ref());
                json!({
                    "change": change.id,
                    "kind": change.kind,
                    "resource": change.resource,
                    "names": change.names,
                    "call": call.reported.call,
                    "organization": call.reported.organization,
                    "workspace": call.reported.workspace,
                    "advice": change.advice(),
                    "endpoints": change.endpoints().map(Endpoint::as_str).collect::<Vec<_>>(),
                    "replacement": successor.map(Endpoint::as_str),
                    "note": change.gateway.note,
                    "client": call.client_name,
                    "calls": count.calls,
                    "replaced": count.replaced,
                    "last": format_rfc3339(count.last),
                })
            })
            .collect();
        let server = self.platform.server();
        let history = Changelog::get().span().map(|(since, until)| json!({ "since": since, "until": until }));
        json!({
            "history": history,
            "upstream": self.platform.origin,
            "server": {
                "product": server.product.map(Product::as_str),
                "release": server.release.map(|release| release.to_string()),
                "api_version": server.api_version,
            },
            "calls": calls,
        })
    }

    /// Builds the list of tokens, without any token's text.
    fn tokens(&self) -> Value {
        let now = self.clock.now();
        let reading = self.tokens.source.watch.peek();
        let platform = match &reading.availability {
            Availability::Available(token) => json!({
                "source": self.tokens.source.origin,
                "serving": true,
                "taken": wall_time(now, token.loaded),
                "age_seconds": now.since(token.loaded).as_secs(),
                "refused_since": self.tokens.rejected_since().map(|since| wall_time(now, since)),
                "last_checked": reading.last_checked.map(|checked| wall_time(now, checked)),
            }),
            Availability::Unavailable { reason, .. } => json!({
                "source": self.tokens.source.origin,
                "serving": false,
                "reason": &**reason,
                "last_checked": reading.last_checked.map(|checked| wall_time(now, checked)),
            }),
        };
        let local = match self.local.peek().availability {
            Availability::Available(tokens) => json!({
                "made": format_rfc3339(tokens.created),
                "age_seconds": now.wall.duration_since(tokens.created).unwrap_or_default().as_secs(),
                "previous_until":
                    tokens.previous.as_ref().filter(|(_, until)| now.wall < *until).map(|(_, until)| format_rfc3339(*until)),
            }),
            Availability::Unavailable { reason, .. } => json!({ "reason": &*reason }),
        };
        let callers = self.usage.clients();
        let callers: Vec<Value> = callers
            .iter()
            .map(|(client, calls)| {
                json!({
                    "client": client,
                    "requests": calls.requests,
                    "requests_with_previous": calls.with_previous,
                    "last": format_rfc3339(calls.last),
                })
            })
            .collect();
        json!({ "upstream": self.platform.origin, "platform_token": platform, "local_token": local, "callers": callers })
    }
}
