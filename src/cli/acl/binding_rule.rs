//! `keyward acl binding-rule`.

use clap::{Args, Subcommand};
use keyward_acl::client::{BindingRule, NewBindingRule};
use keyward_acl::model::id::Id;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use super::output::{self, Fields};
use super::records::{self, CommandRecord};
use super::resolve::{self, IdRecord};
use super::templated_policy_flags::pair;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a binding rule
    #[command(
        after_help = "Example:\n  keyward acl binding-rule create --method ci --bind-type service --bind-name '${value.name}'"
    )]
    Create(Create),
    /// Show a binding rule
    #[command(after_help = "Example:\n  keyward acl binding-rule read 6a1253d2")]
    Read(NameArgument),
    /// Change a binding rule; settings without a flag stay as they are
    #[command(after_help = "Example:\n  keyward acl binding-rule update 6a1253d2 --selector 'value.team == \"web\"'")]
    Update(Update),
    /// Delete a binding rule; tokens keep the rights that it gave them
    #[command(after_help = "Example:\n  keyward acl binding-rule delete 6a1253d2")]
    Delete(NameArgument),
    /// List binding rules
    #[command(after_help = "Example:\n  keyward acl binding-rule list --method ci")]
    List(List),
}

const TYPES: [&str; 5] = ["service", "node", "role", "policy", "templated-policy"];

/// Create a binding rule.
#[derive(Debug, Args)]
pub(super) struct Create {
    /// Auth method whose logins the rule applies to
    #[arg(long, value_name = "NAME")]
    method: String,
    /// Kind of right that the token gets
    #[arg(long, value_name = "TYPE", value_parser = TYPES)]
    bind_type: String,
    /// Name of the linked role, policy, service, node or template; ${...} inserts a fact about the caller
    #[arg(long, value_name = "NAME")]
    bind_name: String,
    #[command(flatten)]
    more: RuleSettings,
}

/// Optional settings of a binding rule.
#[derive(Debug, Args)]
pub(super) struct RuleSettings {
    /// Expression that selects logins, such as 'value.team == "web"' [default: all logins]
    #[arg(long, value_name = "EXPRESSION")]
    selector: Option<String>,
    /// Variable of a templated policy; repeatable
    #[arg(long = "bind-var", value_name = "NAME:VALUE", value_parser = pair)]
    vars: Vec<(String, String)>,
    /// Description
    #[arg(long)]
    description: Option<String>,
}

/// The binding rule that a command reads or deletes.
#[derive(Debug, Args)]
pub(super) struct NameArgument {
    /// Id of the binding rule, or a prefix of it
    id: String,
}

/// Change a binding rule.
#[derive(Debug, Args)]
pub(super) struct Update {
    /// Id of the binding rule, or a prefix of it
    id: String,
    /// Kind of right that the token gets
    #[arg(long, value_name = "TYPE", value_parser = TYPES)]
    bind_type: Option<String>,
    /// Name of the linked role, policy, service, node or template; ${...} inserts a fact about the caller
    #[arg(long, value_name = "NAME")]
    bind_name: Option<String>,
    #[command(flatten)]
    more: RuleSettings,
}

/// List binding rules.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Only rules of this auth method
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
}

impl RuleSettings {
    fn apply(self, to: NewBindingRule) -> NewBindingRule {
        let vars = self.vars.into_iter().map(|(name, value)| (name, value.into()));
        let vars: serde_json::Map<_, _> = vars.collect();
        NewBindingRule {
            selector: self.selector.unwrap_or(to.selector),
            description: self.description.unwrap_or(to.description),
            bind_vars: if vars.is_empty() { to.bind_vars } else { Some(vars) },
            ..to
        }
    }
}

impl Command {
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        match self {
            Self::Create(create) => {
                let Create { method, bind_type, bind_name, more } = create;
                let new = NewBindingRule { auth_method: method, bind_type, bind_name, ..NewBindingRule::default() };
                records::create::<BindingRule>(service, &more.apply(new)).await
            }
            Self::Read(target) => {
                let id = resolve::id::<BindingRule>(service, &target.id).await?;
                records::read::<BindingRule>(service, &id).await
            }
            Self::Update(update) => {
                let id = resolve::id::<BindingRule>(service, &update.id).await?;
                records::update(service, &id, async |BindingRule { rule: mut current, .. }| {
                    // The server refuses variables with any other type.
                    if update.bind_type.as_ref().is_some_and(|kind| kind != "templated-policy") {
                        current.bind_vars = None;
                    }
                    let mut rule = update.more.apply(current);
                    rule.bind_type = update.bind_type.unwrap_or(rule.bind_type);
                    rule.bind_name = update.bind_name.unwrap_or(rule.bind_name);
                    Ok(rule)
                })
                .await
            }
            Self::Delete(target) => {
                let id = resolve::id::<BindingRule>(service, &target.id).await?;
                records::delete::<BindingRule>(service, &id, &id.to_string()).await
            }
            Self::List(list) => records::list::<BindingRule>(service, &list.method).await,
        }
    }
}

impl IdRecord for BindingRule {
    const KEYS: &'static str = "id";

    fn id(&self) -> Option<Id> {
        Some(self.id)
    }
}

impl CommandRecord for BindingRule {
    fn print(&self) {
        let rule = &self.rule;
        Fields::default()
            .add("ID", self.id)
            .add("Auth method", &rule.auth_method)
            .optional("Namespace", self.namespace.as_ref())
            .add("Description", &rule.description)
            .add("Selector", &rule.selector)
            .add("Bind type", &rule.bind_type)
            .add("Bind name", &rule.bind_name)
            .list_field("Bind vars", rule.bind_vars.iter().flatten().map(|(name, value)| format!("{name}={value}")))
            .print();
    }

    fn print_table(list: &[Self]) {
        let rows = list.iter().map(|Self { id, rule, namespace, .. }| {
            let target = format!("{} {}", rule.bind_type, rule.bind_name);
            let namespace = namespace.clone().unwrap_or_default();
            let NewBindingRule { auth_method, selector, description, .. } = rule.clone();
            [id.to_string(), auth_method, namespace, target, selector, description]
        });
        output::table(["ID", "Auth method", "Namespace", "Gives", "Selector", "Description"], rows);
    }
}
