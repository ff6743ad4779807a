//! What a token or a role links: policies by id, identities and templated policies by name.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::id::Id;
use super::names::is_identity_name;
use super::templated::{SyntheticPolicy, TemplateError};

/// What tokens and roles both link. Policies are linked by id: a rename breaks nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Links {
    /// Policies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Id>,
    /// Service identities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub service_identities: Vec<ServiceIdentity>,
    /// Node identities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_identities: Vec<NodeIdentity>,
    /// Templated policies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templated_policies: Vec<TemplatedPolicy>,
}

/// The rights of a service's own process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ServiceIdentity {
    /// The service.
    pub service_name: String,
    /// Where it counts; everywhere when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

/// The rights of a node's own agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeIdentity {
    /// The node.
    pub node_name: String,
    /// The only datacenter that it counts in.
    pub datacenter: String,
}

/// A policy that a template gives, with what is put into it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TemplatedPolicy {
    /// The template.
    pub template_name: String,
    /// Texts, or maps; keys that the template does not use are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_variables: Option<Map<String, Value>>,
    /// Where it counts; everywhere when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
}

/// What carries links, for the words of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A token, and whether it is local.
    Token {
        /// Whether it counts in this datacenter only.
        local: bool,
    },
    /// A role.
    Role,
}

impl Holder {
    fn word(self) -> &'static str {
        match self {
            Self::Token { .. } => "token",
            Self::Role => "role",
        }
    }
}

/// Why identities cannot be linked, in the words that clients know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A service identity without a name.
    #[error("Service identity is missing the service name field on this {}", .0.word())]
    NoServiceName(Holder),
    /// A service identity with a name that is none.
    #[error(
        "Service identity {0:?} has an invalid name. Only lowercase alphanumeric characters, '-' and '_' are allowed"
    )]
    ServiceName(String),
    /// A local token counts in one datacenter anyway.
    #[error("Service identity {0:?} cannot specify a list of datacenters on a local token")]
    DatacentersOfLocal(String),
    /// A node identity without a name.
    #[error("Node identity is missing the node name field on this {}", .0.word())]
    NoNodeName(Holder),
    /// A node identity without a datacenter.
    #[error("Node identity is missing the datacenter field on this {}", .0.word())]
    NoDatacenter(Holder),
    /// A node identity with a name that is none.
    #[error("Node identity has an invalid name. Only lowercase alphanumeric characters, '-' and '_' are allowed")]
    NodeName,
}

/// Most characters of a text that an error repeats.
const SHOWN: usize = 300;

/// Checks service identities and merges those of one name: together they count wherever one of them does.
///
/// # Errors
/// The first that cannot be linked by that holder.
pub fn service_identities(given: Vec<ServiceIdentity>, holder: Holder) -> Result<Vec<ServiceIdentity>, IdentityError> {
    let mut merged: Vec<ServiceIdentity> = Vec::new();
    for mut identity in given {
        let name = &identity.service_name;
        if name.is_empty() {
            return Err(IdentityError::NoServiceName(holder));
        }
        if !is_identity_name(name) {
            return Err(IdentityError::ServiceName(name.chars().take(SHOWN).collect()));
        }
        if holder == (Holder::Token { local: true }) && !identity.datacenters.is_empty() {
            return Err(IdentityError::DatacentersOfLocal(name.clone()));
        }
        identity.datacenters.sort();
        identity.datacenters.dedup();
        match merged.iter_mut().find(|it| it.service_name == identity.service_name) {
            // One that counts everywhere takes the other in.
            Some(same) if same.datacenters.is_empty() || identity.datacenters.is_empty() => same.datacenters.clear(),
            Some(same) => {
                same.datacenters.append(&mut identity.datacenters);
                same.datacenters.sort();
                same.datacenters.dedup();
            }
            None => merged.push(identity),
        }
    }
    Ok(merged)
}

/// Checks node identities and leaves out those given twice.
///
/// # Errors
/// The first that cannot be linked by that holder.
pub fn node_identities(given: Vec<NodeIdentity>, holder: Holder) -> Result<Vec<NodeIdentity>, IdentityError> {
    let mut merged: Vec<NodeIdentity> = Vec::new();
    for identity in given {
        if identity.node_name.is_empty() {
            return Err(IdentityError::NoNodeName(holder));
        }
        if identity.datacenter.is_empty() {
            return Err(IdentityError::NoDatacenter(holder));
        }
        if !is_identity_name(&identity.node_name) {
            return Err(IdentityError::NodeName);
        }
        if !merged.contains(&identity) {
            merged.push(identity);
        }
    }
    Ok(merged)
}

/// Checks templated policies and leaves out those given twice.
///
/// # Errors
/// There is no such template, it lacks a variable, or has one that is none.
pub fn templated_policies(given: Vec<TemplatedPolicy>) -> Result<Vec<TemplatedPolicy>, TemplateError> {
    let mut merged: Vec<TemplatedPolicy> = Vec::new();
    for policy in given {
        policy.judged()?;
        if !merged.contains(&policy) {
            merged.push(policy);
        }
    }
    Ok(merged)
}

impl TemplatedPolicy {
    /// Refuses what cannot be linked.
    fn judged(&self) -> Result<(), TemplateError> {
        self.synthetic()?;
        let Some(variables) = &self.template_variables else { return Ok(()) };
        if let Some((name, _)) = variables.iter().find(|(_, value)| !is_variable(value, DEEPEST)) {
            let (template, name) = (self.template_name.clone(), name.clone());
            return Err(TemplateError::BadVariable { template, name });
        }
        match (variables.get("name"), variables.get("Name")) {
            (Some(one), Some(other)) if one != other => {
                Err(TemplateError::TwoNames { template: self.template_name.clone() })
            }
            _ => Ok(()),
        }
    }

    fn synthetic(&self) -> Result<SyntheticPolicy, TemplateError> {
        let none = Map::new();
        let variables = self.template_variables.as_ref().unwrap_or(&none);
        SyntheticPolicy::of_template(&self.template_name, variables, &self.datacenters)
    }
}

/// How deep the maps of a variable may be nested. Readers of JSON stop at some depth, that of the store's records too, and
/// variables stand deeper in a record, and in a list, than in what was sent.
const DEEPEST: usize = 16;

/// Whether a value is a text, or a map of such, at most so deep. `null` is nothing.
fn is_variable(value: &Value, depth: usize) -> bool {
    match value {
        Value::Null | Value::String(_) => true,
        Value::Object(map) => depth > 0 && map.values().all(|value| is_variable(value, depth - 1)),
        _ => false,
    }
}

impl Links {
    /// The policies that its identities and templates stand for.
    pub fn synthetic(&self) -> Vec<SyntheticPolicy> {
        let services =
            self.service_identities.iter().map(|it| SyntheticPolicy::of_service(&it.service_name, &it.datacenters));
        let nodes = self.node_identities.iter().map(|it| SyntheticPolicy::of_node(&it.node_name, &it.datacenter));
        let templates = self.templated_policies.iter().map(TemplatedPolicy::synthetic);
        // All of them were judged when they were linked.
        services.chain(nodes).chain(templates).filter_map(Result::ok).collect()
    }

    /// The texts that a content hash is made over, in the order that clients know: policies and what `between` gives,
    /// service identities, node identities, templated policies.
    pub fn hashed(&self, between: &[Id]) -> Vec<String> {
        let mut texts: Vec<String> = self.policies.iter().chain(between).map(ToString::to_string).collect();
        for identity in &self.service_identities {
            texts.push(identity.service_name.clone());
            texts.extend(identity.datacenters.iter().cloned());
        }
        for identity in &self.node_identities {
            texts.extend([identity.node_name.clone(), identity.datacenter.clone()]);
        }
        for policy in &self.templated_policies {
            texts.push(policy.template_name.clone());
            texts.extend(policy.template_variables.iter().filter_map(|them| serde_json::to_string(them).ok()));
            texts.extend(policy.datacenters.iter().cloned());
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, datacenters: &[&str]) -> ServiceIdentity {
        let datacenters = datacenters.iter().map(ToString::to_string).collect();
        ServiceIdentity { service_name: name.to_owned(), datacenters }
    }

    #[test]
    fn service_identities_of_one_name_become_one() {
        let check = |given: &[ServiceIdentity], wanted: &[ServiceIdentity]| {
            assert_eq!(service_identities(given.to_vec(), Holder::Role).as_deref(), Ok(wanted));
        };
        check(&[service("a", &[]), service("a", &[])], &[service("a", &[])]);
        check(&[service("a", &["2", "3"]), service("a", &["1", "2"])], &[service("a", &["1", "2", "3"])]);
        check(&[service("a", &["2"]), service("a", &[])], &[service("a", &[])]);
        check(&[service("a", &[]), service("a", &["2"])], &[service("a", &[])]);
        check(&[service("b", &["2", "2"]), service("a", &[])], &[service("b", &["2"]), service("a", &[])]);
    }

    #[test]
    fn variables_of_a_template_are_texts_or_maps() {
        let check = |variables: Value, refused: Option<&str>| {
            let policy = TemplatedPolicy {
                template_name: "builtin/service".to_owned(),
                template_variables: serde_json::from_value(variables.clone()).unwrap(),
                datacenters: Vec::new(),
            };
            let error = templated_policies(vec![policy]).err().map(|error| error.to_string());
            match refused {
                Some(text) => {
                    assert!(error.as_ref().is_some_and(|error| error.contains(text)), "{variables} {error:?}");
                }
                None => assert_eq!(error, None, "{variables}"),
            }
        };
        check(json!({"name": "web", "other": "x", "map": {"a": {"b": "c"}, "none": null}}), None);
        check(json!({"name": "web", "Name": "web"}), None);
        check(json!({"name": "web", "Name": "db"}), Some("given twice"));
        let nested = |depth: usize| (0..depth).fold(json!("x"), |inner, _| json!({"a": inner}));
        check(json!({"name": "web", "other": nested(DEEPEST)}), None);
        for wrong in [nested(DEEPEST + 1), json!(5), json!(true), json!(["x"]), json!({"deep": {"er": 5}})] {
            check(json!({"name": "web", "other": wrong}), Some("variable \"other\" is neither"));
        }
    }

    #[test]
    fn identities_that_cannot_be_linked_are_refused_in_known_words() {
        let of_service =
            |given, local| service_identities(vec![given], Holder::Token { local }).unwrap_err().to_string();
        assert_eq!(
            of_service(service("", &[]), false),
            "Service identity is missing the service name field on this token"
        );
        assert!(
            of_service(service("FOO", &[]), false)
                .starts_with("Service identity \"FOO\" has an invalid name. Only lowercase")
        );
        assert!(
            of_service(service("a", &["1"]), true).ends_with("cannot specify a list of datacenters on a local token")
        );
        let of_node = |name: &str, datacenter: &str| {
            let node = NodeIdentity { node_name: name.to_owned(), datacenter: datacenter.to_owned() };
            node_identities(vec![node], Holder::Role).unwrap_err().to_string()
        };
        assert_eq!(of_node("", "dc1"), "Node identity is missing the node name field on this role");
        assert_eq!(of_node("a", ""), "Node identity is missing the datacenter field on this role");
        assert!(of_node("foo.bar", "dc1").starts_with("Node identity has an invalid name. Only lowercase"));
    }
}
