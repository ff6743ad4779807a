//! Comparison of decisions with a brute-force search through all rules.

use std::cmp::Reverse;

use proptest::prelude::*;

use super::*;

/// A rule in its simplest form.
#[derive(Debug, Clone)]
struct Rule {
    /// Enclosing namespace block, if any: exact or prefix, and its label.
    block: Option<(bool, &'static str)>,
    about: RuleSubject,
    level: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
enum RuleSubject {
    Acl,
    Namespace,
    Operator,
    /// Keys or services: exact or prefix, and the label.
    Key(bool, String),
    Service(bool, String),
}

/// Namespace of a policy, whether it is a namespace default, and its rules.
type Policy = (&'static str, bool, Vec<Rule>);

impl Rule {
    fn text(&self) -> String {
        let level = self.level;
        let labelled = |kind: &str, exact: bool, label: &str| {
            let suffix = if exact { "" } else { "_prefix" };
            format!("{kind}{suffix} \"{label}\" {{ policy = \"{level}\" }}")
        };
        let inner = match &self.about {
            RuleSubject::Acl => format!("acl = \"{level}\""),
            RuleSubject::Namespace => format!("policy = \"{level}\""),
            RuleSubject::Operator => format!("operator = \"{level}\""),
            RuleSubject::Key(exact, label) => labelled("key", *exact, label),
            RuleSubject::Service(exact, label) => labelled("service", *exact, label),
        };
        match self.block {
            None => format!("{inner}\n"),
            Some((true, name)) => format!("namespace \"{name}\" {{ {inner} }}\n"),
            Some((false, name)) => format!("namespace_prefix \"{name}\" {{ {inner} }}\n"),
        }
    }

    /// Rank of the rule for a resource, the smallest applies; `None` if it does not match.
    fn rank(&self, own: &str, lives: &str, resource: &RuleSubject, namespace: &str) -> Option<impl Ord + use<>> {
        let fits = |exact: bool, label: &str, name: &str| {
            let closeness = if exact { usize::MAX } else { label.len() };
            (if exact { label == name } else { name.starts_with(label) }).then_some(Reverse(closeness))
        };
        let near = match self.block {
            _ if self.about == RuleSubject::Operator => (lives == "default").then_some(Reverse(0)),
            None => (own == namespace).then_some(Reverse(usize::MAX)),
            Some((exact, name)) => fits(exact, name, namespace).filter(|_| lives == "default"),
        }?;
        let close = match (&self.about, resource) {
            (RuleSubject::Key(exact, label), RuleSubject::Key(_, name))
            | (RuleSubject::Service(exact, label), RuleSubject::Service(_, name)) => fits(*exact, label, name),
            (mine, resource) => (mine == resource).then_some(Reverse(0)),
        }?;
        let word = ["deny", "write", "list", "read"].iter().position(|word| *word == self.level);
        Some((near, close, word))
    }
}

/// Returns the level of the applicable rule.
fn applicable_level(own: &str, policies: &[Policy], resource: &RuleSubject, namespace: &str) -> Option<&'static str> {
    let closest = |defaults: bool| {
        let policies = policies.iter().filter(|(_, default, _)| *default == defaults);
        let rules = policies.flat_map(|(lives, _, rules)| rules.iter().map(move |rule| (*lives, rule)));
        let ranked = rules.filter_map(|(lives, rule)| Some((rule.rank(own, lives, resource, namespace)?, rule.level)));
        ranked.min_by(|one, other| one.0.cmp(&other.0)).map(|(_, level)| level)
    };
    // A rule of a direct policy keeps the defaults out even where it grants nothing, as if it were one of `default`.
    let mut direct = policies.iter().filter(|(_, default, _)| !default).flat_map(|(.., rules)| rules);
    let is_covered = direct.any(|rule| rule.rank(own, "default", resource, namespace).is_some());
    if is_covered { closest(false) } else { closest(true) }
}

fn letters(word: Option<&str>, otherwise: bool) -> &'static str {
    match word {
        Some("read") => "r--",
        Some("list") => "rl-",
        Some("write") => "rlw",
        None if otherwise => "rlw",
        _ => "---",
    }
}

/// Returns the accesses to a namespace itself.
fn namespace_letters(own: &str, policies: &[Policy], namespace: &str, otherwise: bool) -> &'static str {
    let operator = letters(applicable_level(own, policies, &RuleSubject::Operator, namespace), otherwise);
    if operator != "---" {
        return if operator == "rlw" { "rlw" } else { "rl-" };
    }
    let level = applicable_level(own, policies, &RuleSubject::Namespace, namespace);
    let seen = level.is_some_and(|level| level != "deny");
    if seen { "rl-" } else { "---" }
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let level = prop_oneof![Just("deny"), Just("read"), Just("write")];
    let block =
        prop::option::of((any::<bool>(), prop_oneof![Just("team"), Just("default"), Just("te"), Just(""), Just("b")]));
    let about = prop_oneof![
        2 => Just(RuleSubject::Acl),
        1 => Just(RuleSubject::Namespace),
        1 => Just(RuleSubject::Operator),
        5 => (any::<bool>(), "[ab]{0,2}").prop_map(|(exact, label)| RuleSubject::Key(exact, label)),
        2 => (any::<bool>(), "[ab]{0,2}").prop_map(|(exact, label)| RuleSubject::Service(exact, label)),
    ];
    let listing = any::<bool>();
    (block, about, level, listing).prop_map(|(block, about, level, listing)| {
        let level = if listing && level == "read" && matches!(about, RuleSubject::Key(..)) { "list" } else { level };
        // These occur in blocks only, or outside only.
        let block = match about {
            RuleSubject::Namespace => block.or(Some((true, "team"))),
            RuleSubject::Operator => None,
            _ => block,
        };
        Rule { block, about, level }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn decisions_are_those_of_a_search_through_all_rules(
        own in prop_oneof![Just("default"), Just("team")],
        policies in prop::collection::vec((any::<bool>(), prop::collection::vec(any_rule(), 0..5)), 0..5),
        otherwise: bool,
        namespace in prop_oneof![Just("default"), Just("team"), Just("tea"), Just("b")],
        name in "[abz]{0,3}",
    ) {
        // Direct policies are in the token's namespace, defaults in `default`.
        let lives = |default| if default { "default" } else { own };
        let policies: Vec<Policy> = policies
            .into_iter()
            .map(|(default, mut rules)| {
                // Outside blocks, a single-valued key occurs once.
                let mut seen = Vec::new();
                rules.retain(|rule| {
                    let once = rule.block.is_none() && matches!(rule.about, RuleSubject::Acl | RuleSubject::Operator);
                    let again = once && seen.contains(&rule.about);
                    seen.extend(once.then(|| rule.about.clone()));
                    !again
                });
                (lives(default), default, rules)
            })
            .collect();
        let policy = |defaults: bool| {
            policies.iter().filter(|(_, default, _)| *default == defaults).map(|(lives, _, rules)| {
                let text: String = rules.iter().map(Rule::text).collect();
                PolicyInScope::new(lives, PolicyId::Synthetic("".into()), Arc::new(Rules::parse(&text).unwrap()))
            }).collect()
        };
        let default_policy = if otherwise { DefaultPolicy::Allow } else { DefaultPolicy::Deny };
        let grants = Grants { own_namespace: own.to_owned(), direct: policy(false), defaults: policy(true), default_policy };
        let expected = |resource: &RuleSubject| letters(applicable_level(own, &policies, resource, namespace), otherwise && *resource != RuleSubject::Acl);
        prop_assert_eq!(may(&grants, Resource::Acl, namespace), expected(&RuleSubject::Acl));
        prop_assert_eq!(may(&grants, Resource::Operator, namespace), expected(&RuleSubject::Operator));
        prop_assert_eq!(may(&grants, Resource::Key(&name), namespace), expected(&RuleSubject::Key(true, name.clone())));
        prop_assert_eq!(may(&grants, Resource::Service(&name), namespace), expected(&RuleSubject::Service(true, name.clone())));
        prop_assert_eq!(may(&grants, Resource::Namespace, namespace), namespace_letters(own, &policies, namespace, otherwise));
    }
}
