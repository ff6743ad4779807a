//! Explains a decision: which rule of which policy decides.

use serde_json::Value;

use super::{Access, Decision, Grants, PolicyId, PolicyInScope, Query, Resource, RuleMatch, Subject};
use crate::model::rules::{GlobalResource, Level, ResourceKind, Specificity};

/// A decision with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Explanation {
    /// The decision, the same as that of [`Grants::decide`].
    pub decision: Decision,
    /// The reason.
    pub reason: Reason,
}

/// Reason for a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A rule.
    Rule(DecidingPolicy),
    /// No rule matches, and the server's default policy decides.
    DefaultPolicy,
    /// No rule matches, and the default policy never grants access to ACL objects.
    NoAclRule,
    /// The namespace may not be seen: no rule is about the namespace itself.
    NoNamespaceRule,
}

/// The policy that decides, and its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecidingPolicy {
    /// Id of the policy.
    pub id: PolicyId,
    /// The policy is a default of the token's namespace.
    pub from_defaults: bool,
    /// The rule in the language of policies, such as `key_prefix "app/" { policy = "read" }`.
    pub rule: String,
}

impl Grants {
    /// Decides as [`Grants::decide`] does, and says why.
    pub(crate) fn explain(&self, resource: &Resource<'_>, access: Access, namespace: &str) -> Explanation {
        let reason = match resource.subject() {
            Subject::Global(global) => self.explain_global(global),
            Subject::Namespace => self.explain_namespace(access, namespace),
            Subject::EveryIntention => {
                self.deciding_intention(access, namespace).and_then(|query| self.explain_query(query, namespace))
            }
            Subject::Namespaced(query) => self.explain_query(query, namespace),
        };
        let otherwise = if *resource == Resource::Acl { Reason::NoAclRule } else { Reason::DefaultPolicy };
        Explanation { decision: self.decide(resource, access, namespace), reason: reason.unwrap_or(otherwise) }
    }

    fn explain_query(&self, query: Query<'_>, namespace: &str) -> Option<Reason> {
        let is_own_namespace = self.own_namespace == namespace;
        let best = |policy: &PolicyInScope| policy.best_match(query, is_own_namespace, namespace);
        let text = |policy: &PolicyInScope, rule_match: &RuleMatch| {
            policy.rule_text(query, rule_match, is_own_namespace, namespace)
        };
        self.deciding(best, text, self.has_direct_rule(query, namespace))
    }

    fn explain_global(&self, global: GlobalResource) -> Option<Reason> {
        let global = self.deciding_resource(global);
        let level = |policy: &PolicyInScope| {
            policy.in_default_namespace.then(|| policy.rules.global.get(&global).copied()).flatten()
        };
        let is_covered = self.has_direct_global_rule(global);
        self.deciding(level, |_, level| format!("{} = \"{}\"", global.as_str(), level.as_str()), is_covered)
    }

    fn explain_namespace(&self, access: Access, namespace: &str) -> Option<Reason> {
        let operator = self.explain_global(GlobalResource::Operator);
        if access == Access::Write || self.decide_global(GlobalResource::Operator, Access::Read).is_allowed() {
            return operator;
        }
        self.explain_query(Query::Namespace, namespace).or(Some(Reason::NoNamespaceRule))
    }

    /// Returns the policy with the greatest match, of the token's own policies if any matches or `is_covered`; the first among
    /// equals.
    fn deciding<M: Ord>(
        &self,
        best: impl Fn(&PolicyInScope) -> Option<M>,
        rule: impl Fn(&PolicyInScope, &M) -> String,
        is_covered: bool,
    ) -> Option<Reason> {
        let defaults = (!is_covered).then_some((&self.defaults, true));
        [(&self.direct, false)].into_iter().chain(defaults).find_map(|(policies, from_defaults)| {
            let matching = policies.iter().rev().filter_map(|policy| Some((best(policy)?, policy)));
            let (rule_match, policy) = matching.max_by(|one, other| one.0.cmp(&other.0))?;
            let rule = rule(policy, &rule_match);
            Some(Reason::Rule(DecidingPolicy { id: policy.id.clone(), from_defaults, rule }))
        })
    }
}

impl PolicyInScope {
    /// Formats the rule of a match as it is written in a policy.
    fn rule_text(&self, query: Query<'_>, rule_match: &RuleMatch, is_own_namespace: bool, namespace: &str) -> String {
        let (namespace_match, close, level) = *rule_match;
        let rule = match query {
            Query::Acl => format!("acl = \"{}\"", level.as_str()),
            Query::Namespace => format!("policy = \"{}\"", level.as_str()),
            Query::Named(kind, _, name) => kind.rule_text(close, name, level),
        };
        let top_level = is_own_namespace
            && namespace_match == Specificity::Exact
            && self.rules.top_level.best_match(query).is_some_and(|found| found == (close, level));
        if top_level { rule } else { format!("{} {{ {rule} }}", format_label("namespace", namespace_match, namespace)) }
    }
}

impl ResourceKind {
    fn rule_text(self, close: Specificity, name: &str, level: Level) -> String {
        let (block, key) = if self == Self::Intention { ("service", "intentions") } else { (self.as_str(), "policy") };
        format!("{} {{ {key} = \"{}\" }}", format_label(block, close, name), level.as_str())
    }
}

/// Writes the head of a block for a name, or for the prefix of it that matched.
fn format_label(block: &str, close: Specificity, name: &str) -> String {
    // A JSON string is one of HCL, too.
    match close {
        Specificity::Exact => format!("{block} {}", Value::from(name)),
        Specificity::Prefix(length) => format!("{block}_prefix {}", Value::from(name.get(..length).unwrap_or(name))),
    }
}
