//! `keyward acl auth-method`.

use clap::{Args, Subcommand};
use keyward_acl::client::{AuthMethod, NewAuthMethod};
use serde_json::{Map, Value};

use super::connection::AclConnection;
use super::failure::CommandFailure;
use super::output::{self, Fields};
use super::records::{self, CommandRecord};
use super::secret_input::SecretInput;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create an auth method
    #[command(
        after_help = "Examples:\n  keyward acl auth-method create ci --type jwt --max-token-ttl 1h --config ci.json\n  \
                      keyward acl auth-method create people --type oidc --max-token-ttl 8h --config people.json"
    )]
    Create(Create),
    /// Show an auth method with its configuration
    #[command(after_help = "Example:\n  keyward acl auth-method read ci")]
    Read(NameArgument),
    /// Change an auth method; settings without a flag stay as they are
    #[command(after_help = "Example:\n  keyward acl auth-method update ci --max-token-ttl 30m")]
    Update(Update),
    /// Delete an auth method with its binding rules and tokens
    #[command(after_help = "Example:\n  keyward acl auth-method delete ci")]
    Delete(NameArgument),
    /// List auth methods
    #[command(after_help = "Example:\n  keyward acl auth-method list")]
    List,
}

/// Settings of an auth method that a create and an update share.
#[derive(Debug, Args)]
pub(super) struct Changes {
    /// Description
    #[arg(long)]
    description: Option<String>,
    /// Display name for people
    #[arg(long, value_name = "NAME")]
    display_name: Option<String>,
    /// Lifetime of its tokens, 1m to 24h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    max_token_ttl: Option<std::time::Duration>,
    /// Datacenters in which its tokens are valid: local (this one) or global
    #[arg(long, value_name = "SCOPE", value_parser = ["local", "global"])]
    token_locality: Option<String>,
    /// File with the configuration of its type, a JSON object, or - for standard input
    #[arg(long, value_name = "FILE")]
    config: Option<SecretInput>,
}

/// Create an auth method.
#[derive(Debug, Args)]
pub(super) struct Create {
    /// Name of the auth method: letters, digits, - and _
    name: String,
    /// Type of the auth method: jwt for signed tokens, oidc for people with a browser, cloud for Azure identities
    #[arg(long = "type", value_name = "TYPE")]
    kind: String,
    #[command(flatten)]
    changes: Changes,
}

/// The auth method that a command reads or deletes.
#[derive(Debug, Args)]
pub(super) struct NameArgument {
    /// Name of the auth method
    name: String,
}

/// Change an auth method.
#[derive(Debug, Args)]
pub(super) struct Update {
    /// Name of the auth method
    name: String,
    #[command(flatten)]
    changes: Changes,
}

impl Changes {
    fn apply(self, to: NewAuthMethod) -> Result<NewAuthMethod, CommandFailure> {
        let ttl = self.max_token_ttl.map(|ttl| format!("{}s", ttl.as_secs()));
        Ok(NewAuthMethod {
            description: self.description.unwrap_or(to.description),
            display_name: self.display_name.unwrap_or(to.display_name),
            max_token_ttl: ttl.or(to.max_token_ttl),
            token_locality: self.token_locality.unwrap_or(to.token_locality),
            config: self.config.as_ref().map(object).transpose()?.unwrap_or(to.config),
            ..to
        })
    }
}

fn object(input: &SecretInput) -> Result<Map<String, Value>, CommandFailure> {
    let text = input.text()?;
    Ok(serde_json::from_str(&text).map_err(|error| anyhow::anyhow!("--config is not a JSON object: {error}"))?)
}

impl Command {
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        match self {
            Self::Create(create) => {
                let new = NewAuthMethod { name: create.name, kind: create.kind, ..NewAuthMethod::default() };
                records::create::<AuthMethod>(service, &create.changes.apply(new)?).await
            }
            Self::Read(target) => records::read::<AuthMethod>(service, &target.name).await,
            Self::Update(update) => {
                let change = async |current: AuthMethod| update.changes.apply(NewAuthMethod::from(&current));
                records::update(service, update.name.as_str(), change).await
            }
            Self::Delete(target) => records::delete::<AuthMethod>(service, &target.name, &target.name).await,
            Self::List => records::list::<AuthMethod>(service, &()).await,
        }
    }
}

impl CommandRecord for AuthMethod {
    fn print(&self) {
        Fields::default()
            .add("Name", &self.name)
            .add("Type", &self.kind)
            .optional("Namespace", self.namespace.as_ref())
            .optional("Display name", Some(&self.display_name).filter(|name| !name.is_empty()))
            .add("Description", &self.description)
            .optional("Max token TTL", self.max_token_ttl.as_ref())
            .optional("Token locality", Some(&self.token_locality).filter(|locality| !locality.is_empty()))
            .add("Config", "")
            .print();
        output::print_indented(&serde_json::to_string_pretty(&self.config).unwrap_or_default());
    }

    fn print_table(list: &[Self]) {
        let rows = list.iter().map(|method| {
            let Self { name, kind, namespace, max_token_ttl, description, .. } = method.clone();
            [name, kind, namespace.unwrap_or_default(), max_token_ttl.unwrap_or_default(), description]
        });
        output::table(["Name", "Type", "Namespace", "Max token TTL", "Description"], rows);
    }
}
