//! `keyward exec`: one program with the configuration's variables, and those that lead to the gateway.

#[cfg(feature = "gateway")]
use std::path::PathBuf;

use clap::Args;
use keyward_app::one_shot_render::{OneShotReader, OneShotText};
use keyward_config::{self as config, Config, Environment, LoadOutcome, Purpose};
#[cfg(feature = "gateway")]
use keyward_gateway::client_setup::UserConfigFiles;
use keyward_machine::command::{CommandSpec, EnvVars};
use keyward_machine::secret_string::SecretString;

use super::agent_listener::ProxyEndpoint;
use super::command_config::require_values;
use super::progress::ProgressLine;
use super::template::print_render_error;
use super::{ConfigFiles, Exit, print_error};

/// Run a program with environment templates, and with the variables that point its clients at the gateway.
#[derive(Debug, Args)]
pub(super) struct Exec {
    #[command(flatten)]
    files: ConfigFiles,
    /// Variable to pass to the program besides PATH, HOME and the like, and those of `process.pass_env`; may end in `*`;
    /// repeatable
    #[arg(long, value_name = "NAME")]
    pass_env: Vec<String>,
    /// Identity for tools whose variables the program gets
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Exec {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        keyward_machine::os::forbid_core_dumps()?;
        let environment = Environment::current();
        let outcome = config::load(&self.files.config, &environment, Purpose::Check);
        let Some(config) = &outcome.config else {
            for error in &outcome.errors {
                print_error(&error.to_string());
            }
            return Ok(Exit::ConfigInvalid);
        };
        if config.env_templates.is_empty() && !has_gateway_variables(config) && self.identity.is_none() {
            print_error(
                "the configuration has no [env_template.NAME], and no [gateway] with process_token, and --identity is not given: \
                 nothing would be added to the program's environment",
            );
            return Ok(Exit::Failed);
        }
        let mut keys = used_keys(config);
        let listener = self.identity.as_ref().and_then(|identity| config::tool_listener(identity, &config.listeners));
        keys.extend(listener.map(|listener| format!("listener.{}.key_file", listener.name)));
        if let Err(exit) = require_values(&outcome, &keys) {
            return Ok(exit);
        }
        let tool_variables = match self.identity.as_deref().map(|name| variables_of_identity(config, name)).transpose()
        {
            Ok(variables) => variables.unwrap_or_default(),
            Err(error) => {
                print_error(&error);
                return Ok(Exit::Failed);
            }
        };
        let rendered = match render(config, &outcome)? {
            Ok(rendered) => rendered,
            Err(exit) => return Ok(exit),
        };
        let process_variables = config.process.as_ref().map(|child| child.variables.clone()).unwrap_or_default();
        let variables = EnvVars::select(&environment.variables, &self.pass_env)
            .merged_with(&process_variables)
            .merged_with(&tool_variables);
        let variables = match add_gateway_variables(config, variables, &self.command, &environment) {
            Ok(variables) => variables.merged_with(&rendered),
            Err(exit) => return Ok(exit),
        };
        let program = CommandSpec { command: self.command, variables };
        let error = program.exec();
        print_error(&format!("{}: {error}", program.command[0]));
        // The codes of a shell.
        Ok(Exit::OfProgram(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }))
    }
}

/// Returns the variables of an identity for tools.
fn variables_of_identity(config: &Config, name: &str) -> Result<EnvVars, String> {
    let identity = config.identities.iter().find(|identity| identity.name == name);
    let identity = identity.ok_or_else(|| format!("the configuration has no [identity.{name}]"))?;
    config::tool_variables(identity, &config.listeners, &config.sinks)
        .map_err(|reason| format!("identity {name}: {reason}"))
}

/// The keys of the configuration that give the program its variables.
fn used_keys(config: &Config) -> Vec<String> {
    let templates = config.env_templates.iter().map(|template| format!("env_template.{}", template.options.text.name));
    let mut keys: Vec<String> = templates.collect();
    keys.push("process.pass_env".to_owned());
    if has_gateway_variables(config) {
        keys.extend(["upstream", "listen"].map(|key| format!("gateway.{key}")));
    }
    keys
}

/// True if the gateway sets variables for a program.
#[cfg(feature = "gateway")]
fn has_gateway_variables(config: &Config) -> bool {
    config.gateway.as_ref().is_some_and(|gateway| gateway.process_token.is_some())
}

#[cfg(not(feature = "gateway"))]
const fn has_gateway_variables(_: &Config) -> bool {
    false
}

/// Adds the gateway's variables.
#[cfg(feature = "gateway")]
fn add_gateway_variables(
    config: &Config,
    variables: EnvVars,
    command: &[String],
    environment: &Environment,
) -> Result<EnvVars, Exit> {
    let Some(gateway) = &config.gateway else { return Ok(variables) };
    let config_home = environment.variables.get("XDG_CONFIG_HOME").map(PathBuf::from);
    let files = UserConfigFiles::new(&variables, command, config_home);
    super::gateway::for_program(gateway, files, &variables).map(|more| variables.merged_with(&more))
}

#[cfg(not(feature = "gateway"))]
#[allow(clippy::unnecessary_wraps, reason = "the other one fails")]
const fn add_gateway_variables(_: &Config, variables: EnvVars, _: &[String], _: &Environment) -> Result<EnvVars, Exit> {
    Ok(variables)
}

fn render(config: &Config, outcome: &LoadOutcome) -> anyhow::Result<Result<EnvVars, Exit>> {
    let mut variables = EnvVars::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for template in &config.env_templates {
        let name = template.options.text.name.clone();
        let Some(session) = config.sessions.iter().find(|session| session.name == template.session) else { continue };
        let proxy = match ProxyEndpoint::find(outcome, &session.name) {
            Ok(proxy) => proxy,
            Err(exit) => return Ok(Err(exit)),
        };
        let text = template.options.text.clone();
        let line = ProgressLine::start(&format!(
            "waiting for the secrets of env_template {name}, by session {}",
            session.name
        ));
        let rendered = runtime.block_on(async {
            anyhow::Ok(OneShotReader::via_api_proxy(session, proxy.address, proxy.key)?.render(text).await)
        })?;
        drop(line);
        match rendered {
            Ok(OneShotText { text, .. }) if text.contains('\0') => {
                print_error(&format!("{name}: a variable cannot hold a NUL"));
                return Ok(Err(Exit::Failed));
            }
            Ok(OneShotText { text, .. }) => variables.set(name, SecretString::from(text.as_str())),
            Err(error) => return Ok(Err(print_render_error(&name, &error))),
        }
    }
    Ok(Ok(variables))
}
