//! `keyward init azure-vm`: a VM or scale set with a managed identity.

use clap::Args;
use keyward_agent::identity;

use super::OutputFlags;
use super::answers::{PlanInputs, Question};
use super::machine::{MachineFlags, MachineIdentity, SERVER_TITLE, ask_machine};
use super::names::guid;
use super::plan::Plan;
use super::server_side::{ResourceFlag, ServerFlags, ServerSide};
use super::shell::{TomlText, quote_or_placeholder};
use crate::cli::print_note;

/// Log in a VM on Azure.
#[derive(Debug, Args)]
pub(super) struct AzureVm {
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    resource: ResourceFlag,
    /// Client id of a user-assigned identity [default: the system-assigned one]
    #[arg(long, value_name = "ID", value_parser = guid)]
    client_id: Option<String>,
    #[command(flatten)]
    machine: MachineFlags,
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

impl AzureVm {
    /// Takes subscription, resource group and name from the metadata service of the machine that this runs on, as far as no flag sets
    /// them. Files for another machine have no such source.
    pub(super) fn with_machine_names(mut self) -> anyhow::Result<Self> {
        let missing = [&self.subscription, &self.resource_group, &self.vm].into_iter().any(Option::is_none);
        if self.output.is_elsewhere() || !missing {
            return Ok(self);
        }
        let endpoints = identity::CloudEndpoints::provider();
        let found = ask_machine("the names of this machine", identity::machine_fields(&endpoints))?;
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
        let server = self.server.resolve(answers, "azure", Some(&self.resource));
        let client_id = answers.ask_optional(
            Question {
                check: |text| guid(text).map(drop),
                ..Question::new("--client-id", "client id of a user-assigned identity")
            },
            self.client_id.as_ref(),
        );
        let write = |toml: &mut TomlText| {
            toml.section("The VM's managed identity.", "session.main.cloud");
            server.write_cloud(toml);
            toml.optional("client_id", client_id.as_ref());
        };
        let commands = vec![
            ("On Azure: the VM gets its identity", self.azure_commands(client_id.as_ref())),
            (SERVER_TITLE, self.server_commands(&server)),
        ];
        self.machine.plan(answers, &server, MachineIdentity { command: "azure-vm", write: &write, commands })
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
