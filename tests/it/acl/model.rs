//! Random requests: the service answers like a simple model of it.

mod simple;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::{Value, json};
use simple::{Action, Caller, LEVELS, Model, NAMES, ObjectKind, lifetime, namespace, takes_accessor};

use crate::harness::Acl;

/// One request, or a step in time.
#[derive(Debug, Clone)]
enum Step {
    Ask {
        /// The bootstrap token, no token, or one of the created tokens.
        caller: u8,
        team: bool,
        does: Action,
    },
    /// Steps of twenty seconds, so that expirations are never close to the real duration of a test.
    Pass(u8),
}

fn does() -> impl Strategy<Value = Action> {
    let kind = || prop_oneof![1 => Just(ObjectKind::Policy), 1 => Just(ObjectKind::Role), 3 => Just(ObjectKind::Token)];
    let links = || prop::collection::vec(any::<u8>(), 0..3);
    let which = || prop::option::of(any::<u8>());
    let policy = (which(), any::<u8>(), any::<u8>());
    let role = (which(), any::<u8>(), links());
    let token = (which(), links(), links(), prop::bool::weighted(0.2), any::<u8>());
    prop_oneof![
        2 => policy.prop_map(|(which, name, level)| Action::Policy { which, name, level }),
        2 => role.prop_map(|(which, name, policies)| Action::Role { which, name, policies }),
        6 => token.prop_map(|(which, policies, roles, local, more)| Action::Token { which, policies, roles, local, more }),
        2 => any::<u8>().prop_map(Action::Clone),
        3 => (kind(), any::<u8>()).prop_map(|(kind, which)| Action::Delete(kind, which)),
        4 => (kind(), any::<u8>()).prop_map(|(kind, which)| Action::Read(kind, which)),
        2 => which().prop_map(Action::List),
        1 => Just(Action::ReadSelf),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let caller = prop_oneof![3 => Just(0_u8), 1 => Just(1_u8), 4 => any::<u8>()];
    let ask = (caller, prop::bool::weighted(0.3), does());
    prop_oneof![
        20 => ask.prop_map(|(caller, team, does)| Step::Ask { caller, team, does }),
        1 => (1..6_u8).prop_map(Step::Pass),
    ]
}

/// Initial steps: a reading and a writing token in both namespaces.
fn first_steps() -> Vec<Step> {
    let mut steps = Vec::new();
    for (place, team) in [(0, false), (2, true)] {
        let mut first = |does| steps.push(Step::Ask { caller: 0, team, does });
        for level in [1, 2] {
            first(Action::Policy { which: None, name: level, level });
        }
        // Even numbers: by id.
        let (read, role) = (vec![place], vec![place]);
        first(Action::Role { which: None, name: 0, policies: vec![place + 1] });
        first(Action::Token { which: None, policies: read, roles: vec![], local: false, more: 0 });
        first(Action::Token { which: None, policies: vec![], roles: role, local: false, more: 0 });
    }
    steps
}

/// Links to the chosen objects, every other one by name.
fn links(model: &Model, kind: ObjectKind, which: &[u8]) -> Value {
    let link = |which: &u8| {
        let thing = &model.all(kind)[model.chosen(kind, *which)];
        if which % 2 == 1 { json!({"Name": thing.name}) } else { json!({"ID": thing.id}) }
    };
    which.iter().map(link).collect()
}

/// Builds the HTTP request.
fn request(model: &Model, does: &Action) -> (&'static str, String, Value) {
    let id = |kind: ObjectKind, which: u8| model.all(kind)[model.chosen(kind, which)].id.clone();
    let at = |kind: ObjectKind, which: u8| format!("{}/{}", kind.as_str(), id(kind, which));
    let target = |kind: ObjectKind, which: Option<u8>| which.map_or(kind.as_str().to_owned(), |which| at(kind, which));
    let name = |name: u8| NAMES[usize::from(name) % NAMES.len()];
    match does {
        Action::Policy { which, name: number, level } => {
            let body = json!({"Name": name(*number), "Rules": LEVELS[usize::from(*level) % LEVELS.len()]});
            ("PUT", target(ObjectKind::Policy, *which), body)
        }
        Action::Role { which, name: number, policies } => {
            let body = json!({"Name": name(*number), "Policies": links(model, ObjectKind::Policy, policies)});
            ("PUT", target(ObjectKind::Role, *which), body)
        }
        Action::Token { which, policies, roles, local, more } => {
            let mut body = json!({
                "Description": more.to_string(), "Local": local,
                "Policies": links(model, ObjectKind::Policy, policies), "Roles": links(model, ObjectKind::Role, roles),
            });
            if which.is_none() {
                body["ExpirationTTL"] = json!(lifetime(*more).0);
                if takes_accessor(*more) {
                    body["AccessorID"] = json!(id(ObjectKind::Token, *more));
                }
            }
            ("PUT", target(ObjectKind::Token, *which), body)
        }
        Action::Clone(which) => ("PUT", format!("{}/clone", at(ObjectKind::Token, *which)), json!({})),
        Action::Delete(kind, which) => ("DELETE", at(*kind, *which), Value::Null),
        Action::Read(kind, which) => ("GET", at(*kind, *which), Value::Null),
        Action::List(None) => ("GET", "tokens".to_owned(), Value::Null),
        Action::List(Some(policy)) => {
            ("GET", format!("tokens?policy={}", id(ObjectKind::Policy, *policy)), Value::Null)
        }
        Action::ReadSelf => ("GET", "token/self".to_owned(), Value::Null),
    }
}

/// Parts of a response that the model predicts.
fn predicted_part(response: &Value, first: &Value) -> Value {
    let anonymous = json!("00000000-0000-0000-0000-000000000002");
    let built_in = |item: &&Value| [&first["AccessorID"], &anonymous].contains(&&item["AccessorID"]);
    match response {
        Value::Array(items) => {
            items.iter().filter(|item| !built_in(item)).map(|item| predicted_part(item, first)).collect()
        }
        Value::Object(fields) => {
            let kept_fields =
                ["AccessorID", "SecretID", "ID", "Name", "Rules", "Local", "Namespace", "Policies", "Roles"];
            let mut view: BTreeMap<&str, Value> =
                kept_fields.into_iter().filter_map(|field| Some((field, fields.get(field)?.clone()))).collect();
            if fields.contains_key("AccessorID") {
                view.insert("Description", fields["Description"].clone());
                view.insert("ExpirationTime", json!(fields.contains_key("ExpirationTime")));
                view.entry("Roles").or_insert(json!([]));
            }
            if !fields.contains_key("Rules") {
                view.entry("Policies").or_insert(json!([]));
            }
            json!(view)
        }
        other => other.clone(),
    }
}

async fn ask(acl: &Acl, model: &mut Model, caller: u8, team: bool, does: &Action) {
    let tokens = model.all(ObjectKind::Token);
    let caller = match caller {
        0 => Caller::First,
        1 => Caller::Nobody,
        number => Caller::Holder(usize::from(number) % tokens.len()),
    };
    let secret = match caller {
        Caller::First => Some(acl.root.as_str()),
        Caller::Nobody => None,
        Caller::Holder(holder) => Some(tokens[holder].secret.as_str()),
    };
    let (method, path, body) = request(model, does);
    let path = format!("/v1/acl/{path}{}ns={}", if path.contains('?') { '&' } else { '?' }, namespace(team));
    let response = acl.call(method, &path, secret, Some(body)).await;
    let document: Value = serde_json::from_str(&response.text).unwrap_or_default();
    let text = |field: &str| document.get(field).and_then(Value::as_str).unwrap_or_default();
    let id = if text("ID").is_empty() { text("AccessorID") } else { text("ID") };
    let expected = model.expected(does, team, caller, (id, text("SecretID")));
    let about = format!("{caller:?} at {} s: {does:?}: {method} {path}: {response:?}", model.now);
    match expected {
        Ok(expected) => {
            assert_eq!(response.status, 200, "{about}; expected {expected}");
            assert_eq!(predicted_part(&document, &model.first), expected, "{about}");
        }
        Err((status, text)) => {
            let as_expected = response.status == status && response.text.starts_with(&text);
            assert!(as_expected, "{about}; expected {status} {text}");
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 4, failure_persistence: None, max_shrink_iters: 60, ..Config::default() })]
    #[test]
    fn any_sequence_of_operations_is_answered_as_the_model_says(steps in prop::collection::vec(step(), 60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let acl = Acl::start().await;
            acl.make("/v1/namespace", json!({"Name": "team"})).await;
            let first = acl.get("/v1/acl/token/self").await.json();
            let mut model = Model::new(predicted_part(&first, &Value::Null));
            for step in first_steps().into_iter().chain(steps) {
                match step {
                    Step::Ask { caller, team, does } => ask(&acl, &mut model, caller, team, &does).await,
                    Step::Pass(times) => {
                        acl.clock.set_wall_by(20 * i64::from(times));
                        model.now += 20 * u64::from(times);
                    }
                }
            }
        });
    }
}
