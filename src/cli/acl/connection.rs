//! Connection of an ACL command: address, token, namespace and output format.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use keyward_acl::client::{AclClient, AclClientOptions};
use keyward_config::Environment;
use keyward_config::server::address;
use keyward_http::client::{self, ClientCertificate, ProxyMode, ServerAddress, TlsOptions};
use keyward_machine::secret_string::SecretString;
use serde::Serialize;

use super::failure::CommandFailure;
use super::output;
use super::secret_input::SecretInput;
use crate::cli::{Exit, Format};

/// Flags that say which server to call, and with which token.
#[derive(Debug, Args)]
pub(super) struct Connection {
    /// Address of the server: `https://HOST:PORT`, `http://` on loopback, or the path of a socket [env: `KEYWARD_ACL_ADDR`;
    /// default: `http://127.0.0.1:8500`]
    #[arg(long, global = true, help_heading = "Connection", value_name = "ADDRESS", value_parser = address)]
    address: Option<ServerAddress>,
    /// File with the token to use, or - for standard input [env: `KEYWARD_ACL_TOKEN_FILE`, or `KEYWARD_ACL_TOKEN` with the token]
    #[arg(long, global = true, help_heading = "Connection", value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<SecretInput>,
    /// CA bundle (PEM) to use instead of the system store [env: `KEYWARD_ACL_CA_FILE`]
    #[arg(long, global = true, help_heading = "Connection", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Client certificate (PEM) for mutual TLS
    #[arg(long, global = true, help_heading = "Connection", value_name = "FILE", requires = "client_key_file")]
    client_cert_file: Option<PathBuf>,
    /// Private key (PEM) of the client certificate
    #[arg(long, global = true, help_heading = "Connection", value_name = "FILE", requires = "client_cert_file")]
    client_key_file: Option<PathBuf>,
    /// Namespace of the request; `*` lists all [env: `KEYWARD_ACL_NAMESPACE`; default: the token's own]
    #[arg(long, global = true, help_heading = "Connection", value_name = "NAME")]
    namespace: Option<String>,
    /// Output format
    #[arg(short = 'o', long, global = true, help_heading = "Connection", value_enum, default_value_t)]
    format: Format,
}

/// Connected ACL client with the output settings of a command.
pub(super) struct AclConnection {
    pub(super) client: AclClient,
    /// Address of the server, for people.
    pub(super) address: String,
    format: Format,
    /// Flags that make another command use the same server, without the token.
    flags: String,
    token_use: TokenInput,
    /// True if the server is on this machine.
    pub(super) is_local: bool,
}

/// Source of a command's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenInput {
    /// The flag or the environment variable, if set.
    FlagOrEnv,
    /// The flag only: the call needs no token, and the variable may name the file that the command creates.
    FlagOnly,
}

impl Connection {
    /// Takes flags before variables, and variables before defaults. Sends nothing.
    pub(super) fn open(self, token_use: TokenInput) -> Result<AclConnection, CommandFailure> {
        let environment = Environment::current();
        let variable = |name: &str| environment.variables.get(name).filter(|value| !value.is_empty());
        let failure = |name: &str, why: String| CommandFailure::new(Exit::Failed, format!("{name}: {why}"));
        let explicit_address = match (self.address, variable("KEYWARD_ACL_ADDR")) {
            (Some(address), _) => Some(address),
            (None, Some(text)) => Some(address(text).map_err(|why| failure("KEYWARD_ACL_ADDR", why))?),
            (None, None) => None,
        };
        let at = match explicit_address {
            Some(address) => address,
            None => address(DEFAULT).map_err(|why| failure("the default address", why))?,
        };
        let token_variable = |name: &str| variable(name).filter(|_| token_use == TokenInput::FlagOrEnv);
        let file = match (self.token_file, token_variable("KEYWARD_ACL_TOKEN_FILE")) {
            (Some(file), _) => Some(file),
            (None, Some(path)) => Some(SecretInput::File(path.into())),
            (None, None) => None,
        };
        let token = match file {
            Some(file) => Some(file.secret()?),
            None => token_variable("KEYWARD_ACL_TOKEN").map(|token| SecretString::from(token.trim())),
        };
        let ca_file = self.ca_file.or_else(|| variable("KEYWARD_ACL_CA_FILE").map(PathBuf::from));
        let namespace = self.namespace.or_else(|| variable("KEYWARD_ACL_NAMESPACE").cloned());
        let is_local = match &at {
            ServerAddress::Unix(_) => true,
            ServerAddress::Url(url) => client::is_loopback(url),
        };
        let address = describe_address(&at);
        let mut flags = format!(" --address {address}");
        flags.extend(ca_file.iter().map(|path| format!(" --ca-file {}", path.display())));
        flags.extend(namespace.iter().map(|name| format!(" --namespace {name}")));
        let identity = self.client_cert_file.zip(self.client_key_file);
        let http = client::ClientOptions {
            address: at,
            tls: TlsOptions {
                ca_file,
                identity: identity.map(|(certificate, key)| ClientCertificate { certificate, key, is_awaited: false }),
                ..TlsOptions::default()
            },
            proxy: ProxyMode::Environment,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(30),
        };
        let client = AclClient::new(&AclClientOptions { http, token, namespace })
            .map_err(|error| CommandFailure::local(&error))?;
        Ok(AclConnection { client, address, format: self.format, flags, token_use, is_local })
    }
}

fn describe_address(address: &ServerAddress) -> String {
    match address {
        ServerAddress::Url(url) => url.to_string(),
        ServerAddress::Unix(path) => format!("unix://{}", path.display()),
    }
}

const DEFAULT: &str = "http://127.0.0.1:8500";

impl AclConnection {
    /// Prints a result: as JSON, or as `text` does.
    pub(super) fn show(&self, value: &impl Serialize, text: impl FnOnce()) {
        match self.format {
            Format::Json => output::json(value),
            Format::Text => text(),
        }
    }

    /// A command that goes to the same service in the same namespace, for people to run.
    pub(super) fn command(&self, words: &str) -> String {
        format!("keyward acl {words}{}", self.flags)
    }

    /// Adds advice to a failure, if there is any.
    pub(super) fn explain(&self, failure: CommandFailure) -> CommandFailure {
        match failure.exit {
            Exit::Denied
                if failure.unknown_token && self.token_use == TokenInput::FlagOrEnv && !self.client.has_token() =>
            {
                let hint = "pass --token-file FILE, or set KEYWARD_ACL_TOKEN_FILE or KEYWARD_ACL_TOKEN";
                CommandFailure { text: format!("no token was given: {hint}"), ..failure }
            }
            Exit::NotRunning => failure.and("set the address of the server with --address or KEYWARD_ACL_ADDR"),
            _ => failure,
        }
    }
}
