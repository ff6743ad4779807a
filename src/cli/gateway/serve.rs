//! `keyward gateway serve`: the gateway with nothing else configured.

use std::error::Error as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use keyward_config::{Environment, Gateway};
use keyward_gateway::client_setup::NO_VARIABLE_REASON;
use keyward_http::server::Endpoint;
use keyward_machine::{secret, secure_dir};
use keyward_telemetry::error_code::ErrorCode;

use crate::cli::standalone::SandboxFlag;
use crate::cli::{Exit, LogChoice, print_warning, standalone};

/// Serve the platform's API on this machine.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Address of HCP Terraform or Terraform Enterprise, such as `https://app.terraform.io`
    #[arg(long, value_name = "URL")]
    upstream: String,
    /// File with the platform token; read again when it changes and when the platform rejects the token
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Address to listen on: `ADDRESS:PORT` on loopback, the path of a socket, or `systemd:NAME`; repeatable
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8800")]
    listen: Vec<String>,
    /// CA bundle (PEM) to use instead of the system store
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Treatment of calls that the changelog of HCP Terraform marks as deprecated: off, warn, fallback or always
    #[arg(long, value_name = "MODE", default_value = "warn")]
    deprecated: String,
    /// Kind of platform token that callers may create, such as `teams/authentication-tokens`; repeatable
    #[arg(long, value_name = "NAME")]
    exempt: Vec<String>,
    /// Folder of the local token; created with mode 0700 [default: keyward in `$XDG_STATE_HOME`, or in ~/.local/state]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    sandbox: SandboxFlag,
}

impl Serve {
    pub(super) fn run(self, log: &LogChoice) -> anyhow::Result<Exit> {
        keyward_machine::os::forbid_core_dumps()?;
        let environment = Environment::current();
        let server = match standalone::load("gateway", &self.settings(&environment)?, &self.sandbox, &environment) {
            Ok(server) => server,
            Err(exit) => return Ok(exit),
        };
        let gateway = server.config.gateway.clone().context("the flags configure no gateway")?;
        if let Some(problem) = describe_unusable(&self.token_file) {
            print_warning(&ErrorCode::tag(
                Some(ErrorCode::PlatformTokenMissing),
                &format!(
                    "--token-file {}: {problem}; calls get 503 until the file has a platform token",
                    self.token_file.display()
                ),
            ));
        }
        standalone::serve(server, &environment, log, |app| introduction(&gateway, &app.gateway_endpoints()))
    }

    /// Converts the flags to settings of `[gateway]`.
    fn settings(&self, environment: &Environment) -> anyhow::Result<Vec<(&'static str, Vec<String>)>> {
        let folder = secure_dir::create_private(&self.folder(environment)?, 0o077)?;
        // One for each platform: two gateways of one user do not share a token.
        let name = self.upstream.split_once("://").map_or(self.upstream.as_str(), |(_, rest)| rest);
        let plain = |c: char| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '-' };
        let name: String = name.trim_end_matches('/').chars().map(plain).take(100).collect();
        let mut settings = vec![
            ("upstream", vec![self.upstream.clone()]),
            ("listen", self.listen.iter().map(|text| standalone::listen_address(text)).collect()),
            ("token_file", vec![standalone::path(&self.token_file)?]),
            ("local_token_file", vec![standalone::path(&folder.join(format!("{name}.token")))?]),
            ("deprecated", vec![self.deprecated.clone()]),
        ];
        if !self.exempt.is_empty() {
            settings.push(("exempt", self.exempt.clone()));
        }
        if let Some(file) = &self.ca_file {
            settings.push(("ca_file", vec![standalone::path(file)?]));
        }
        Ok(settings)
    }

    fn folder(&self, environment: &Environment) -> anyhow::Result<PathBuf> {
        let variable = |name: &str| {
            let value = environment.variables.get(name).map(PathBuf::from);
            value.filter(|path| path.is_absolute())
        };
        let of_state = || variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
        let folder = self.dir.clone().or_else(|| Some(of_state()?.join("keyward")));
        folder.context("HOME is not set: pass --dir FOLDER for the local token")
    }
}

/// Describes why a token file has no token now; `None` if it has one. It may have one later.
fn describe_unusable(file: &Path) -> Option<String> {
    match secret::read_file(file) {
        Ok(_) => None,
        Err(error) => Some(error.source().map_or_else(|| error.to_string(), ToString::to_string)),
    }
}

/// Lines with the gateway's address and the variables that lead clients to it.
fn introduction(gateway: &Gateway, endpoints: &[Endpoint]) -> Vec<String> {
    let upstream = gateway.proxy.upstream.as_str().trim_end_matches('/');
    let file = gateway.local_token.file.display().to_string();
    let address = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(address) => format!("http://{address}"),
        other => other.to_string(),
    };
    let all: Vec<String> = endpoints.iter().map(address).collect();
    let mut lines =
        vec![format!("serving {upstream} on {}", all.join(", ")), format!("clients send the local token in {file}")];
    let Some(address) = all.iter().find(|address| address.starts_with("http://")) else { return lines };
    let at = format!("--address {address} --local-token-file {file}");
    lines.extend([
        String::new(),
        "for clients that take an address (go-tfe, pytfe):".to_owned(),
        format!("  eval \"$(keyward gateway env {at} --host {})\"", gateway.host),
        match gateway.host.variable() {
            Some(_) => "for Terraform, OpenTofu and the tfe provider the same variables, and this in ~/.terraformrc:".to_owned(),
            None => format!(
                "for Terraform, OpenTofu and the tfe provider this in ~/.terraformrc, with credentials \"{}\" {{ token = \"...\" }} ({NO_VARIABLE_REASON}):",
                gateway.host
            ),
        },
    ]);
    lines.extend(gateway.host.blocks(address).into_iter().map(|line| format!("  {line}")));
    lines.extend([
        String::new(),
        "who calls, with which tokens, and who makes deprecated calls:".to_owned(),
        format!("  keyward gateway tokens {at}"),
        format!("  keyward gateway report {at}"),
    ]);
    lines
}
