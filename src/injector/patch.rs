//! The JSON patch (RFC 6902) that adds keyward to a pod.

use serde_json::{Value, json};

use super::annotations::{INJECTED, STATUS, VAULT_STATUS};
use super::pod::{Container, Pod};
use super::request::InjectionRequest;
use super::sidecar::{reader_mounts, volumes};

/// Returns the operations that add the container, its volumes, and the mounts of the containers that read the files. They hold for
/// this pod alone: a list that it lacks is created.
pub(crate) fn patch(pod: &Pod, request: &InjectionRequest, container: Value) -> Value {
    let mut operations = Vec::new();
    append("/spec/volumes", pod.spec.volumes.is_some(), volumes(request), &mut operations);
    let init_containers = pod.spec.init_containers.as_deref();
    let lists = [("initContainers", init_containers.unwrap_or_default()), ("containers", &pod.spec.containers)];
    for (list, containers) in lists {
        for (place, reader) in containers.iter().enumerate() {
            if request.placement.receivers.contains(&reader.name) {
                let path = format!("/spec/{list}/{place}/volumeMounts");
                let Container { volume_mounts, .. } = reader;
                append(&path, volume_mounts.is_some(), reader_mounts(request), &mut operations);
            }
        }
    }
    // Last, as it moves the other init containers.
    match init_containers {
        None => operations.push(add("/spec/initContainers", json!([container]))),
        Some(_) if request.placement.is_first => operations.push(add("/spec/initContainers/0", container)),
        Some(_) => operations.push(add("/spec/initContainers/-", container)),
    }
    // The annotations exist: they ask for all this.
    let status = |name: &str| add(&format!("/metadata/annotations/{}", name.replace('/', "~1")), json!(INJECTED));
    operations.push(status(STATUS));
    if request.is_vault {
        // The Vault Agent injector leaves such a pod alone.
        operations.push(status(VAULT_STATUS));
    }
    operations.into()
}

/// Adds values to the end of a list, or the list.
fn append(path: &str, exists: bool, values: Vec<Value>, operations: &mut Vec<Value>) {
    if exists {
        operations.extend(values.into_iter().map(|value| add(&format!("{path}/-"), value)));
    } else if !values.is_empty() {
        operations.push(add(path, values.into()));
    }
}

fn add(path: &str, value: Value) -> Value {
    let mut operation = json!({"op": "add", "path": path});
    operation["value"] = value;
    operation
}
