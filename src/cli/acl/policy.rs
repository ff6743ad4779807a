//! `keyward acl policy`.

use clap::{Args, Subcommand};
use keyward_acl::client::{NewPolicy, Policy, QueryOptions};

use super::connection::AclConnection;
use super::failure::{CommandFailure, print_deleted};
use super::output::{self, Fields};
use super::resolve;
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
        let client = &service.client;
        let query = QueryOptions::default();
        match self {
            Self::Create(create) => {
                let rules = create.rules.as_ref().map(SecretInput::text).transpose()?.unwrap_or_default();
                let Create { name, description, datacenters, .. } = create;
                print_policy(
                    service,
                    &client.create_policy(&NewPolicy { name, description, rules, datacenters }).await?,
                );
            }
            Self::Read(target) => {
                let id = resolve::policy(service, &target.policy).await?;
                print_policy(service, &client.read_policy(&id, &query).await?.value);
            }
            Self::Update(update) => {
                let rules = update.rules.as_ref().map(SecretInput::text).transpose()?;
                let id = resolve::policy(service, &update.policy).await?;
                let mut new = NewPolicy::from(&client.read_policy(&id, &query).await?.value);
                new.name = update.name.unwrap_or(new.name);
                new.description = update.description.unwrap_or(new.description);
                new.rules = rules.unwrap_or(new.rules);
                if update.all_datacenters || !update.datacenters.is_empty() {
                    new.datacenters = update.datacenters;
                }
                print_policy(service, &client.update_policy(&id, &new).await?);
            }
            Self::Delete(target) => {
                let id = resolve::policy(service, &target.policy).await?;
                print_deleted(client.delete_policy(&id).await?, "policy", &target.policy)?;
            }
            Self::List => {
                let read = client.list_policies(&query).await?;
                service.show(&read.value, || {
                    let rows = read.value.iter().map(|policy| {
                        let namespace = policy.namespace.clone().unwrap_or_default();
                        let datacenters = policy.datacenters.join(", ");
                        [policy.id.clone(), policy.name.clone(), namespace, datacenters, policy.description.clone()]
                    });
                    output::table(["ID", "Name", "Namespace", "Datacenters", "Description"], rows);
                });
                output::note_omitted(&read);
            }
        }
        Ok(())
    }
}

/// Prints a policy with its rules.
pub(super) fn print_policy(service: &AclConnection, policy: &Policy) {
    service.show(policy, || {
        Fields::default()
            .add("ID", &policy.id)
            .add("Name", &policy.name)
            .optional("Namespace", policy.namespace.as_ref())
            .add("Description", &policy.description)
            .list_field("Datacenters", policy.datacenters.clone())
            .add("Rules", "")
            .print();
        output::print_indented(&policy.rules);
    });
}
