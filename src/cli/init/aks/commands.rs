//! The commands for Azure, the server and the cluster.

use keyward_config::kubernetes::Identity;
use std::fmt::Write as _;

use super::outputs::Outputs;
use super::{Aks, Method, Workload};
use crate::cli::init::server_side::ServerSide;
use crate::cli::init::shell::{quote, quote_or_placeholder};

const ON_SERVER: &str = "On the server: the pod may log in";

impl Aks {
    /// The commands before those of the cluster, under titles.
    pub(super) fn server_sections(&self, server: &ServerSide, identity: &Identity) -> Vec<(&'static str, String)> {
        match identity {
            Identity::Azure { client_id, tenant } | Identity::AzureBinding { client_id, tenant } => vec![
                ("On Azure: the identity trusts the pod's service account", self.azure_commands(client_id)),
                (
                    ON_SERVER,
                    server.commands_without_azure(
                        tenant,
                        &["bound_service_principal_ids=\"$principal\"".to_owned()],
                        &["principals = [\"PRINCIPAL_ID_OF_THE_IDENTITY\"]".to_owned()],
                    ),
                ),
            ],
            Identity::ServiceAccount { audience } if self.method == Method::Kubernetes => {
                vec![(
                    ON_SERVER,
                    server.token_commands(
                        "kubernetes",
                        "config",
                        &[],
                        &[
                            format!("bound_service_account_names={}", self.service_account()),
                            format!("bound_service_account_namespaces={}", self.namespace),
                            format!("audience={}", quote(audience.as_deref().unwrap_or_default())),
                        ],
                    ),
                )]
            }
            Identity::ServiceAccount { audience } => vec![
                ("On Azure: the issuer of the service account's token", self.issuer_commands()),
                (
                    ON_SERVER,
                    server.token_commands(
                        "jwt",
                        "config",
                        &["oidc_discovery_url=\"$issuer\"".to_owned(), "bound_issuer=\"$issuer\"".to_owned()],
                        &[
                            "role_type=jwt".to_owned(),
                            "user_claim=sub".to_owned(),
                            format!("bound_audiences={}", quote(audience.as_deref().unwrap_or_default())),
                            format!("bound_subject={}", self.subject()),
                        ],
                    ),
                ),
            ],
        }
    }

    /// The service account as the cluster's issuer names it.
    fn subject(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.service_account())
    }

    fn issuer_commands(&self) -> String {
        let group = quote_or_placeholder(self.resource_group.as_ref(), "RESOURCE_GROUP");
        let cluster = quote_or_placeholder(self.cluster.as_ref(), "CLUSTER");
        format!(
            "az aks update --resource-group {group} --name {cluster} --enable-oidc-issuer
issuer=$(az aks show --resource-group {group} --name {cluster} --query oidcIssuerProfile.issuerUrl --output tsv)
"
        )
    }

    fn azure_commands(&self, client_id: &str) -> String {
        let group = quote_or_placeholder(self.resource_group.as_ref(), "RESOURCE_GROUP");
        let cluster = quote_or_placeholder(self.cluster.as_ref(), "CLUSTER");
        let name = &self.name;
        let find = |key: &str| format!("$(az identity list --query \"[?clientId=='{client_id}'].{key}\" --output tsv)");
        let head = format!(
            "# without an identity yet: az identity create --resource-group {group} --name {name}
principal={}
",
            find("principalId")
        );
        if self.identity_binding {
            return head
                + &format!(
                    "az aks update --resource-group {group} --name {cluster} --enable-oidc-issuer --enable-workload-identity
az aks identity-binding create --resource-group {group} --cluster-name {cluster} --name {name} \\
    --managed-identity-resource-id \"{}\"
",
                    find("id")
                );
        }
        head + &self.issuer_commands()
            + &format!(
                "identity={}
az identity federated-credential create --resource-group {group} --identity-name \"$identity\" --name {name} \\
    --issuer \"$issuer\" --subject {} --audiences api://AzureADTokenExchange
",
                find("name"),
                self.subject()
            )
    }

    /// The commands of the cluster, which show the result.
    pub(super) fn cluster_commands(&self, outputs: &Outputs, is_large: bool) -> String {
        let Self { namespace, name, .. } = self;
        let mut text = self.image_advice();
        let server_side = if is_large { " --server-side" } else { "" };
        let _ = writeln!(text, "kubectl apply{server_side} -f keyward.yaml");
        let kind = match self.kind {
            Workload::Deployment => "deployment",
            Workload::Job => "job",
        };
        match self.kind {
            Workload::Deployment => {
                let _ = writeln!(text, "kubectl rollout status --namespace {namespace} deployment/{name}");
            }
            Workload::Job => {
                let _ = writeln!(
                    text,
                    "kubectl wait --namespace {namespace} --for=condition=complete job/{name} --timeout=10m"
                );
            }
        }
        let _ = writeln!(
            text,
            "kubectl logs --namespace {namespace} {kind}/{name} --container keyward   # agent.ready: all files are written"
        );
        if let (Workload::Deployment, Some(path)) = (self.kind, outputs.paths().last()) {
            let _ = writeln!(
                text,
                "kubectl exec --namespace {namespace} deployment/{name} --container {name} -- ls -l {}",
                quote(path)
            );
        }
        text
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
}
