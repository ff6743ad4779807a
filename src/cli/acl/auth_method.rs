//! `keyward acl auth-method`.

use clap::{Args, Subcommand};
use keyward_acl::client::{AuthMethod, NewAuthMethod, QueryOptions};
use serde_json::{Map, Value};

use super::connection::AclConnection;
use super::failure::{CommandFailure, print_deleted};
use super::output::{self, Fields};
use super::secret_input::SecretInput;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create an auth method
    #[command(
        after_help = "Example:\n  keyward acl auth-method create ci --type jwt --max-token-ttl 1h --config ci.json"
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
    /// Type of the auth method, such as jwt
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
        let client = &service.client;
        let query = QueryOptions::default();
        match self {
            Self::Create(create) => {
                let new = NewAuthMethod { name: create.name, kind: create.kind, ..NewAuthMethod::default() };
                print_auth_method(service, &client.create_auth_method(&create.changes.apply(new)?).await?);
            }
            Self::Read(target) => {
                print_auth_method(service, &client.read_auth_method(&target.name, &query).await?.value);
            }
            Self::Update(update) => {
                let current = NewAuthMethod::from(&client.read_auth_method(&update.name, &query).await?.value);
                print_auth_method(service, &client.update_auth_method(&update.changes.apply(current)?).await?);
            }
            Self::Delete(target) => {
                print_deleted(client.delete_auth_method(&target.name).await?, "auth method", &target.name)?;
            }
            Self::List => {
                let read = client.list_auth_methods(&query).await?;
                service.show(&read.value, || {
                    let rows = read.value.iter().map(|method| {
                        let AuthMethod { name, kind, namespace, max_token_ttl, description, .. } = method.clone();
                        let ttl = max_token_ttl.unwrap_or_default();
                        [name, kind, namespace.unwrap_or_default(), ttl, description]
                    });
                    output::table(["Name", "Type", "Namespace", "Max token TTL", "Description"], rows);
                });
                output::note_omitted(&read);
            }
        }
        Ok(())
    }
}

fn print_auth_method(service: &AclConnection, method: &AuthMethod) {
    service.show(method, || {
        Fields::default()
            .add("Name", &method.name)
            .add("Type", &method.kind)
            .optional("Namespace", method.namespace.as_ref())
            .optional("Display name", Some(&method.display_name).filter(|name| !name.is_empty()))
            .add("Description", &method.description)
            .optional("Max token TTL", method.max_token_ttl.as_ref())
            .optional("Token locality", Some(&method.token_locality).filter(|locality| !locality.is_empty()))
            .add("Config", "")
            .print();
        output::print_indented(&serde_json::to_string_pretty(&method.config).unwrap_or_default());
    });
}
