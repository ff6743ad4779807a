//! The templated policies that are built in, and the policies that identities and templates stand for.

use serde_json::{Map, Value};

use super::content_hash::content_hash;
use crate::hcl::shown;
use crate::hex::encode_hex;

/// A templated policy: rules with a place for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    /// Its id, which stands in hashes.
    pub id: &'static str,
    /// Its name, by which tokens and roles link it.
    pub name: &'static str,
    /// What it is for.
    pub description: &'static str,
    /// Its variables as a JSON schema; empty for one without.
    pub schema: &'static str,
    /// Its rules, with `{{.Name}}` where the name goes.
    pub text: &'static str,
}

// The texts of rules, to the byte, are part of what clients compare: ids and hashes of synthetic policies are made of them.
const SERVICE: &str = r#"
service "{{.Name}}" {
	policy = "write"
}
service "{{.Name}}-sidecar-proxy" {
	policy = "write"
}
service_prefix "" {
	policy = "read"
}
node_prefix "" {
	policy = "read"
}"#;

const NODE: &str = r#"
node "{{.Name}}" {
	policy = "write"
}
service_prefix "" {
	policy = "read"
}"#;

const DNS: &str = r#"
node_prefix "" {
	policy = "read"
}
service_prefix "" {
	policy = "read"
}
query_prefix "" {
	policy = "read"
}"#;

const NOMAD_SERVER: &str = r#"
acl = "write"
agent_prefix "" {
	policy = "read"
}
node_prefix "" {
	policy = "read"
}
service_prefix "" {
	policy = "write"
}"#;

const WORKLOAD_IDENTITY: &str = r#"
identity "{{.Name}}" {
	policy = "write"
}"#;

const WITH_NAME: &str =
    r#"{"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":256}},"required":["name"]}"#;

/// All there are.
pub const TEMPLATES: [Template; 5] = [
    Template {
        id: "00000000-0000-0000-0000-000000000003",
        name: "builtin/service",
        description: "For one service: it registers itself and its sidecar proxy, and finds all others.",
        schema: WITH_NAME,
        text: SERVICE,
    },
    Template {
        id: "00000000-0000-0000-0000-000000000004",
        name: "builtin/node",
        description: "For the agent of one node: it registers the node, and finds all services.",
        schema: WITH_NAME,
        text: NODE,
    },
    Template {
        id: "00000000-0000-0000-0000-000000000005",
        name: "builtin/dns",
        description: "For a DNS server: it reads nodes, services and prepared queries.",
        schema: "",
        text: DNS,
    },
    Template {
        id: "00000000-0000-0000-0000-000000000006",
        name: "builtin/nomad-server",
        description: "For a Nomad server: it registers services, and makes tokens for what it runs.",
        schema: "",
        text: NOMAD_SERVER,
    },
    Template {
        id: "00000000-0000-0000-0000-000000000007",
        name: "builtin/workload-identity",
        description: "For one workload: it writes its own identity.",
        schema: WITH_NAME,
        text: WORKLOAD_IDENTITY,
    },
];

/// The template of that name.
pub fn find(name: &str) -> Option<&'static Template> {
    TEMPLATES.iter().find(|template| template.name == name)
}

impl Template {
    /// Whether it has a place for a name.
    pub fn takes_name(&self) -> bool {
        self.text.contains(PLACE)
    }
}

const PLACE: &str = "{{.Name}}";

/// The longest name that a template takes, in bytes.
const MAX_NAME: usize = 256;

/// Why a template gives no rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// There is none of that name.
    #[error("acl templated policy does not exist: {}", shown(.0))]
    Unknown(String),
    /// The name that it needs is not among its variables, or is no text.
    #[error("validation error for templated policy: \"{template}\": name is required, as a string that is not empty")]
    NoName {
        /// The template.
        template: &'static str,
    },
    /// A variable is neither a text nor a map of such, or too deep.
    #[error(
        "validation error for templated policy: \"{template}\": the variable {} is neither a string nor a map of such, nested at most 16 deep",
        shown(.name)
    )]
    BadVariable {
        /// The template.
        template: String,
        /// The variable.
        name: String,
    },
    /// The name is given twice, and not the same.
    #[error(
        "validation error for templated policy: \"{template}\": the name is given twice, as \"name\" and as \"Name\""
    )]
    TwoNames {
        /// The template.
        template: String,
    },
    /// The name cannot stand in a rule.
    #[error(
        "validation error for templated policy: \"{template}\": the name {} is longer than {MAX_NAME} bytes or holds a \
         quote, a backslash, a control character or \"${{\"",
        shown(.name)
    )]
    BadName {
        /// The template.
        template: &'static str,
        /// The name.
        name: String,
    },
}

/// The rules of a template. Variables that it has no place for are not looked at.
///
/// # Errors
/// It needs a name and has none that may stand in a rule.
pub fn render(template: &Template, variables: &Map<String, Value>) -> Result<String, TemplateError> {
    if !template.takes_name() {
        return Ok(template.text.to_owned());
    }
    let named = variables.get("name").or_else(|| variables.get("Name"));
    match named.and_then(Value::as_str) {
        None | Some("") => Err(TemplateError::NoName { template: template.name }),
        Some(name) => fill(template, name),
    }
}

fn fill(template: &Template, name: &str) -> Result<String, TemplateError> {
    // None of these may be in a rule's string as it stands: the name would end there, or be another one.
    let breaks_out = |letter: char| letter == '"' || letter == '\\' || letter.is_control();
    if name.len() > MAX_NAME || name.contains(breaks_out) || name.contains("${") {
        return Err(TemplateError::BadName { template: template.name, name: name.to_owned() });
    }
    Ok(template.text.replace(PLACE, name))
}

/// The policy that an identity or a templated policy stands for. It is not stored; expanded reads show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticPolicy {
    /// Its id: made of its rules, and no UUID.
    pub id: String,
    /// Its name: made of its id.
    pub name: String,
    /// What it stands for.
    pub description: String,
    /// Its rules.
    pub rules: String,
    /// Where it counts; everywhere when empty.
    pub datacenters: Vec<String>,
    /// Its content hash.
    pub hash: String,
}

/// What such services put after the rules to make an id.
const ID_END: &str = "6c62272e07bb014262b821756295c58d";

impl SyntheticPolicy {
    /// That of a templated policy with its variables, limited to datacenters if there are any.
    ///
    /// # Errors
    /// There is no such template, or [`render`] refuses its variables.
    pub fn of_template(
        name: &str,
        variables: &Map<String, Value>,
        datacenters: &[String],
    ) -> Result<Self, TemplateError> {
        let template = find(name).ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
        let description = format!("synthetic policy generated from templated policy: {name}");
        Ok(Self::new(description, render(template, variables)?, datacenters))
    }

    /// That of a service identity, limited to datacenters if there are any.
    ///
    /// # Errors
    /// The name cannot stand in a rule. None that a service identity may have is refused.
    pub fn of_service(name: &str, datacenters: &[String]) -> Result<Self, TemplateError> {
        let rules = fill(&TEMPLATES[0], name)?;
        Ok(Self::new(format!("synthetic policy for service identity \"{name}\""), rules, datacenters))
    }

    /// That of a node identity, which counts in one datacenter.
    ///
    /// # Errors
    /// The name cannot stand in a rule. None that a node identity may have is refused.
    pub fn of_node(name: &str, datacenter: &str) -> Result<Self, TemplateError> {
        let rules = fill(&TEMPLATES[1], name)?;
        Ok(Self::new(format!("synthetic policy for node identity \"{name}\""), rules, &[datacenter.to_owned()]))
    }

    fn new(description: String, rules: String, datacenters: &[String]) -> Self {
        let id = encode_hex(rules.as_bytes()) + ID_END;
        let name = format!("synthetic-policy-{id}");
        let texts = [name.clone(), description.clone(), rules.clone()];
        let hash = content_hash(texts.into_iter().chain(datacenters.iter().cloned()));
        Self { id, name, description, rules, datacenters: datacenters.to_vec(), hash }
    }

    /// Whether it counts in a server's datacenter.
    pub fn counts_in(&self, datacenter: &str) -> bool {
        self.datacenters.is_empty() || self.datacenters.iter().any(|its| its == datacenter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::acl::model::rules::Rules;

    fn of(template: &str, variables: Value) -> Result<SyntheticPolicy, TemplateError> {
        SyntheticPolicy::of_template(template, &serde_json::from_value(variables).unwrap(), &[])
    }

    #[test]
    fn a_synthetic_policy_has_the_hash_that_clients_know() {
        let policy = of("builtin/service", json!({"name": "web"})).unwrap();
        assert_eq!(policy.hash, "b04MnvCVtBXZAmGe4uDpGLABJoGo2nNhEJkqaN5E5x4=");
        assert!(policy.id.starts_with("0a73657276696365202277656222") && policy.id.ends_with(ID_END));
        assert_eq!(policy.name, format!("synthetic-policy-{}", policy.id));
        let limited = SyntheticPolicy::of_service("web", &["dc2".into()]).unwrap();
        assert_eq!((limited.rules, limited.id), (policy.rules, policy.id));
        assert_ne!(limited.hash, SyntheticPolicy::of_service("web", &[]).unwrap().hash);
    }

    #[test]
    fn every_template_gives_rules_and_has_a_schema_that_says_what_it_takes() {
        for template in TEMPLATES {
            let policy = of(template.name, json!({"name": "web", "other": {"a": "b"}})).unwrap();
            Rules::parse(&policy.rules).unwrap();
            assert!(policy.rules.starts_with('\n') && !policy.rules.contains("{{"), "{}", template.name);
            let schema: Value = serde_json::from_str(template.schema).unwrap_or_default();
            assert_eq!(schema["required"] == json!(["name"]), template.takes_name(), "{}", template.name);
            assert_eq!(of(template.name, json!({})).is_err(), template.takes_name(), "{}", template.name);
            assert_eq!(find(template.name), Some(&template));
        }
        assert_eq!(find("builtin/Service"), None);
        assert_eq!(of("x", json!({})).unwrap_err().to_string(), "acl templated policy does not exist: \"x\"");
    }

    #[test]
    fn a_name_is_taken_only_if_it_stays_in_its_quotes() {
        let check = |variables: Value, wanted: Option<&str>| {
            let found = of("builtin/workload-identity", variables.clone()).ok().map(|policy| policy.rules);
            let rules = wanted.map(|name| format!("\nidentity \"{name}\" {{\n\tpolicy = \"write\"\n}}"));
            assert_eq!(found, rules, "{variables}");
        };
        check(json!({"name": "web"}), Some("web"));
        check(json!({"Name": "web"}), Some("web"));
        check(json!({"name": "a b/c.é$"}), Some("a b/c.é$"));
        check(json!({"name": "x".repeat(256)}), Some(&"x".repeat(256)));
        for name in ["", "a\"", "\"{}acl=\"write\"", "a\\", "a\nb", "a\u{7f}", "${", "a${b}", &"x".repeat(257)] {
            check(json!({ "name": name }), None);
        }
        check(json!({"name": 5}), None);
        check(json!({"name": {"name": "web"}}), None);
        check(json!({"NAME": "web"}), None);
    }

    #[test]
    fn an_identity_counts_where_it_is_limited_to() {
        let policy = SyntheticPolicy::of_service("web", &["dc1".into(), "dc3".into()]).unwrap();
        assert_eq!(["dc1", "dc2", "dc3"].map(|here| policy.counts_in(here)), [true, false, true]);
        assert!(SyntheticPolicy::of_service("web", &[]).unwrap().counts_in("dc9"));
        let node = SyntheticPolicy::of_node("n1", "dc2").unwrap();
        assert_eq!(["dc1", "dc2"].map(|here| node.counts_in(here)), [false, true]);
        assert_eq!(node.description, "synthetic policy for node identity \"n1\"");
        assert_eq!(node.rules, of("builtin/node", json!({"name": "n1"})).unwrap().rules);
    }

    proptest! {
        #[test]
        fn a_name_that_is_taken_is_the_name_in_the_rules(name in "\\PC{0,8}[\"$\\\\{}a-z]{0,6}") {
            if let Ok(policy) = SyntheticPolicy::of_service(&name, &[]) {
                let write = json!({"policy": "write"});
                let read = json!({"": {"policy": "read"}});
                let named = json!({&name: write, format!("{name}-sidecar-proxy"): write});
                let same = json!({"service": named, "service_prefix": read, "node_prefix": read}).to_string();
                prop_assert_eq!(Rules::parse(&policy.rules).unwrap(), Rules::parse(&same).unwrap());
            }
        }
    }
}
