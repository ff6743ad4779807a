//! `keyward acl role`.

use clap::{Args, Subcommand};
use keyward_acl::client::{NewRole, QueryOptions, Role};

use super::connection::AclConnection;
use super::failure::{CommandFailure, print_deleted};
use super::links::{LinkFlags, MergeFlags};
use super::output::{self, Fields};
use super::resolve;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a role
    #[command(after_help = "Example:\n  keyward acl role create web --policy-name web-read --service-identity web")]
    Create(Create),
    /// Show a role
    #[command(after_help = "Example:\n  keyward acl role read web")]
    Read(NameArgument),
    /// Change a role; settings without a flag stay as they are
    #[command(after_help = "Example:\n  keyward acl role update web --policy-name web-write --merge")]
    Update(Update),
    /// Delete a role; tokens that link it stay valid without it
    #[command(after_help = "Example:\n  keyward acl role delete web")]
    Delete(NameArgument),
    /// List roles
    #[command(after_help = "Example:\n  keyward acl role list --policy web-read")]
    List(List),
}

/// Create a role.
#[derive(Debug, Args)]
pub(super) struct Create {
    /// Name of the role: letters, digits, - and _
    name: String,
    /// Description
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    #[command(flatten)]
    links: LinkFlags,
}

/// The role that a command reads or deletes.
#[derive(Debug, Args)]
pub(super) struct NameArgument {
    /// Name or id of the role, or a prefix of the id
    role: String,
}

/// Change a role.
#[derive(Debug, Args)]
pub(super) struct Update {
    /// Name or id of the role, or a prefix of the id
    role: String,
    /// New name; links to it stay
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Description
    #[arg(long)]
    description: Option<String>,
    #[command(flatten)]
    links: LinkFlags,
    #[command(flatten)]
    merging: MergeFlags,
}

/// List roles.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Only roles that link this policy, by name or id
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
}

impl Command {
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let client = &service.client;
        let query = QueryOptions::default();
        match self {
            Self::Create(create) => {
                let links = create.links.resolve(service).await?;
                let new = NewRole { name: create.name, description: create.description, links };
                print_role(service, &client.create_role(&new).await?);
            }
            Self::Read(target) => {
                let id = resolve::role(service, &target.role).await?;
                print_role(service, &client.read_role(&id, &query).await?.value);
            }
            Self::Update(update) => {
                let id = resolve::role(service, &update.role).await?;
                let current = client.read_role(&id, &query).await?.value;
                let new_links = update.links.resolve(service).await?;
                let new = NewRole {
                    name: update.name.unwrap_or(current.name),
                    description: update.description.unwrap_or(current.description),
                    links: update.merging.apply(current.links, new_links),
                };
                print_role(service, &client.update_role(&id, &new).await?);
            }
            Self::Delete(target) => {
                let id = resolve::role(service, &target.role).await?;
                print_deleted(client.delete_role(&id).await?, "role", &target.role)?;
            }
            Self::List(list) => {
                let policy = match &list.policy {
                    Some(policy) => Some(resolve::policy(service, policy).await?),
                    None => None,
                };
                let read = client.list_roles(policy.as_ref(), &query).await?;
                service.show(&read.value, || {
                    let rows = read.value.iter().map(|role| {
                        let namespace = role.namespace.clone().unwrap_or_default();
                        let links = output::links_in_a_cell(&[], &role.links);
                        [role.id.to_string(), role.name.clone(), namespace, links, role.description.clone()]
                    });
                    output::table(["ID", "Name", "Namespace", "Links", "Description"], rows);
                });
                output::note_omitted(&read);
            }
        }
        Ok(())
    }
}

fn print_role(service: &AclConnection, role: &Role) {
    service.show(role, || {
        Fields::default()
            .add("ID", role.id)
            .add("Name", &role.name)
            .optional("Namespace", role.namespace.as_ref())
            .add("Description", &role.description)
            .links(&role.links)
            .print();
    });
}
