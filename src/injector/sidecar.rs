//! The container and the volumes that are added to a pod. Their form is that of packaging/kubernetes/sidecar.yaml.

use serde_json::{Map, Value, json};

use super::options::{InjectorOptions, LoginMethod, PullPolicy};
use super::placement::{CONTAINER, Life};
use super::request::{InjectionRequest, Resources};

/// Variable of the container with the whole configuration: unlike an annotation it cannot change during the pod's life.
pub const CONFIG_VARIABLE: &str = "KEYWARD_POD_CONFIG";

/// Variable of the container with the CA bundle of the server.
pub const CA_VARIABLE: &str = "KEYWARD_POD_CA";

/// Folder of the container in which both become files.
pub const CONFIG_FOLDER: &str = "/var/lib/keyward/pod";

/// Folder of the service account's token.
const IDENTITY_FOLDER: &str = "/var/run/secrets/keyward";

/// Folder of the token that is exchanged for one of Azure, as Azure's own webhook has it.
const AZURE_FOLDER: &str = "/var/run/secrets/azure/tokens";

/// Volumes of the pod.
const IDENTITY: &str = "keyward-identity";
const STATE: &str = "keyward-state";

/// Returns the path of the service account's token.
pub(crate) fn identity_file(method: LoginMethod) -> String {
    match method {
        LoginMethod::Azure => format!("{AZURE_FOLDER}/azure-identity-token"),
        LoginMethod::Kubernetes | LoginMethod::Jwt => format!("{IDENTITY_FOLDER}/token"),
    }
}

/// Returns the variables by which keyward finds its Azure identity.
pub(crate) fn azure_variables(request: &InjectionRequest) -> Vec<(&'static str, String)> {
    let Some((client, tenant)) = &request.login.azure else { return Vec::new() };
    vec![
        ("AZURE_CLIENT_ID", client.clone()),
        ("AZURE_TENANT_ID", tenant.clone()),
        ("AZURE_FEDERATED_TOKEN_FILE", identity_file(LoginMethod::Azure)),
    ]
}

/// Returns the volumes of a pod: the files, the state, and the service account's token.
pub(crate) fn volumes(request: &InjectionRequest) -> Vec<Value> {
    let login = &request.login;
    let path = identity_file(login.method);
    let file = path.rsplit('/').next().unwrap_or_default();
    let mut token = json!({"path": file, "expirationSeconds": 3600});
    if let Some(audience) = &login.audience {
        token["audience"] = json!(audience);
    }
    // In memory, so that no secret is ever on a disk.
    let in_memory = |name: &str, size: &str| json!({"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}});
    let folders = 0..request.outputs.folders.len();
    let mut volumes: Vec<Value> = folders.map(|number| in_memory(&files_volume(number), "16Mi")).collect();
    volumes.push(in_memory(STATE, "1Mi"));
    volumes.push(json!({"name": IDENTITY, "projected": {"sources": [{"serviceAccountToken": token}]}}));
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
        "securityContext": {
            "runAsUser": placement.user,
            "runAsGroup": placement.group,
            "runAsNonRoot": true,
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
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
            let get = |path: &str| json!({"path": path, "port": "probes"});
            if is_awaited {
                container["startupProbe"] =
                    json!({"httpGet": get("/startupz"), "periodSeconds": 1, "failureThreshold": 300});
            }
            container["livenessProbe"] = json!({"httpGet": get("/livez"), "periodSeconds": 10});
            container["readinessProbe"] = json!({"httpGet": get("/readyz"), "periodSeconds": 5});
        }
    }
    container
}

fn variables(request: &InjectionRequest, config: &str, ca: Option<&str>) -> Value {
    let mut variables = vec![(CONFIG_VARIABLE, config.to_owned())];
    variables.extend(ca.map(|ca| (CA_VARIABLE, ca.to_owned())));
    // For `kubectl exec ... keyward status`.
    variables.push(("KEYWARD_CONFIG", format!("{CONFIG_FOLDER}/keyward.toml")));
    variables.extend(azure_variables(request));
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
    let path = identity_file(request.login.method);
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    mounts.push(json!({"name": IDENTITY, "mountPath": folder, "readOnly": true}));
    mounts.into()
}
