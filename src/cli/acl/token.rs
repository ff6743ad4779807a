//! `keyward acl token`.

use std::time::Duration;

use clap::{Args, Subcommand};
use keyward_acl::client::{NewToken, Policy, QueryOptions, Role, Token, TokenListFilter, TokenUpdate};
use keyward_acl::model::id::Id;
use keyward_acl::model::timestamp::Timestamp;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use super::links::{LinkFlags, MergeFlags, RoleFlags, merge_links};
use super::output;
use super::resolve::{self, IdRecord};
use super::rotate::Rotate;
use super::secret_input::SecretInput;
use super::secret_output::{self, NewFileFlags, SecretDisplay};
use super::{records, token_output};

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a token; prints its secret once
    #[command(
        after_help = "Example:\n  keyward acl token create --description web --policy-name web-read --ttl 1h --out web.token"
    )]
    Create(Create),
    /// Show a token
    #[command(after_help = "Example:\n  keyward acl token read 6a1253d2 --expanded")]
    Read(Read),
    /// Change a token; settings without a flag stay as they are
    #[command(after_help = "Example:\n  keyward acl token update 6a1253d2 --policy-name web-write --merge")]
    Update(Update),
    /// Create a token with the links and the end of another; prints its secret once
    #[command(after_help = "Example:\n  keyward acl token clone 6a1253d2 --description 'web, second'")]
    Clone(Clone),
    /// Replace a token: create a new one, write it to --out, wait, delete the old one
    #[command(after_help = "Example:\n  keyward acl token rotate 6a1253d2 --out /etc/web/token --grace 1h\n  \
                            keyward acl token rotate --self --token-file ops.token --out ops.token --grace 0s")]
    Rotate(Rotate),
    /// Delete a token
    #[command(after_help = "Example:\n  keyward acl token delete 6a1253d2-1785-24fd-91c2-f8e78c745511")]
    Delete(Delete),
    /// List tokens
    #[command(after_help = "Example:\n  keyward acl token list --policy web-read -o json")]
    List(List),
}

/// Create a token.
#[derive(Debug, Args)]
pub(super) struct Create {
    /// Description
    #[arg(long, default_value = "", hide_default_value = true)]
    description: String,
    /// Accessor of the token, a UUID [default: a random one]
    #[arg(long, value_name = "ID")]
    accessor: Option<Id>,
    /// File with the secret, a UUID, or - for standard input [default: a random one]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<SecretInput>,
    #[command(flatten)]
    roles: RoleFlags,
    #[command(flatten)]
    links: LinkFlags,
    /// Make the token valid in this datacenter only
    #[arg(long)]
    local: bool,
    /// Lifetime, 1m to 24h [default: without end]
    #[arg(long, visible_alias = "expires-ttl", value_name = "TIME", value_parser = humantime::parse_duration)]
    ttl: Option<Duration>,
    /// End, such as 2030-01-02T03:04:05Z, 1m to 24h from now
    #[arg(long, value_name = "TIME", conflicts_with = "ttl")]
    expires_at: Option<Timestamp>,
    #[command(flatten)]
    output_flags: NewFileFlags,
}

/// Show a token.
#[derive(Debug, Args)]
pub(super) struct Read {
    /// Accessor of the token, or a prefix of it
    #[arg(required_unless_present = "self")]
    accessor: Option<String>,
    /// Show the token of --token-file
    #[arg(long = "self", id = "self", conflicts_with = "accessor")]
    own: bool,
    /// Show the sources of its rights: policies with their rules, roles, defaults of its namespace
    #[arg(long)]
    expanded: bool,
    /// Print the secret too
    #[arg(long)]
    show_secret: bool,
}

/// Change a token.
#[derive(Debug, Args)]
pub(super) struct Update {
    /// Accessor of the token, or a prefix of it
    accessor: String,
    /// Description
    #[arg(long)]
    description: Option<String>,
    #[command(flatten)]
    roles: RoleFlags,
    #[command(flatten)]
    links: LinkFlags,
    #[command(flatten)]
    merging: MergeFlags,
    /// Remove all linked roles
    #[arg(long)]
    no_roles: bool,
}

/// Create a token with the links of another.
#[derive(Debug, Args)]
pub(super) struct Clone {
    /// Accessor of the other token, or a prefix of it
    accessor: String,
    /// Description [default: the other's]
    #[arg(long)]
    description: Option<String>,
    #[command(flatten)]
    output_flags: NewFileFlags,
}

/// Delete a token.
#[derive(Debug, Args)]
pub(super) struct Delete {
    /// Accessor of the token, or a prefix of it
    accessor: String,
}

/// List tokens.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Only tokens that link this policy, by name or id
    #[arg(long, value_name = "POLICY", group = "filter")]
    policy: Option<String>,
    /// Only tokens that link this role, by name or id
    #[arg(long, value_name = "ROLE", group = "filter")]
    role: Option<String>,
    /// Only tokens with the identity of this service
    #[arg(long, value_name = "NAME", group = "filter")]
    service_name: Option<String>,
    /// Only tokens that a login by this auth method created
    #[arg(long, value_name = "NAME", group = "filter")]
    auth_method: Option<String>,
    /// The namespace of that auth method [default: that of the request]
    #[arg(long, value_name = "NAME", requires = "auth_method")]
    auth_method_namespace: Option<String>,
}

impl Command {
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        match self {
            Self::Create(create) => create.run(service).await,
            Self::Read(read) => read.run(service).await,
            Self::Update(update) => update.run(service).await,
            Self::Clone(clone) => clone.run(service).await,
            Self::Rotate(rotate) => rotate.run(service).await,
            Self::Delete(delete) => delete.run(service).await,
            Self::List(list) => list.run(service).await,
        }
    }
}

impl Create {
    async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        self.output_flags.check()?;
        let new = NewToken {
            accessor_id: self.accessor,
            secret_id: self.secret_file.as_ref().map(SecretInput::secret).transpose()?,
            description: self.description,
            roles: self.roles.resolve(service).await?,
            links: self.links.resolve(service).await?,
            local: self.local,
            expiration_time: self.expires_at,
            expiration_ttl: self.ttl,
        };
        deliver_created_token(service, &service.client.create(&new).await?, &self.output_flags).await
    }
}

impl Read {
    async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let client = &service.client;
        let query = QueryOptions::default();
        let own_token = match &self.accessor {
            None => Some(client.read_self(&query).await?),
            Some(_) => None,
        };
        let accessor = match (&own_token, &self.accessor) {
            (Some(read), _) => read.value.accessor_id,
            (None, text) => resolve::id::<Token>(service, text.as_deref().unwrap_or_default()).await?,
        };
        if self.expanded {
            let read = client.read_token_expanded(&accessor, &query).await?;
            token_output::print_with_expansion(service, &read.value, &self.secret(&read.value.0), read.date);
            return Ok(());
        }
        let read = match own_token {
            Some(read) => read,
            None => client.read::<Token>(&accessor, &query).await?,
        };
        token_output::token(service, &read.value, &self.secret(&read.value), read.date);
        Ok(())
    }

    fn secret(&self, token: &Token) -> SecretDisplay {
        match &token.secret_id {
            None => SecretDisplay::Hidden,
            Some(secret) if self.show_secret => SecretDisplay::Plain(secret.clone()),
            Some(_) => SecretDisplay::NotRequested,
        }
    }
}

impl Update {
    async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let accessor = resolve::id::<Token>(service, &self.accessor).await?;
        let current = service.client.read::<Token>(&accessor, &QueryOptions::default()).await?.value;
        let roles = self.roles.resolve(service).await?;
        let links = self.links.resolve(service).await?;
        let mut update = TokenUpdate::from(&current);
        update.description = self.description.unwrap_or(update.description);
        update.roles = merge_links(update.roles, roles, self.merging.merge, self.no_roles);
        update.links = self.merging.apply(update.links, links);
        let token = service.client.update(&accessor, &update).await?;
        token_output::token(service, &token, &SecretDisplay::NotRequested, None);
        Ok(())
    }
}

impl Clone {
    async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        self.output_flags.check()?;
        let accessor = resolve::id::<Token>(service, &self.accessor).await?;
        let token = service.client.clone_token(&accessor, self.description.as_deref()).await?;
        deliver_created_token(service, &token, &self.output_flags).await
    }
}

impl Delete {
    async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let accessor = resolve::id::<Token>(service, &self.accessor).await?;
        records::delete::<Token>(service, &accessor, &accessor.to_string()).await
    }
}

impl List {
    async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let filter = TokenListFilter {
            policy: resolve::optional_id::<Policy>(service, self.policy.as_deref()).await?,
            role: resolve::optional_id::<Role>(service, self.role.as_deref()).await?,
            service_name: self.service_name,
            auth_method: self.auth_method,
            auth_method_namespace: self.auth_method_namespace,
        };
        let read = service.client.list::<Token>(&filter, &QueryOptions::default()).await?;
        let now = token_output::now(read.date);
        service.show(&read.value, || {
            let rows = read.value.iter().map(|token| {
                let namespace = token.namespace.clone().unwrap_or_default();
                let links = output::links_in_a_cell(&token.roles, &token.links);
                let end = output::expiry_cell(token.expiration_time, now);
                [token.accessor_id.to_string(), namespace, end, links, token.description.clone()]
            });
            output::table(["AccessorID", "Namespace", "Ends in", "Links", "Description"], rows);
        });
        output::note_omitted(&read);
        Ok(())
    }
}

impl IdRecord for Token {
    const KEYS: &'static str = "accessor";

    fn id(&self) -> Option<Id> {
        Some(self.accessor_id)
    }
}

/// Prints a new token and delivers its secret.
async fn deliver_created_token(
    service: &AclConnection,
    token: &Token,
    output_flags: &NewFileFlags,
) -> Result<(), CommandFailure> {
    let display = output_flags.deliver(token, async || secret_output::delete(service, token).await).await?;
    token_output::token(service, token, &display, None);
    Ok(())
}
