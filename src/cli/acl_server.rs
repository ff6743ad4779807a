//! `keyward access`: the access-control service itself, run and looked after.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::acl::{self, Connection, Failure};
use super::snapshot::{Backup, Restore};
use super::{Exit, LogChoice, note, say, standalone};
use crate::config::Environment;
use crate::http::server::Endpoint;

/// Run the access-control service, and look after it.
#[derive(Debug, Subcommand)]
pub(super) enum Access {
    /// Serve the access-control API until told to stop, with nothing else configured
    #[command(after_help = "Example:\n  keyward access serve --dir /var/lib/keyward/access --listen 127.0.0.1:8500")]
    Serve(Serve),
    /// Move all tokens to the first key of the service's key file, while it serves
    #[command(
        after_help = "Example:\n  keyward access rekey --generate --address https://access.example.com:8500 --token-file ops.token"
    )]
    Rekey(Rekey),
    /// Write everything that a running service keeps into a file
    #[command(after_help = "Example:\n  keyward access backup --out access.snapshot --token-file ops.token")]
    Backup(Box<Backup>),
    /// Replace everything that a running service keeps by what is in such a file
    #[command(after_help = "Example:\n  keyward access restore access.snapshot --token-file ops.token")]
    Restore(Box<Restore>),
}

/// Change the key that tokens are under.
#[derive(Debug, Args)]
pub(super) struct Rekey {
    /// Have the service make a new key first, and put it before the others in its key file
    #[arg(long)]
    generate: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Serve the access-control API.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The folder of its store, made with mode 0700 if it is not there
    #[arg(long, value_name = "FOLDER")]
    dir: PathBuf,
    /// Where to listen: `ADDRESS:PORT`, `unix:///PATH`, or `systemd:NAME`; may be given more than once. Beyond loopback it
    /// takes TLS
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8500")]
    listen: Vec<String>,
    /// PEM file of the certificate to speak TLS with
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// PEM file of its private key
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_key_file: Option<PathBuf>,
    /// Begin a new store where the old one is gone and its key file is left
    #[arg(long)]
    new_store: bool,
}

impl Access {
    pub(super) fn run(self, log: &LogChoice) -> anyhow::Result<Exit> {
        match self {
            Self::Serve(serve) => serve.run(log),
            Self::Rekey(rekey) => rekey.run(),
            Self::Backup(backup) => backup.run(),
            Self::Restore(restore) => restore.run(),
        }
    }
}

impl Rekey {
    /// Calls until all tokens have moved: one call moves some thousands.
    fn run(self) -> anyhow::Result<Exit> {
        acl::asking(self.connection, async |service| {
            let mut came = service.client.rekey(self.generate).await?;
            let mut rewritten = came.rewritten;
            while !came.done && came.unreadable.is_empty() {
                note(&format!("{rewritten} tokens were moved to the key {}, there are more", came.key_id));
                came = service.client.rekey(false).await?;
                rewritten += came.rewritten;
            }
            came.rewritten = rewritten;
            service.show(&came, || {
                say(&format!("{rewritten} tokens were moved to the key {}", came.key_id));
                if came.done {
                    say("all are under it: the other lines of the key file may go, on every server");
                }
            });
            if came.done {
                return Ok(());
            }
            let text = format!(
                "these cannot be read, and keep the old key from being dropped: {}; remove them and run this again",
                came.unreadable.join(", ")
            );
            Err(Failure::new(Exit::Failed, text))
        })
    }
}

impl Serve {
    fn run(self, log: &LogChoice) -> anyhow::Result<Exit> {
        crate::os::forbid_core_dumps()?;
        let environment = Environment::of_this_process();
        let config = match standalone::configuration("access", &self.settings()?, &environment) {
            Ok(config) => config,
            Err(exit) => return Ok(exit),
        };
        let scheme = if self.tls_cert_file.is_some() { "https" } else { "http" };
        if self.new_store {
            // The store is closed again before it is served.
            super::run::runtime(&config)?.block_on(super::run::begin_store(&config))?;
        }
        standalone::serve(config, &environment, log, |app| introduction(&app.access_endpoints(), scheme, &self.dir))
    }

    /// What it comes to as settings of `[access]`.
    fn settings(&self) -> anyhow::Result<Vec<(&'static str, Vec<String>)>> {
        let listen = self.listen.iter().map(|text| standalone::place(text)).collect();
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

/// Where the service is, and what to do first.
fn introduction(endpoints: &[Endpoint], scheme: &str, folder: &Path) -> Vec<String> {
    let address = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp(address) => format!("{scheme}://{address}"),
        other => other.to_string(),
    };
    let addresses: Vec<String> = endpoints.iter().map(address).collect();
    let first = addresses.first().map_or("", String::as_str);
    let (all, folder) = (addresses.join(", "), folder.display());
    vec![
        format!("the access-control service answers on {all} and keeps its records in {folder}"),
        format!("a new one has no token yet; make the first: keyward acl bootstrap --address {first} --out root.token"),
        format!("then: keyward acl whoami --address {first} --token-file root.token"),
    ]
}
