//! What the gateway tells of itself, under the local token.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::body::Answered;
use super::response::{no_method, own, refuse};
use super::token_state::wall;
use super::{Inner, Parts};
use crate::credential_watch::Availability;
use crate::gateway::api_changelog::Endpoint;
use crate::gateway::availability::Product;
use crate::gateway::changes_api;
use crate::gateway::jsonapi_error::MEDIA_TYPE;
use crate::status::Status;
use crate::time_format::format_rfc3339;

impl Inner {
    /// Answers what stands below `/v1/platform/`.
    pub(super) fn own(&self, name: &str, request: &Request<Incoming>, here: Option<&str>) -> Response<Answered> {
        if !matches!(name, "changes" | "report" | "tokens" | "status") {
            let there =
                "there is nothing at this path; there are changes, report, tokens and status below /v1/platform/";
            return refuse(StatusCode::NOT_FOUND, there);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return no_method("this path takes GET", "GET, HEAD");
        }
        let told = match name {
            "changes" => {
                let query = request.uri().query().unwrap_or_default();
                let changes_api::Answer { status, body } = changes_api::answer(here.unwrap_or_default(), query);
                return own(status, MEDIA_TYPE, body);
            }
            "report" => self.report(),
            "tokens" => self.tokens(),
            _ => self.status(),
        };
        own(StatusCode::OK, "application/json", told.to_string().into())
    }

    /// The status of the process for `keyward status`, where no listener of the local API tells it. Sessions are left out: they
    /// are for callers of that API.
    fn status(&self) -> Value {
        let Parts { health, status_registry, .. } = &self.parts;
        let status = Status::new(status_registry, health, BTreeMap::new());
        serde_json::to_value(status).unwrap_or_default()
    }

    /// Which client makes which call that the history of the platform's API says something of, and what replaces it.
    fn report(&self) -> Value {
        let noticed = self.parts.record.noticed();
        let calls: Vec<Value> = noticed
            .iter()
            .map(|(call, noticed)| {
                let change = noticed.change;
                let successor = change.changelog.replacement.as_ref().or(change.documentation.successor.as_ref());
                json!({
                    "change": change.id,
                    "kind": change.kind,
                    "resource": change.resource,
                    "names": change.names,
                    "call": call.called.call,
                    "organization": call.called.organization,
                    "workspace": call.called.workspace,
                    "advice": change.gateway.advice,
                    "endpoints": change.endpoints().map(Endpoint::as_str).collect::<Vec<_>>(),
                    "replacement": successor.map(Endpoint::as_str),
                    "note": change.gateway.note,
                    "client": call.client,
                    "calls": noticed.calls,
                    "replaced": noticed.replaced,
                    "last": format_rfc3339(noticed.last),
                })
            })
            .collect();
        let server = self.server();
        json!({
            "upstream": self.origin,
            "server": {
                "product": server.product.map(Product::as_str),
                "release": server.release.map(|release| release.to_string()),
                "api_version": server.api_version,
            },
            "calls": calls,
        })
    }

    /// Which tokens there are, never a token.
    fn tokens(&self) -> Value {
        let now = self.parts.clock.now();
        let reading = self.parts.source.watch.peek();
        let platform = match &reading.availability {
            Availability::Available(token) => json!({
                "source": self.parts.source.origin,
                "serving": true,
                "taken": wall(now, token.taken),
                "age_seconds": now.since(token.taken).as_secs(),
                "refused_since": self.refused_since().map(|since| wall(now, since)),
                "last_checked": reading.last_checked.map(|checked| wall(now, checked)),
            }),
            Availability::Unavailable { reason, .. } => json!({
                "source": self.parts.source.origin,
                "serving": false,
                "reason": &**reason,
                "last_checked": reading.last_checked.map(|checked| wall(now, checked)),
            }),
        };
        let local = match self.parts.local.peek().availability {
            Availability::Available(accepted) => json!({
                "made": format_rfc3339(accepted.made),
                "age_seconds": now.wall.duration_since(accepted.made).unwrap_or_default().as_secs(),
                "previous_until":
                    accepted.previous.as_ref().filter(|(_, until)| now.wall < *until).map(|(_, until)| format_rfc3339(*until)),
            }),
            Availability::Unavailable { reason, .. } => json!({ "reason": &*reason }),
        };
        let callers = self.parts.record.all();
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
        json!({ "upstream": self.origin, "platform_token": platform, "local_token": local, "callers": callers })
    }
}

/// Where the platform's services are. Relative addresses: clients that put theirs before them are right too.
pub(super) fn discovery(method: &Method) -> Response<Answered> {
    if matches!(*method, Method::GET | Method::HEAD) {
        own(StatusCode::OK, "application/json", Bytes::from_static(SERVICES.as_bytes()))
    } else {
        no_method("service discovery takes GET", "GET, HEAD")
    }
}

/// The services by their names in the remote service discovery protocol.
const SERVICES: &str = concat!(
    r#"{"modules.v1":"/api/registry/v1/modules/","providers.v1":"/api/registry/v1/providers/","state.v2":"/api/v2/","#,
    r#""tfe.v2":"/api/v2/","tfe.v2.1":"/api/v2/","tfe.v2.2":"/api/v2/"}"#
);
