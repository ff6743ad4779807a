//! The rules of a configuration in their order. Pure.

use std::sync::Arc;

use keyward_http::peer::{PeerFacts, WantedExecutable};

use super::rule::{CallerRule, Criterion};

/// Callers in the order of the configuration: the first rule that matches names the caller. Clones share the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerPolicy(Arc<[CallerRule]>);

/// Result of one rule for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerVerdict {
    /// The process is this caller.
    Matched,
    /// It does not meet this criterion.
    Unmet(Criterion),
    /// An earlier rule has matched.
    NotReached,
}

impl CallerPolicy {
    /// Creates a policy; `None` without callers, where only the options of the listeners decide.
    pub fn new(rules: Vec<CallerRule>) -> Option<Self> {
        (!rules.is_empty()).then(|| Self(rules.into()))
    }

    /// Returns the rules in their order.
    pub fn rules(&self) -> &[CallerRule] {
        &self.0
    }

    /// Returns the caller of a process, with its rule index; `None` if no rule matches.
    pub fn decide(&self, facts: &PeerFacts) -> Option<(usize, &CallerRule)> {
        self.0.iter().enumerate().find(|(_, rule)| rule.matches.unmet(facts).is_none())
    }

    /// Returns the result of every rule for a process.
    pub fn explain(&self, facts: &PeerFacts) -> Vec<(&CallerRule, CallerVerdict)> {
        let decided = self.decide(facts).map(|(at, _)| at);
        let verdict = |(at, rule): (usize, _)| match decided {
            Some(decided) if decided < at => CallerVerdict::NotReached,
            _ => verdict_of(rule, facts),
        };
        self.0.iter().enumerate().map(|(at, rule)| (rule, verdict((at, rule)))).collect()
    }

    /// Returns the executables that the rules ask for.
    pub fn executables(&self) -> Vec<WantedExecutable> {
        let mut executables: Vec<WantedExecutable> = Vec::new();
        for rule in self.0.iter().flat_map(|rule| &rule.matches.executables) {
            match executables.iter_mut().find(|executable| executable.path == rule.path) {
                Some(executable) => executable.digest |= rule.sha256.is_some(),
                None => executables.push(WantedExecutable { path: rule.path.clone(), digest: rule.sha256.is_some() }),
            }
        }
        executables
    }
}

fn verdict_of(rule: &CallerRule, facts: &PeerFacts) -> CallerVerdict {
    rule.matches.unmet(facts).map_or(CallerVerdict::Matched, CallerVerdict::Unmet)
}

#[cfg(test)]
mod tests {
    use keyward_http::peer::FactSource;

    use super::*;
    use crate::callers::{CallerGrants, CallerMatch, ExecutableRule};

    fn rule(name: &str, matches: CallerMatch) -> CallerRule {
        CallerRule { name: name.to_owned(), matches, grants: CallerGrants::default() }
    }

    fn facts(uid: u32) -> PeerFacts {
        let groups = [].into();
        let source = FactSource::Credentials;
        PeerFacts { pid: None, uid: Some(uid), gid: None, groups, cgroup: None, executable: None, source }
    }

    #[test]
    fn the_first_rule_that_matches_names_the_caller_and_no_match_names_none() {
        let user = |uid| CallerMatch { uids: vec![uid], ..CallerMatch::default() };
        let policy =
            CallerPolicy::new(vec![rule("one", user(1)), rule("two", user(2)), rule("again", user(1))]).unwrap();
        let name = |uid| policy.decide(&facts(uid)).map(|(_, rule)| rule.name.clone());
        assert_eq!((name(1).as_deref(), name(2).as_deref(), name(3)), (Some("one"), Some("two"), None));
        let verdicts: Vec<_> = policy.explain(&facts(2)).into_iter().map(|(_, verdict)| verdict).collect();
        let expected = [CallerVerdict::Unmet(Criterion::Uid), CallerVerdict::Matched, CallerVerdict::NotReached];
        assert_eq!(verdicts, expected);
        assert_eq!(CallerPolicy::new(Vec::new()), None);
    }

    #[test]
    fn an_executable_is_asked_for_once_with_its_digest_if_any_rule_needs_that() {
        let program = |sha256| CallerMatch {
            executables: vec![ExecutableRule { path: "/a".into(), sha256 }],
            ..CallerMatch::default()
        };
        let policy = CallerPolicy::new(vec![rule("one", program(None)), rule("two", program(Some([0; 32])))]).unwrap();
        assert_eq!(policy.executables(), [WantedExecutable { path: "/a".into(), digest: true }]);
    }
}
