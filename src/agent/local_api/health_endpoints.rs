//! Status, health and metrics.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use super::Parts;

use crate::agent::json_response::{error, json, with_body};
use crate::health::Component;
use crate::metrics::CONTENT_TYPE;
use crate::status::Status;

pub(super) fn status(parts: &Parts, served: &BTreeSet<String>) -> Response<Full<Bytes>> {
    let mut sessions = parts.status_registry.sessions();
    sessions.retain(|name, _| served.contains(name));
    json(StatusCode::OK, &Status::new(&parts.status_registry, &parts.health, sessions))
}

pub(super) fn live() -> Response<Full<Bytes>> {
    #[derive(Serialize)]
    struct Live {
        live: bool,
    }
    json(StatusCode::OK, &Live { live: true })
}

pub(super) fn ready(parts: &Parts) -> Response<Full<Bytes>> {
    #[derive(Serialize)]
    struct Ready {
        ready: bool,
        components: BTreeMap<String, Component>,
    }
    let ready = parts.health.ready();
    json(status_of(ready), &Ready { ready, components: parts.health.components() })
}

/// One component by its name, such as `session/web`.
pub(super) fn component(parts: &Parts, name: &str) -> Response<Full<Bytes>> {
    match parts.health.components().get(name) {
        Some(component) => json(status_of(component.ready), component),
        None => error(StatusCode::NOT_FOUND, "there is no component of this name; /readyz lists them"),
    }
}

pub(super) fn started(parts: &Parts) -> Response<Full<Bytes>> {
    #[derive(Serialize)]
    struct Started {
        started: bool,
        components: BTreeMap<String, Component>,
    }
    let started = parts.health.started();
    json(status_of(started), &Started { started, components: parts.health.components() })
}

pub(super) fn metrics(parts: &Parts) -> Response<Full<Bytes>> {
    with_body(StatusCode::OK, CONTENT_TYPE, parts.metrics.text().into())
}

const fn status_of(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}
