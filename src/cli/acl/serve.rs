//! `keyward acl serve`: the ACL server with nothing else configured.

use std::path::{Path, PathBuf};

use clap::Args;
use keyward_config::Environment;
use keyward_http::server::Endpoint;

use crate::cli::standalone::SandboxFlag;
use crate::cli::{Exit, LogChoice, run, standalone};

/// Serve the ACL API.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Folder of the store; created with mode 0700
    #[arg(long, value_name = "FOLDER")]
    dir: PathBuf,
    /// Address to listen on: `ADDRESS:PORT`, the path of a socket, or `systemd:NAME`; repeatable. Needs TLS beyond loopback
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8500")]
    listen: Vec<String>,
    /// Server certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key (PEM) of the server certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_key_file: Option<PathBuf>,
    /// Create a new store although a key file of a lost one exists
    #[arg(long)]
    new_store: bool,
    #[command(flatten)]
    sandbox: SandboxFlag,
}

impl Serve {
    pub(super) fn run(self, log: &LogChoice) -> anyhow::Result<Exit> {
        keyward_machine::os::forbid_core_dumps()?;
        let environment = Environment::current();
        let server = match standalone::load("acl", &self.settings()?, &self.sandbox, &environment) {
            Ok(server) => server,
            Err(exit) => return Ok(exit),
        };
        let scheme = if self.tls_cert_file.is_some() { "https" } else { "http" };
        if self.new_store {
            // The store is closed, and the runtime's threads have ended, before it is served.
            run::runtime(&server.config)?.block_on(run::begin_store(&server.config))?;
        }
        standalone::serve(server, &environment, log, |app| introduction(&app.acl_endpoints(), scheme, &self.dir))
    }

    /// Converts the flags to settings of `[acl]`.
    fn settings(&self) -> anyhow::Result<Vec<(&'static str, Vec<String>)>> {
        let listen = self.listen.iter().map(|text| standalone::listen_address(text)).collect();
        let mut settings = vec![("listen", listen), ("data_dir", vec![standalone::path(&self.dir)?])];
        if let (Some(certificate), Some(key)) = (&self.tls_cert_file, &self.tls_key_file) {
            settings.extend([
                ("tls_cert", vec![standalone::path(certificate)?]),
                ("tls_key", vec![standalone::path(key)?]),
            ]);
        }
        Ok(settings)
    }
}

/// The server's addresses and the first commands to run, a line each.
fn introduction(endpoints: &[Endpoint], scheme: &str, folder: &Path) -> Vec<String> {
    let address = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(address) => format!("{scheme}://{address}"),
        other => other.to_string(),
    };
    let addresses: Vec<String> = endpoints.iter().map(address).collect();
    let first = addresses.first().map_or("", String::as_str);
    let all = addresses.join(", ");
    let folder = folder.display();
    vec![
        format!("the ACL server answers on {all} and keeps its records in {folder}"),
        format!("a new one has no token yet; make the first: keyward acl bootstrap --address {first} --out root.token"),
        format!("then: keyward acl whoami --address {first} --token-file root.token"),
    ]
}
