//! `keyward init aks`: a pod with workload identity, and keyward as its sidecar.

use clap::Args;

use super::answers::{PlanInputs, Question};
use super::names::{guid, image, kubernetes_name};
use super::plan::{Plan, Target};
use super::server_side::{ServerFlags, ServerSide};
use super::shell::{TomlText, quote_or_placeholder};
use super::{OutputFlags, ca_bundle};

/// Log in a pod on AKS.
#[derive(Debug, Args)]
pub(super) struct Aks {
    #[command(flatten)]
    server: ServerFlags,
    /// Client id of the managed identity that the pod uses
    #[arg(long, value_name = "ID", value_parser = guid)]
    client_id: Option<String>,
    /// Tenant of the identity
    #[arg(long, value_name = "ID", value_parser = guid)]
    tenant: Option<String>,
    /// Name of the deployment and of its service account
    #[arg(long, value_name = "NAME", default_value = "web", value_parser = kubernetes_name)]
    name: String,
    /// Namespace of the cluster
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = kubernetes_name)]
    namespace: String,
    /// Image of keyward [default: `registry.example.com/keyward:0.1.0`]
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    image: Option<String>,
    /// Image of the application [default: `registry.example.com/web:1.0.0`]
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    app_image: Option<String>,
    /// Resource group of cluster and identity, for the printed commands
    #[arg(long, value_name = "NAME", help_heading = "Azure")]
    resource_group: Option<String>,
    /// Name of the cluster, for the printed commands
    #[arg(long, value_name = "NAME", help_heading = "Azure")]
    cluster: Option<String>,
    #[command(flatten)]
    pub(super) output: OutputFlags,
}

/// The packaged example, whose hardening and probes the written manifest has.
const EXAMPLE: &str = include_str!("../../../packaging/kubernetes/sidecar.yaml");

/// Path of the CA bundle in the pod, beside the configuration.
const CA_PATH: &str = "/etc/keyward/ca.pem";

impl Aks {
    pub(super) fn plan(&self, answers: &mut PlanInputs<'_>) -> Plan {
        let mut server = self.server.resolve(answers);
        let bundle = server.place_ca_file(CA_PATH).and_then(|file| match ca_bundle::read(&file) {
            Ok(text) => Some(text),
            Err(error) => {
                answers.invalid.push(error);
                None
            }
        });
        let id = |flag, text| Question { check: |text| guid(text).map(drop), ..Question::new(flag, text) };
        let identity =
            answers.ask_required(id("--client-id", "client id of the managed identity"), self.client_id.as_ref());
        let tenant = answers.ask_required(id("--tenant", "tenant of the identity"), self.tenant.as_ref());
        let config = config(&server);
        let manifest = self.manifest(&config, bundle.as_deref(), &identity, &tenant);
        Plan {
            target: Target::Pod,
            config,
            main_path: "/keyward.yaml".into(),
            manifest: Some(manifest),
            keys: Vec::new(),
            group: None,
            commands: vec![
                ("On Azure: the identity trusts the pod's service account", self.azure_commands(&identity)),
                (
                    "On the server: the identity may log in; replace what is in capitals",
                    server.commands(
                        &tenant,
                        &["bound_service_principal_ids=\"$principal\"".to_owned()],
                        &["principals = [\"PRINCIPAL_ID_OF_THE_IDENTITY\"]".to_owned()],
                    ),
                ),
            ],
            last: self.image_advice()
                + &format!(
                    "kubectl apply --namespace {0} -f keyward.yaml\nkubectl logs --namespace {0} deployment/{1} --container keyward --follow   # agent.ready once the token is written\n",
                    self.namespace, self.name
                ),
        }
    }

    /// A comment about the images of the example that no flag has replaced, if there are any.
    fn image_advice(&self) -> String {
        let missing = [("--image", &self.image), ("--app-image", &self.app_image)];
        let flags: Vec<&str> = missing.iter().filter(|(_, image)| image.is_none()).map(|(flag, _)| *flag).collect();
        if flags.is_empty() {
            return String::new();
        }
        format!(
            "# first put your images into keyward.yaml in place of registry.example.com, or run this again with {}\n",
            flags.join(" and ")
        )
    }

    /// Puts names, identifiers, images and the configuration into the example.
    fn manifest(&self, config: &str, bundle: Option<&str>, client_id: &str, tenant: &str) -> String {
        let mut text = String::new();
        let mut variable = "";
        let mut in_config = false;
        for line in EXAMPLE.lines() {
            if in_config && (line.is_empty() || line.starts_with("    ")) {
                continue;
            }
            in_config = false;
            let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
            let (key, value) = rest.split_once(": ").unwrap_or((rest, ""));
            let new = match (key, value, variable) {
                ("azure.workload.identity/client-id", ..) | ("value", _, "AZURE_CLIENT_ID") => client_id,
                ("value", _, "AZURE_TENANT_ID") => tenant,
                ("name" | "- name" | "app" | "serviceAccountName", "web", _) => &self.name,
                ("image", _, "keyward") => self.image.as_deref().unwrap_or(value),
                ("image", ..) => self.app_image.as_deref().unwrap_or(value),
                // Two pods of one namespace have a configuration each.
                ("name", "keyward", _) => &format!("{}-keyward", self.name),
                _ => value,
            };
            if key == "- name" {
                variable = value;
            }
            let separator = if value.is_empty() { "" } else { ": " };
            text.extend([indent, key, separator, new, "\n"]);
            if rest == "keyward.toml: |" {
                in_config = true;
                text.push_str(&indent_block(config));
                if let Some(bundle) = bundle {
                    text.extend(["  ca.pem: |\n", &indent_block(bundle)]);
                }
            }
        }
        text
    }

    fn azure_commands(&self, client_id: &str) -> String {
        let group = quote_or_placeholder(self.resource_group.as_ref(), "RESOURCE_GROUP");
        let cluster = quote_or_placeholder(self.cluster.as_ref(), "CLUSTER");
        format!(
            "# without an identity yet: az identity create --resource-group {group} --name {name}
az aks update --resource-group {group} --name {cluster} --enable-oidc-issuer --enable-workload-identity
issuer=$(az aks show --resource-group {group} --name {cluster} --query oidcIssuerProfile.issuerUrl --output tsv)
identity=$(az identity list --query \"[?clientId=='{client_id}'].name\" --output tsv)
principal=$(az identity list --query \"[?clientId=='{client_id}'].principalId\" --output tsv)
az identity federated-credential create --resource-group {group} --identity-name \"$identity\" --name {name} \\
    --issuer \"$issuer\" --subject system:serviceaccount:{namespace}:{name} --audiences api://AzureADTokenExchange
",
            name = self.name,
            namespace = self.namespace,
        )
    }
}

/// Indents the lines of a block of YAML.
fn indent_block(block: &str) -> String {
    block.lines().flat_map(|line| [if line.is_empty() { "" } else { "    " }, line, "\n"]).collect()
}

fn config(server: &ServerSide) -> String {
    let mut toml = TomlText::new("Written by `keyward init aks`.");
    server.write_server(&mut toml);
    toml.section("", "session.main");
    server.write_session(&mut toml);
    toml.section("The identity that the pod's service account is federated with.", "session.main.cloud");
    server.write_cloud(&mut toml);
    toml.flag("authenticate_from_environment", true);
    toml.section("The token, in the volume that the application shares.", "sink.token")
        .text("path", "/run/keyward/token")
        .comment("All containers of the pod may write there.")
        .flag("shared_folder", true)
        .text("mode", "0640")
        .text("on_expiry", "remove");
    toml.section("The kubelet's probes, and metrics.", "listener.probes")
        .text("kind", "health")
        .text("address", "tcp://0.0.0.0:8301");
    toml.section("", "log").text("format", "json");
    toml.finish()
}
