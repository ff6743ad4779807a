//! `keyward gateway`: runs the gateway without a configuration, and prints the state of a running one.

mod target;
mod credentials;
mod serve;
mod tokens;
mod report;
mod env;

use clap::{Args, Subcommand};

pub(super) use credentials::{parse_helper_invocation, respond_to_helper};
pub(super) use env::for_program;
pub(super) use target::GatewayTarget;

use super::{ConfigFiles, Exit, LogChoice};

/// Run the gateway, or query a running one.
#[derive(Debug, Args)]
pub(super) struct Gateway {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the gateway until stopped, without a configuration file
    #[command(
        after_help = "Example:\n  keyward gateway serve --upstream https://app.terraform.io --token-file platform.token --listen 127.0.0.1:8800"
    )]
    Serve(serve::Serve),
    /// List the running gateway's tokens by source and age, and its callers; never prints a token
    #[command(after_help = "Example:\n  keyward gateway tokens -c /etc/keyward/keyward.toml -o json")]
    Tokens(tokens::Tokens),
    /// List deprecated calls by client, with their replacements, since the gateway started
    #[command(after_help = "Example:\n  keyward gateway report -c /etc/keyward/keyward.toml")]
    Report(report::Report),
    /// Print the environment variables that point clients at the gateway, for a shell
    #[command(after_help = "Example:\n  eval \"$(keyward gateway env --config /etc/keyward/keyward.toml)\"")]
    Env(env::Env),
}

/// Finds the gateway of these configuration files; prints the error if that fails.
pub(super) fn find(files: &ConfigFiles) -> Result<GatewayTarget, Exit> {
    target::GatewayAddress::from_files(files).find()
}

impl Gateway {
    pub(super) fn run(self, log: &LogChoice) -> anyhow::Result<Exit> {
        match self.command {
            Command::Serve(serve) => serve.run(log),
            Command::Tokens(tokens) => tokens.run(),
            Command::Report(report) => report.run(),
            Command::Env(env) => env.run(),
        }
    }
}
