//! The command line: its commands, one file for each group of them.

// 0: how a command ends, what it prints, and help
mod exit;
mod print;
mod help;
mod suggestions;

// 1: shared by commands
mod deadline;
mod socket_peer;
mod agent_listener;
mod agent_client;
mod output;
mod progress;
mod setup_files;
mod command_config;

// 2: the commands
mod once;
mod run;
#[cfg(any(feature = "acl", feature = "gateway"))]
mod standalone;
mod check;
mod configuration;
mod doctor;
mod login;
mod init;
mod migrate;
mod template;
mod credential;
mod policy;
#[cfg(feature = "acl")]
mod acl;
#[cfg(feature = "gateway")]
mod changes;
#[cfg(feature = "gateway")]
mod gateway;
mod running_process;
mod agent_token;
mod rotate;
mod tool_identity;
mod readiness;
mod refresh;
mod reload;
mod status;
mod audit;
mod exec;
#[cfg(feature = "dev")]
mod dev;
mod completion;
mod man;
mod explain;
mod kubernetes;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

pub(crate) use exit::Exit;
use print::{
    ERROR, finish_output, print, print_error, print_error_with_code, print_line, print_note, print_warning,
    record_write_failure, write_to_stderr,
};

use keyward_app::{error_codes, journal};
use keyward_config::{self as config, Environment, LogFormat};

/// Turns a machine's cloud identity into short-lived tokens and serves them to the tools around it.
#[derive(Debug, Parser)]
#[command(name = "keyward", version, arg_required_else_help = true, after_help = help::EXIT_CODES)]
struct Cli<C: Subcommand = Command> {
    /// Log level: error, warn, info, debug or trace, or a list like info,hyper=warn [default: the configuration's, else info]
    #[arg(long, global = true, help_heading = "Global options", value_name = "LEVEL", value_parser = level)]
    log_level: Option<config::Log>,
    /// Format of log lines [default: the configuration's, else text]
    #[arg(long, global = true, help_heading = "Global options", value_name = "FORMAT")]
    log_format: Option<Format>,
    #[command(subcommand)]
    command: C,
}

/// The agent's command alone: the definitions of all commands take a millisecond to build, for which its first token would wait.
#[derive(Debug, Subcommand)]
enum AgentCommand {
    /// As [`Command::Run`]
    Run(run::Run),
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the agent and the configured servers until stopped
    #[command(after_help = "Example:\n  keyward run -c /etc/keyward/keyward.toml")]
    Run(run::Run),
    /// Try keyward on this machine, with emulated servers
    #[cfg(feature = "dev")]
    #[command(after_help = "Example:\n  keyward dev --once")]
    Dev(dev::Dev),
    /// Check a configuration and describe what the agent does with it
    #[command(after_help = "Example:\n  keyward check /etc/keyward/keyward.toml --online")]
    Check(check::Check),
    /// Show the configuration in force, and its JSON Schema
    #[command(subcommand)]
    Config(configuration::Configuration),
    /// Write the configuration of a machine or pod, with its unit files
    Init(init::Init),
    /// Check configuration, machine and servers, and name the remedies
    #[command(after_help = "Examples:\n  sudo keyward doctor\n  sudo keyward doctor --bundle /tmp/keyward-doctor.tar")]
    Doctor(doctor::Doctor),
    /// Convert a Vault Agent or consul-template configuration
    #[command(after_help = "Example:\n  keyward migrate vault-agent.hcl --out /etc/keyward/keyward.toml")]
    Migrate(migrate::Migrate),
    /// Log in once and print the token's properties, without its secret
    #[command(after_help = "Example:\n  keyward login -c /etc/keyward/keyward.toml -s web")]
    Login(login::LoginOnce),
    /// Render a template before it is configured
    #[command(subcommand)]
    Template(template::Template),
    /// Run a program with environment templates and gateway variables
    #[command(
        after_help = "Examples:\n  keyward exec -c /etc/keyward/keyward.toml -- terraform plan\n  keyward exec -c /etc/keyward/keyward.toml -- tofu plan\n\n\
                      The program gets the variables of [env_template.NAME], read through the running agent's API proxy, and those that \
                      point Terraform, OpenTofu and the tfe provider at the gateway."
    )]
    Exec(exec::Exec),
    /// Show the state of the running agent
    #[command(
        after_help = "Examples:\n  keyward status -c /etc/keyward/keyward.toml -o json\n  keyward status --watch"
    )]
    Status(status::Status),
    /// Print a token of the running agent
    #[command(after_help = "Example:\n  export VAULT_TOKEN=$(keyward token --config /etc/keyward/keyward.toml)")]
    Token(agent_token::Token),
    /// Print a Kubernetes token of the machine's identity, for kubectl
    #[command(after_help = "Example:\n  keyward kube-token --identity azure --config /etc/keyward/keyward.toml")]
    KubeToken(tool_identity::KubeToken),
    /// Print AWS credentials of the machine's identity, for SDKs
    #[command(after_help = "Example:\n  credential_process = keyward aws-credentials --identity aws")]
    AwsCredentials(tool_identity::AwsCredentials),
    /// Make the running agent log in now, without waiting
    #[command(after_help = "Examples:\n  keyward retry web -c /etc/keyward/keyward.toml\n  keyward retry web --force")]
    Retry(agent_token::Retry),
    /// Make the running agent read the secrets of its templates again
    #[command(
        after_help = "Examples:\n  keyward refresh                          # after a secret was changed on the server\n  \
                      keyward refresh secret/data/web --session web\n  keyward refresh database/creds/web --force"
    )]
    Refresh(refresh::Refresh),
    /// Make the running agent replace a certificate now
    #[command(after_help = "Example:\n  keyward rotate web -c /etc/keyward/keyward.toml")]
    Rotate(rotate::Rotate),
    /// Make the running agent read its configuration again
    #[command(after_help = "Example:\n  sudo keyward reload -c /etc/keyward/keyward.toml")]
    Reload(reload::Reload),
    /// Wait until the running agent or gateway is ready
    #[command(after_help = "Example:\n  keyward wait -c /etc/keyward/keyward.toml --timeout 60s")]
    Wait(readiness::Wait),
    /// Exit with 0 if the running agent or gateway is ready, for probes
    #[command(after_help = "Example:\n  keyward healthcheck -c /etc/keyward/keyward.toml --live")]
    Healthcheck(readiness::Healthcheck),
    /// Verify and show audits: who asked, and what was decided
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Run and manage keyward's Consul-compatible ACL server
    #[cfg(feature = "acl")]
    #[command(
        after_help = "Examples:\n  keyward acl serve --dir /var/lib/keyward/acl\n  keyward acl token list --address https://acl.example.com:8500 --token-file ops.token"
    )]
    Acl(acl::Acl),
    /// Search the API history of HCP Terraform and Terraform Enterprise
    #[cfg(feature = "gateway")]
    #[command(after_help = "Example:\n  keyward changes --resource registry-modules --kind deprecated")]
    Changes(changes::Changes),
    /// Run and query the gateway to HCP Terraform/Terraform Enterprise
    #[cfg(feature = "gateway")]
    #[command(
        after_help = "Example:\n  keyward gateway serve --upstream https://app.terraform.io --token-file platform.token"
    )]
    Gateway(gateway::Gateway),
    /// Add keyward to pods of Kubernetes by an admission webhook
    Kubernetes(kubernetes::Kubernetes),
    /// Print the completion script for a shell
    #[command(after_help = "Example:\n  keyward completions bash > /etc/bash_completion.d/keyward")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Explain which caller a process of this machine is
    #[command(subcommand)]
    Policy(policy::Policy),
    /// Explain an error code: its cause, and what to do
    #[command(after_help = "Examples:\n  keyward explain KW-1003\n  keyward explain -o json")]
    Explain(explain::Explain),
    /// Write a manual page for each command
    #[command(after_help = "Example:\n  keyward man --dir /usr/local/share/man/man1")]
    Man(man::ManualPages),
}

/// Flags that name the configuration.
#[derive(Debug, Clone, Args)]
struct ConfigFiles {
    /// Configuration file, or folder of *.toml files read in name order; repeatable [env: `KEYWARD_CONFIG`]
    #[arg(short, long, value_name = "FILE", default_values_os_t = [default_config()])]
    config: Vec<PathBuf>,
}

/// The configuration that `KEYWARD_CONFIG` names, else that of the package. A default, so that a file on the command line
/// takes its place.
fn default_config() -> PathBuf {
    let path = Environment::current().variables.remove("KEYWARD_CONFIG").filter(|path| !path.is_empty());
    path.map_or_else(|| "/etc/keyward/keyward.toml".into(), PathBuf::from)
}

/// Output format of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
}

fn level(text: &str) -> Result<config::Log, String> {
    config::agent::log(text, LogFormat::Text)
}

/// Log settings of the command line; they precede the configuration's `[log]`.
#[derive(Debug, Clone, Default)]
struct LogChoice {
    level: Option<config::Log>,
    format: Option<LogFormat>,
}

/// Parses the command line, runs the command, and returns the exit code.
pub fn main() -> ExitCode {
    #[cfg(feature = "gateway")]
    if let Some(arguments) = gateway::parse_helper_invocation(std::env::args_os()) {
        return gateway::respond_to_helper(&arguments).into();
    }
    if let Some(descriptors) = keyward_machine::command::parse_spawner_invocation(std::env::args_os()) {
        return run::run_spawner(descriptors).into();
    }
    if let Some((by, arguments)) = credential::parse_invocation(std::env::args_os()) {
        return credential::respond(by, &arguments).into();
    }
    if let Some(words) = completion::parse_request(std::env::args_os()) {
        return finish_output(completion::respond(&words, &command())).into();
    }
    let args: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let has_single_dash = args.iter().any(|word| word.len() > 2 && word.starts_with('-') && !word.starts_with("--"));
    // Help and errors are those of the whole command line.
    if !has_single_dash && let Ok(Cli { log_level, log_format, command: AgentCommand::Run(run) }) = Cli::try_parse() {
        return run_command(Cli { log_level, log_format, command: Command::Run(run) });
    }
    if let Some(suggestion) = suggestions::find_single_dash(&command(), &args) {
        print_error(&suggestion);
        return Exit::Failed.into();
    }
    let parsed = command().try_get_matches().and_then(|mut matches| Cli::from_arg_matches_mut(&mut matches));
    match parsed {
        Ok(cli) => run_command(cli),
        Err(error) => {
            if let Some(suggestion) = suggestions::find(&error, &command(), &args) {
                print_error(&suggestion);
                return Exit::Failed.into();
            }
            if error.use_stderr() && journal::is_stderr(&Environment::current().variables) {
                write_to_stderr(ERROR, &error.render().to_string());
                return Exit::Failed.into();
            }
            let printed = error.print();
            if error.use_stderr() {
                return Exit::Failed.into();
            }
            record_write_failure(printed);
            finish_output(Exit::Ok).into()
        }
    }
}

fn run_command(cli: Cli) -> ExitCode {
    let log = LogChoice {
        level: cli.log_level,
        format: cli.log_format.map(|format| match format {
            Format::Text => LogFormat::Text,
            Format::Json => LogFormat::Json,
        }),
    };
    let exit = run(cli.command, &log).unwrap_or_else(|error| {
        print_error(&error_codes::format(&error));
        Exit::Failed
    });
    finish_output(exit).into()
}

fn run(command: Command, log: &LogChoice) -> anyhow::Result<Exit> {
    match command {
        Command::Run(run) => run::run(&run, log),
        #[cfg(feature = "dev")]
        Command::Dev(dev) => dev.run(log),
        Command::Check(check) => check.run(),
        Command::Config(configuration) => configuration.run(),
        Command::Init(init) => init.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Migrate(migrate) => migrate.run(),
        Command::Login(login) => login.run(log),
        Command::Template(template) => template.run(),
        Command::Exec(exec) => exec.run(),
        Command::Status(status) => status.run(),
        Command::Token(token) => token.run(),
        Command::KubeToken(token) => Ok(token.run()),
        Command::AwsCredentials(credentials) => Ok(credentials.run()),
        Command::Retry(retry) => Ok(retry.run()),
        Command::Refresh(refresh) => refresh.run(),
        Command::Rotate(rotate) => Ok(rotate.run()),
        Command::Reload(reload) => reload.run(),
        Command::Wait(wait) => Ok(wait.run()),
        Command::Healthcheck(healthcheck) => Ok(healthcheck.run()),
        Command::Audit(audit) => audit.run(),
        #[cfg(feature = "acl")]
        Command::Acl(acl) => acl.run(log),
        #[cfg(feature = "gateway")]
        Command::Changes(changes) => changes.run(),
        #[cfg(feature = "gateway")]
        Command::Gateway(gateway) => gateway.run(log),
        Command::Kubernetes(kubernetes) => kubernetes.run(log),
        Command::Completions { shell } => Ok(completion::print_script(shell, self::command())),
        Command::Policy(policy) => Ok(policy.run()),
        Command::Explain(explain) => Ok(explain.run()),
        Command::Man(man) => man.run(self::command()),
    }
}

/// Returns the definitions of all commands, for completion scripts and documents.
pub fn command() -> clap::Command {
    help::group_commands(Cli::<Command>::command())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent_takes_no_secret_and_has_an_example_for_every_command() {
        let mut left = vec![Cli::<Command>::command()];
        left[0].clone().debug_assert();
        while let Some(command) = left.pop() {
            left.extend(command.get_subcommands().cloned());
            // A group is recognized by its commands.
            if !command.has_subcommands() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                let name = command.get_name();
                let shown = help.split_once("keyward ").is_some_and(|(_, line)| line.contains(name));
                let headed = ["Example:\n  ", "Examples:\n  "].iter().any(|heading| help.starts_with(heading));
                assert!(headed && shown, "{name}: {help}");
                for argument in command.get_arguments().filter(|argument| argument.get_action().takes_values()) {
                    let flag = argument.get_long().unwrap_or_default();
                    let secret = ["token", "secret", "password", "key", "credential"]
                        .iter()
                        .any(|suffix| flag.ends_with(suffix));
                    assert!(!secret, "{name} --{flag} takes a secret from the command line");
                }
            }
        }
    }
}
