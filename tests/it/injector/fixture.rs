//! The patches of annotated pods, and the results of Kubernetes' own code for them (tests/oracles/injected-pods).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use keyward_config::{Environment, Purpose, load_text};
use serde_json::{Value, json};

use super::cases::{Case, all};
use super::{Webhook, patch, review};
use crate::harness::binary::run;
use crate::harness::kubernetes::KubernetesApi;

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/injected-pods.json")
}

/// Cases of the fixture, by name.
pub(super) fn recorded() -> BTreeMap<String, Value> {
    let fixture: Value = serde_json::from_str(&std::fs::read_to_string(path()).unwrap()).unwrap();
    let cases = fixture["cases"].as_array().unwrap().iter();
    cases.map(|case| (case["name"].as_str().unwrap().to_owned(), case.clone())).collect()
}

/// Patches all pods by the webhook: one process for each set of flags.
async fn patched() -> Vec<(Case, Value)> {
    let api = KubernetesApi::start();
    let mut patched = Vec::new();
    let mut webhook: Option<(&[&str], Webhook)> = None;
    for case in all() {
        if webhook.as_ref().is_none_or(|(flags, _)| *flags != case.flags) {
            webhook = Some((case.flags, Webhook::ready(&api, case.flags).await));
        }
        let (_, webhook) = webhook.as_ref().unwrap();
        let operations = patch(&webhook.review(&api, "team", &case.pod).await);
        assert!(operations.is_array(), "{}", case.name);
        patched.push((case, operations));
    }
    patched
}

/// Returns true if the fixture is to be written.
#[expect(clippy::disallowed_methods, reason = "the test's own environment")]
fn writes_fixture() -> bool {
    std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always")
}

#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_accepts_every_patched_pod() {
    let patched = patched().await;
    assert!(patched.len() >= 30);
    if writes_fixture() {
        let cases: Vec<Value> = patched
            .iter()
            .map(|(case, patch)| json!({"name": case.name, "namespace": "team", "pod": case.pod, "patch": patch}))
            .collect();
        let fixture = json!({"kubernetes": "", "cases": cases});
        std::fs::write(path(), serde_json::to_string_pretty(&fixture).unwrap() + "\n").unwrap();
        panic!("wrote the pods and their patches; run `tests/oracles/run injected-pods` for the results of Kubernetes");
    }
    let recorded = recorded();
    assert_eq!(recorded.len(), patched.len(), "the fixture has other pods; INSTA_UPDATE=always writes them");
    for (case, patch) in patched {
        let expected = &recorded[case.name];
        assert_eq!(expected["pod"], case.pod, "{}: another pod; INSTA_UPDATE=always writes it", case.name);
        assert_eq!(expected["patch"], patch, "{}: another patch; INSTA_UPDATE=always writes it", case.name);
        assert_eq!(expected["invalid"], json!([]), "{}: the API server refuses the pod", case.name);
        assert_eq!(expected["unrestricted"], json!([]), "{}: the pod lost Pod Security `restricted`", case.name);
    }
}

#[test]
fn keyward_accepts_the_configuration_that_its_process_gets() {
    let folder = tempfile::tempdir().unwrap();
    for (name, case) in recorded() {
        let variables: BTreeMap<String, String> = serde_json::from_value(case["variables"].clone()).unwrap();
        let config = &variables["KEYWARD_POD_CONFIG"];
        let environment = Environment { variables: variables.clone(), user: 65532 };
        let outcome = load_text(Path::new("keyward.toml"), config, &environment, Purpose::Check);
        assert_eq!(outcome.errors, [], "{name}: {config}");
        let file = folder.path().join("keyward.toml");
        std::fs::write(&file, config).unwrap();
        let azure: Vec<(&str, &str)> = variables
            .iter()
            .filter(|(variable, _)| variable.starts_with("AZURE_"))
            .map(|(variable, value)| (variable.as_str(), value.as_str()))
            .collect();
        let (code, output, error) = run(&["check", file.to_str().unwrap()], &azure);
        assert_eq!(code, 0, "{name}: {output}{error}{config}");
    }
}

#[test]
fn a_template_reaches_its_process_as_the_annotation_has_it() {
    let case = &recorded()["characters that shells, TOML and the kubelet expand"];
    let variables: BTreeMap<String, String> = serde_json::from_value(case["variables"].clone()).unwrap();
    let config: toml::Table = variables["KEYWARD_POD_CONFIG"].parse().unwrap();
    let annotation = &case["pod"]["metadata"]["annotations"]["keyward.dev/template-odd"];
    assert_eq!(config["template"]["odd"]["contents"].as_str(), annotation.as_str());
}

#[test]
fn a_pod_gets_nothing_that_its_annotations_do_not_grant() {
    for (name, case) in recorded() {
        let mut touched = BTreeSet::new();
        for operation in case["patch"].as_array().unwrap() {
            assert_eq!(operation["op"], "add", "{name}: nothing of the pod is replaced");
            let path = operation["path"].as_str().unwrap();
            let known = ["/spec/volumes", "/spec/initContainers", "/metadata/annotations/"];
            let is_mount = path.ends_with("/volumeMounts") || path.ends_with("/volumeMounts/-");
            assert!(is_mount || known.iter().any(|start| path.starts_with(start)), "{name}: {path}");
            touched.insert(path.to_owned());
            // Mounts of the pod's own containers are the files, never the state or the service account's token.
            let mounts =
                if operation["value"].is_array() { operation["value"].clone() } else { json!([operation["value"]]) };
            for mount in mounts.as_array().unwrap().iter().filter(|_| is_mount) {
                assert!(mount["name"].as_str().unwrap().starts_with("keyward-files"), "{name}: {mount}");
                assert_eq!(mount["readOnly"], true, "{name}: {mount}");
            }
        }
        assert!(touched.iter().any(|path| path.contains("keyward.dev~1status")), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_injected_pod_is_not_injected_again() {
    let api = KubernetesApi::start();
    let webhook = Webhook::ready(&api, &[]).await;
    for (name, case) in recorded() {
        let mut pod = case["pod"].clone();
        apply(&mut pod, case["patch"].as_array().unwrap());
        let (status, text) = webhook.post(&api.bundle(0), review("team", &pod).to_string()).await.unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((status, &answer["response"]["allowed"]), (200, &json!(true)), "{name}: {text}");
        assert_eq!(answer["response"]["patch"], Value::Null, "{name}");
    }
}

/// Applies operations that add values. The oracle applies them by the library of the API server.
fn apply(pod: &mut Value, operations: &[Value]) {
    for operation in operations {
        let (parent, key) = operation["path"].as_str().unwrap().rsplit_once('/').unwrap();
        let key = key.replace("~1", "/").replace("~0", "~");
        let value = operation["value"].clone();
        match pod.pointer_mut(parent).unwrap() {
            Value::Array(list) if key == "-" => list.push(value),
            Value::Array(list) => list.insert(key.parse().unwrap(), value),
            Value::Object(object) => drop(object.insert(key, value)),
            other => panic!("{operation}: {other}"),
        }
    }
}
