//! `keyward init azure-vm`: a VM or scale set with a managed identity.

use std::path::Path;

use clap::Args;
use keyward_agent::identity;

use super::OutputFlags;
use super::answers::{PlanInputs, Question};
use super::names::guid;
use super::plan::{CONFIG_PATH, KeyFile, Plan, Target};
use super::server_side::{ServerFlags, ServerSide};
use super::shell::{TomlText, quote_or_placeholder};
use crate::cli::print_note;
use crate::cli::progress::ProgressLine;
use crate::cli::setup_files::SetupFileAccess;

/// Log in a VM on Azure.
#[derive(Debug, Args)]
pub(super) struct AzureVm {
    #[command(flatten)]
    server: ServerFlags,
    /// Client id of a user-assigned identity [default: the system-assigned one]
    #[arg(long, value_name = "ID", value_parser = guid)]
    client_id: Option<String>,
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
    /// Tenant, for the printed commands
    #[arg(long, value_name = "ID", help_heading = "Azure")]
    tenant: Option<String>,
    /// Subscription of the VM, for the printed commands [default: on the VM itself, by its metadata service]
    #[arg(long, value_name = "ID", help_heading = "Azure")]
    subscription: Option<String>,
    /// Resource group of the VM, for the printed commands [default: as above]
    #[arg(long, value_name = "NAME", help_heading = "Azure")]
    resource_group: Option<String>,
    /// Name of the VM, for the printed commands [default: as above]
    #[arg(long, value_name = "NAME", help_heading = "Azure")]
    vm: Option<String>,
    /// The name is that of a scale set.
    #[arg(skip)]
    is_scale_set: bool,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

const SEAL_KEY: &str = "/etc/keyward/seal.key";
const LISTENER_KEY: &str = "/etc/keyward/listener.key";

impl AzureVm {
    /// Takes subscription, resource group and name from the metadata service of the machine that this runs on, as far as no flag sets
    /// them. Files for another machine have no such source.
    pub(super) fn with_machine_names(mut self) -> anyhow::Result<Self> {
        let is_elsewhere = self.output.root.is_some() || self.output.out.is_some();
        let missing = [&self.subscription, &self.resource_group, &self.vm].into_iter().any(Option::is_none);
        if is_elsewhere || !missing {
            return Ok(self);
        }
        let line = ProgressLine::start("asking the metadata service (169.254.169.254) for the names of this machine");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let found = runtime.block_on(identity::machine_fields(&identity::CloudEndpoints::provider()));
        drop(line);
        let Some(found) = found else { return Ok(self) };
        self.subscription = self.subscription.or(found.subscription_id);
        self.resource_group = self.resource_group.or(found.resource_group_name);
        if self.vm.is_none() {
            self.is_scale_set = found.vmss_name.is_some();
            self.vm = found.vmss_name.or(found.vm_name);
        }
        print_note(
            "subscription, resource group and name in the commands are those of this machine, by its metadata service",
        );
        Ok(self)
    }

    pub(super) fn plan(&self, answers: &mut PlanInputs<'_>) -> Plan {
        let server = self.server.resolve(answers);
        let client_id = answers.ask_optional(
            Question {
                check: |text| guid(text).map(drop),
                ..Question::new("--client-id", "client id of a user-assigned identity")
            },
            self.client_id.as_ref(),
        );
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
            config: self.config(&server, client_id.as_ref(), group.as_ref()),
            main_path: CONFIG_PATH.into(),
            manifest: None,
            keys,
            commands: vec![
                ("On Azure: the VM gets its identity", self.azure_commands(client_id.as_ref())),
                ("On the server: the identity may log in; replace what is in capitals", self.server_commands(&server)),
            ],
            group,
            last: "sudo keyward wait --timeout 60s && sudo keyward status\n".to_owned(),
        }
    }

    fn config(&self, server: &ServerSide, client_id: Option<&String>, group: Option<&String>) -> String {
        let mut toml = TomlText::new("Written by `keyward init azure-vm`; `keyward check` describes it.");
        server.write_server(&mut toml);
        toml.section("", "session.main");
        server.write_session(&mut toml);
        if !self.no_seal_key {
            toml.comment("Keeps the token over a restart, encrypted in /var/lib/keyward.")
                .text("seal_key_file", SEAL_KEY);
        }
        toml.section("The VM's managed identity.", "session.main.cloud");
        server.write_cloud(&mut toml);
        toml.optional("client_id", client_id);
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

    fn azure_commands(&self, client_id: Option<&String>) -> String {
        let group = quote_or_placeholder(self.resource_group.as_ref(), "RESOURCE_GROUP");
        let vm = quote_or_placeholder(self.vm.as_ref(), "VM");
        let kind = if self.is_scale_set { "vmss" } else { "vm" };
        match client_id {
            None => format!("az {kind} identity assign --resource-group {group} --name {vm}\n"),
            Some(id) => format!(
                "az {kind} identity assign --resource-group {group} --name {vm} \\\n    \
                 --identities \"$(az identity list --query \"[?clientId=='{id}'].id\" --output tsv)\"\n"
            ),
        }
    }

    fn server_commands(&self, server: &ServerSide) -> String {
        let subscription = quote_or_placeholder(self.subscription.as_ref(), "SUBSCRIPTION");
        let group = quote_or_placeholder(self.resource_group.as_ref(), "RESOURCE_GROUP");
        let bounds = [format!("bound_subscription_ids={subscription}"), format!("bound_resource_groups={group}")];
        let keys = [format!("subscriptions = [\"{subscription}\"]"), format!("resource_groups = [\"{group}\"]")];
        server.commands(&quote_or_placeholder(self.tenant.as_ref(), "TENANT"), &bounds, &keys)
    }
}
