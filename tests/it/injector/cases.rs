//! Annotated pods, as controllers create them. `fixture.rs` compares their patches with those that Kubernetes has validated.

use serde_json::{Value, json};

use super::pod;

/// A pod, and the operator's flags.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) flags: &'static [&'static str],
    pub(super) pod: Value,
}

/// Adds annotations to a pod.
fn with(mut pod: Value, annotations: &Value) -> Value {
    let all = pod["metadata"]["annotations"].as_object_mut().unwrap();
    all.extend(annotations.as_object().unwrap().clone());
    pod
}

/// Merges values into a pod's spec.
fn spec(mut pod: Value, values: &Value) -> Value {
    pod["spec"].as_object_mut().unwrap().extend(values.as_object().unwrap().clone());
    pod
}

/// A pod with keyward's annotations.
fn keyward(annotations: &Value) -> Value {
    with(pod(&json!({"keyward.dev/inject": "true", "keyward.dev/role": "web"})), annotations)
}

/// A pod with those of the Vault Agent injector.
fn vault(annotations: &Value) -> Value {
    let asks = json!({"vault.hashicorp.com/agent-inject": "true", "vault.hashicorp.com/role": "web"});
    with(pod(&asks), annotations)
}

/// Makes the pod one of another controller.
fn owned(mut pod: Value, api_version: &str, kind: &str, name: &str, restart: &str) -> Value {
    let owner = &mut pod["metadata"]["ownerReferences"][0];
    owner["apiVersion"] = json!(api_version);
    owner["kind"] = json!(kind);
    owner["name"] = json!(name);
    pod["metadata"]["generateName"] = json!(format!("{name}-"));
    pod["spec"]["restartPolicy"] = json!(restart);
    pod
}

fn container(name: &str) -> Value {
    json!({"name": name, "image": "registry.example.com/tool:1", "resources": {}})
}

const SECRET: &str = "{{ with secret \"secret/data/web\" }}{{ .Data.data.password }}{{ end }}";

const FROM_FILES: &[&str] =
    &["--server-kind", "openbao", "--server-namespace", "team", "--mount", "auth/cluster", "--role", "all"];
const JWT: &[&str] = &["--method", "jwt", "--image-pull-policy", "Always"];
const JWT_AUDIENCE: &[&str] = &["--method", "jwt", "--audience", "vault", "--mount", "k8s-jwt"];
const AZURE: &[&str] = &["--method", "azure", "--azure-tenant", "22222222-2222-2222-2222-222222222222"];
const ALLOWED: &[&str] = &[
    "--allow",
    "address=https://other.example.com:8200",
    "--allow",
    "namespace=*",
    "--allow",
    "mount=*",
    "--allow",
    "method=jwt",
    "--allow",
    "image=registry.example.com/keyward:next",
];

/// Pods of controllers of each kind.
fn controllers() -> Vec<Case> {
    let token = json!({"keyward.dev/token": "true"});
    let secret = json!({"keyward.dev/secret-db.txt": "secret/data/db"});
    let mut stateful = owned(keyward(&token), "apps/v1", "StatefulSet", "store", "Always");
    stateful["metadata"].as_object_mut().unwrap().remove("generateName");
    stateful["metadata"]["name"] = json!("store-0");
    stateful["spec"]["hostname"] = json!("store-0");
    stateful["spec"]["subdomain"] = json!("store");
    let daemon = spec(
        owned(keyward(&secret), "apps/v1", "DaemonSet", "node", "Always"),
        &json!({"tolerations": [{"operator": "Exists"}], "hostNetwork": true}),
    );
    let bare = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "bare", "annotations": {"keyward.dev/inject": "true", "keyward.dev/role": "a", "keyward.dev/token": "true"}},
        "spec": {"serviceAccountName": "default", "containers": [{"name": "only", "image": "a"}]},
    });
    [
        ("a Deployment with a token", keyward(&token)),
        ("a Deployment with a secret", keyward(&secret)),
        ("a Job", owned(keyward(&secret), "batch/v1", "Job", "report", "Never")),
        (
            "a Job that writes once",
            owned(
                with(keyward(&secret), &json!({"keyward.dev/pre-populate-only": "true"})),
                "batch/v1",
                "Job",
                "report",
                "OnFailure",
            ),
        ),
        ("a Job of a CronJob", owned(keyward(&token), "batch/v1", "Job", "nightly-29357220", "OnFailure")),
        ("a StatefulSet", stateful),
        ("a DaemonSet", daemon),
        ("a bare pod without lists", bare),
    ]
    .into_iter()
    .map(|(name, pod)| Case { name, flags: &[], pod })
    .collect()
}

/// Annotations about files.
fn files() -> Vec<Case> {
    [
        ("a template", keyward(&json!({"keyward.dev/secret-config": "secret/data/web", "keyward.dev/template-config": SECRET}))),
        ("a template without a path", keyward(&json!({"keyward.dev/template-config": "{{ timestamp \"unix\" }}"}))),
        (
            "characters that shells, TOML and the kubelet expand",
            keyward(&json!({"keyward.dev/template-odd": "a \"b\" \\ $(HOME) $$(HOME) $HOME $$ ${env:A} $${x} ''' \"\"\" \u{e9}\n{{ env \"KEYWARD_CONFIG\" }}\n"})),
        ),
        ("other delimiters", keyward(&json!({"keyward.dev/template-a": "[[ timestamp ]] {{", "keyward.dev/left-delim-a": "[[", "keyward.dev/right-delim-a": "]]"}))),
        ("the default template as JSON", keyward(&json!({"keyward.dev/secret-a": "kv/a", "keyward.dev/default-template": "json"}))),
        ("a path, a mode and a missing key", keyward(&json!({
            "keyward.dev/template-a": SECRET, "keyward.dev/file-a": "conf/app.ini", "keyward.dev/perms-a": "0400", "keyward.dev/error-on-missing-key-a": "false",
        }))),
        ("two folders", keyward(&json!({
            "keyward.dev/secret-a": "kv/a", "keyward.dev/secret-b": "kv/b", "keyward.dev/volume-path": "/etc/app", "keyward.dev/volume-path-b": "/srv/b/",
        }))),
        ("an interval", keyward(&json!({"keyward.dev/secret-a": "kv/a", "keyward.dev/interval": "30s"}))),
        ("names that are no names of tables", keyward(&json!({"keyward.dev/secret-a.b": "kv/a", "keyward.dev/secret-a_b": "kv/b", "keyward.dev/secret-A": "kv/c"}))),
        ("a group of the pod", spec(keyward(&json!({"keyward.dev/token": "true", "keyward.dev/secret-a": "kv/a"})), &json!({"securityContext": {"fsGroup": 2000}}))),
    ]
    .into_iter()
    .map(|(name, pod)| Case { name, flags: &[], pod })
    .collect()
}

/// Annotations about the container.
fn containers() -> Vec<Case> {
    let token = json!({"keyward.dev/token": "true"});
    let two = |annotations: &Value| {
        let mut pod = with(keyward(&token), annotations);
        pod["spec"]["containers"].as_array_mut().unwrap().push(container("proxy"));
        spec(pod, &json!({"initContainers": [container("migrate")]}))
    };
    let same = spec(
        keyward(&json!({"keyward.dev/token": "true", "keyward.dev/run-as-same-user": "true"})),
        &json!({"securityContext": {"runAsUser": 1000, "runAsGroup": 3000, "runAsNonRoot": true}}),
    );
    let mut restricted = spec(
        keyward(&token),
        &json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}}),
    );
    restricted["spec"]["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    [
        ("two containers and one before them", two(&json!({}))),
        ("one of two containers", two(&json!({"keyward.dev/containers": "proxy"}))),
        ("an init container that reads", two(&json!({"keyward.dev/containers": "web, migrate"}))),
        ("first of the init containers", two(&json!({"keyward.dev/init-first": "true"}))),
        ("containers that do not wait", two(&json!({"keyward.dev/pre-populate": "false"}))),
        ("resources", keyward(&json!({
            "keyward.dev/token": "true", "keyward.dev/limits-cpu": "500m", "keyward.dev/limits-mem": "128Mi", "keyward.dev/limits-ephemeral": "1Gi",
            "keyward.dev/requests-cpu": "0.05", "keyward.dev/requests-mem": "32Mi", "keyward.dev/requests-ephemeral": "10Mi",
        }))),
        ("a user and a group", keyward(&json!({"keyward.dev/token": "true", "keyward.dev/run-as-user": "1000", "keyward.dev/run-as-group": "1000"}))),
        ("the same user", same),
        ("a port, a log, and a revocation", keyward(&json!({
            "keyward.dev/token": "true", "keyward.dev/health-port": "9000", "keyward.dev/log-level": "DEBUG", "keyward.dev/log-format": "text",
            "keyward.dev/revoke-on-shutdown": "true",
        }))),
        ("a pod of Pod Security `restricted`", restricted),
    ]
    .into_iter()
    .map(|(name, pod)| Case { name, flags: &[], pod })
    .collect()
}

/// Annotations of the Vault Agent injector.
fn of_vault() -> Vec<Case> {
    [
        ("Vault: a secret", vault(&json!({"vault.hashicorp.com/agent-inject-secret-Database": "database/creds/web"}))),
        ("Vault: a secret with capitals", vault(&json!({
            "vault.hashicorp.com/agent-inject-secret-Database": "database/creds/web", "vault.hashicorp.com/preserve-secret-case": "true",
        }))),
        ("Vault: a template of its documents", vault(&json!({
            "vault.hashicorp.com/agent-inject-secret-database-config.txt": "internal/data/database/config",
            "vault.hashicorp.com/agent-inject-template-database-config.txt": "{{- with secret \"internal/data/database/config\" -}}\npostgresql://{{ .Data.data.username }}:{{ .Data.data.password }}@postgres:5432/wizard\n{{- end -}}\n",
        }))),
        ("Vault: all that is taken", vault(&json!({
            "vault.hashicorp.com/agent-inject-secret-a": "kv/a", "vault.hashicorp.com/agent-inject-file-a": "a.json",
            "vault.hashicorp.com/agent-inject-perms-a": "0440", "vault.hashicorp.com/agent-inject-default-template": "JSON",
            "vault.hashicorp.com/agent-inject-template-b": "<% timestamp %>", "vault.hashicorp.com/agent-template-left-delim-b": "<%",
            "vault.hashicorp.com/agent-template-right-delim-b": "%>", "vault.hashicorp.com/secret-volume-path": "/etc/secrets",
            "vault.hashicorp.com/secret-volume-path-b": "/etc/b", "vault.hashicorp.com/agent-inject-token": "true",
            "vault.hashicorp.com/agent-inject-containers": "web", "vault.hashicorp.com/agent-init-first": "true",
            "vault.hashicorp.com/agent-pre-populate": "true", "vault.hashicorp.com/agent-revoke-on-shutdown": "true",
            "vault.hashicorp.com/agent-limits-cpu": "500m", "vault.hashicorp.com/agent-limits-mem": "128Mi",
            "vault.hashicorp.com/agent-limits-ephemeral": "", "vault.hashicorp.com/agent-requests-cpu": "250m",
            "vault.hashicorp.com/agent-requests-mem": "64Mi", "vault.hashicorp.com/agent-run-as-user": "100",
            "vault.hashicorp.com/agent-run-as-group": "1000", "vault.hashicorp.com/log-level": "info",
            "vault.hashicorp.com/log-format": "standard", "vault.hashicorp.com/auth-path": "auth/kubernetes",
            "vault.hashicorp.com/auth-type": "kubernetes", "vault.hashicorp.com/service": "https://vault.example.com:8200/",
            "vault.hashicorp.com/template-static-secret-render-interval": "1m", "vault.hashicorp.com/error-on-missing-key-a": "true",
        }))),
        ("Vault: settings that ask for nothing", vault(&json!({
            "vault.hashicorp.com/agent-inject-secret-a": "kv/a", "vault.hashicorp.com/agent-cache-enable": "false",
            "vault.hashicorp.com/tls-skip-verify": "false", "vault.hashicorp.com/agent-set-security-context": "true",
            "vault.hashicorp.com/agent-share-process-namespace": "false", "vault.hashicorp.com/agent-enable-quit": "false",
            "vault.hashicorp.com/namespace": "",
        }))),
        ("Vault: only before the containers", vault(&json!({
            "vault.hashicorp.com/agent-inject-secret-a": "kv/a", "vault.hashicorp.com/agent-pre-populate-only": "true",
        }))),
        ("annotations of both", with(vault(&json!({"vault.hashicorp.com/agent-inject-secret-a": "kv/a"})), &json!({
            "keyward.dev/role": "web", "keyward.dev/secret-B": "kv/b", "keyward.dev/health-port": "9001",
        }))),
    ]
    .into_iter()
    .map(|(name, pod)| Case { name, flags: &[], pod })
    .collect()
}

/// Settings of the operator.
fn operators() -> Vec<Case> {
    let secret = json!({"keyward.dev/secret-a": "kv/a"});
    let mut without_role = keyward(&secret);
    without_role["metadata"]["annotations"].as_object_mut().unwrap().remove("keyward.dev/role");
    let client = json!({"keyward.dev/azure-client-id": "33333333-3333-3333-3333-333333333333"});
    let others = json!({
        "keyward.dev/address": "https://other.example.com:8200", "keyward.dev/namespace": "a/b", "keyward.dev/mount": "auth/other",
        "keyward.dev/method": "jwt", "keyward.dev/image": "registry.example.com/keyward:next",
    });
    vec![
        Case { name: "OpenBao, a namespace, a mount and a role", flags: FROM_FILES, pod: without_role },
        Case { name: "JWT with the address as audience", flags: JWT, pod: keyward(&secret) },
        Case { name: "JWT with an audience", flags: JWT_AUDIENCE, pod: keyward(&secret) },
        Case { name: "an Azure identity", flags: AZURE, pod: with(keyward(&secret), &client) },
        Case { name: "all that the operator allows", flags: ALLOWED, pod: with(keyward(&secret), &others) },
    ]
}

/// All annotated pods.
pub(super) fn all() -> Vec<Case> {
    [controllers(), files(), containers(), of_vault(), operators()].into_iter().flatten().collect()
}
