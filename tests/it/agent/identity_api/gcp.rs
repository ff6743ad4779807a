//! External accounts of Google Cloud, with its libraries for Go and Python: the subject token by URL, and by file.

use std::time::Duration;

use serde_json::{Value, json};

use super::{ARM, KEY, Scene};
use crate::harness::world::run_in_network_namespace;

fn follow(scene: &Scene, source: &Value) -> [String; 2] {
    let file = scene.agent.path("google.json");
    let account = json!({ "type": "external_account", "audience": "//iam.googleapis.com/projects/1/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "credential_source": source });
    std::fs::write(&file, account.to_string()).unwrap();
    scene.sdks(&["gcp", &file.display().to_string(), "25"], &[])
}

#[test]
fn the_library_of_google_gets_no_expired_subject_token_by_url_or_file_in_three_hours() {
    run_in_network_namespace(|| {
        // An hour is eight seconds here.
        let sink =
            format!("[sink.google]\nidentity = \"azure\"\nresource = \"{ARM}\"\npath = \"FOLDER/google.token\"\n");
        let scene = Scene::start(Duration::from_secs(8), &sink, "");
        scene.assert_one_call_a_life(2, Scene::upstream_calls, |scene| {
            let url = format!("{}?resource={ARM}", scene.url("azure", "token"));
            let format = json!({ "type": "json", "subject_token_field_name": "token" });
            follow(scene, &json!({ "url": url, "headers": { "X-Keyward-Key": KEY }, "format": format }))
        });
        scene.assert_one_call_a_life(2, Scene::upstream_calls, |scene| {
            follow(scene, &json!({ "file": scene.agent.path("google.token") }))
        });
        let url = format!("{}?resource={ARM}&format=xml", scene.url("azure", "token"));
        assert_eq!(scene.ask(&url, &[("X-Keyward-Key", KEY)]).status, 400);
    });
}
