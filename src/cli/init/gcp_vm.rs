//! `keyward init gcp-vm`: a machine of Compute Engine with a service account.

use clap::Args;
use keyward_agent::identity;

use super::OutputFlags;
use super::answers::PlanInputs;
use super::machine::{MachineFlags, MachineIdentity, SERVER_TITLE, ask_machine};
use super::names::{gcp_project, service_account};
use super::plan::Plan;
use super::server_side::{ServerFlags, ServerProduct, ServerSide};
use super::shell::{TomlText, quote_or_placeholder};
use crate::cli::print_note;

/// Log in a VM on Google Cloud.
#[derive(Debug, Args)]
pub(super) struct GcpVm {
    #[command(flatten)]
    server: ServerFlags,
    /// Audience of the machine's token, which ends in vault/ROLE [default: `https://HOST/vault/ROLE`, by the server's address]
    #[arg(long, value_name = "URI", help_heading = "Server")]
    audience: Option<String>,
    #[command(flatten)]
    machine: MachineFlags,
    /// Id of the project, for the printed commands [default: on the VM itself, by its metadata server]
    #[arg(long, value_name = "ID", value_parser = gcp_project, help_heading = "Google Cloud")]
    project: Option<String>,
    /// E-mail of the VM's service account, for the printed commands [default: as above]
    #[arg(long, value_name = "EMAIL", value_parser = service_account, help_heading = "Google Cloud")]
    service_account: Option<String>,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

impl GcpVm {
    /// Takes project and service account from the metadata server of the machine that this runs on, as far as no flag sets them. Files
    /// for another machine have no such source.
    pub(super) fn with_machine_names(mut self) -> anyhow::Result<Self> {
        if self.output.is_elsewhere() || (self.project.is_some() && self.service_account.is_some()) {
            return Ok(self);
        }
        let endpoints = identity::GcpEndpoints::provider();
        let names = "project and service account of this machine";
        let Some(found) = ask_machine(names, identity::gcp_machine(&endpoints))? else { return Ok(self) };
        self.project = self.project.or(Some(found.project));
        self.service_account = self.service_account.or(Some(found.service_account));
        print_note("project and service account in the commands are those of this machine, by its metadata server");
        Ok(self)
    }

    pub(super) fn plan(&self, answers: &mut PlanInputs<'_>) -> Plan {
        let server = self.server.resolve(answers, "gcp", None);
        let audience =
            self.audience.clone().unwrap_or_else(|| format!("https://{}/vault/{}", server.host(), server.role));
        if !audience.ends_with(&format!("vault/{}", server.role)) {
            answers.invalid.push(format!("--audience {audience}: it must end in vault/{}", server.role));
        }
        let write = |toml: &mut TomlText| {
            toml.section("The VM's service account.", "session.main.gcp")
                .text("role", &server.role)
                .comment("Of one server: by the default, http://vault/ROLE, others would accept the token too.")
                .text("audience", &audience);
        };
        let account = quote_or_placeholder(self.service_account.as_ref(), "SERVICE_ACCOUNT");
        let cloud = format!(
            "# the VM runs as {account}; to change that, stop it, then:\n\
             gcloud compute instances set-service-account VM --zone ZONE --service-account {account} --scopes cloud-platform\n"
        );
        let commands = vec![
            ("On Google Cloud: the VM has a service account, which needs no roles for the login", cloud),
            (SERVER_TITLE, self.server_commands(&server, &audience, &account)),
        ];
        self.machine.plan(answers, &server, MachineIdentity { command: "gcp-vm", write: &write, commands })
    }

    fn server_commands(&self, server: &ServerSide, audience: &str, account: &str) -> String {
        let project = quote_or_placeholder(self.project.as_ref(), "PROJECT");
        if server.product == ServerProduct::Keyward {
            let method = ["type = \"gcp\"".to_owned(), format!("audience = {}", toml::Value::from(audience))];
            let role = [format!("projects = [\"{project}\"]"), format!("service_accounts = [\"{account}\"]")];
            return server.method_section(&method, &role);
        }
        let config = ["credentials=@server-account.json".to_owned()];
        let bounds =
            ["type=gce".to_owned(), format!("bound_projects={project}"), format!("bound_service_accounts={account}")];
        "# the server's own service account needs compute.instances.get and iam.serviceAccounts.get in the project\n"
            .to_owned()
            + &server.token_commands("gcp", "config", &config, &bounds)
    }
}
