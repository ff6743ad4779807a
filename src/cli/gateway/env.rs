//! `keyward gateway env`: the variables that lead a program to the gateway, or to the platform with its own token.

use clap::Args;
use keyward_gateway::client_setup::{NO_VARIABLE_REASON, ServiceHost, client_variables};
use keyward_http::client::ServerAddress;

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
        Ok(Exit::Ok)
    }
}
