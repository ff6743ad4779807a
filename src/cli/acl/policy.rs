//! `keyward acl policy`.

use clap::{Args, Subcommand};
use keyward_acl::client::{NewPolicy, Policy};
use keyward_acl::model::id::Id;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use super::output::{self, Fields};
use super::records::{self, CommandRecord};
use super::resolve::{self, IdRecord};
use super::secret_input::SecretInput;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a policy
    #[command(after_help = "Example:\n  keyward acl policy create web-read --rules web-read.hcl")]
    Create(Create),
    /// Show a policy with its rules
    #[command(after_help = "Example:\n  keyward acl policy read web-read")]
    Read(NameArgument),
    /// Change a policy; settings without a flag stay as they are
    #[command(after_help = "Example:\n  keyward acl policy update web-read --rules - < web-read.hcl")]
    Update(Update),
    /// Delete a policy; tokens and roles that link it stay valid without it
    #[command(after_help = "Example:\n  keyward acl policy delete web-read")]
    Delete(NameArgument),
    /// List policies
    #[command(after_help = "Example:\n  keyward acl policy list")]
    List,
}

/// Create a policy.
#[derive(Debug, Args)]
pub(super) struct Create {
    /// Name of the policy: letters, digits, -, _ and one /
    name: String,
    /// Description
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// File with the rules, in HCL or JSON, or - for standard input
    #[arg(long, value_name = "FILE")]
    rules: Option<SecretInput>,
    /// Datacenter in which the policy is valid; repeatable [default: all]
    #[arg(long = "datacenter", value_name = "DC")]
    datacenters: Vec<String>,
}

/// The policy that a command reads or deletes.
#[derive(Debug, Args)]
pub(super) struct NameArgument {
    /// Name or id of the policy, or a prefix of the id
    policy: String,
}

/// Change a policy.
#[derive(Debug, Args)]
pub(super) struct Update {
    /// Name or id of the policy, or a prefix of the id
    policy: String,
    /// New name; links to it stay
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Description
    #[arg(long)]
    description: Option<String>,
    /// File with the rules, in HCL or JSON, or - for standard input
    #[arg(long, value_name = "FILE")]
    rules: Option<SecretInput>,
    /// Datacenter in which the policy is valid; repeatable
    #[arg(long = "datacenter", value_name = "DC")]
    datacenters: Vec<String>,
    /// Make the policy valid in all datacenters
    #[arg(long, conflicts_with = "datacenters")]
    all_datacenters: bool,
}

impl Command {
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        match self {
            Self::Create(create) => {
                let rules = create.rules.as_ref().map(SecretInput::text).transpose()?.unwrap_or_default();
                let Create { name, description, datacenters, .. } = create;
                records::create::<Policy>(service, &NewPolicy { name, description, rules, datacenters }).await
            }
            Self::Read(target) => {
                let id = resolve::id::<Policy>(service, &target.policy).await?;
                records::read::<Policy>(service, &id).await
            }
            Self::Update(update) => {
                let rules = update.rules.as_ref().map(SecretInput::text).transpose()?;
                let id = resolve::id::<Policy>(service, &update.policy).await?;
                records::update(service, &id, async |current: Policy| {
                    let mut new = NewPolicy::from(&current);
                    new.name = update.name.unwrap_or(new.name);
                    new.description = update.description.unwrap_or(new.description);
                    new.rules = rules.unwrap_or(new.rules);
                    if update.all_datacenters || !update.datacenters.is_empty() {
                        new.datacenters = update.datacenters;
                    }
                    Ok(new)
                })
                .await
            }
            Self::Delete(target) => {
                let id = resolve::id::<Policy>(service, &target.policy).await?;
                records::delete::<Policy>(service, &id, &target.policy).await
            }
            Self::List => records::list::<Policy>(service, &()).await,
        }
    }
}

impl IdRecord for Policy {
    const KEYS: &'static str = "name or id";
    const HAS_NAMES: bool = true;

    fn id(&self) -> Option<Id> {
        resolve::parse_id(&self.id)
    }
}

impl CommandRecord for Policy {
    fn print(&self) {
        Fields::default()
            .add("ID", &self.id)
            .add("Name", &self.name)
            .optional("Namespace", self.namespace.as_ref())
            .add("Description", &self.description)
            .list_field("Datacenters", self.datacenters.clone())
            .add("Rules", "")
            .print();
        output::print_indented(&self.rules);
    }

    fn print_table(list: &[Self]) {
        let rows = list.iter().map(|policy| {
            let Self { id, name, namespace, datacenters, description, .. } = policy.clone();
            [id, name, namespace.unwrap_or_default(), datacenters.join(", "), description]
        });
        output::table(["ID", "Name", "Namespace", "Datacenters", "Description"], rows);
    }
}
