//! `keyward gateway env`, and the same variables for `keyward exec`: they lead a program to the gateway, or to the platform with its
//! own token.

use std::path::Path;

use clap::Args;
use keyward_config::{Environment, Gateway, TokenSource};
use keyward_gateway::client_setup::credentials::ClientTokenFile;
use keyward_gateway::client_setup::{
    ClientTokenKind, GatewayClient, NO_VARIABLE_REASON, ProgramCliConfig, ProxyExceptions, ServiceHost,
    UserConfigFiles, client_env, client_variables,
};
use keyward_http::client::ServerAddress;
use keyward_http::server::Endpoint;
use keyward_machine::command::EnvVars;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;

use super::target::GatewayAddress;
use crate::cli::{Exit, print_error, print_line, print_note};

/// Print the environment variables that point clients at the gateway.
#[derive(Debug, Args)]
pub(super) struct Env {
    #[command(flatten)]
    at: GatewayAddress,
}

impl Env {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let variables = match self.at.find() {
            Ok(variables) => variables,
            Err(exit) => return Ok(exit),
        };
        let ServerAddress::Url(url) = &variables.clients_call else {
            print_error(
                "the gateway listens on a unix socket only, which Terraform cannot call: add a TCP address to gateway.listen",
            );
            return Ok(Exit::Failed);
        };
        // Without a platform host the gateway itself is named.
        let host = variables.host.clone().or_else(|| ServiceHost::parse(url.authority()).ok());
        let Some(host) = host else {
            print_error("--host is missing: write the host of HCP Terraform or Terraform Enterprise");
            return Ok(Exit::Failed);
        };
        let token = variables.token_file.read(&host)?;
        if host.variable().is_none() {
            print_note(&format!(
                "the token of Terraform and OpenTofu for {host} is left to [gateway.terraform_config_file] or the helper: {NO_VARIABLE_REASON}"
            ));
        }
        for (name, value) in client_variables(&host, url.as_str().trim_end_matches('/'), &token) {
            // The command's purpose is to print the token.
            print_line(&format!("export {name}='{}'", value.expose_secret().replace('\'', "'\\''")));
        }
        if matches!(variables.token_file, ClientTokenFile::Local(_)) {
            let own = EnvVars::select(&Environment::current().variables, &["NO_PROXY", "no_proxy"].map(str::to_owned));
            for (name, value) in ProxyExceptions::new(&own).with(url.as_str()) {
                print_line(&format!("export {name}='{}'", value.replace('\'', "'\\''")));
            }
        }
        Ok(Exit::Ok)
    }
}

/// Returns the variables of `gateway.process_token` for a program with `variables`, whose Terraform or OpenTofu would read
/// `files`; none if it is not set. Prints the error if that fails.
pub(in crate::cli) fn for_program(
    gateway: &Gateway,
    files: UserConfigFiles,
    variables: &EnvVars,
) -> Result<EnvVars, Exit> {
    let variables = match gateway.process_token {
        None => Ok(EnvVars::default()),
        Some(ClientTokenKind::LocalToken) => variables_for_gateway(gateway, files, variables),
        Some(ClientTokenKind::PlatformToken) => variables_for_platform(gateway),
    };
    variables.map_err(|reason| {
        print_error(&reason);
        Exit::Failed
    })
}

fn variables_for_gateway(gateway: &Gateway, files: UserConfigFiles, variables: &EnvVars) -> Result<EnvVars, String> {
    let address = gateway.endpoints.iter().find_map(|endpoint| match endpoint {
        Endpoint::Tcp(address) if address.port() != 0 => Some(format!("http://{address}")),
        Endpoint::Tcp(_) | Endpoint::Unix(_) | Endpoint::Activated(_) => None,
    });
    let address =
        address.ok_or("gateway.listen names no port on 127.0.0.1, by which the program could be led to the gateway")?;
    let file = &gateway.local_token.file;
    let token = ClientTokenFile::Local(file.clone()).read(&gateway.host).map_err(|error| format_chain(&error))?;
    let folder = file.parent().map(Path::to_owned).unwrap_or_default();
    let client = GatewayClient {
        terraform: ProgramCliConfig::new(folder, files),
        proxy_exceptions: ProxyExceptions::new(variables),
    };
    let prepared = client_env(&gateway.host, &address, &token, Some(&client)).and_then(|(variables, file)| {
        file.map_or(Ok(()), |file| file.write())?;
        Ok(variables)
    });
    prepared.map_err(|error| format_chain(&error))
}

fn variables_for_platform(gateway: &Gateway) -> Result<EnvVars, String> {
    let token: SecretString = match (&gateway.terraform_config_file, &gateway.token) {
        (Some(file), _) if file.token_kind == ClientTokenKind::PlatformToken => {
            ClientTokenFile::Platform(file.file.clone()).read(&gateway.host).map_err(|error| format_chain(&error))?
        }
        (_, TokenSource::File(file)) => secret::read_file(file).map_err(|error| format_chain(&error))?,
        _ => {
            return Err("the platform's own token is in no file that this command could read; \
                        give gateway.process_token = \"local_token\", or [gateway.terraform_config_file] with token_kind = \"platform_token\""
                .to_owned());
        }
    };
    let platform = gateway.proxy.upstream.as_str().trim_end_matches('/');
    let (variables, _) = client_env(&gateway.host, platform, &token, None).map_err(|error| format_chain(&error))?;
    Ok(variables)
}
