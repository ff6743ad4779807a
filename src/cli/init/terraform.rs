//! `keyward init terraform`: the gateway to HCP Terraform or Terraform Enterprise on a machine that runs Terraform.

use clap::Args;

use super::OutputFlags;
use super::answers::{PlanInputs, Question};
use super::plan::{CONFIG_PATH, Plan, Target};
use super::server_side::{ResourceFlag, ServerFlags};
use super::shell::{TomlText, quote};

/// Run the gateway to HCP Terraform or Terraform Enterprise.
#[derive(Debug, Args)]
pub(super) struct Terraform {
    /// Address of the platform [default: `https://app.terraform.io`]
    #[arg(long, value_name = "ADDRESS")]
    upstream: Option<String>,
    /// Port of the gateway on 127.0.0.1
    #[arg(long, value_name = "PORT", default_value_t = 8800)]
    port: u16,
    /// File with the platform token, which another process replaces before it ends [default: /etc/keyward/platform.token]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["secret_path", "team_id"])]
    token_file: Option<String>,
    /// Read the platform token from this path of Vault or OpenBao, such as terraform/creds/deploy
    #[arg(long, value_name = "PATH", conflicts_with = "team_id")]
    secret_path: Option<String>,
    /// Mint platform tokens for this team, with the token of --parent-token-file
    #[arg(long, value_name = "ID", requires = "organization")]
    team_id: Option<String>,
    /// Organization of the team
    #[arg(long, value_name = "NAME", requires = "team_id")]
    organization: Option<String>,
    /// File with the token that mints them
    #[arg(long, value_name = "FILE", default_value = "/etc/keyward/parent.token")]
    parent_token_file: String,
    /// Also point the Terraform and OpenTofu of this user at the gateway
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Tenant, for the printed commands
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    resource: ResourceFlag,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

const TOKEN_FILE: &str = "/etc/keyward/platform.token";

impl Terraform {
    pub(super) fn plan(&self, answers: &mut PlanInputs<'_>) -> Plan {
        let upstream = Question::new("--upstream", "address of HCP Terraform or Terraform Enterprise");
        let upstream = answers.ask_with_default(upstream, self.upstream.as_ref(), "https://app.terraform.io");
        let mut toml = TomlText::new("Written by `keyward init terraform`; `keyward check` describes it.");
        let mut commands = Vec::new();
        let mut secret = None;
        if let Some(path) = &self.secret_path {
            let server = self.server.resolve(answers, "azure", Some(&self.resource));
            server.write_server(&mut toml);
            toml.section("", "session.main");
            server.write_session(&mut toml);
            toml.section("The machine's managed identity.", "session.main.cloud");
            server.write_cloud(&mut toml);
            let tenant = self.tenant.as_ref().map_or_else(|| "TENANT".to_owned(), |tenant| quote(tenant));
            let bounds = ["bound_service_principal_ids=PRINCIPAL_ID_OF_THE_MACHINE".to_owned()];
            let keys = ["principals = [\"PRINCIPAL_ID_OF_THE_MACHINE\"]".to_owned()];
            let title = "On the server: the machine may log in, and its policy reads the token's path; replace what is in capitals";
            let policy = format!("# the policy: path \"{path}\" {{ capabilities = [\"read\"] }}\n");
            commands.push((title, server.commands(&tenant, &bounds, &keys) + &policy));
            secret = Some(path);
        }
        self.write_gateway(&mut toml, &upstream, secret);
        commands.push(("On the platform", self.platform_commands(&upstream)));
        Plan {
            target: Target::Unit,
            config: toml.finish(),
            main_path: CONFIG_PATH.into(),
            manifest: None,
            keys: Vec::new(),
            group: None,
            commands,
            last: "sudo keyward gateway tokens\nsudo keyward exec -- terraform plan   # with the gateway's address and the local token\n".to_owned(),
        }
    }

    fn write_gateway(&self, toml: &mut TomlText, upstream: &str, secret: Option<&String>) {
        toml.section(
            "Terraform and OpenTofu call it on this machine; it adds the platform token to each call.",
            "gateway",
        )
        .text("upstream", upstream)
        .text("listen", &format!("tcp://127.0.0.1:{}", self.port));
        if secret.is_none() && self.team_id.is_none() {
            toml.comment("Replace it by rename; it is read again when it changes or is refused.")
                .text("token_file", self.token_file.as_deref().unwrap_or(TOKEN_FILE));
        }
        toml.comment("The local token that callers send.")
            .text("local_token_file", "/var/lib/keyward/gateway.token")
            .comment("`keyward exec -- COMMAND` sets the gateway's address and the local token.")
            .text("process_token", "local_token");
        if let Some(path) = secret {
            toml.section("", "gateway.secret").text("session", "main").text("path", path);
        }
        if let (Some(team), Some(organization)) = (&self.team_id, &self.organization) {
            toml.section("Tokens that the gateway makes for itself.", "gateway.mint")
                .text("parent_token_file", &self.parent_token_file)
                .text("kind", "team")
                .text("owner", team)
                .text("organization", organization);
        }
        if let Some(user) = &self.user {
            toml.section("Points that user's Terraform and OpenTofu at the gateway.", "gateway.terraform_config_file")
                .text("path", &format!("/home/{user}/.terraform.d/zz-keyward.tfrc.json"))
                .text("owner", user);
        }
        toml.section("", "agent").text("state_dir", "/var/lib/keyward");
    }

    fn platform_commands(&self, upstream: &str) -> String {
        match (&self.secret_path, &self.team_id) {
            (Some(path), _) => {
                let mount = path.split('/').next().unwrap_or_default();
                let role = path.rsplit('/').next().unwrap_or_default();
                let mount = quote(mount);
                format!(
                    "# Vault's terraform secrets engine makes the tokens; the file holds a token of {upstream}
vault secrets enable -path={mount} terraform
vault write {mount}/config token=@organization.token
vault write {mount}/role/{} team_id=TEAM
",
                    quote(role)
                )
            }
            (None, Some(team)) => format!(
                "# at {upstream}, make a token that may manage tokens of team {team}, and put it into this file of mode 0600:
sudo install -m 600 -o keyward -g keyward /dev/null {0} && sudo tee {0} > /dev/null
",
                quote(&self.parent_token_file)
            ),
            (None, None) => {
                let file = quote(self.token_file.as_deref().unwrap_or(TOKEN_FILE));
                format!(
                    "# at {upstream}, make a token, and put it into this file of mode 0600:
sudo install -m 600 -o keyward -g keyward /dev/null {file} && sudo tee {file} > /dev/null
"
                )
            }
        }
    }
}
