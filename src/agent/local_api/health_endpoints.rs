//! The endpoints for status, health and metrics.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use super::LocalApiDeps;
use super::metrics::ReadyMetrics;

use keyward_telemetry::health::Component;
use keyward_telemetry::metrics::CONTENT_TYPE;

use crate::json_response::{error, json, with_body};

/// Responds with the status; of the sessions, those that are `visible` to the caller.
pub(super) fn status(deps: &LocalApiDeps, visible: impl Fn(&String) -> bool) -> Response<Full<Bytes>> {
    let mut sessions = deps.session_statuses.sessions();
    sessions.retain(|name, _| visible(name));
    deps.callers.publish(&deps.status_registry);
    json(StatusCode::OK, &deps.status_registry.collect(&deps.health, sessions))
}

pub(super) fn live() -> Response<Full<Bytes>> {
    #[derive(Serialize)]
    struct Live {
        live: bool,
    }
    json(StatusCode::OK, &Live { live: true })
}

pub(super) fn ready(deps: &LocalApiDeps) -> Response<Full<Bytes>> {
    #[derive(Serialize)]
    struct Ready {
        ready: bool,
        components: BTreeMap<String, Component>,
    }
    let ready = deps.health.is_ready();
    json(status_code(ready), &Ready { ready, components: deps.health.components() })
}

/// Responds with one component by its name, such as `session/web`.
pub(super) fn component(deps: &LocalApiDeps, name: &str) -> Response<Full<Bytes>> {
    match deps.health.components().get(name) {
        Some(component) => json(status_code(component.ready), component),
        None => error(StatusCode::NOT_FOUND, "no component has this name; /readyz lists them"),
    }
}

pub(super) fn started(deps: &LocalApiDeps) -> Response<Full<Bytes>> {
    #[derive(Serialize)]
    struct Started {
        started: bool,
        components: BTreeMap<String, Component>,
    }
    let started = deps.health.is_started();
    json(status_code(started), &Started { started, components: deps.health.components() })
}

pub(super) fn metrics(deps: &LocalApiDeps) -> Response<Full<Bytes>> {
    deps.metrics.get::<ReadyMetrics>().update(&deps.health);
    deps.callers.publish_metrics();
    with_body(StatusCode::OK, CONTENT_TYPE, deps.metrics.text().into())
}

const fn status_code(is_healthy: bool) -> StatusCode {
    if is_healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}
