//! Parser of rules.

use std::collections::BTreeSet;

use keyward_hcl::{self as hcl, Attribute, HclError, Node, Object, Position, Value, quote};

use super::{GlobalResource, Level, ResourceKind, RuleScope, Rules};
use crate::model::DEFAULT_NAMESPACE;

/// Longest accepted text, in bytes.
pub(crate) const MAX_SIZE: usize = 256 * 1024;

/// Error of parsing rules. Its text is one line and begins with wording that clients of Consul match on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// The text is too long.
    #[error("Failed to parse ACL rules: {0} bytes exceed the limit of {MAX_SIZE}")]
    TooLong(usize),
    /// The text is neither HCL nor JSON, or a key is misplaced.
    #[error("Failed to parse ACL rules: {0}")]
    Form(#[from] HclError),
    /// A rule has an invalid policy for its resource.
    #[error("Invalid {resource} policy: {found} at {position}, expected {advice}")]
    Policy {
        /// Resource as written.
        resource: String,
        /// Value that was found.
        found: String,
        /// Position in the text.
        position: Position,
        /// Accepted values.
        advice: &'static str,
    },
}

/// Enclosing block of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockContext {
    TopLevel,
    Partition,
    Namespace,
}

const SINGLES: [(&str, GlobalResource); 4] = [
    ("keyring", GlobalResource::Keyring),
    ("mesh", GlobalResource::Mesh),
    ("operator", GlobalResource::Operator),
    ("peering", GlobalResource::Peering),
];

const KINDS: [(&str, ResourceKind); 8] = [
    ("agent", ResourceKind::Agent),
    ("event", ResourceKind::Event),
    ("identity", ResourceKind::Identity),
    ("key", ResourceKind::Key),
    ("node", ResourceKind::Node),
    ("query", ResourceKind::Query),
    ("service", ResourceKind::Service),
    ("session", ResourceKind::Session),
];

pub(super) fn rules(text: &str) -> Result<Rules, RulesError> {
    if text.len() > MAX_SIZE {
        return Err(RulesError::TooLong(text.len()));
    }
    items(&hcl::read(text)?, BlockContext::TopLevel)
}

fn items(object: &Object, context: BlockContext) -> Result<Rules, RulesError> {
    let mut rules = Rules::default();
    let mut keys = UniqueKeys::default();
    for item in &object.attributes {
        let key = item.key.to_ascii_lowercase();
        let (name, exact) = key.strip_suffix("_prefix").map_or((&*key, true), |name| (name, false));
        let single = SINGLES.iter().find(|(single, _)| *single == key).map(|(_, single)| *single);
        let kind = KINDS.iter().find(|(kind, _)| *kind == name).map(|(_, kind)| *kind);
        match (key.as_str(), context) {
            ("acl", _) => rules.top_level.acl = keys.level(item)?,
            ("policy", BlockContext::Partition | BlockContext::Namespace) => {
                rules.top_level.namespace = keys.level(item)?;
            }
            ("namespace" | "namespace_prefix", BlockContext::TopLevel | BlockContext::Partition) => {
                for (label, body) in blocks(item)? {
                    let scope = items(body, BlockContext::Namespace)?.top_level;
                    rules.namespaces.add(exact, &label.key.to_ascii_lowercase(), scope, RuleScope::merge);
                }
            }
            ("partition" | "partition_prefix", BlockContext::TopLevel) => {
                for (label, body) in blocks(item)? {
                    let inner = items(body, BlockContext::Partition)?;
                    let label = label.key.to_ascii_lowercase();
                    if if exact { label == PARTITION } else { PARTITION.starts_with(&label) } {
                        rules.merge_partition(inner);
                    }
                }
            }
            _ => match (single, kind) {
                (Some(single), _)
                    if context == BlockContext::TopLevel
                        || context == BlockContext::Partition && single.is_partition_wide() =>
                {
                    rules.global.extend(keys.level(item)?.map(|level| (single, level)));
                }
                (None, Some(kind)) => {
                    for (label, body) in blocks(item)? {
                        rule(&mut rules.top_level, item, kind, exact, label, body)?;
                    }
                }
                _ => return Err(unknown_key(item, context)),
            },
        }
    }
    Ok(rules)
}

/// Name of the only partition.
const PARTITION: &str = "default";

impl GlobalResource {
    fn is_partition_wide(self) -> bool {
        matches!(self, Self::Mesh | Self::Peering)
    }
}

impl ResourceKind {
    fn has_intentions(self) -> bool {
        matches!(self, Self::Service | Self::Identity)
    }
}

impl Rules {
    /// Merges a block for the partition `default`.
    fn merge_partition(&mut self, block: Self) {
        for (single, level) in block.global {
            let current = self.global.entry(single).or_insert(level);
            *current = level.max(*current);
        }
        // `policy` here applies to the partition, which no operation of this server checks.
        let own = RuleScope { namespace: None, ..block.top_level };
        self.namespaces.add(true, DEFAULT_NAMESPACE, own, RuleScope::merge);
        block.namespaces.for_each(|exact, label, scope| self.namespaces.add(exact, &label, scope, RuleScope::merge));
    }
}

/// Adds the rule of a block such as `service "web" { policy = "read" intentions = "read" }`.
fn rule(
    scope: &mut RuleScope,
    item: &Attribute,
    kind: ResourceKind,
    exact: bool,
    label: &Attribute,
    body: &Object,
) -> Result<(), RulesError> {
    let mut policy = None;
    let mut intentions = None;
    let mut keys = UniqueKeys::default();
    for entry in &body.attributes {
        keys.check_duplicate(entry)?;
        match entry.key.to_ascii_lowercase().as_str() {
            "policy" => policy = level(&item.key, &entry.value, kind == ResourceKind::Key)?,
            "intentions" if kind.has_intentions() => {
                intentions = level(&format!("{} intentions", item.key), &entry.value, false)?;
            }
            _ => {
                let expected = if kind.has_intentions() { "`policy` or `intentions`" } else { "`policy`" };
                let key = format!("the key {}", quote(&entry.key));
                return Err(HclError::expected(entry.at, expected, &key).into());
            }
        }
    }
    let Some(policy) = policy else {
        let advice = levels(kind == ResourceKind::Key);
        return Err(RulesError::Policy {
            resource: item.key.clone(),
            found: "\"\"".into(),
            position: label.at,
            advice,
        });
    };
    let mut add = |kind, level| scope.kinds.entry(kind).or_default().add_stronger(exact, &label.key, level);
    add(kind, policy);
    // Those of an identity decide about traffic permissions, which this server does not have.
    if kind == ResourceKind::Service {
        // Read access to a service implies read access to its intentions.
        add(
            ResourceKind::Intention,
            intentions.unwrap_or(if policy == Level::Deny { Level::Deny } else { Level::Read }),
        );
    }
    Ok(())
}

/// Returns the labels of a resource with their blocks. JSON allows lists of both, and repeated labels.
fn blocks(item: &Attribute) -> Result<Vec<(&Attribute, &Object)>, RulesError> {
    let mut outer = Vec::new();
    objects(item, &item.value, &mut outer)?;
    let mut blocks = Vec::new();
    for label in outer.into_iter().flat_map(|object| &object.attributes) {
        let mut bodies = Vec::new();
        objects(item, &label.value, &mut bodies)?;
        blocks.extend(bodies.into_iter().map(|body| (label, body)));
    }
    Ok(blocks)
}

fn objects<'a>(item: &Attribute, node: &'a Node, output: &mut Vec<&'a Object>) -> Result<(), RulesError> {
    match &node.value {
        Value::Object(object) => output.push(object),
        Value::List(nodes) => nodes.iter().try_for_each(|node| objects(item, node, output))?,
        other => {
            let expected = format!("a block such as {} \"NAME\" {{ policy = \"read\" }}", item.key);
            return Err(HclError::expected(node.at, &expected, other.kind()).into());
        }
    }
    Ok(())
}

/// Parses a policy level; an empty string or null sets none.
fn level(resource: &str, node: &Node, list: bool) -> Result<Option<Level>, RulesError> {
    let found = match &node.value {
        Value::Null => return Ok(None),
        Value::Text(text) => match text.as_str() {
            "" => return Ok(None),
            "deny" => return Ok(Some(Level::Deny)),
            "read" => return Ok(Some(Level::Read)),
            "write" => return Ok(Some(Level::Write)),
            "list" if list => return Ok(Some(Level::List)),
            other => quote(other),
        },
        other => other.kind().to_owned(),
    };
    Err(RulesError::Policy { resource: resource.to_owned(), found, position: node.at, advice: levels(list) })
}

fn levels(list: bool) -> &'static str {
    if list { "\"deny\", \"read\", \"list\" or \"write\"" } else { "\"deny\", \"read\" or \"write\"" }
}

/// Keys of an object that were read; a second value for the same key would be lost silently.
#[derive(Default)]
struct UniqueKeys(BTreeSet<String>);

impl UniqueKeys {
    fn check_duplicate(&mut self, item: &Attribute) -> Result<(), RulesError> {
        if self.0.insert(item.key.to_ascii_lowercase()) {
            return Ok(());
        }
        let message = format!("duplicate key {}", quote(&item.key));
        Err(HclError { position: item.at, message }.into())
    }

    fn level(&mut self, item: &Attribute) -> Result<Option<Level>, RulesError> {
        self.check_duplicate(item)?;
        level(&item.key, &item.value, false)
    }
}

fn unknown_key(item: &Attribute, context: BlockContext) -> RulesError {
    let hint = match context {
        BlockContext::TopLevel => {
            "known keys: acl, keyring, mesh, operator, peering; and, each with or without _prefix, agent, event, \
             identity, key, namespace, node, partition, query, service, session"
        }
        BlockContext::Partition => {
            "known keys in a partition: acl, mesh, peering, policy; and, each with or without _prefix, agent, event, \
             identity, key, namespace, node, query, service, session"
        }
        BlockContext::Namespace => {
            "known keys in a namespace: acl, policy; and, each with or without _prefix, agent, event, identity, \
             key, node, query, service, session"
        }
    };
    HclError { position: item.at, message: format!("unknown key {}; {hint}", quote(&item.key)) }.into()
}
