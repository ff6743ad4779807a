//! `keyward init acl`: keyward's Consul-compatible ACL server.

use clap::Args;

use super::OutputFlags;
use super::answers::{PlanInputs, Question};
use super::names::guid;
use super::plan::{CONFIG_PATH, KeyFile, Plan, Target};
use super::shell::{TomlText, quote};
use crate::cli::setup_files::SetupFileAccess;

/// Run the ACL server.
#[derive(Debug, Args)]
pub(super) struct Acl {
    /// Address to listen on besides the socket /run/keyward/acl.sock; beyond loopback it needs TLS [default:
    /// `tcp://127.0.0.1:8500`]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Certificate of the server, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    tls_cert_file: Option<String>,
    /// File with the private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_key_file: Option<String>,
    /// Name of the datacenter
    #[arg(long, value_name = "NAME", default_value = "dc1")]
    datacenter: String,
    /// Folder of the store
    #[arg(long, value_name = "DIR", default_value = "/var/lib/keyward/acl")]
    data_dir: String,
    /// Keep the key that encrypts tokens apart from the store, in /etc/keyward/acl-seal.key
    #[arg(long)]
    separate_key: bool,
    /// Let machines of this tenant of Azure log in
    #[arg(long, value_name = "ID", requires = "role", value_parser = guid)]
    tenant: Option<String>,
    /// Role that those machines log in as, and the policy of their tokens
    #[arg(long, value_name = "NAME", requires = "tenant")]
    role: Option<String>,
    /// Subscription of those machines
    #[arg(long, value_name = "ID", requires = "tenant", value_parser = guid)]
    subscription: Option<String>,
    /// Resource group of those machines
    #[arg(long, value_name = "NAME", requires = "tenant")]
    resource_group: Option<String>,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

const SEAL_KEY: &str = "/etc/keyward/acl-seal.key";
const SOCKET: &str = "unix:///run/keyward/acl.sock";

impl Acl {
    pub(super) fn plan(&self, answers: &mut PlanInputs<'_>) -> Plan {
        let mut bounds = Vec::new();
        if self.tenant.is_some() {
            let needed = |flag, text| Question::new(flag, text);
            let group = needed("--resource-group", "resource group of the machines that may log in");
            let subscription = Question {
                check: |text| guid(text).map(drop),
                ..needed("--subscription", "subscription of the machines that may log in")
            };
            bounds.push(("subscriptions", answers.ask_required(subscription, self.subscription.as_ref())));
            bounds.push(("resource_groups", answers.ask_required(group, self.resource_group.as_ref())));
        }
        Plan {
            target: Target::Unit,
            config: self.config(&bounds),
            main_path: CONFIG_PATH.into(),
            manifest: None,
            keys: self
                .separate_key
                .then_some(KeyFile { path: SEAL_KEY, access: SetupFileAccess::Service })
                .into_iter()
                .collect(),
            group: None,
            commands: Vec::new(),
            last: self.first_commands(),
        }
    }

    fn config(&self, bounds: &[(&str, String)]) -> String {
        let mut toml = TomlText::new("Written by `keyward init acl`; `keyward check` describes it.");
        let listen = self.listen.clone().unwrap_or_else(|| "tcp://127.0.0.1:8500".to_owned());
        toml.section("", "acl")
            .texts("listen", &[listen, SOCKET.to_owned()])
            .optional("tls_cert", self.tls_cert_file.as_ref())
            .optional("tls_key", self.tls_key_file.as_ref())
            .text("data_dir", &self.data_dir)
            .text("datacenter", &self.datacenter)
            .comment("A backup of the store is of no use without the key that encrypts tokens: keep a copy of the key elsewhere.");
        if self.separate_key {
            toml.text("key_file", SEAL_KEY);
        } else {
            toml.comment(&format!("It is made at the first start: {}/seal.key", self.data_dir));
        }
        if let (Some(tenant), Some(role)) = (&self.tenant, &self.role) {
            let login = "https://login.microsoftonline.com";
            toml.section("Machines log in at /v1/auth/azure/login.", "acl.method.azure")
                .text("issuer", &format!("https://sts.windows.net/{tenant}/"))
                .text("discovery_url", &format!("{login}/{tenant}/.well-known/openid-configuration"))
                .comment("The agent's `resource`, byte for byte.")
                .text("audience", "https://management.azure.com/");
            toml.section(
                "Machines that may log in, and the policies of their tokens.",
                &format!("acl.method.azure.role.{}", table_key(role)),
            );
            for (key, value) in bounds {
                toml.texts(key, std::slice::from_ref(value));
            }
            toml.texts("policies", std::slice::from_ref(role)).text("ttl", "1h");
        }
        toml.section("Health for probes, metrics for Prometheus.", "listener.health")
            .text("kind", "health")
            .text("address", "tcp://127.0.0.1:8501");
        toml.finish()
    }

    fn first_commands(&self) -> String {
        let role = quote(self.role.as_deref().unwrap_or("web"));
        format!(
            "sudo keyward wait --timeout 60s --address http://127.0.0.1:8501
export KEYWARD_ACL_ADDR={SOCKET}
sudo -E keyward acl bootstrap --out root.token      # once: the first token, with all rights
export KEYWARD_ACL_TOKEN_FILE=root.token
echo 'service_prefix \"web\" {{ policy = \"read\" }}' | sudo -E keyward acl policy create {role} --rules -
sudo -E keyward acl token create --policy-name {role} --ttl 8h --out {role}.token
"
        )
    }
}

/// Formats a part of a table's name, quoted unless TOML takes it bare.
fn table_key(part: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !part.is_empty() && part.bytes().all(is_bare) {
        return part.to_owned();
    }
    toml::Value::from(part).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_tables_name_is_quoted_if_toml_would_split_it() {
        for (part, expected) in [("web-1_a", "web-1_a"), ("web.prod", "\"web.prod\""), ("a b", "\"a b\""), ("", "\"\"")]
        {
            assert_eq!(table_key(part), expected);
        }
    }
}
