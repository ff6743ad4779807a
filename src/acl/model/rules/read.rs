//! From a text to rules.

use std::collections::BTreeSet;

use super::{Kind, Level, Rules, Scope, Single};
use crate::acl::model::DEFAULT_NAMESPACE;
use crate::hcl::{self, HclError, Item, Node, Object, Place, Value, shown};

/// The longest text of rules, in bytes.
pub const MAX_SIZE: usize = 256 * 1024;

/// Why a text is no rules. Its text is one line and begins with words that clients of such services look for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// It is too long.
    #[error("Failed to parse ACL rules: they are {0} bytes long; at most {MAX_SIZE} are read")]
    TooLong(usize),
    /// It is neither HCL nor JSON, or something stands where no rule can.
    #[error("Failed to parse ACL rules: {0}")]
    Form(#[from] HclError),
    /// A rule says what cannot be said of its resource.
    #[error("Invalid {resource} policy: {found} at {place}; {advice} would do")]
    Policy {
        /// The resource, as the text has it.
        resource: String,
        /// What is said of it.
        found: String,
        /// Where.
        place: Place,
        /// What may be said of it.
        advice: &'static str,
    },
}

/// What rules stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Nothing,
    Partition,
    Namespace,
}

const SINGLES: [(&str, Single); 4] = [
    ("keyring", Single::Keyring),
    ("mesh", Single::Mesh),
    ("operator", Single::Operator),
    ("peering", Single::Peering),
];

const KINDS: [(&str, Kind); 8] = [
    ("agent", Kind::Agent),
    ("event", Kind::Event),
    ("identity", Kind::Identity),
    ("key", Kind::Key),
    ("node", Kind::Node),
    ("query", Kind::Query),
    ("service", Kind::Service),
    ("session", Kind::Session),
];

pub(super) fn rules(text: &str) -> Result<Rules, RulesError> {
    if text.len() > MAX_SIZE {
        return Err(RulesError::TooLong(text.len()));
    }
    items(&hcl::read(text)?, Within::Nothing)
}

fn items(object: &Object, within: Within) -> Result<Rules, RulesError> {
    let mut rules = Rules::default();
    let mut once = Once::default();
    for item in &object.items {
        let key = item.key.to_ascii_lowercase();
        let (name, exact) = key.strip_suffix("_prefix").map_or((&*key, true), |name| (name, false));
        let single = SINGLES.iter().find(|(single, _)| *single == key).map(|(_, single)| *single);
        let kind = KINDS.iter().find(|(kind, _)| *kind == name).map(|(_, kind)| *kind);
        match (key.as_str(), within) {
            ("acl", _) => rules.own.acl = once.level(item)?,
            ("policy", Within::Partition | Within::Namespace) => rules.own.itself = once.level(item)?,
            ("namespace" | "namespace_prefix", Within::Nothing | Within::Partition) => {
                for (label, body) in blocks(item)? {
                    let scope = items(body, Within::Namespace)?.own;
                    rules.namespaces.add(exact, &label.key.to_ascii_lowercase(), scope, Scope::join);
                }
            }
            ("partition" | "partition_prefix", Within::Nothing) => {
                for (label, body) in blocks(item)? {
                    let inner = items(body, Within::Partition)?;
                    let label = label.key.to_ascii_lowercase();
                    if if exact { label == PARTITION } else { PARTITION.starts_with(&label) } {
                        rules.take_in(inner);
                    }
                }
            }
            _ => match (single, kind) {
                (Some(single), _)
                    if within == Within::Nothing || within == Within::Partition && single.is_of_partition() =>
                {
                    rules.singles.extend(once.level(item)?.map(|level| (single, level)));
                }
                (None, Some(kind)) => {
                    for (label, body) in blocks(item)? {
                        rule(&mut rules.own, item, kind, (exact, label), body)?;
                    }
                }
                _ => return Err(unknown(item, within)),
            },
        }
    }
    Ok(rules)
}

/// The name of the one partition that there is.
const PARTITION: &str = "default";

impl Single {
    fn is_of_partition(self) -> bool {
        matches!(self, Self::Mesh | Self::Peering)
    }
}

impl Rules {
    /// Takes in what a block for the partition `default` says.
    fn take_in(&mut self, block: Self) {
        for (single, level) in block.singles {
            let mine = self.singles.entry(single).or_insert(level);
            *mine = level.max(*mine);
        }
        // A `policy` here is about the partition, which no call of this server asks for.
        let own = Scope { itself: None, ..block.own };
        self.namespaces.add(true, DEFAULT_NAMESPACE, own, Scope::join);
        block.namespaces.into_each(|exact, label, scope| self.namespaces.add(exact, &label, scope, Scope::join));
    }
}

/// `service "web" { policy = "read" intentions = "read" }` and its like.
fn rule(scope: &mut Scope, item: &Item, kind: Kind, label: (bool, &Item), body: &Object) -> Result<(), RulesError> {
    let (exact, label) = label;
    let (mut policy, mut intentions) = (None, None);
    let mut once = Once::default();
    for entry in &body.items {
        once.see(entry)?;
        match entry.key.to_ascii_lowercase().as_str() {
            "policy" => policy = level(&item.key, &entry.value, kind == Kind::Key)?,
            "intentions" if kind == Kind::Service => {
                intentions = level(&format!("{} intentions", item.key), &entry.value, false)?;
            }
            _ => {
                let known =
                    if kind == Kind::Service { "`policy` or `intentions` would do" } else { "`policy` would do" };
                return Err(form(entry.at, format!("the key {}", shown(&entry.key)), known));
            }
        }
    }
    let Some(policy) = policy else {
        let advice = levels(kind == Kind::Key);
        return Err(RulesError::Policy { resource: item.key.clone(), found: "\"\"".into(), place: label.at, advice });
    };
    let mut add = |kind, level| scope.kinds.entry(kind).or_default().raise(exact, &label.key, level);
    add(kind, policy);
    if kind == Kind::Service {
        // Who may see a service may see who may connect to it.
        add(Kind::Intention, intentions.unwrap_or(if policy == Level::Deny { Level::Deny } else { Level::Read }));
    }
    Ok(())
}

/// The labels of a resource with their blocks. JSON may have lists of either, and a label may be there twice.
fn blocks(item: &Item) -> Result<Vec<(&Item, &Object)>, RulesError> {
    let mut outer = Vec::new();
    objects(item, &item.value, &mut outer)?;
    let mut found = Vec::new();
    for label in outer.into_iter().flat_map(|object| &object.items) {
        let mut bodies = Vec::new();
        objects(item, &label.value, &mut bodies)?;
        found.extend(bodies.into_iter().map(|body| (label, body)));
    }
    Ok(found)
}

fn objects<'a>(item: &Item, node: &'a Node, found: &mut Vec<&'a Object>) -> Result<(), RulesError> {
    match &node.value {
        Value::Object(object) => found.push(object),
        Value::List(nodes) => nodes.iter().try_for_each(|node| objects(item, node, found))?,
        other => {
            let advice = format!("a name and a block would do: {} \"NAME\" {{ policy = \"read\" }}", item.key);
            return Err(form(node.at, other.kind().to_owned(), &advice));
        }
    }
    Ok(())
}

/// What is said of a resource; nothing is said by an empty string or by null.
fn level(resource: &str, node: &Node, list: bool) -> Result<Option<Level>, RulesError> {
    let found = match &node.value {
        Value::Null => return Ok(None),
        Value::Text(text) => match text.as_str() {
            "" => return Ok(None),
            "deny" => return Ok(Some(Level::Deny)),
            "read" => return Ok(Some(Level::Read)),
            "write" => return Ok(Some(Level::Write)),
            "list" if list => return Ok(Some(Level::List)),
            other => shown(other),
        },
        other => other.kind().to_owned(),
    };
    Err(RulesError::Policy { resource: resource.to_owned(), found, place: node.at, advice: levels(list) })
}

fn levels(list: bool) -> &'static str {
    if list { "\"deny\", \"read\", \"list\" or \"write\"" } else { "\"deny\", \"read\" or \"write\"" }
}

/// The keys of an object that were seen: of those that have one value, a second one would be lost.
#[derive(Default)]
struct Once(BTreeSet<String>);

impl Once {
    fn see(&mut self, item: &Item) -> Result<(), RulesError> {
        let new = self.0.insert(item.key.to_ascii_lowercase());
        let found = || format!("the key {} a second time", shown(&item.key));
        if new { Ok(()) } else { Err(form(item.at, found(), "one would do")) }
    }

    fn level(&mut self, item: &Item) -> Result<Option<Level>, RulesError> {
        self.see(item)?;
        level(&item.key, &item.value, false)
    }
}

fn form(place: Place, found: String, advice: &str) -> RulesError {
    RulesError::Form(HclError { place, found, advice: advice.to_owned() })
}

fn unknown(item: &Item, within: Within) -> RulesError {
    let advice = match within {
        Within::Nothing => {
            "these are known: acl, keyring, mesh, operator, peering; and, each with or without _prefix, agent, event, \
             identity, key, namespace, node, partition, query, service, session"
        }
        Within::Partition => {
            "these are known in a partition: acl, mesh, peering, policy; and, each with or without _prefix, agent, event, \
             identity, key, namespace, node, query, service, session"
        }
        Within::Namespace => {
            "these are known in a namespace: acl, policy; and, each with or without _prefix, agent, event, identity, \
             key, node, query, service, session"
        }
    };
    form(item.at, format!("the key {}", shown(&item.key)), advice)
}
