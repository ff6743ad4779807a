//! `keyward acl`: runs the ACL server and manages its records. One file per group of commands.

// 0: input and output
mod secret_input;
mod output;

// 1: how the service is reached, and how a command fails
mod failure;
mod connection;
mod secret_output;

// 2: shared by commands
mod token_output;
mod records;
mod resolve;
mod templated_policy_flags;
mod links;
mod browser_login;

// 3: the commands
mod rotate;
mod token;
mod role;
mod policy;
mod namespace;
mod auth_method;
mod binding_rule;
mod templated_policy;
mod verify;
mod session;
mod snapshot;
mod rekey;
mod serve;

use std::pin::Pin;

use clap::{Args, Subcommand};
use keyward_telemetry::error_code::ErrorCode;

use self::connection::{AclConnection, Connection, TokenInput};
use self::failure::CommandFailure;
use super::{Exit, LogChoice, print_error};

/// Run keyward's ACL server, and manage its records.
#[derive(Debug, Args)]
pub(super) struct Acl {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the ACL API until stopped, without a configuration file
    #[command(
        display_order = 1,
        after_help = "Example:\n  keyward acl serve --dir /var/lib/keyward/acl --listen 127.0.0.1:8500"
    )]
    Serve(serve::Serve),
    /// Write a snapshot of a running server to a file, in place of an earlier snapshot
    #[command(
        display_order = 2,
        after_help = "Example:\n  keyward acl backup --out acl.snapshot --token-file ops.token"
    )]
    Backup(Box<Request<snapshot::Backup>>),
    /// Replace a running server's data with a snapshot
    #[command(display_order = 3, after_help = "Example:\n  keyward acl restore acl.snapshot --token-file ops.token")]
    Restore(Box<Request<snapshot::Restore>>),
    /// Re-encrypt all tokens with the first key of the server's key file, without downtime
    #[command(
        display_order = 4,
        after_help = "Example:\n  keyward acl rekey --generate --address https://acl.example.com:8500 --token-file ops.token"
    )]
    Rekey(Box<Request<rekey::Rekey>>),
    /// Check that no record of the server is missing or damaged
    #[command(
        display_order = 5,
        after_help = "Example:\n  keyward acl verify --token-file ops.token\n  \
                            keyward acl verify --dir /var/lib/keyward/acl"
    )]
    Verify(Box<Request<verify::Verify>>),
    /// Create the first token of a new server, with all rights
    #[command(display_order = 6, after_help = "Example:\n  keyward acl bootstrap --out root.token")]
    Bootstrap(Box<Request<session::Bootstrap>>),
    /// Log in by an auth method and get a token
    #[command(
        display_order = 7,
        after_help = "Examples:\n  keyward acl login --method cloud --bearer-token-file identity.jwt --out web.token\n  \
                            keyward acl login --method people --oidc --out my.token"
    )]
    Login(Box<Request<session::Login>>),
    /// Delete the token of --token-file; it must come from a login
    #[command(display_order = 8, after_help = "Example:\n  keyward acl logout --token-file web.token")]
    Logout(Box<Request<session::NoArguments>>),
    /// Show the token of --token-file: its owner, links and lifetime
    #[command(display_order = 9, after_help = "Example:\n  keyward acl whoami --token-file web.token")]
    Whoami(Box<Request<session::NoArguments>>),
    /// Manage tokens
    #[command(display_order = 10)]
    Token(Box<Group<token::Command>>),
    /// Manage roles: policies that many tokens share
    #[command(display_order = 11)]
    Role(Box<Group<role::Command>>),
    /// Manage policies: rules that tokens and roles link
    #[command(display_order = 12)]
    Policy(Box<Group<policy::Command>>),
    /// Manage namespaces
    #[command(display_order = 13)]
    Namespace(Box<Group<namespace::Command>>),
    /// Manage auth methods: the identities that may log in
    #[command(display_order = 14)]
    AuthMethod(Box<Group<auth_method::Command>>),
    /// Manage binding rules: the rights that a login gets
    #[command(display_order = 15)]
    BindingRule(Box<Group<binding_rule::Command>>),
    /// Show the templated policies
    #[command(display_order = 16)]
    TemplatedPolicy(Box<Group<templated_policy::Command>>),
}

/// A command that calls a server, with the connection's flags. `acl serve` has none of them, so they are not `acl`'s own.
#[derive(Debug, Args)]
struct Request<T: Args> {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    command: T,
}

/// A group of commands that call a server, with the connection's flags.
#[derive(Debug, Args)]
struct Group<T: Subcommand> {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: T,
}

impl Acl {
    pub(super) fn run(self, log: &LogChoice) -> anyhow::Result<Exit> {
        match self.command {
            Command::Serve(serve) => serve.run(log),
            Command::Backup(it) => call(it.connection, TokenInput::FlagOrEnv, it.command, snapshot::Backup::run),
            Command::Restore(it) => call(it.connection, TokenInput::FlagOrEnv, it.command, snapshot::Restore::run),
            Command::Rekey(it) => call(it.connection, TokenInput::FlagOrEnv, it.command, rekey::Rekey::run),
            Command::Verify(it) => {
                let token_use = if it.command.is_offline() { TokenInput::FlagOnly } else { TokenInput::FlagOrEnv };
                call(it.connection, token_use, it.command, verify::Verify::run)
            }
            Command::Bootstrap(it) => call(it.connection, TokenInput::FlagOnly, it.command, session::Bootstrap::run),
            Command::Login(it) => call(it.connection, TokenInput::FlagOnly, it.command, session::Login::run),
            Command::Logout(it) => call(it.connection, TokenInput::FlagOrEnv, it.command, session::logout),
            Command::Whoami(it) => call(it.connection, TokenInput::FlagOrEnv, it.command, session::whoami),
            Command::Token(it) => call(it.connection, TokenInput::FlagOrEnv, it.command, token::Command::run),
            Command::Role(it) => call(it.connection, TokenInput::FlagOrEnv, it.command, role::Command::run),
            Command::Policy(it) => call(it.connection, TokenInput::FlagOrEnv, it.command, policy::Command::run),
            Command::Namespace(it) => call(it.connection, TokenInput::FlagOrEnv, it.command, namespace::Command::run),
            Command::AuthMethod(it) => {
                call(it.connection, TokenInput::FlagOrEnv, it.command, auth_method::Command::run)
            }
            Command::BindingRule(it) => {
                call(it.connection, TokenInput::FlagOrEnv, it.command, binding_rule::Command::run)
            }
            Command::TemplatedPolicy(it) => {
                call(it.connection, TokenInput::FlagOrEnv, it.command, templated_policy::Command::run)
            }
        }
    }
}

/// Connects to the server, runs `command` on it and prints its failure, if any.
fn call<T>(
    connection: Connection,
    token_use: TokenInput,
    command: T,
    run: impl AsyncFnOnce(T, &AclConnection) -> Result<(), CommandFailure>,
) -> anyhow::Result<Exit> {
    keyward_machine::os::forbid_core_dumps()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // One type for all commands: the runtime's code is generated for each type of future that it blocks on.
    let work: Pin<Box<dyn Future<Output = Result<(), CommandFailure>> + '_>> = Box::pin(async {
        let service = connection.open(token_use)?;
        run(command, &service).await.map_err(|failure| service.explain(failure))
    });
    let ended = runtime.block_on(work);
    Ok(ended.map_or_else(
        |failure| {
            print_error(&ErrorCode::tag(failure.code, &failure.text));
            failure.exit
        },
        |()| Exit::Ok,
    ))
}
