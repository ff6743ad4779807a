//! `keyward acl`: the access-control service, for people. One file a group of commands.

// 0: what goes in and out
mod secret_input;
mod show;

// 1: how the service is reached, and how a command fails
mod failure;
mod connection;
mod secret_output;

// 2: what commands share
mod token_output;
mod resolve;
mod templated;
mod links;

// 3: the commands
mod rotate;
mod token;
mod role;
mod policy;
mod namespace;
mod auth_method;
mod binding_rule;
mod template;
mod verify;
mod session;

use clap::{Args, Subcommand};

use self::connection::TokenUse;
pub(super) use self::connection::{Connection, Service};
pub(super) use self::failure::Failure;
use super::{Exit, say_error};

/// Ask the access-control service, and change what it keeps.
#[derive(Debug, Args)]
pub(super) struct Acl {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    group: Group,
}

#[derive(Debug, Subcommand)]
enum Group {
    /// Tokens: who may do what
    #[command(subcommand)]
    Token(token::Command),
    /// Roles: what many tokens may do
    #[command(subcommand)]
    Role(role::Command),
    /// Policies: rules that tokens and roles link
    #[command(subcommand)]
    Policy(policy::Command),
    /// Namespaces: rooms of their own for tokens, roles and policies
    #[command(subcommand)]
    Namespace(namespace::Command),
    /// Auth methods: who may log in
    #[command(subcommand)]
    AuthMethod(auth_method::Command),
    /// Binding rules: what a login gives
    #[command(subcommand)]
    BindingRule(binding_rule::Command),
    /// Templates of policies
    #[command(subcommand)]
    TemplatedPolicy(template::Command),
    /// Look whether all records of the service are there and whole
    #[command(after_help = "Example:\n  keyward acl verify --token-file ops.token\n  \
                            keyward acl verify --dir /var/lib/keyward/access")]
    Verify(verify::Verify),
    /// Make the first token of a new service, which may do all
    #[command(after_help = "Example:\n  keyward acl bootstrap --out root.token")]
    Bootstrap(session::Bootstrap),
    /// Log in by an auth method, and be given a token
    #[command(
        after_help = "Example:\n  keyward acl login --method cloud --bearer-token-file proof.jwt --out web.token"
    )]
    Login(session::Login),
    /// Delete the token that the command is run with, which a login must have made
    #[command(after_help = "Example:\n  keyward acl logout --token-file web.token")]
    Logout,
    /// Say whose token the command is run with, what it links and how long it lives
    #[command(after_help = "Example:\n  keyward acl whoami --token-file web.token")]
    Whoami,
}

impl Acl {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let Self { connection, group } = self;
        let token_use = match &group {
            Group::Bootstrap(_) | Group::Login(_) => TokenUse::FlagOnly,
            Group::Verify(verify) if verify.is_offline() => TokenUse::FlagOnly,
            _ => TokenUse::Given,
        };
        asking_with(connection, token_use, async |service| match group {
            Group::Token(command) => command.run(service).await,
            Group::Role(command) => command.run(service).await,
            Group::Policy(command) => command.run(service).await,
            Group::Namespace(command) => command.run(service).await,
            Group::AuthMethod(command) => command.run(service).await,
            Group::BindingRule(command) => command.run(service).await,
            Group::TemplatedPolicy(command) => command.run(service).await,
            Group::Verify(verify) => verify.run(service).await,
            Group::Bootstrap(bootstrap) => bootstrap.run(service).await,
            Group::Login(login) => login.run(service).await,
            Group::Logout => session::logout(service).await,
            Group::Whoami => session::whoami(service).await,
        })
    }
}

/// Does something with the service, and tells how it ended.
pub(super) fn asking(
    connection: Connection,
    work: impl AsyncFnOnce(&Service) -> Result<(), Failure>,
) -> anyhow::Result<Exit> {
    asking_with(connection, TokenUse::Given, work)
}

fn asking_with(
    connection: Connection,
    token_use: TokenUse,
    work: impl AsyncFnOnce(&Service) -> Result<(), Failure>,
) -> anyhow::Result<Exit> {
    crate::os::forbid_core_dumps()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let service = connection.open(token_use)?;
        work(&service).await.map_err(|failure| service.explain(failure))
    });
    Ok(ended.map_or_else(
        |failure| {
            say_error(&failure.text);
            failure.exit
        },
        |()| Exit::Ok,
    ))
}
