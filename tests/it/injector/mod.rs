//! The injector: the real webhook over HTTPS, called as the API server calls it, with a fake of the Kubernetes API beside it.

mod annotations;
mod cases;
mod certificate;
mod fixture;
mod form;
mod pod_agent;
mod refusals;
mod reviews;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::binary::Binary;
use crate::harness::kubernetes::{KubernetesApi, TOKEN};

/// Name by which the API server calls the webhook.
const NAME: &str = "keyward-webhook.team.svc";

/// Flags of an operator that every test has.
const OPERATOR: [&str; 4] =
    ["--address", "https://vault.example.com:8200", "--image", "registry.example.com/keyward:0.1.0"];

/// A running webhook.
struct Webhook {
    process: Binary,
    address: SocketAddr,
    health: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Webhook {
    /// Starts the webhook with these flags, beside an API server.
    fn start(api: &KubernetesApi, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (token, ca) = (put("token", TOKEN), put("ca.crt", &api.ca));
        let server = format!("https://localhost:{}", api.address.port());
        let mut args = vec!["kubernetes", "webhook", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"];
        args.extend(["--service", "keyward-webhook", "--namespace", "team", "--secret-name", "keyward-webhook"]);
        args.extend(["--webhook-configuration", "keyward-webhook", "--api-server", &server]);
        args.extend(["--api-token-file", &token, "--api-ca-file", &ca]);
        args.extend(OPERATOR);
        args.extend(flags);
        let process = Binary::start(&args, &[], folder.path());
        process.logs("serving probes and metrics on ");
        let (address, health) = (after(&process.output(), "https://"), after(&process.output(), "metrics on http://"));
        Self { process, address, health, _folder: folder }
    }

    /// Starts a webhook that is ready.
    async fn ready(api: &KubernetesApi, flags: &[&str]) -> Self {
        let webhook = Self::start(api, flags);
        webhook.becomes("/readyz", 200).await;
        webhook
    }

    /// Waits for a status of an endpoint of the health listener; returns its body.
    async fn becomes(&self, path: &str, status: u16) -> String {
        let url = format!("http://{}{path}", self.health);
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut last = String::new();
        for _ in 0..600 {
            let response = client.get(&url).send().await.unwrap();
            let found = response.status().as_u16();
            last = response.text().await.unwrap();
            if found == status {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{path} is not {status}: {last}\n{}", self.process.output());
    }

    async fn metrics(&self) -> String {
        self.becomes("/metrics", 200).await
    }

    /// Posts a body by the name and the authorities that the API server has.
    async fn post(&self, bundle: &str, body: String) -> Result<(u16, String), reqwest::Error> {
        let authorities = reqwest::Certificate::from_pem_bundle(bundle.as_bytes()).unwrap();
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only(authorities)
            .resolve(NAME, self.address)
            .build()
            .unwrap();
        let url = format!("https://{NAME}:{}/inject?timeout=5s", self.address.port());
        let response = client.post(url).header("content-type", "application/json").body(body).send().await?;
        Ok((response.status().as_u16(), response.text().await?))
    }

    /// Posts the review of a pod; returns the answer's `response`.
    async fn review(&self, api: &KubernetesApi, namespace: &str, pod: &Value) -> Value {
        let (status, body) = self.post(&api.bundle(0), review(namespace, pod).to_string()).await.unwrap();
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(answer["response"]["uid"], UID);
        answer["response"].clone()
    }
}

/// The address after a text of the process's output.
fn after(output: &str, text: &str) -> SocketAddr {
    let (_, rest) = output.split_once(text).unwrap();
    let end = rest.find(['/', '\n']).unwrap();
    rest[..end].parse().unwrap()
}

const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// A review as the API server sends it for a new pod.
fn review(namespace: &str, pod: &Value) -> Value {
    json!({
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": ["system:authenticated"]},
            "object": pod,
            "oldObject": null,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

/// A pod of a Deployment as its controller creates it.
fn pod(annotations: &Value) -> Value {
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": "web-6d4b75cb6d-",
            "creationTimestamp": null,
            "labels": {"app": "web", "pod-template-hash": "6d4b75cb6d"},
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4b75cb6d",
                "uid": "4c2b9f43-7f9a-4a7f-9d3c-0f3f6f1f7f10", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "volumes": [{
                "name": "kube-api-access-x7k2p",
                "projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}], "defaultMode": 420},
            }],
            "containers": [{
                "name": "web",
                "image": "registry.example.com/web:1.0.0",
                "resources": {},
                "volumeMounts": [{
                    "name": "kube-api-access-x7k2p", "readOnly": true,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                }],
                "imagePullPolicy": "IfNotPresent",
            }],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "web",
            "serviceAccount": "web",
            "securityContext": {},
            "schedulerName": "default-scheduler",
        },
        "status": {},
    })
}

/// The JSON patch of an answer.
fn patch(response: &Value) -> Value {
    use base64::Engine as _;
    assert_eq!(response["allowed"], true, "{response}");
    let Some(patch) = response["patch"].as_str() else { return Value::Null };
    assert_eq!(response["patchType"], "JSONPatch");
    serde_json::from_slice(&base64::engine::general_purpose::STANDARD.decode(patch).unwrap()).unwrap()
}
