//! Decides which credential a unit may load. Pure.

use super::peer_name::{PeerName, is_unit_name};

/// Units that a credential is for: one, or all instances of a template unit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitPattern {
    /// The unit of this full name.
    Exact(String),
    /// All instances of a template unit, such as `worker@*.service`.
    Instances {
        /// The name up to the `@`, with it.
        prefix: String,
        /// The type, with its dot.
        suffix: String,
    },
}

/// A pattern that does not name a unit which can load credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnitPatternError {
    /// It is no valid name.
    #[error("is not the name of a unit")]
    Name,
    /// It lacks a type that runs processes.
    #[error("is not the name of a service, socket, mount or swap unit")]
    Kind,
    /// A `*` stands elsewhere than for the instance of a template unit.
    #[error("has a * that does not stand for an instance")]
    Wildcard,
}

impl UnitPattern {
    /// Parses `NAME.service`, or `NAME@*.service` for all instances. Only units that run processes load credentials.
    pub fn parse(text: &str) -> Result<Self, UnitPatternError> {
        let (start, kind) = text.rsplit_once('.').ok_or(UnitPatternError::Kind)?;
        if !["service", "socket", "mount", "swap"].contains(&kind) {
            return Err(UnitPatternError::Kind);
        }
        if !text.contains('*') {
            return if is_unit_name(text) { Ok(Self::Exact(text.to_owned())) } else { Err(UnitPatternError::Name) };
        }
        let prefix =
            start.strip_suffix('*').filter(|prefix| !prefix.contains('*')).ok_or(UnitPatternError::Wildcard)?;
        match prefix.split_once('@') {
            Some((_, "")) if is_unit_name(&format!("{prefix}.{kind}")) => {
                Ok(Self::Instances { prefix: prefix.to_owned(), suffix: format!(".{kind}") })
            }
            Some((_, "")) => Err(UnitPatternError::Name),
            _ => Err(UnitPatternError::Wildcard),
        }
    }

    /// Returns the length of the shortest name that matches.
    pub fn shortest(&self) -> usize {
        match self {
            Self::Exact(name) => name.len(),
            Self::Instances { prefix, suffix } => prefix.len() + 1 + suffix.len(),
        }
    }

    fn is_instance(&self, unit: &str) -> bool {
        match self {
            Self::Exact(_) => false,
            Self::Instances { prefix, suffix } => {
                let instance = unit.strip_prefix(prefix.as_str()).and_then(|rest| rest.strip_suffix(suffix.as_str()));
                instance.is_some_and(|instance| !instance.is_empty())
            }
        }
    }
}

impl std::fmt::Display for UnitPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Instances { prefix, suffix } => write!(f, "{prefix}*{suffix}"),
        }
    }
}

/// Units that may load a credential, by the id that they ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRule {
    /// The units.
    pub units: Vec<UnitPattern>,
    /// Id of the credential in those units.
    pub id: String,
}

impl GrantRule {
    fn names(&self, name: &PeerName<'_>) -> bool {
        self.id == name.credential
            && self.units.iter().any(|unit| matches!(unit, UnitPattern::Exact(its) if its == name.unit))
    }

    fn covers(&self, name: &PeerName<'_>) -> bool {
        self.id == name.credential && self.units.iter().any(|unit| unit.is_instance(name.unit))
    }
}

/// Peer of a connection: its user and group when it connected (`SO_PEERCRED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerIds {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Reason why a connection gets nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CredentialRefusal {
    /// The peer is not root's.
    Peer,
    /// Its socket's name is none of systemd's.
    Name(super::PeerNameError),
    /// Nothing is configured for this unit and credential.
    NotGranted,
}

impl CredentialRefusal {
    /// Returns the value of the metric's label.
    pub(super) const fn outcome(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Name(_) => "name",
            Self::NotGranted => "not_granted",
        }
    }
}

/// Decides which rule applies to a peer: the one that names its unit, else one that covers it as an instance. Check the
/// peer's ids first: any process can bind any socket name.
pub(super) fn decide<'a, 'r>(
    peer: PeerIds,
    name: &'a [u8],
    mut rules: impl Iterator<Item = &'r GrantRule> + Clone,
) -> Result<(usize, PeerName<'a>), (CredentialRefusal, Option<PeerName<'a>>)> {
    if (peer.uid, peer.gid) != (0, 0) {
        return Err((CredentialRefusal::Peer, None));
    }
    let name = PeerName::parse(name).map_err(|error| (CredentialRefusal::Name(error), None))?;
    let index = rules.clone().position(|rule| rule.names(&name)).or_else(|| rules.position(|rule| rule.covers(&name)));
    index.map(|index| (index, name)).ok_or((CredentialRefusal::NotGranted, Some(name)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOT: PeerIds = PeerIds { uid: 0, gid: 0 };

    fn rules() -> Vec<GrantRule> {
        let rule = |units: &[&str], id: &str| GrantRule {
            units: units.iter().map(|unit| UnitPattern::parse(unit).unwrap()).collect(),
            id: id.to_owned(),
        };
        vec![
            rule(&["worker@*.service"], "key"),
            rule(&["app.service", "web.service"], "db"),
            rule(&["worker@one.service"], "key"),
            rule(&["app.service"], "tls"),
        ]
    }

    #[test]
    fn a_unit_gets_the_credentials_that_name_it_and_an_exact_name_comes_first() {
        let rules = rules();
        let check = |unit: &str, credential: &str, expected: Result<usize, CredentialRefusal>| {
            let name = format!("5a/unit/{unit}/{credential}");
            let found = decide(ROOT, name.as_bytes(), rules.iter());
            assert_eq!(found.map(|found| found.0).map_err(|refused| refused.0), expected, "{name}");
        };
        check("app.service", "db", Ok(1));
        check("web.service", "db", Ok(1));
        check("app.service", "tls", Ok(3));
        check("web.service", "tls", Err(CredentialRefusal::NotGranted));
        check("app.service", "DB", Err(CredentialRefusal::NotGranted));
        check("app.socket", "db", Err(CredentialRefusal::NotGranted));
        check("worker@one.service", "key", Ok(2));
        check("worker@two.service", "key", Ok(0));
        check("worker@.service", "key", Err(CredentialRefusal::NotGranted));
        check("worker@two.socket", "key", Err(CredentialRefusal::NotGranted));
        check("myworker@two.service", "key", Err(CredentialRefusal::NotGranted));
        check("worker.service", "key", Err(CredentialRefusal::NotGranted));
    }

    #[test]
    fn a_peer_that_is_not_roots_gets_nothing_whatever_its_name() {
        let rules = rules();
        for peer in [PeerIds { uid: 65534, gid: 65534 }, PeerIds { uid: 0, gid: 1 }, PeerIds { uid: 1, gid: 0 }] {
            let found = decide(peer, b"5a/unit/app.service/db", rules.iter());
            assert_eq!(found.unwrap_err(), (CredentialRefusal::Peer, None), "{peer:?}");
        }
    }

    #[test]
    fn a_unit_is_named_in_full_or_as_all_instances_of_a_template() {
        let check = |text: &str, expected: Result<(), UnitPatternError>| {
            let found = UnitPattern::parse(text);
            assert_eq!(found.as_ref().map(ToString::to_string), expected.as_ref().map(|()| text.to_owned()), "{text}");
        };
        check("app.service", Ok(()));
        check("worker@one.service", Ok(()));
        check("worker@*.service", Ok(()));
        check("data.mount", Ok(()));
        check("app", Err(UnitPatternError::Kind));
        check("app.target", Err(UnitPatternError::Kind));
        check("*", Err(UnitPatternError::Kind));
        check("*.service", Err(UnitPatternError::Wildcard));
        check("app*.service", Err(UnitPatternError::Wildcard));
        check("worker@a*.service", Err(UnitPatternError::Wildcard));
        check("*@*.service", Err(UnitPatternError::Wildcard));
        check("@*.service", Err(UnitPatternError::Name));
        check("a b.service", Err(UnitPatternError::Name));
        check(".service", Err(UnitPatternError::Name));
    }

    proptest! {
        #[test]
        fn only_a_rule_that_matches_both_names_is_found(unit in "(app|web|worker@[a-c]{0,2}|x)[.]service", id in "db|tls|key|x") {
            let rules = rules();
            let name = format!("1/unit/{unit}/{id}");
            let granted = matches!(
                (&*unit, &*id),
                ("app.service" | "web.service", "db") | ("app.service", "tls")
            ) || (unit.starts_with("worker@") && unit != "worker@.service" && id == "key");
            match decide(ROOT, name.as_bytes(), rules.iter()) {
                Ok((index, _)) => prop_assert!(granted && rules[index].id == id),
                Err((refusal, _)) => prop_assert!(!granted && refusal == CredentialRefusal::NotGranted),
            }
        }
    }
}
