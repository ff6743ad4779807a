//! `keyward acl role`.

use clap::{Args, Subcommand};
use keyward_acl::client::{NewRole, Policy, Role};
use keyward_acl::model::id::Id;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use super::links::{LinkFlags, MergeFlags};
use super::output::{self, Fields};
use super::records::{self, CommandRecord};
use super::resolve::{self, IdRecord};

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
        match self {
            Self::Create(create) => {
                let links = create.links.resolve(service).await?;
                let new = NewRole { name: create.name, description: create.description, links };
                records::create::<Role>(service, &new).await
            }
            Self::Read(target) => {
                let id = resolve::id::<Role>(service, &target.role).await?;
                records::read::<Role>(service, &id).await
            }
            Self::Update(update) => {
                let id = resolve::id::<Role>(service, &update.role).await?;
                records::update(service, &id, async |current: Role| {
                    let new_links = update.links.resolve(service).await?;
                    Ok(NewRole {
                        name: update.name.unwrap_or(current.name),
                        description: update.description.unwrap_or(current.description),
                        links: update.merging.apply(current.links, new_links),
                    })
                })
                .await
            }
            Self::Delete(target) => {
                let id = resolve::id::<Role>(service, &target.role).await?;
                records::delete::<Role>(service, &id, &target.role).await
            }
            Self::List(list) => {
                let policy = resolve::optional_id::<Policy>(service, list.policy.as_deref()).await?;
                records::list::<Role>(service, &policy).await
            }
        }
    }
}

impl IdRecord for Role {
    const KEYS: &'static str = "name or id";
    const HAS_NAMES: bool = true;

    fn id(&self) -> Option<Id> {
        Some(self.id)
    }
}

impl CommandRecord for Role {
    fn print(&self) {
        Fields::default()
            .add("ID", self.id)
            .add("Name", &self.name)
            .optional("Namespace", self.namespace.as_ref())
            .add("Description", &self.description)
            .links(&self.links)
            .print();
    }

    fn print_table(list: &[Self]) {
        let rows = list.iter().map(|role| {
            let namespace = role.namespace.clone().unwrap_or_default();
            let links = output::links_in_a_cell(&[], &role.links);
            [role.id.to_string(), role.name.clone(), namespace, links, role.description.clone()]
        });
        output::table(["ID", "Name", "Namespace", "Links", "Description"], rows);
    }
}
