//! `keyward acl namespace`.

use clap::{Args, Subcommand};
use keyward_acl::client::{Namespace, NamespaceDefaults, NewNamespace, QueryOptions};

use super::connection::AclConnection;
use super::failure::{CommandFailure, print_deleted};
use super::links::merge_links;
use super::output::{self, Fields};
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
            policy_defaults: resolve::policy_links(service, &self.policy_ids, &self.policy_names).await?,
            role_defaults: resolve::role_links(service, &self.role_ids, &self.role_names).await?,
        })
    }
}

impl Command {
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let client = &service.client;
        let query = QueryOptions::default();
        match self {
            Self::Create(create) => {
                let acls = create.contents.defaults(service).await?;
                let Create { name, description, contents } = create;
                let new = NewNamespace { name, description, acls, meta: contents.meta.into_iter().collect() };
                print_namespace(service, &client.create_namespace(&new).await?);
            }
            Self::Read(target) => print_namespace(service, &client.read_namespace(&target.name, &query).await?.value),
            Self::Update(update) => {
                let mut new = NewNamespace::from(&client.read_namespace(&update.name, &query).await?.value);
                let new_defaults = update.contents.defaults(service).await?;
                new.description = update.description.unwrap_or(new.description);
                let NamespaceDefaults { policy_defaults, role_defaults } = new.acls;
                new.acls = NamespaceDefaults {
                    policy_defaults: merge_links(
                        policy_defaults,
                        new_defaults.policy_defaults,
                        update.merge,
                        update.no_default_policies,
                    ),
                    role_defaults: merge_links(
                        role_defaults,
                        new_defaults.role_defaults,
                        update.merge,
                        update.no_default_roles,
                    ),
                };
                if update.no_meta || (!update.merge && !update.contents.meta.is_empty()) {
                    new.meta.clear();
                }
                new.meta.extend(update.contents.meta);
                print_namespace(service, &client.update_namespace(&new).await?);
            }
            Self::Delete(target) => {
                let marked = client.delete_namespace(&target.name).await?;
                print_deleted(marked, "namespace", &target.name)?;
                print_note("its records are deleted in the background; until then it can be read, with its DeletedAt");
            }
            Self::List => {
                let read = client.list_namespaces(&query).await?;
                service.show(&read.value, || {
                    let rows = read.value.iter().map(|namespace| {
                        let deleted = namespace.deleted_at.map(|at| at.to_string()).unwrap_or_default();
                        [namespace.name.clone(), deleted, namespace.description.clone()]
                    });
                    output::table(["Name", "Deleted", "Description"], rows);
                });
                output::note_omitted(&read);
            }
        }
        Ok(())
    }
}

fn print_namespace(service: &AclConnection, namespace: &Namespace) {
    service.show(namespace, || {
        Fields::default()
            .add("Name", &namespace.name)
            .add("Description", &namespace.description)
            .optional("Deleted", namespace.deleted_at)
            .list_field("Default policies", namespace.acls.policy_defaults.iter().map(output::link))
            .list_field("Default roles", namespace.acls.role_defaults.iter().map(output::link))
            .list_field("Meta", namespace.meta.iter().map(|(name, value)| format!("{name}={value}")))
            .print();
    });
}
