//! Templates render as consul-template renders them, which wrote the fixture (`tests/oracles`), or stand in the table of
//! differences with a reason.

use super::*;
use crate::server_client::SecretLease;
use crate::token::Lease;

/// Their results.
const FIXTURE: &str = include_str!("../../../../tests/it/fixtures/consul-template-0.42.1.json");

/// Reasons, and the templates that differ for them.
const DIFFERENCES: &str = include_str!("../../../../tests/it/fixtures/consul-template-differences.json");

#[test]
fn templates_render_as_consul_template_renders_them_or_differ_for_a_reason() {
    let fixture: Value = serde_json::from_str(FIXTURE).unwrap();
    let reasons = listed_differences();
    let mut unlisted = Vec::new();
    let mut stale: BTreeSet<&str> = reasons.keys().map(String::as_str).collect();
    let mut count = 0;
    for group in fixture["groups"].as_array().unwrap() {
        let part = |name: &str| group[name].as_str().unwrap_or_default();
        for case in group["cases"].as_array().unwrap() {
            let snippet = case["template"].as_str().unwrap();
            let contents = format!("{}{snippet}{}", part("before"), part("after"));
            let lenient = if case["lenient"].is_null() { case } else { &case["lenient"] };
            let differs = [(case, true), (lenient, false)].into_iter().find_map(|(theirs, is_strict)| {
                let (theirs, ours) = (Outcome::read(theirs), Outcome::of(&fixture, &contents, is_strict));
                (!theirs.is_met_by(&ours)).then(|| format!("{snippet}\n   there {theirs:?}\n   here  {ours:?}"))
            });
            count += 1;
            match (differs, reasons.contains_key(snippet)) {
                (Some(difference), false) => unlisted.push(difference),
                (Some(_), true) => {
                    stale.remove(snippet);
                }
                (None, _) => {}
            }
        }
    }
    assert!(count >= 400, "only {count} templates are left");
    assert!(unlisted.is_empty(), "{} templates differ for no listed reason:\n{}", unlisted.len(), unlisted.join("\n"));
    assert!(stale.is_empty(), "these no longer differ, or do not exist: {stale:#?}");
}

#[test]
fn the_reasons_of_differences_are_documented() {
    let page = include_str!("../../../../docs/templates.md");
    for reason in listed_differences().values() {
        assert!(page.contains(reason.as_str()), "docs/templates.md does not say: {reason}");
    }
}

/// Returns the templates that differ, with the reasons.
fn listed_differences() -> BTreeMap<String, String> {
    let listed: Value = serde_json::from_str(DIFFERENCES).unwrap();
    let mut all = BTreeMap::new();
    for row in listed.as_array().unwrap() {
        for snippet in row["templates"].as_array().unwrap() {
            let first = all.insert(snippet.as_str().unwrap().to_owned(), row["reason"].as_str().unwrap().to_owned());
            assert!(first.is_none(), "{snippet} is listed twice");
        }
    }
    all
}

/// Result of a template.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The syntax is refused.
    Compile(String),
    /// The rendering fails.
    Render(String),
    /// A dependency is unknown.
    Unresolved,
    Text(String),
}

impl Outcome {
    /// Reads a result of consul-template.
    fn read(result: &Value) -> Self {
        let reason = || result["reason"].as_str().unwrap_or_default().to_owned();
        match (result["output"].as_str(), result["refused"].as_str()) {
            (Some(output), _) => Self::Text(output.to_owned()),
            (None, Some("compile")) => Self::Compile(reason()),
            (None, Some("render")) => Self::Render(reason()),
            (None, Some("unresolved")) => Self::Unresolved,
            other => panic!("{other:?}"),
        }
    }

    /// Renders a template with the inputs of the fixture.
    fn of(fixture: &Value, contents: &str, is_strict: bool) -> Self {
        let variables = fixture["env"].as_object().unwrap().iter();
        let variables: BTreeMap<String, String> =
            variables.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect();
        let names: Vec<String> = variables.keys().cloned().collect();
        let variables = EnvVars::select(&variables, &names);
        let source = TemplateSource { variables, allows_missing_keys: !is_strict, ..text(contents) };
        let template = match Template::compile(source) {
            Ok(template) => template,
            Err(errors) => return Self::Compile(errors[0].to_string()),
        };
        match template.render(inputs(fixture), SystemTime::UNIX_EPOCH) {
            Rendered::Complete { text, .. } => Self::Text(text),
            Rendered::Unresolved(_) => Self::Unresolved,
            Rendered::Failed(error) => {
                assert!(error.line > 0, "{contents}: {error} has no position");
                Self::Render(error.to_string())
            }
        }
    }

    /// Returns true if ours is the same. A template that they refuse while they render it may be refused earlier here.
    fn is_met_by(&self, ours: &Self) -> bool {
        match (self, ours) {
            (Self::Text(theirs), Self::Text(ours)) => theirs == ours,
            (Self::Compile(_) | Self::Render(_), Self::Compile(_)) | (Self::Render(_), Self::Render(_)) => true,
            (theirs, ours) => *theirs == Self::Unresolved && *ours == Self::Unresolved,
        }
    }
}

fn inputs(fixture: &Value) -> Arc<BTreeMap<Dependency, Resolved>> {
    let mut inputs = BTreeMap::new();
    for secret in fixture["secrets"].as_array().unwrap() {
        let path = secret["path"].as_str().unwrap().to_owned();
        let op = secret["write"].as_object().map_or(SecretOp::Read, |fields| {
            SecretOp::Write(
                fields.iter().map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect(),
            )
        });
        let ttl = secret["lease_duration"].as_u64().map(Duration::from_secs);
        let renewable = secret["renewable"].as_bool().unwrap_or_default();
        let lease = secret["lease_id"]
            .as_str()
            .map(|id| SecretLease { id: id.to_owned(), lease: Lease { ttl: ttl.unwrap_or_default(), renewable } });
        let data = Arc::new(SecretFields::from(secret["data"].as_object().unwrap().clone()));
        let response = SecretResponse { data, lease, suggested_ttl: ttl };
        inputs.insert(Dependency::Secret(SecretRequest { path, op }), Resolved::Secret(Arc::new(response)));
    }
    for (path, names) in fixture["lists"].as_object().unwrap() {
        let request = SecretRequest { path: path.clone(), op: SecretOp::List };
        inputs.insert(Dependency::Secret(request), response(&json!({ "keys": names })));
    }
    for (path, text) in fixture["files"].as_object().unwrap() {
        let text = Arc::new(SecretString::from(text.as_str().unwrap()));
        inputs.insert(Dependency::File(path.into()), Resolved::Text(text));
    }
    Arc::new(inputs)
}
