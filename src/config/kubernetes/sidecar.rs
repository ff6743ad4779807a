//! keyward's own container in a pod, its volumes, and the mounts that the application gets.

use super::object::Object;

/// User and group of the image.
const USER: i64 = 65532;
/// Group of the files that keyward writes. The pod's `supplementalGroups` has it, so that every container can read them.
const GROUP: i64 = USER;

/// Folder that keyward shares with the application, in memory.
pub const RUN_FOLDER: &str = "/run/keyward";
/// Folder of the pod's identity token. It is not the one of Azure's webhook, which may mount its own.
pub const IDENTITY_FOLDER: &str = "/var/run/secrets/keyward";
/// Port of the health listener.
pub const PROBES_PORT: i64 = 8301;

/// Folder of the configuration.
const CONFIG_FOLDER: &str = "/etc/keyward";

/// keyward as a native sidecar: an init container that keeps running.
#[derive(Debug, Clone)]
pub struct Sidecar {
    /// Image of keyward.
    pub image: String,
    /// Name of the `ConfigMap` with `keyward.toml` and the files beside it.
    pub config_map: String,
    /// Identity that keyward logs in with.
    pub identity: Identity,
    /// Folders besides [`RUN_FOLDER`] that keyward writes for the application.
    pub folders: Vec<String>,
}

/// Identity of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A managed identity of Azure that trusts the pod's service account.
    Azure {
        /// Client id of the identity.
        client_id: String,
        /// Tenant of the identity.
        tenant: String,
    },
    /// The same by an identity binding of AKS: Azure's webhook adds variables and token.
    AzureBinding {
        /// Client id of the identity.
        client_id: String,
        /// Tenant of the identity.
        tenant: String,
    },
    /// A token of the pod's service account.
    ServiceAccount {
        /// Audience of the token; `None` for the API server's.
        audience: Option<String>,
    },
}

impl Identity {
    /// Name of the file in [`IDENTITY_FOLDER`] with the token that the kubelet writes, and its audience; no file if Azure's webhook
    /// adds the token.
    fn token(&self) -> Option<(&'static str, Option<&str>)> {
        match self {
            Self::Azure { .. } => Some(("azure-identity-token", Some("api://AzureADTokenExchange"))),
            Self::AzureBinding { .. } => None,
            Self::ServiceAccount { audience } => Some(("token", audience.as_deref())),
        }
    }

    /// Variables that name the identity. None is secret.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let (Self::Azure { client_id, tenant } | Self::AzureBinding { client_id, tenant }) = self else {
            return Vec::new();
        };
        let file = self.token().map(|(file, _)| ("AZURE_FEDERATED_TOKEN_FILE", format!("{IDENTITY_FOLDER}/{file}")));
        let ids = [("AZURE_CLIENT_ID", client_id.clone()), ("AZURE_TENANT_ID", tenant.clone())];
        ids.into_iter().chain(file).collect()
    }

    /// Volume of the token, and the mount of keyward's container.
    pub fn volume_and_mount(&self) -> Option<(Object, Object)> {
        let (path, audience) = self.token()?;
        let token = Object::new().with("path", path).with_optional("audience", audience);
        let sources = vec![Object::new().with("serviceAccountToken", token.with("expirationSeconds", 3600))];
        let volume = Object::new().with("name", IDENTITY_VOLUME);
        let volume = volume.with("projected", Object::new().with("sources", sources));
        Some((volume, mount(IDENTITY_VOLUME, IDENTITY_FOLDER).with("readOnly", true)))
    }
}

const IDENTITY_VOLUME: &str = "keyward-identity";

/// The startup probe, for five minutes: it holds the pod's other containers back.
pub fn startup_probe() -> Object {
    probe("/startupz").with("periodSeconds", 1).with("failureThreshold", 300)
}

/// The liveness probe.
pub fn liveness_probe() -> Object {
    probe("/livez").with("periodSeconds", 10)
}

/// The readiness probe.
pub fn readiness_probe() -> Object {
    probe("/readyz").with("periodSeconds", 5)
}

/// A probe at a path of the health listener, whose port is named `probes`.
fn probe(path: &str) -> Object {
    Object::new().with("httpGet", Object::new().with("path", path).with("port", "probes"))
}

impl Sidecar {
    /// The container, for the pod's `initContainers`. All hardening stands here, and none in the pod: the application keeps the user,
    /// the rights and the root file system of its image.
    pub fn container(&self) -> Object {
        let variables = self.identity.variables().into_iter();
        let variables: Vec<_> =
            variables.map(|(name, value)| Object::new().with("name", name).with("value", value)).collect();
        let variables = Some(variables).filter(|variables| !variables.is_empty());
        Object::new()
            .with("name", "keyward")
            .with("image", self.image.as_str())
            .comment("This makes it a sidecar: an init container that keeps running.")
            .with("restartPolicy", "Always")
            .with("args", vec!["run", "--config", &format!("{CONFIG_FOLDER}/keyward.toml")])
            .comment(if variables.is_some() { "Not secret." } else { "" })
            .with_optional("env", variables)
            .with("ports", vec![Object::new().with("name", "probes").with("containerPort", PROBES_PORT)])
            .comment("The application starts once every output has its first content.")
            .with("startupProbe", startup_probe())
            .with("livenessProbe", liveness_probe())
            .with("readinessProbe", readiness_probe())
            .with(
                "resources",
                Object::new()
                    .with("requests", Object::new().with("cpu", "10m").with("memory", "16Mi"))
                    .with("limits", Object::new().with("memory", "64Mi")),
            )
            .with("securityContext", security_context(USER, GROUP))
            .with("volumeMounts", self.mounts())
    }

    /// The pod's `volumes` that the sidecar needs.
    pub fn volumes(&self) -> Vec<Object> {
        let in_memory = |limit: &str| Object::new().with("medium", "Memory").with("sizeLimit", limit);
        let volume = |name: &str, kind: &str, source: Object| Object::new().with("name", name).with(kind, source);
        let mut volumes =
            vec![volume("keyward-config", "configMap", Object::new().with("name", self.config_map.as_str()))];
        volumes.extend(self.identity.volume_and_mount().map(|(volume, _)| volume));
        volumes.push(
            Object::new()
                .comment("In memory, so that no secret is ever on a disk.")
                .with("name", "keyward-run")
                .with("emptyDir", in_memory("4Mi")),
        );
        for index in 0..self.folders.len() {
            volumes.push(volume(&folder_volume(index), "emptyDir", in_memory("4Mi")));
        }
        volumes.push(
            Object::new()
                .comment(
                    "Outlives a restart of the container, so that a container that fails again and again still paces its calls.",
                )
                .with("name", "keyward-state")
                .with("emptyDir", in_memory("1Mi")),
        );
        volumes
    }

    /// The `volumeMounts` of a container that reads what keyward writes.
    pub fn application_mounts(&self) -> Vec<Object> {
        self.shared_mounts().into_iter().map(|mount| mount.with("readOnly", true)).collect()
    }

    /// The sidecar's own mounts.
    fn mounts(&self) -> Vec<Object> {
        let mut mounts = vec![mount("keyward-config", CONFIG_FOLDER).with("readOnly", true)];
        mounts.extend(self.identity.volume_and_mount().map(|(_, mount)| mount));
        mounts.extend(self.shared_mounts());
        mounts.push(mount("keyward-state", "/var/lib/keyward"));
        mounts
    }

    fn shared_mounts(&self) -> Vec<Object> {
        let more = self.folders.iter().enumerate().map(|(index, folder)| mount(&folder_volume(index), folder));
        std::iter::once(mount("keyward-run", RUN_FOLDER)).chain(more).collect()
    }
}

/// The pod's `securityContext`. It is no `fsGroup`, which would change group and mode of the application's own volumes.
pub fn pod_security_context() -> Object {
    Object::new()
        .comment("The group of the files that keyward writes, so that the application can read them.")
        .with("supplementalGroups", vec![GROUP])
}

/// The `securityContext` of keyward's container, for Pod Security `restricted`.
pub fn security_context(user: i64, group: i64) -> Object {
    Object::new()
        .with("runAsNonRoot", true)
        .with("runAsUser", user)
        .with("runAsGroup", group)
        .with("allowPrivilegeEscalation", false)
        .with("readOnlyRootFilesystem", true)
        .with("capabilities", Object::new().with("drop", vec!["ALL"]))
        .with("seccompProfile", Object::new().with("type", "RuntimeDefault"))
}

fn folder_volume(index: usize) -> String {
    format!("keyward-folder-{}", index + 1)
}

fn mount(volume: &str, path: &str) -> Object {
    Object::new().with("name", volume).with("mountPath", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sidecar(identity: Identity) -> Sidecar {
        Sidecar {
            image: "keyward:1".to_owned(),
            config_map: "web-keyward".to_owned(),
            identity,
            folders: vec!["/etc/app".to_owned()],
        }
    }

    fn names(objects: &[Object]) -> Vec<String> {
        objects.iter().map(|object| object.to_json()["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn each_mount_has_its_volume_and_the_application_gets_neither_configuration_nor_identity() {
        for identity in [
            Identity::Azure { client_id: "a".to_owned(), tenant: "b".to_owned() },
            Identity::AzureBinding { client_id: "a".to_owned(), tenant: "b".to_owned() },
            Identity::ServiceAccount { audience: Some("vault".to_owned()) },
        ] {
            let sidecar = sidecar(identity);
            let (mut volumes, mut mounts) = (names(&sidecar.volumes()), names(&sidecar.mounts()));
            volumes.sort();
            mounts.sort();
            assert_eq!(volumes, mounts);
            assert_eq!(names(&sidecar.application_mounts()), ["keyward-run", "keyward-folder-1"]);
            for mount in sidecar.application_mounts() {
                assert_eq!(mount.to_json()["readOnly"], true);
            }
        }
    }
}
