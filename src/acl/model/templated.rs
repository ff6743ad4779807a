//! Built-in policy templates, and synthetic policies of identities and templates.

use keyward_hcl::quote;
use keyward_telemetry::hex::encode_hex;
use serde_json::{Map, Value};

use super::content_hash::content_hash;
use super::names::is_identity_name;

/// Policy template: rules with a placeholder for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BuiltinTemplate {
    /// Id, part of hashes.
    pub id: &'static str,
    /// Name in links.
    pub name: &'static str,
    /// Description.
    pub description: &'static str,
    /// JSON schema of its variables; empty if it has none.
    pub schema: &'static str,
    /// Rules, with the placeholder `{{.Name}}`.
    pub text: &'static str,
}

// The rule texts must stay byte-identical to Consul's: ids and hashes of synthetic policies depend on them.
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

const NOMAD_CLIENT: &str = r#"agent_prefix "" {
  policy = "read"
}
node_prefix "" {
  policy = "read"
}
service_prefix "" {
  policy = "write"
}
key_prefix "" {
  policy = "read"
}"#;

const API_GATEWAY: &str = r#"mesh = "read"
node_prefix "" {
	policy = "read"
}
service_prefix "" {
	policy = "read"
}
service "{{.Name}}" {
	policy = "write"
}"#;

const WORKLOAD_IDENTITY: &str = r#"
identity "{{.Name}}" {
	policy = "write"
}"#;

const NAME_SCHEMA: &str =
    r#"{"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":256}},"required":["name"]}"#;

/// All templates.
pub(crate) const TEMPLATES: [BuiltinTemplate; 7] = [
    BuiltinTemplate {
        id: "00000000-0000-0000-0000-000000000003",
        name: "builtin/service",
        description: "Lets a service register itself and its sidecar proxy, and discover other services.",
        schema: NAME_SCHEMA,
        text: SERVICE,
    },
    BuiltinTemplate {
        id: "00000000-0000-0000-0000-000000000004",
        name: "builtin/node",
        description: "Lets the agent of a node register the node, and discover services.",
        schema: NAME_SCHEMA,
        text: NODE,
    },
    BuiltinTemplate {
        id: "00000000-0000-0000-0000-000000000005",
        name: "builtin/dns",
        description: "Lets a DNS server read nodes, services and prepared queries.",
        schema: "",
        text: DNS,
    },
    BuiltinTemplate {
        id: "00000000-0000-0000-0000-000000000006",
        name: "builtin/nomad-server",
        description: "Lets a Nomad server register services, and create tokens for its workloads.",
        schema: "",
        text: NOMAD_SERVER,
    },
    BuiltinTemplate {
        id: "00000000-0000-0000-0000-000000000007",
        name: "builtin/workload-identity",
        description: "Lets a workload write its own identity.",
        schema: NAME_SCHEMA,
        text: WORKLOAD_IDENTITY,
    },
    BuiltinTemplate {
        id: "00000000-0000-0000-0000-000000000008",
        name: "builtin/api-gateway",
        description: "Lets an API gateway register itself, and read services, nodes and the mesh configuration.",
        schema: NAME_SCHEMA,
        text: API_GATEWAY,
    },
    BuiltinTemplate {
        id: "00000000-0000-0000-0000-000000000009",
        name: "builtin/nomad-client",
        description: "Lets a Nomad client register services, and read nodes and keys.",
        schema: "",
        text: NOMAD_CLIENT,
    },
];

/// Returns the template by name.
pub(crate) fn find(name: &str) -> Option<&'static BuiltinTemplate> {
    TEMPLATES.iter().find(|template| template.name == name)
}

impl BuiltinTemplate {
    /// Returns whether it requires the variable `name`.
    pub(crate) fn requires_name(&self) -> bool {
        self.text.contains(NAME_PLACEHOLDER)
    }
}

const NAME_PLACEHOLDER: &str = "{{.Name}}";

/// Longest `name`, in bytes.
const MAX_NAME: usize = 256;

/// Error of rendering a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TemplateError {
    /// The template does not exist.
    #[error("acl templated policy does not exist: {}", quote(.0))]
    Unknown(String),
    /// The required `name` is missing or not a string.
    #[error("validation error for templated policy: \"{template}\": name is required, as a string that is not empty")]
    NoName {
        /// Name of the template.
        template: &'static str,
    },
    /// A variable is neither a string nor a map of such, or nested too deep.
    #[error(
        "validation error for templated policy: \"{template}\": the variable {} is neither a string nor a map of such, nested at most 16 deep",
        quote(.name)
    )]
    BadVariable {
        /// Name of the template.
        template: String,
        /// Name of the variable.
        name: String,
    },
    /// `name` and `Name` have different values.
    #[error(
        "validation error for templated policy: \"{template}\": the name is given twice, as \"name\" and as \"Name\""
    )]
    TwoNames {
        /// Name of the template.
        template: String,
    },
    /// The name is not one that a service or node identity may have.
    #[error(
        "validation error for templated policy: \"{template}\": {} has an invalid name. Only lowercase alphanumeric \
         characters, '-' and '_' are allowed",
        quote(.name)
    )]
    IdentityName {
        /// Name of the template.
        template: &'static str,
        /// Name.
        name: String,
    },
    /// The name cannot be inserted into a rule.
    #[error(
        "validation error for templated policy: \"{template}\": the name {} is longer than {MAX_NAME} bytes or holds a \
         quote, a backslash, a control character or \"${{\"",
        quote(.name)
    )]
    BadName {
        /// Name of the template.
        template: &'static str,
        /// Name.
        name: String,
    },
}

/// Renders the rules of a template. Unused variables are ignored.
fn render(template: &BuiltinTemplate, variables: &Map<String, Value>) -> Result<String, TemplateError> {
    if !template.requires_name() {
        return Ok(template.text.to_owned());
    }
    let name = variables.get("name").or_else(|| variables.get("Name"));
    match name.and_then(Value::as_str) {
        None | Some("") => Err(TemplateError::NoName { template: template.name }),
        Some(name) => substitute_name(template, name),
    }
}

/// Renders the rules of a template for a new link, for which Consul limits the names of services and nodes to those of
/// identities.
pub(crate) fn render_for_link(
    template: &BuiltinTemplate,
    variables: &Map<String, Value>,
) -> Result<String, TemplateError> {
    let rules = render(template, variables)?;
    let name = variables.get("name").or_else(|| variables.get("Name")).and_then(Value::as_str).unwrap_or_default();
    if ["builtin/service", "builtin/node"].contains(&template.name) && !is_identity_name(name) {
        return Err(TemplateError::IdentityName { template: template.name, name: name.to_owned() });
    }
    Ok(rules)
}

fn substitute_name(template: &BuiltinTemplate, name: &str) -> Result<String, TemplateError> {
    // These characters would end or alter the string in the rule.
    let breaks_out = |c: char| c == '"' || c == '\\' || c.is_control();
    if name.len() > MAX_NAME || name.contains(breaks_out) || name.contains("${") {
        return Err(TemplateError::BadName { template: template.name, name: name.to_owned() });
    }
    Ok(template.text.replace(NAME_PLACEHOLDER, name))
}

/// Policy of an identity or templated policy. It is not stored; expanded reads return it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntheticPolicy {
    /// Id, derived from its rules; not a UUID.
    pub id: String,
    /// Name, derived from its id.
    pub name: String,
    /// Description.
    pub description: String,
    /// Rules.
    pub rules: String,
    /// Datacenters in which it applies; all if empty.
    pub datacenters: Vec<String>,
    /// Content hash.
    pub hash: String,
}

/// Suffix that Consul appends to the rules to build an id.
/// The 128-bit FNV hash of no input: Consul's `Sum(rules)` appends the hash to its argument instead of hashing it.
const ID_SUFFIX: &str = "6c62272e07bb014262b821756295c58d";

impl SyntheticPolicy {
    /// Creates the policy of a template, limited to `datacenters` unless empty.
    pub(crate) fn from_template(
        name: &str,
        variables: &Map<String, Value>,
        datacenters: &[String],
    ) -> Result<Self, TemplateError> {
        let template = find(name).ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
        let description = format!("synthetic policy generated from templated policy: {name}");
        Ok(Self::new(description, render(template, variables)?, datacenters))
    }

    /// Creates the policy of a service identity, limited to `datacenters` unless empty. Fails if the name cannot be
    /// inserted into a rule.
    pub(crate) fn from_service_identity(name: &str, datacenters: &[String]) -> Result<Self, TemplateError> {
        let rules = substitute_name(&TEMPLATES[0], name)?;
        Ok(Self::new(format!("synthetic policy for service identity \"{name}\""), rules, datacenters))
    }

    /// Creates the policy of a node identity, which applies in one datacenter. Fails if the name cannot be inserted
    /// into a rule.
    pub(crate) fn from_node_identity(name: &str, datacenter: &str) -> Result<Self, TemplateError> {
        let rules = substitute_name(&TEMPLATES[1], name)?;
        Ok(Self::new(format!("synthetic policy for node identity \"{name}\""), rules, &[datacenter.to_owned()]))
    }

    fn new(description: String, rules: String, datacenters: &[String]) -> Self {
        let id = encode_hex(rules.as_bytes()) + ID_SUFFIX;
        let name = format!("synthetic-policy-{id}");
        let texts = [name.clone(), description.clone(), rules.clone()];
        let hash = content_hash(texts.into_iter().chain(datacenters.iter().cloned()));
        Self { id, name, description, rules, datacenters: datacenters.to_vec(), hash }
    }

    /// Returns whether it applies in a datacenter.
    pub(crate) fn applies_in(&self, datacenter: &str) -> bool {
        self.datacenters.is_empty() || self.datacenters.iter().any(|name| name == datacenter)
    }
}

#[cfg(test)]
mod tests;
