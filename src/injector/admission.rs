//! Answers a review: the pod is left as it is, patched, or refused with all reasons.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyward_telemetry::error_code::ErrorCode;
use serde_json::{Value, json};

use super::annotations::{INJECT, INJECTED, STATUS};
use super::options::InjectorOptions;
use super::patch::patch;
use super::placement::CONTAINER;
use super::pod::{AdmissionRequest, AdmissionReview, Pod};
use super::pod_config::PodConfig;
use super::problems::Problems;
use super::request::{InjectionRequest, is_left_to_vault};
use super::sidecar;

/// A review with its answer.
#[derive(Debug)]
pub struct Reviewed {
    /// The answer, an `AdmissionReview` in JSON.
    pub response: Vec<u8>,
    /// The decision.
    pub outcome: Outcome,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod, or the beginning of its name if its controller lets the API server choose the end.
    pub pod: String,
}

/// Decision on a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Keyward is added.
    Injected,
    /// There is nothing to add.
    Unchanged,
    /// The pod may not be created, for these reasons.
    Refused(String),
}

/// Reason why a body is no review, which has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The body is not valid.
    #[error("the body is no AdmissionReview: {cause}")]
    Malformed {
        /// Place and kind of the fault, without a value.
        cause: String,
    },
    /// The review is of another version, or is no request.
    #[error("expected an AdmissionReview of admission.k8s.io/v1 with a request")]
    Version,
}

/// Answers a review by the operator's settings. `ca` is the CA bundle of the operator's server.
///
/// # Errors
/// The body is not a review.
pub fn review(body: &[u8], options: &InjectorOptions, ca: Option<&str>) -> Result<Reviewed, ReviewError> {
    let review: AdmissionReview = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    if review.api_version != "admission.k8s.io/v1" || review.kind != "AdmissionReview" {
        return Err(ReviewError::Version);
    }
    let request = review.request.ok_or(ReviewError::Version)?;
    let mut name = String::new();
    let (outcome, patch) = match decide(&request, options, ca, &mut name) {
        Ok(None) => (Outcome::Unchanged, None),
        Ok(Some(patch)) => (Outcome::Injected, Some(patch)),
        Err(problems) => (Outcome::Refused(problems.describe()), None),
    };
    let response = respond(&request.uid, &outcome, patch.as_ref());
    Ok(Reviewed { response, outcome, namespace: request.namespace, pod: name })
}

/// Describes an error of the parser. Its text may quote a value, so that only the place is kept.
fn malformed(error: &serde_json::Error) -> ReviewError {
    let kind = if error.is_data() { "a value of another type" } else { "invalid JSON" };
    ReviewError::Malformed { cause: format!("{kind} at line {}, column {}", error.line(), error.column()) }
}

/// Returns the patch of a pod; `None` if there is nothing to add.
fn decide(
    request: &AdmissionRequest,
    options: &InjectorOptions,
    ca: Option<&str>,
    name: &mut String,
) -> Result<Option<Value>, Problems> {
    let is_pod = request.resource.group.is_empty() && request.resource.resource == "pods";
    if !is_pod || !request.sub_resource.is_empty() || request.operation != "CREATE" {
        return Ok(None);
    }
    let refuse = |why: String| {
        let mut problems = Problems::default();
        problems.add(why);
        problems
    };
    let object = request.object.as_ref().ok_or_else(|| refuse("the request has no object".to_owned()))?;
    let parsed = serde_json::from_str::<Pod>(object.get());
    let pod = parsed.map_err(|error| refuse(format!("the object is no pod: {}", malformed(&error))))?;
    pod.name().clone_into(name);
    // A mirror pod stands for one that a kubelet runs already.
    if pod.metadata.annotations.contains_key(MIRROR) || is_injected(&pod)? || is_left_to_vault(&pod) {
        return Ok(None);
    }
    let Some(injection) = InjectionRequest::read(&pod, options)? else { return Ok(None) };
    if SYSTEM_NAMESPACES.contains(&request.namespace.as_str()) {
        return Err(refuse(format!("pods of the namespace {} are not injected", request.namespace)));
    }
    let ca = ca.filter(|_| injection.login.address.starts_with("https://"));
    let config = PodConfig::new(&injection, options, ca.is_some());
    let mut problems = Problems::default();
    config.check(&injection, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let container = sidecar::container(&injection, &config.toml, ca, options);
    Ok(Some(patch(&pod, &injection, container)))
}

/// Returns true for a pod that has been injected.
fn is_injected(pod: &Pod) -> Result<bool, Problems> {
    if pod.metadata.annotations.get(STATUS).is_none_or(|status| status != INJECTED) {
        return Ok(false);
    }
    if pod.all_containers().any(|container| container.name == CONTAINER) {
        return Ok(true);
    }
    let mut problems = Problems::default();
    problems.add(format!("annotation {STATUS} says that the pod is injected, and it has no container called {CONTAINER}; remove the annotation"));
    Err(problems)
}

/// Annotation of a mirror pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Namespaces of the cluster itself.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

fn respond(uid: &str, outcome: &Outcome, patch: Option<&Value>) -> Vec<u8> {
    let mut response = json!({"uid": uid, "allowed": !matches!(outcome, Outcome::Refused(_))});
    if let Some(patch) = patch {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(STANDARD.encode(patch.to_string()));
    }
    if let Outcome::Refused(why) = outcome {
        let message = ErrorCode::tag(Some(ErrorCode::InjectionRefused), why);
        response["status"] = json!({"code": 400, "reason": "BadRequest", "message": message});
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
        .to_string()
        .into_bytes()
}

/// Checks that the operator's settings make a configuration that keyward accepts in a pod.
///
/// # Errors
/// The reasons why each pod would be refused.
pub fn validate(options: &InjectorOptions) -> Result<(), String> {
    let metadata = json!({"annotations": {
        INJECT: "true", "keyward.dev/role": "role", "keyward.dev/token": "true",
        "keyward.dev/azure-client-id": "00000000-0000-0000-0000-000000000000",
    }});
    let sample = json!({"metadata": metadata, "spec": {"containers": []}});
    let pod: Pod = serde_json::from_value(sample).map_err(|error| error.to_string())?;
    let checked = InjectionRequest::read(&pod, options).and_then(|request| {
        let mut problems = Problems::default();
        if let Some(request) = request {
            PodConfig::new(&request, options, options.server.ca_file.is_some()).check(&request, &mut problems);
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    });
    checked.map_err(|problems| problems.describe())
}
