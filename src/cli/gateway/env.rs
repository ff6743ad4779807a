//! `keyward gateway env`: the variables that lead a program to the gateway, or to the platform with its own token.

use clap::Args;
use secrecy::ExposeSecret as _;

use super::reach::Where;
use crate::cli::{Exit, note, say, say_error};
use crate::gateway::client_setup::{NO_VARIABLE, ServiceHost, variables};
use crate::http::client::ServerAddress;

/// Print the variables that lead a program to the gateway.
#[derive(Debug, Args)]
pub(super) struct Env {
    #[command(flatten)]
    at: Where,
}

impl Env {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let found = match self.at.find() {
            Ok(found) => found,
            Err(exit) => return Ok(exit),
        };
        let ServerAddress::Url(url) = &found.clients_call else {
            say_error("the gateway listens on a unix socket alone, where these programs cannot call");
            return Ok(Exit::Failed);
        };
        // Where no platform is named, the gateway itself is.
        let host = found.host.clone().or_else(|| ServiceHost::parse(url.authority()).ok());
        let Some(host) = host else {
            say_error("say --host, the platform's host");
            return Ok(Exit::Failed);
        };
        let token = found.kept.read(&host)?;
        if host.variable().is_none() {
            note(&format!(
                "the token of Terraform and OpenTofu for {host} is left to [gateway.drop_in] or the helper: {NO_VARIABLE}"
            ));
        }
        for (name, value) in variables(&host, url.as_str().trim_end_matches('/'), &token) {
            // The token is what was asked for.
            say(&format!("export {name}='{}'", value.expose_secret().replace('\'', "'\\''")));
        }
        Ok(Exit::Ok)
    }
}
