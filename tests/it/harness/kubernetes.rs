//! A Kubernetes API server with one Secret and one `MutatingWebhookConfiguration`: versions, conflicts, JSON patches and watches are
//! those of the real one; faults are scripted.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::Request;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use keyward_http::server::{IncomingBody, IncomingBodyError, ListenerLimits};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::certificates::{Authority, Presented};
use super::scripted::{Answer, FREE, Scripted, Seen, bearer, reply, serve, whole};

/// Token that the API server accepts.
pub(crate) const TOKEN: &str = "service-account";

const SECRET: &str = "/api/v1/namespaces/team/secrets/keyward-webhook";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// The API server. It ends when it is dropped.
pub(crate) struct KubernetesApi {
    pub(crate) address: SocketAddr,
    /// Certificate of its authority.
    pub(crate) ca: String,
    state: Arc<State>,
    _serving: JoinSet<()>,
}

struct State {
    objects: Mutex<Objects>,
    /// Version of the last change.
    version: watch::Sender<u64>,
    scripted: Scripted,
}

struct Objects {
    secret: Value,
    webhooks: Value,
    /// Changes of the Secret that another client makes right before the next ones of the caller.
    conflicts: usize,
}

impl KubernetesApi {
    /// Starts it with the objects that the chart creates.
    pub(crate) fn start() -> Self {
        let authority = Authority::new();
        let certificate = Presented::new(authority.issue("localhost", 2037));
        let webhook = |name: &str| json!({"name": name, "clientConfig": {"service": {"name": "keyward-webhook"}}});
        let objects = Objects {
            secret: json!({"kind": "Secret", "metadata": {"name": "keyward-webhook", "resourceVersion": "1", "labels": {"a": "b"}}}),
            webhooks: json!({
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "keyward-webhook", "resourceVersion": "1"},
                "webhooks": [webhook("keyward.dev"), webhook("vault.keyward.dev")],
            }),
            conflicts: 0,
        };
        let state = Arc::new(State {
            objects: Mutex::new(objects),
            version: watch::Sender::new(1),
            scripted: Scripted::default(),
        });
        let mut serving = JoinSet::new();
        let shared = Arc::clone(&state);
        let answer = move |request: Request<IncomingBody>| {
            let state = Arc::clone(&shared);
            async move {
                let (parts, body) = request.into_parts();
                let seen = state.scripted.take(parts, body).await;
                state.scripted.scripted(&seen).unwrap_or_else(|| state.respond(&seen))
            }
        };
        let limits = ListenerLimits { tls: Some(certificate.server().into()), ..ListenerLimits::default() };
        let address = serve(FREE, answer, limits, &mut serving);
        Self { address, ca: authority.pem, state, _serving: serving }
    }

    pub(crate) fn secret(&self) -> Value {
        self.state.objects.lock().secret.clone()
    }

    /// Sets the data of the Secret, as an operator would.
    pub(crate) fn set_secret_data(&self, data: Value) {
        self.state.change(|objects| objects.secret["data"] = data);
    }

    pub(crate) fn webhooks(&self) -> Value {
        self.state.objects.lock().webhooks.clone()
    }

    /// The PEM bundle of a webhook; empty without one.
    pub(crate) fn bundle(&self, place: usize) -> String {
        use base64::Engine as _;
        let webhooks = self.webhooks();
        let text = webhooks["webhooks"][place]["clientConfig"]["caBundle"].as_str().unwrap_or_default();
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).unwrap()).unwrap()
    }

    /// Removes the bundles, as `kubectl replace` of the chart's manifest does.
    pub(crate) fn remove_bundles(&self) {
        self.state.change(|objects| {
            for webhook in objects.webhooks["webhooks"].as_array_mut().unwrap() {
                webhook["clientConfig"].as_object_mut().unwrap().remove("caBundle");
            }
        });
    }

    /// Lets another client win the next changes of the Secret.
    pub(crate) fn conflict(&self, times: usize) {
        self.state.objects.lock().conflicts = times;
    }

    /// Answers by a script instead, as long as it returns something.
    pub(crate) fn fail(&self, status: u16, message: &'static str) {
        self.state.scripted.answers(move |_: &Seen| {
            reply(
                status,
                &[("content-type", "application/json")],
                json!({"kind": "Status", "message": message}).to_string(),
            )
        });
    }

    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.state.scripted.requests()
    }
}

impl State {
    fn change(&self, change: impl FnOnce(&mut Objects)) {
        let mut objects = self.objects.lock();
        change(&mut objects);
        let version = *self.version.borrow() + 1;
        objects.secret["metadata"]["resourceVersion"] = json!(version.to_string());
        objects.webhooks["metadata"]["resourceVersion"] = json!(version.to_string());
        drop(objects);
        self.version.send_replace(version);
    }

    fn respond(&self, request: &Seen) -> Answer {
        if bearer(&request.headers) != TOKEN {
            return status(401, "Unauthorized");
        }
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let own = format!("{WEBHOOKS}/keyward-webhook");
        match (request.method.as_str(), path) {
            ("GET", SECRET) => object(&self.secret_now()),
            ("PUT", SECRET) => self.replace_secret(serde_json::from_slice(&request.body).unwrap()),
            ("GET", path) if path == own => object(&self.objects.lock().webhooks.clone()),
            ("PATCH", path) if path == own => {
                assert_eq!(request.header("content-type"), "application/json-patch+json");
                self.patch(&serde_json::from_slice::<Vec<Value>>(&request.body).unwrap())
            }
            ("GET", WEBHOOKS) => self.watch(query),
            _ => status(403, "webhook cannot do this: forbidden"),
        }
    }

    fn secret_now(&self) -> Value {
        self.objects.lock().secret.clone()
    }

    fn replace_secret(&self, new: Value) -> Answer {
        let conflicts = std::mem::take(&mut self.objects.lock().conflicts);
        if conflicts > 0 {
            self.change(|objects| objects.conflicts = conflicts - 1);
        }
        if new["metadata"]["resourceVersion"] != self.secret_now()["metadata"]["resourceVersion"] {
            return status(409, "the object has been modified");
        }
        self.change(|objects| objects.secret = new);
        object(&self.secret_now())
    }

    fn patch(&self, operations: &[Value]) -> Answer {
        let mut webhooks = self.objects.lock().webhooks.clone();
        for operation in operations {
            let path = operation["path"].as_str().unwrap();
            let (parent, key) = path.rsplit_once('/').unwrap();
            let parent = webhooks.pointer_mut(parent).unwrap();
            match operation["op"].as_str().unwrap() {
                "test" if parent[key] == operation["value"] => {}
                "add" => parent[key] = operation["value"].clone(),
                _ => return status(422, "the patch does not apply"),
            }
        }
        self.change(|objects| objects.webhooks = webhooks);
        object(&self.objects.lock().webhooks.clone())
    }

    /// Answers with an event for the next change after a version.
    fn watch(&self, query: &str) -> Answer {
        let parameter = |name: &str| {
            let pairs = url::form_urlencoded::parse(query.as_bytes());
            pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        assert_eq!(parameter("watch"), "true");
        assert_eq!(parameter("fieldSelector"), "metadata.name=keyward-webhook");
        let seen: u64 = parameter("resourceVersion").parse().unwrap();
        let mut changes = self.version.subscribe();
        let event = async move {
            changes.wait_for(|version| *version > seen).await.unwrap();
            Ok(Frame::data(Bytes::from("{\"type\":\"MODIFIED\"}\n")))
        };
        let body = StreamBody::new(futures_util::stream::once(event).boxed());
        let body: UnsyncBoxBody<Bytes, IncomingBodyError> = body.boxed_unsync();
        let mut response = Answer::new(body);
        response.headers_mut().insert("content-type", "application/json".parse().unwrap());
        response
    }
}

fn object(value: &Value) -> Answer {
    whole(200, "application/json", value.to_string())
}

fn status(code: u16, message: &str) -> Answer {
    whole(code, "application/json", json!({"kind": "Status", "message": message}).to_string())
}
