//! `keyward acl namespace`.

use clap::{Args, Subcommand};
use keyward_acl::client::{Namespace, NamespaceDefaults, NewNamespace, Policy, Role};

use super::connection::AclConnection;
use super::failure::CommandFailure;
use super::links::merge_links;
use super::output::{self, Fields};
use super::records::{self, CommandRecord};
use super::resolve;
use super::templated_policy_flags::assignment;
use crate::cli::print_note;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a namespace
    #[command(
        after_help = "Example:\n  keyward acl namespace create team-1 --default-policy-name web-read --meta owner=ops"
    )]
    Create(Create),
    /// Show a namespace
    #[command(after_help = "Example:\n  keyward acl namespace read team-1")]
    Read(NameArgument),
    /// Change a namespace; settings without a flag stay as they are
    #[command(after_help = "Example:\n  keyward acl namespace update team-1 --description 'the first team'")]
    Update(Update),
    /// Mark a namespace for deletion, with all of its records
    #[command(after_help = "Example:\n  keyward acl namespace delete team-1")]
    Delete(NameArgument),
    /// List the namespaces that the token may see
    #[command(after_help = "Example:\n  keyward acl namespace list")]
    List,
}

/// Default policies and roles of a namespace, its description and its metadata.
#[derive(Debug, Args)]
pub(super) struct NamespaceSettings {
    /// Default policy, by id in the namespace default; repeatable
    #[arg(long = "default-policy-id", value_name = "ID")]
    policy_ids: Vec<String>,
    /// Default policy, by name; repeatable
    #[arg(long = "default-policy-name", value_name = "NAME")]
    policy_names: Vec<String>,
    /// Default role, by id in the namespace default; repeatable
    #[arg(long = "default-role-id", value_name = "ID")]
    role_ids: Vec<String>,
    /// Default role, by name; repeatable
    #[arg(long = "default-role-name", value_name = "NAME")]
    role_names: Vec<String>,
    /// Metadata; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    meta: Vec<(String, String)>,
}

/// Create a namespace.
#[derive(Debug, Args)]
pub(super) struct Create {
    /// Name of the namespace: a DNS label
    name: String,
    /// Description
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    #[command(flatten)]
    contents: NamespaceSettings,
}

/// The namespace that a command reads or deletes.
#[derive(Debug, Args)]
pub(super) struct NameArgument {
    /// Name of the namespace
    name: String,
}

/// Change a namespace.
#[derive(Debug, Args)]
pub(super) struct Update {
    /// Name of the namespace
    name: String,
    /// Description
    #[arg(long)]
    description: Option<String>,
    #[command(flatten)]
    contents: NamespaceSettings,
    /// Add the given values to the existing ones instead of replacing those of the same kind
    #[arg(long)]
    merge: bool,
    /// Remove all default policies
    #[arg(long)]
    no_default_policies: bool,
    /// Remove all default roles
    #[arg(long)]
    no_default_roles: bool,
    /// Remove all metadata
    #[arg(long)]
    no_meta: bool,
}

impl NamespaceSettings {
    async fn defaults(&self, service: &AclConnection) -> Result<NamespaceDefaults, CommandFailure> {
        Ok(NamespaceDefaults {
            policy_defaults: resolve::links::<Policy>(service, &self.policy_ids, &self.policy_names).await?,
            role_defaults: resolve::links::<Role>(service, &self.role_ids, &self.role_names).await?,
        })
    }
}

impl Command {
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        match self {
            Self::Create(create) => {
                let acls = Some(create.contents.defaults(service).await?).filter(|acls| !acls.is_empty());
                let Create { name, description, contents } = create;
                let new = NewNamespace { name, description, acls, meta: contents.meta.into_iter().collect() };
                records::create::<Namespace>(service, &new).await
            }
            Self::Read(target) => records::read::<Namespace>(service, &target.name).await,
            Self::Update(update) => {
                let name = update.name.clone();
                records::update(service, name.as_str(), async |current| update.apply(service, current).await).await
            }
            Self::Delete(target) => {
                records::delete::<Namespace>(service, &target.name, &target.name).await?;
                print_note("its records are deleted in the background; until then it can be read, with its DeletedAt");
                Ok(())
            }
            Self::List => records::list::<Namespace>(service, &()).await,
        }
    }
}

impl Update {
    async fn apply(self, service: &AclConnection, mut current: Namespace) -> Result<NewNamespace, CommandFailure> {
        let NamespaceDefaults { policy_defaults, role_defaults } = self.contents.defaults(service).await?;
        let old = current.acls;
        current.acls = NamespaceDefaults {
            policy_defaults: merge_links(old.policy_defaults, policy_defaults, self.merge, self.no_default_policies),
            role_defaults: merge_links(old.role_defaults, role_defaults, self.merge, self.no_default_roles),
        };
        current.description = self.description.unwrap_or(current.description);
        if self.no_meta || (!self.merge && !self.contents.meta.is_empty()) {
            current.meta.clear();
        }
        current.meta.extend(self.contents.meta);
        Ok(NewNamespace::from(&current))
    }
}

impl CommandRecord for Namespace {
    fn print(&self) {
        Fields::default()
            .add("Name", &self.name)
            .add("Description", &self.description)
            .optional("Deleted", self.deleted_at)
            .list_field("Default policies", self.acls.policy_defaults.iter().map(output::link))
            .list_field("Default roles", self.acls.role_defaults.iter().map(output::link))
            .list_field("Meta", self.meta.iter().map(|(name, value)| format!("{name}={value}")))
            .print();
    }

    fn print_table(list: &[Self]) {
        let rows = list.iter().map(|namespace| {
            let deleted = namespace.deleted_at.map(|at| at.to_string()).unwrap_or_default();
            [namespace.name.clone(), deleted, namespace.description.clone()]
        });
        output::table(["Name", "Deleted", "Description"], rows);
    }
}
