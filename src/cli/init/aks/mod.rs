//! `keyward init aks`: a pod with an identity, and keyward as its sidecar.

// 0: files in the pod
mod outputs;

// 1: the configuration, the objects, the commands
mod config;
mod manifest;
mod commands;

use clap::{Args, ValueEnum};
use keyward_config::kubernetes::{Identity, Sidecar};

use super::answers::{PlanInputs, Question};
use super::names::{azure_name, file_mode, guid, image, kubernetes_name};
use super::plan::{Plan, Target};
use super::server_side::{ResourceFlag, ServerFlags, ServerProduct, ServerSide};
use super::{OutputFlags, local_file};
use manifest::Pod;
use outputs::Outputs;

/// Log in a pod on AKS.
#[derive(Debug, Args)]
pub(super) struct Aks {
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    resource: ResourceFlag,
    /// Auth method of the server: azure logs in with a managed identity, jwt and kubernetes with a token of the pod's
    /// service account
    #[arg(long, value_enum, default_value_t, help_heading = "Server")]
    method: Method,
    /// Audience of the service account's token, for jwt and kubernetes [default: the kind of the server]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    audience: Option<String>,
    /// Client id of the managed identity that the pod uses
    #[arg(long, value_name = "ID", value_parser = guid)]
    client_id: Option<String>,
    /// Tenant of the identity
    #[arg(long, value_name = "ID", value_parser = guid)]
    tenant: Option<String>,
    /// The cluster has an identity binding for the identity, instead of a federated credential
    #[arg(long)]
    identity_binding: bool,
    /// Kind of the object that runs the application
    #[arg(long, value_enum, default_value_t)]
    kind: Workload,
    /// Name of the deployment or job, of its container and of its service account
    #[arg(long, value_name = "NAME", default_value = "web", value_parser = kubernetes_name)]
    name: String,
    /// Namespace of the cluster
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = kubernetes_name)]
    namespace: String,
    /// Name of the service account [default: the name of the deployment or job]
    #[arg(long, value_name = "NAME", value_parser = kubernetes_name)]
    service_account: Option<String>,
    /// Image of keyward [default: `registry.example.com/keyward:0.1.0`]
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    image: Option<String>,
    /// Image of the application [default: `registry.example.com/web:1.0.0`]
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    app_image: Option<String>,
    /// Template to render with secrets; repeat it with its --destination. Its text goes into the `ConfigMap`
    #[arg(long, value_name = "FILE", help_heading = "Files in the pod")]
    template: Vec<String>,
    /// File that the template before it is rendered to; a name without a folder is below /run/keyward
    #[arg(long, value_name = "FILE", help_heading = "Files in the pod")]
    destination: Vec<String>,
    /// File for the token [default: /run/keyward/token, or none if there is a template]
    #[arg(long, value_name = "FILE", help_heading = "Files in the pod")]
    token_file: Option<String>,
    /// Mode of these files; their group is one of every container in the pod
    #[arg(long, value_name = "MODE", default_value = "0640", value_parser = file_mode, help_heading = "Files in the pod")]
    file_mode: String,
    /// Resource group of cluster and identity, for the printed commands
    #[arg(long, value_name = "NAME", value_parser = azure_name, help_heading = "Azure")]
    resource_group: Option<String>,
    /// Name of the cluster, for the printed commands
    #[arg(long, value_name = "NAME", value_parser = azure_name, help_heading = "Azure")]
    cluster: Option<String>,
    #[command(flatten)]
    pub(super) output: OutputFlags,
    /// Program of the application's container with its arguments, instead of the image's own
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Auth method that the pod logs in by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Method {
    #[default]
    Azure,
    Jwt,
    Kubernetes,
}

/// Kind of the object that runs the application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Workload {
    #[default]
    Deployment,
    Job,
}

/// Path of the CA bundle in the pod, beside the configuration.
const CA_PATH: &str = "/etc/keyward/ca.pem";
/// Images that no registry has: the reader puts in other ones.
const IMAGE: &str = "registry.example.com/keyward:0.1.0";
const APP_IMAGE: &str = "registry.example.com/web:1.0.0";

impl Method {
    /// The method's own default of its mount path.
    const fn mount(self) -> &'static str {
        match self {
            Self::Azure => "azure",
            Self::Jwt => "jwt",
            Self::Kubernetes => "kubernetes",
        }
    }
}

impl Aks {
    pub(super) fn plan(&self, answers: &mut PlanInputs<'_>) -> Plan {
        let resource = (self.method == Method::Azure).then_some(&self.resource);
        let mut server = self.server.resolve(answers, self.method.mount(), resource);
        let ca_bundle = server.place_ca_file(CA_PATH).and_then(|file| match local_file::read_ca_bundle(&file) {
            Ok(text) => Some(text),
            Err(error) => {
                answers.invalid.push(error);
                None
            }
        });
        let outputs = Outputs::read(&self.template, &self.destination, self.token_file.as_deref());
        let outputs = outputs.unwrap_or_else(|errors| {
            answers.invalid.extend(errors);
            Outputs::default()
        });
        server.rights = outputs.templates.iter().flat_map(|template| template.rights.clone()).collect();
        self.check_combinations(&server, answers);
        let identity = self.identity(&server, answers);
        let config = config::write(&server, self, &outputs);
        let pod = Pod {
            flags: self,
            config: &config,
            ca_bundle: ca_bundle.as_deref(),
            outputs: &outputs,
            sidecar: Sidecar {
                image: self.image.clone().unwrap_or_else(|| IMAGE.to_owned()),
                config_map: format!("{}-keyward", self.name),
                identity: identity.clone(),
                folders: outputs.folders.clone(),
            },
        };
        if let Err(error) = pod.check_size() {
            answers.invalid.push(error);
        }
        let manifest = pod.to_yaml();
        Plan {
            target: Target::Pod,
            main_path: "/keyward.yaml".into(),
            keys: Vec::new(),
            group: None,
            commands: self.server_sections(&server, &identity),
            last: self.cluster_commands(&outputs, pod.is_large()),
            manifest: Some(manifest),
            config,
        }
    }

    /// The identity of the flags. A managed identity has ids that are asked for.
    fn identity(&self, server: &ServerSide, answers: &mut PlanInputs<'_>) -> Identity {
        if self.method != Method::Azure {
            return Identity::ServiceAccount { audience: Some(self.audience(server)) };
        }
        let id = |flag, text| Question { check: |text| guid(text).map(drop), ..Question::new(flag, text) };
        let client_id =
            answers.ask_required(id("--client-id", "client id of the managed identity"), self.client_id.as_ref());
        let tenant = answers.ask_required(id("--tenant", "tenant of the identity"), self.tenant.as_ref());
        if self.identity_binding {
            Identity::AzureBinding { client_id, tenant }
        } else {
            Identity::Azure { client_id, tenant }
        }
    }

    fn audience(&self, server: &ServerSide) -> String {
        self.audience.clone().unwrap_or_else(|| server.product.kind().to_owned())
    }

    fn service_account(&self) -> &str {
        self.service_account.as_deref().unwrap_or(&self.name)
    }

    /// Reports flags that have no meaning together.
    fn check_combinations(&self, server: &ServerSide, answers: &mut PlanInputs<'_>) {
        let is_azure = self.method == Method::Azure;
        let azure_only = [
            ("--client-id", self.client_id.is_some()),
            ("--tenant", self.tenant.is_some()),
            ("--identity-binding", self.identity_binding),
        ];
        for (flag, _) in azure_only.into_iter().filter(|(_, is_given)| *is_given && !is_azure) {
            answers.invalid.push(format!("{flag} is for --method azure; leave it out"));
        }
        if is_azure && self.audience.is_some() {
            answers.invalid.push("--audience is for --method jwt and kubernetes; leave it out".to_owned());
        }
        if !is_azure && server.product == ServerProduct::Keyward {
            answers.invalid.push("keyward's ACL server takes --method azure only".to_owned());
        }
        if self.name == "keyward" {
            answers.invalid.push("--name keyward: the sidecar's container has this name; choose another".to_owned());
        }
    }
}
