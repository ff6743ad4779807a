//! The injector: reviews of pods.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keyward_config::{Environment, Purpose, load_text};
use keyward_injector::{CONFIG_VARIABLE, Outcome, fuzz, review as answer};
use serde_json::Value;

/// Answers bytes as a review. A pod gets a configuration that keyward accepts, and its own containers get only the files; all else is
/// refused in one line.
pub(crate) fn review(bytes: &[u8]) {
    let reviewed = match answer(bytes, &fuzz::options(), Some("a bundle")) {
        Ok(reviewed) => reviewed,
        Err(error) => return super::assert_one_line(&error.to_string()),
    };
    let response: Value = serde_json::from_slice(&reviewed.response).expect("the answer is JSON");
    let response = &response["response"];
    assert_eq!(response["allowed"].as_bool(), Some(!matches!(reviewed.outcome, Outcome::Refused(_))));
    if let Outcome::Refused(why) = &reviewed.outcome {
        super::assert_one_line(why);
    }
    let Some(patch) = response["patch"].as_str() else {
        assert_ne!(reviewed.outcome, Outcome::Injected);
        return;
    };
    assert_eq!(reviewed.outcome, Outcome::Injected);
    let patch: Vec<Value> = serde_json::from_slice(&STANDARD.decode(patch).expect("base64")).expect("a JSON patch");
    let mut configurations = 0;
    for operation in &patch {
        assert_eq!(operation["op"], "add");
        let path = operation["path"].as_str().unwrap_or_default();
        let values = match &operation["value"] {
            Value::Array(values) => values.clone(),
            value => vec![value.clone()],
        };
        if path.contains("/volumeMounts") {
            for mount in &values {
                assert!(mount["name"].as_str().is_some_and(|name| name.starts_with("keyward-files")), "{mount}");
                assert_eq!(mount["readOnly"], true, "{mount}");
            }
        }
        for variable in values.iter().filter_map(|value| value["env"].as_array()).flatten() {
            if variable["name"] == CONFIG_VARIABLE {
                configurations += 1;
                assert_is_configuration(&variable["value"].as_str().unwrap_or_default().replace("$$", "$"));
            }
        }
    }
    assert_eq!(configurations, 1, "a pod has one configuration");
}

fn assert_is_configuration(text: &str) {
    let variables = [("AZURE_CLIENT_ID", "a"), ("AZURE_TENANT_ID", "a"), ("AZURE_FEDERATED_TOKEN_FILE", "/a")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let environment = Environment { variables, user: 65532 };
    let outcome = load_text(Path::new("keyward.toml"), text, &environment, Purpose::Check);
    assert!(outcome.errors.is_empty(), "{:?} in {text}", outcome.errors);
}
