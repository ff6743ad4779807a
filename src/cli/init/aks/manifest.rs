//! The objects of the pod: service account, configuration, Deployment or Job, and what an identity binding needs.

use keyward_config::kubernetes::{Identity, Object, Sidecar, pod_security_context};
use keyward_telemetry::hex::encode_hex;

use super::outputs::Outputs;
use super::{APP_IMAGE, Aks, Workload};

/// A pod, with all that its objects hold.
pub(super) struct Pod<'a> {
    pub(super) flags: &'a Aks,
    pub(super) config: &'a str,
    pub(super) ca_bundle: Option<&'a str>,
    pub(super) outputs: &'a Outputs,
    pub(super) sidecar: Sidecar,
}

/// Bytes that a `ConfigMap` may hold.
const MAX_SIZE: usize = 1024 * 1024;
/// Bytes of an object above which `kubectl apply` works at the server's side alone: it otherwise keeps a copy in an annotation.
const MAX_COPY: usize = 240 * 1024;

impl Pod<'_> {
    /// The objects as the documents of one file.
    pub(super) fn to_yaml(&self) -> String {
        let head = match self.flags.kind {
            Workload::Deployment => {
                "keyward as a native sidecar (Kubernetes 1.29 or later) of a Deployment on AKS: it starts before the application, restarts by\nitself, and ends after it."
            }
            Workload::Job => {
                "keyward as a native sidecar (Kubernetes 1.29 or later) of a Job on AKS: it starts before the job's own container and ends after\nit, so that the job completes, and revokes its token."
            }
        };
        let head: String = head.lines().flat_map(|line| ["# ", line, "\n"]).collect();
        let documents: Vec<String> = self.objects().iter().map(Object::to_yaml).collect();
        head + "# Written by `keyward init aks`.\n" + &documents.join("---\n")
    }

    /// Checks that Kubernetes takes the `ConfigMap`.
    pub(super) fn check_size(&self) -> Result<(), String> {
        let size = self.size();
        if size > MAX_SIZE {
            return Err(format!("templates and CA bundle have {size} bytes together; a ConfigMap holds {MAX_SIZE}"));
        }
        Ok(())
    }

    /// True if `kubectl apply` needs `--server-side`.
    pub(super) fn is_large(&self) -> bool {
        self.size() > MAX_COPY
    }

    fn size(&self) -> usize {
        self.data().iter().map(|(key, text)| key.len() + text.len()).sum()
    }

    /// Files of the `ConfigMap`.
    fn data(&self) -> Vec<(String, &str)> {
        let mut data = vec![("keyward.toml".to_owned(), self.config)];
        data.extend(self.ca_bundle.map(|bundle| ("ca.pem".to_owned(), bundle)));
        data.extend(self.outputs.templates.iter().map(|template| (template.key(), template.text.as_str())));
        data
    }

    fn objects(&self) -> Vec<Object> {
        let mut objects = vec![self.service_account(), self.config_map(), self.workload()];
        if let Identity::AzureBinding { client_id, .. } = &self.sidecar.identity {
            objects.extend(self.binding(client_id));
        }
        objects
    }

    fn metadata(&self, name: &str) -> Object {
        Object::new().with("name", name).with("namespace", self.flags.namespace.as_str())
    }

    fn service_account(&self) -> Object {
        let annotations = match &self.sidecar.identity {
            Identity::Azure { client_id, .. } | Identity::AzureBinding { client_id, .. } => {
                Some(Object::new().with("azure.workload.identity/client-id", client_id.as_str()))
            }
            Identity::ServiceAccount { .. } => None,
        };
        object("v1", "ServiceAccount")
            .with("metadata", self.metadata(self.flags.service_account()).with_optional("annotations", annotations))
            .with("automountServiceAccountToken", false)
    }

    fn config_map(&self) -> Object {
        let data = self.data().into_iter().fold(Object::new(), |data, (key, text)| data.with(&key, text));
        object("v1", "ConfigMap").with("metadata", self.metadata(&self.sidecar.config_map)).with("data", data)
    }

    fn workload(&self) -> Object {
        let name = self.flags.name.as_str();
        let (api, kind) = match self.flags.kind {
            Workload::Deployment => ("apps/v1", "Deployment"),
            Workload::Job => ("batch/v1", "Job"),
        };
        let labels = Object::new().with("app", name);
        let spec = match self.flags.kind {
            Workload::Deployment => Object::new().with("selector", Object::new().with("matchLabels", labels.clone())),
            Workload::Job => Object::new().with("backoffLimit", 3),
        };
        let is_bound = matches!(self.sidecar.identity, Identity::AzureBinding { .. });
        let labels = if is_bound { labels.with("azure.workload.identity/use", "true") } else { labels };
        let metadata = Object::new().with("labels", labels).with_optional("annotations", self.annotations(is_bound));
        let template = Object::new().with("metadata", metadata).with("spec", self.pod_spec());
        object(api, kind).with("metadata", self.metadata(name)).with("spec", spec.with("template", template))
    }

    /// Annotations of the pod: a Deployment replaces its pods when the configuration changes; the template of a Job is fixed.
    fn annotations(&self, is_bound: bool) -> Option<Object> {
        let mut annotations = Object::new();
        if self.flags.kind == Workload::Deployment {
            annotations = annotations
                .comment("keyward reads its configuration at its start: `kubectl apply` of a changed file replaces the pods.")
                .with("keyward.dev/config-hash", self.config_hash());
        }
        if is_bound {
            annotations = annotations
                .with("azure.workload.identity/use-identity-binding", "true")
                .comment("The application gets no token of the identity.")
                .with("azure.workload.identity/skip-containers", self.flags.name.as_str());
        }
        Some(annotations).filter(|annotations| *annotations != Object::new())
    }

    fn config_hash(&self) -> String {
        let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        for (key, text) in self.data() {
            for part in [key.as_str(), "\0", text, "\0"] {
                context.update(part.as_bytes());
            }
        }
        encode_hex(context.finish().as_ref())
    }

    fn pod_spec(&self) -> Object {
        let restart = if self.flags.kind == Workload::Job { Some("OnFailure") } else { None };
        Object::new()
            .with("serviceAccountName", self.flags.service_account())
            .with("automountServiceAccountToken", false)
            .with_optional("restartPolicy", restart)
            .with("securityContext", pod_security_context())
            .with("initContainers", vec![self.sidecar.container()])
            .with("containers", vec![self.application()])
            .with("volumes", self.sidecar.volumes())
    }

    /// The application's own container, of which nothing is decided here but its mounts.
    fn application(&self) -> Object {
        let files: Vec<&str> = self.outputs.paths().collect();
        let comment = format!(
            "It reads {}, again after each change.\nIn a namespace with Pod Security `restricted` it needs, if its image has a user that is not root:\n  securityContext: {{runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {{drop: [\"ALL\"]}}, seccompProfile: {{type: RuntimeDefault}}}}",
            files.join(" and ")
        );
        // The kubelet expands `$(NAME)`, and `$$` to `$`.
        let command: Vec<String> = self.flags.command.iter().map(|word| word.replace('$', "$$")).collect();
        Object::new()
            .with("name", self.flags.name.as_str())
            .with("image", self.flags.app_image.as_deref().unwrap_or(APP_IMAGE))
            .with_optional("command", Some(command).filter(|command| !command.is_empty()))
            .comment(&comment)
            .with("volumeMounts", self.sidecar.application_mounts())
    }

    /// Allows the service account to use the identity.
    fn binding(&self, client_id: &str) -> [Object; 2] {
        let group = "rbac.authorization.k8s.io";
        let api = format!("{group}/v1");
        let name = format!("{}-{}-identity", self.flags.namespace, self.flags.name);
        let rule = Object::new()
            .with("apiGroups", vec!["cid.wi.aks.azure.com"])
            .with("resources", vec![client_id])
            .with("verbs", vec!["use-managed-identity"]);
        let role = object(&api, "ClusterRole")
            .with("metadata", Object::new().with("name", name.as_str()))
            .with("rules", vec![rule]);
        let reference = Object::new().with("apiGroup", group).with("kind", "ClusterRole").with("name", name.as_str());
        let subject = Object::new()
            .with("kind", "ServiceAccount")
            .with("name", self.flags.service_account())
            .with("namespace", self.flags.namespace.as_str());
        let binding = object(&api, "ClusterRoleBinding")
            .with("metadata", Object::new().with("name", name.as_str()))
            .with("roleRef", reference)
            .with("subjects", vec![subject]);
        [role, binding]
    }
}

fn object(api: &str, kind: &str) -> Object {
    Object::new().with("apiVersion", api).with("kind", kind)
}
