//! The injected container has the form of the packaged sidecar: what one of them gains, the other one has too.

use std::iter::Peekable;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::fixture::recorded;

/// The part of a manifest in YAML below the first line `KEY:`, which has only maps, numbers, words and lists in JSON.
fn block(manifest: &str, key: &str) -> Value {
    let mut lines = manifest.lines().filter(|line| !line.trim_start().starts_with('#')).peekable();
    let start = format!("{key}:");
    let line = lines.find(|line| line.trim() == start).unwrap_or_else(|| panic!("no {key} in {manifest}"));
    map(&mut lines, indent(line) + 1)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Reads lines that are indented by at least so much.
fn map<'a>(lines: &mut Peekable<impl Iterator<Item = &'a str>>, least: usize) -> Value {
    let mut read = Map::new();
    while let Some(line) = lines.next_if(|line| indent(line) >= least) {
        let (key, value) = line.trim().split_once(':').unwrap();
        let value = match value.trim() {
            "" => map(lines, indent(line) + 1),
            text => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        };
        read.insert(key.to_owned(), value);
    }
    Value::Object(read)
}

#[test]
fn the_container_has_the_probes_resources_and_hardening_of_the_packaged_sidecar() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/kubernetes/sidecar.yaml");
    let manifest = std::fs::read_to_string(path).unwrap();
    let (_, sidecar) = manifest.split_once("initContainers:").unwrap();
    let case = &recorded()["a Deployment with a token"];
    let operations = case["patch"].as_array().unwrap();
    let container = operations.iter().find(|operation| operation["path"] == "/spec/initContainers").unwrap();
    let container = &container["value"][0];
    for key in ["startupProbe", "livenessProbe", "readinessProbe", "resources"] {
        assert_eq!(container[key], block(sidecar, key), "{key}");
    }
    // The pod's own settings are on the container, as nothing of the pod is changed.
    let packaged = block(sidecar, "securityContext");
    for (key, value) in packaged.as_object().unwrap() {
        assert_eq!(container["securityContext"][key], *value, "securityContext.{key}");
    }
    assert_eq!(container["restartPolicy"], "Always");
}
