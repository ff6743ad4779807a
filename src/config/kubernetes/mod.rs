//! keyward in a pod: the sidecar's container, volumes and mounts, as objects of the Kubernetes API.
//!
//! The shape of the sidecar stands here once. `keyward init aks` writes it as YAML, and the files in `packaging/kubernetes` are what
//! that command writes; the chart's template is compared with them. The webhook makes its container of the same parts.

mod object;
mod sidecar;

pub use self::object::{Node, Object};
pub use self::sidecar::{
    IDENTITY_FOLDER, Identity, PROBES_PORT, RUN_FOLDER, Sidecar, liveness_probe, pod_security_context, readiness_probe,
    security_context, startup_probe,
};
