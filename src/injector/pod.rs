//! The parts of a pod and of an `AdmissionReview` that decide what is added. All else is left to Kubernetes.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// `AdmissionReview` of `admission.k8s.io/v1`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AdmissionReview {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) api_version: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) kind: String,
    pub(crate) request: Option<AdmissionRequest>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AdmissionRequest {
    pub(crate) uid: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) resource: Resource,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) sub_resource: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) operation: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) namespace: String,
    /// Parsed later: an object that is no pod is refused with the request's own id.
    pub(crate) object: Option<Box<serde_json::value::RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Resource {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) group: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) resource: String,
}

/// A pod.
#[derive(Debug, Deserialize)]
pub(crate) struct Pod {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) metadata: Metadata,
    pub(crate) spec: PodSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) generate_name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodSpec {
    /// `None` where the pod has no list, which a patch then creates.
    pub(crate) volumes: Option<Vec<Volume>>,
    pub(crate) init_containers: Option<Vec<Container>>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) containers: Vec<Container>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) security_context: SecurityContext,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) os: OperatingSystem,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Volume {
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) volume_mounts: Option<Vec<VolumeMount>>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) ports: Vec<Port>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) security_context: SecurityContext,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VolumeMount {
    pub(crate) mount_path: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Port {
    pub(crate) container_port: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SecurityContext {
    pub(crate) run_as_user: Option<i64>,
    pub(crate) run_as_group: Option<i64>,
    pub(crate) fs_group: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct OperatingSystem {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) name: String,
}

impl Pod {
    /// Returns the name, or for a pod of a controller the beginning of its name.
    pub(crate) fn name(&self) -> &str {
        let Metadata { name, generate_name, .. } = &self.metadata;
        if name.is_empty() { generate_name } else { name }
    }

    /// Returns all containers: first those that run before the others.
    pub(crate) fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.spec.init_containers.iter().flatten().chain(&self.spec.containers)
    }
}

/// Reads a value that may be `null`: Go's encoder writes that for an empty list.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
