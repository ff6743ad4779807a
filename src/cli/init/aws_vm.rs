//! `keyward init aws-vm`: a machine of EC2 with an IAM role.

use clap::Args;
use keyward_agent::identity;

use super::OutputFlags;
use super::answers::PlanInputs;
use super::machine::{MachineFlags, MachineIdentity, SERVER_TITLE, ask_machine};
use super::names::{aws_account, aws_region, iam_role};
use super::plan::Plan;
use super::server_side::{ServerFlags, ServerProduct, ServerSide};
use super::shell::{TomlText, quote, quote_or_placeholder};
use crate::cli::print_note;

/// Log in a VM on AWS.
#[derive(Debug, Args)]
pub(super) struct AwsVm {
    #[command(flatten)]
    server: ServerFlags,
    /// Name of the server that logins are signed for, as its auth method has it [default: the host of its address]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    server_id: Option<String>,
    /// Region whose endpoint of STS the server asks [default: the global one]
    #[arg(long, value_name = "NAME", value_parser = aws_region, help_heading = "Server")]
    region: Option<String>,
    #[command(flatten)]
    machine: MachineFlags,
    /// Number of the account, for the printed commands [default: on the VM itself, by its metadata service]
    #[arg(long, value_name = "NUMBER", value_parser = aws_account, help_heading = "AWS")]
    account: Option<String>,
    /// IAM role of the VM, without path, for the printed commands [default: as above]
    #[arg(long, value_name = "NAME", value_parser = iam_role, help_heading = "AWS")]
    iam_role: Option<String>,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

impl AwsVm {
    /// Takes account and role from the metadata service of the machine that this runs on, as far as no flag sets them. Files for
    /// another machine have no such source.
    pub(super) fn with_machine_names(mut self) -> anyhow::Result<Self> {
        if self.output.is_elsewhere() || (self.account.is_some() && self.iam_role.is_some()) {
            return Ok(self);
        }
        let endpoints = identity::AwsEndpoints::provider();
        let Some(found) = ask_machine("account and role of this machine", identity::aws_machine(&endpoints))? else {
            return Ok(self);
        };
        self.account = self.account.or(Some(found.account));
        self.iam_role = self.iam_role.or(Some(found.role));
        print_note("account and role in the commands are those of this machine, by its metadata service");
        Ok(self)
    }

    pub(super) fn plan(&self, answers: &mut PlanInputs<'_>) -> Plan {
        let server = self.server.resolve(answers, "aws", None);
        let server_id = self.server_id.clone().unwrap_or_else(|| server.host());
        let write = |toml: &mut TomlText| {
            toml.section("The VM's IAM role.", "session.main.aws")
                .text("role", &server.role)
                .text("credentials", "instance")
                .comment("Signed into each login: no other server accepts it.")
                .text("server_id", &server_id)
                .optional("region", self.region.as_ref());
        };
        let role = quote_or_placeholder(self.iam_role.as_ref(), "IAM_ROLE");
        let profile = format!(
            "# the VM's instance profile has the role {role}; of a VM without one:\n\
             aws ec2 associate-iam-instance-profile --instance-id INSTANCE --iam-instance-profile Name=PROFILE\n"
        );
        let commands = vec![
            ("On AWS: the VM has a role, which needs no permissions for the login", profile),
            (SERVER_TITLE, self.server_commands(&server, &server_id, &role)),
        ];
        self.machine.plan(answers, &server, MachineIdentity { command: "aws-vm", write: &write, commands })
    }

    fn server_commands(&self, server: &ServerSide, server_id: &str, role: &str) -> String {
        let account = quote_or_placeholder(self.account.as_ref(), "ACCOUNT");
        if server.product == ServerProduct::Keyward {
            let mut method = vec!["type = \"aws\"".to_owned(), format!("server_id = {}", toml::Value::from(server_id))];
            method.extend(self.region.as_ref().map(|region| format!("regions = [\"{region}\"]")));
            return server
                .method_section(&method, &[format!("accounts = [\"{account}\"]"), format!("roles = [\"{role}\"]")]);
        }
        let mut config = vec![format!("iam_server_id_header_value={}", quote(server_id))];
        if let Some(region) = &self.region {
            config.push(format!("sts_region={region} sts_endpoint=https://sts.{region}.amazonaws.com"));
        }
        let bounds =
            ["auth_type=iam".to_owned(), format!("bound_iam_principal_arn=arn:aws:iam::{account}:role/{role}")];
        "# the server needs iam:GetRole for the role's unique id; without credentials of AWS, add resolve_aws_unique_ids=false to the role\n"
            .to_owned()
            + &server.token_commands("aws", "config/client", &config, &bounds)
    }
}
