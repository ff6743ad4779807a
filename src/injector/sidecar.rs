//! The container and the volumes that are added to a pod, of the parts of every sidecar.

use keyward_config::kubernetes::{liveness_probe, readiness_probe, security_context, startup_probe};
use serde_json::{Map, Value, json};

use super::options::{InjectorOptions, PullPolicy};
use super::placement::{CONTAINER, Life};
use super::request::{InjectionRequest, Resources};

/// Variable of the container with the whole configuration: unlike an annotation it cannot change during the pod's life.
pub const CONFIG_VARIABLE: &str = "KEYWARD_POD_CONFIG";

/// Variable of the container with the CA bundle of the server.
pub const CA_VARIABLE: &str = "KEYWARD_POD_CA";

/// Folder of the container in which both become files.
pub const CONFIG_FOLDER: &str = "/var/lib/keyward/pod";

/// Volume of keyward's state.
const STATE: &str = "keyward-state";

/// Returns the volumes of a pod: the files, the state, and the service account's token.
pub(crate) fn volumes(request: &InjectionRequest) -> Vec<Value> {
    // In memory, so that no secret is ever on a disk.
    let in_memory = |name: &str, size: &str| json!({"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}});
    let folders = 0..request.outputs.folders.len();
    let mut volumes: Vec<Value> = folders.map(|number| in_memory(&files_volume(number), "16Mi")).collect();
    volumes.push(in_memory(STATE, "1Mi"));
    volumes.extend(request.login.identity.volume_and_mount().map(|(volume, _)| volume.to_json()));
    volumes
}

/// Returns the mounts of the files, for a container that reads them.
pub(crate) fn reader_mounts(request: &InjectionRequest) -> Vec<Value> {
    let mount = |(number, folder): (usize, &String)| json!({"name": files_volume(number), "mountPath": folder, "readOnly": true});
    request.outputs.folders.iter().enumerate().map(mount).collect()
}

fn files_volume(number: usize) -> String {
    if number == 0 { "keyward-files".to_owned() } else { format!("keyward-files-{number}") }
}

/// Returns the container. `ca` is the CA bundle of the server.
pub(crate) fn container(
    request: &InjectionRequest,
    config: &str,
    ca: Option<&str>,
    options: &InjectorOptions,
) -> Value {
    let placement = &request.placement;
    let mut container = json!({
        "name": CONTAINER,
        "image": request.image,
        "args": ["kubernetes", "agent"],
        "env": variables(request, config, ca),
        "resources": resources(&request.resources),
        "securityContext": security_context(placement.user, placement.group).to_json(),
        "volumeMounts": mounts(request),
    });
    if let Some(policy) = options.image_pull_policy.map(PullPolicy::name) {
        container["imagePullPolicy"] = json!(policy);
    }
    match placement.life {
        // A login that fails is tried again, within the time in which the kubelet of a sidecar would wait too.
        Life::Init => container["args"] = json!(["kubernetes", "agent", "--exit-after-auth", "--timeout", "5m"]),
        Life::Sidecar { is_awaited } => {
            // This makes it a sidecar: an init container that keeps running.
            container["restartPolicy"] = json!("Always");
            container["ports"] = json!([{"name": "probes", "containerPort": placement.health_port}]);
            if is_awaited {
                container["startupProbe"] = startup_probe().to_json();
            }
            container["livenessProbe"] = liveness_probe().to_json();
            container["readinessProbe"] = readiness_probe().to_json();
        }
    }
    container
}

fn variables(request: &InjectionRequest, config: &str, ca: Option<&str>) -> Value {
    let mut variables = vec![(CONFIG_VARIABLE, config.to_owned())];
    variables.extend(ca.map(|ca| (CA_VARIABLE, ca.to_owned())));
    // For `kubectl exec ... keyward status`.
    variables.push(("KEYWARD_CONFIG", format!("{CONFIG_FOLDER}/keyward.toml")));
    variables.extend(request.login.identity.variables());
    // The kubelet expands `$(NAME)` in values, and `$$` to `$`.
    let variable = |(name, value): (&str, String)| json!({"name": name, "value": value.replace('$', "$$")});
    variables.into_iter().map(variable).collect()
}

fn resources(resources: &Resources) -> Value {
    let amounts = |all: &[(&'static str, Option<String>)]| -> Map<String, Value> {
        let given = all.iter().filter_map(|(name, amount)| Some(((*name).to_owned(), json!(amount.as_ref()?))));
        given.collect()
    };
    json!({"limits": amounts(&resources.limits), "requests": amounts(&resources.requests)})
}

fn mounts(request: &InjectionRequest) -> Value {
    let folders = request.outputs.folders.iter().enumerate();
    let mut mounts: Vec<Value> =
        folders.map(|(number, folder)| json!({"name": files_volume(number), "mountPath": folder})).collect();
    mounts.push(json!({"name": STATE, "mountPath": "/var/lib/keyward"}));
    mounts.extend(request.login.identity.volume_and_mount().map(|(_, mount)| mount.to_json()));
    mounts.into()
}
