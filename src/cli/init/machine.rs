//! A machine that logs in as a systemd service: what its configuration has whatever cloud its identity is of.

use std::path::Path;

use clap::Args;

use super::answers::{PlanInputs, Question};
use super::plan::{CONFIG_PATH, KeyFile, Plan, Target};
use super::server_side::ServerSide;
use super::shell::TomlText;
use crate::cli::progress::ProgressLine;
use crate::cli::setup_files::SetupFileAccess;

/// Flags about what the machine does with its token.
#[derive(Debug, Args)]
pub(super) struct MachineFlags {
    /// Group that may read the token and use the sockets [default: keyward]
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// File for the token
    #[arg(long, value_name = "FILE", default_value = "/run/keyward/token")]
    token_file: String,
    /// Template to render with secrets
    #[arg(long, value_name = "FILE", requires = "destination")]
    template: Option<String>,
    /// File that the template is rendered to
    #[arg(long, value_name = "FILE", requires = "template")]
    destination: Option<String>,
    /// Unit to reload when the rendered file has changed, such as nginx.service
    #[arg(long, value_name = "UNIT", requires = "template")]
    reload: Option<String>,
    /// Also serve the server's API on /run/keyward/vault.sock, with the token added
    #[arg(long)]
    api_proxy: bool,
    /// Also serve the token on this port of 127.0.0.1, for callers with a key
    #[arg(long, value_name = "PORT")]
    tcp_port: Option<u16>,
    /// Log in anew after a restart, instead of keeping the token in an encrypted file
    #[arg(long)]
    no_seal_key: bool,
}

/// The machine's identity: what one cloud has of its own.
pub(super) struct MachineIdentity<'a> {
    /// The command, for the head of the file.
    pub(super) command: &'static str,
    /// Writes the section of the session's method.
    pub(super) write: &'a dyn Fn(&mut TomlText),
    /// Commands for the cloud and the server, under titles.
    pub(super) commands: Vec<(&'static str, String)>,
}

const SEAL_KEY: &str = "/etc/keyward/seal.key";
const LISTENER_KEY: &str = "/etc/keyward/listener.key";

/// Title of the commands for the server's operator.
pub(super) const SERVER_TITLE: &str = "On the server: the identity may log in; replace what is in capitals";

impl MachineFlags {
    pub(super) fn plan(
        &self,
        answers: &mut PlanInputs<'_>,
        server: &ServerSide,
        identity: MachineIdentity<'_>,
    ) -> Plan {
        let group = answers.ask_optional(Question::new("--group", "group that may use the token"), self.group.as_ref());
        let mut keys = Vec::new();
        if !self.no_seal_key {
            keys.push(KeyFile { path: SEAL_KEY, access: SetupFileAccess::Service });
        }
        if self.tcp_port.is_some() {
            let access = group.clone().map_or(SetupFileAccess::Service, SetupFileAccess::ReadByGroup);
            keys.push(KeyFile { path: LISTENER_KEY, access });
        }
        Plan {
            target: Target::Unit,
            config: self.config(server, &identity, group.as_ref()),
            main_path: CONFIG_PATH.into(),
            manifest: None,
            keys,
            commands: identity.commands,
            group,
            last: "sudo keyward wait --timeout 60s && sudo keyward status\n".to_owned(),
        }
    }

    fn config(&self, server: &ServerSide, identity: &MachineIdentity<'_>, group: Option<&String>) -> String {
        let head = format!("Written by `keyward init {}`; `keyward check` describes it.", identity.command);
        let mut toml = TomlText::new(&head);
        server.write_server(&mut toml);
        toml.section("", "session.main");
        server.write_session(&mut toml);
        if !self.no_seal_key {
            toml.comment("Keeps the token over a restart, encrypted in /var/lib/keyward.")
                .text("seal_key_file", SEAL_KEY);
        }
        (identity.write)(&mut toml);
        toml.section("The token as a file. It is replaced as a whole.", "sink.token")
            .text("path", &self.token_file)
            .text("mode", "0640")
            .optional("group", group)
            .text("on_expiry", "remove");
        let call =
            "curl --unix-socket /run/keyward/api.sock -H 'X-Vault-Request: true' http://localhost/agent/v1/token";
        toml.section(&format!("The same token on a socket, and what `keyward status` asks:\n  {call}"), "listener.api")
            .text("address", "unix:///run/keyward/api.sock")
            .text("mode", "0660")
            .optional("group", group);
        if let Some(port) = self.tcp_port {
            toml.section("The same on TCP, where callers send the key in X-Keyward-Key.", "listener.tcp")
                .text("address", &format!("tcp://127.0.0.1:{port}"))
                .text("key_file", LISTENER_KEY);
        }
        if self.api_proxy {
            toml.section(
                "The server's API; keyward adds the token. Narrow it with allow = [\"GET secret/*\"].",
                "listener.vault",
            )
            .text("kind", "api_proxy")
            .text("address", "unix:///run/keyward/vault.sock")
            .text("mode", "0660")
            .optional("group", group);
        }
        self.write_template(&mut toml, group);
        toml.finish()
    }

    fn write_template(&self, toml: &mut TomlText, group: Option<&String>) {
        let (Some(source), Some(destination)) = (&self.template, &self.destination) else { return };
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let stem = Path::new(destination).file_stem().unwrap_or_default().to_string_lossy();
        let name: String = stem.chars().map(plain).collect();
        toml.section("A file rendered with secrets.", &format!("template.{name}"))
            .text("source", source)
            .text("destination", destination)
            .text("mode", "0640")
            .optional("group", group);
        if let Some(unit) = &self.reload {
            toml.texts("command", &["systemctl".to_owned(), "reload".to_owned(), unit.clone()]);
        }
    }
}

/// Asks the metadata service of the machine that this runs on, and shows on a terminal that it waits.
pub(super) fn ask_machine<T>(names: &str, question: impl Future<Output = Option<T>>) -> anyhow::Result<Option<T>> {
    let line = ProgressLine::start(&format!("asking the metadata service (169.254.169.254) for {names}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(question);
    drop(line);
    Ok(found)
}
