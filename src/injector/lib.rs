//! The injector: an admission webhook of Kubernetes that adds keyward to pods whose annotations ask for it.
//!
//! [`review`] is a pure function of an `AdmissionReview` and the operator's [`InjectorOptions`]: annotations become a request, the
//! request a configuration and a JSON patch. Around it [`InjectorService`] answers HTTP requests, and [`CertificateKeeper`] keeps the
//! webhook's certificate in a Secret and its authority in the `MutatingWebhookConfiguration`.
//!
//! A module imports only modules above it in this list.

// 0: metrics, settings of the operator, the pod as the API server sends it
mod metrics;
mod options;
mod pod;

// 1: annotations by name, and their values
mod annotations;
mod values;
mod given;

// 2: the request of a pod
mod problems;
mod outputs;
mod placement;
mod request;

// 3: all that is added to a pod
mod sidecar;
mod pod_config;
mod patch;

// 4: the answer to a review
mod admission;
#[cfg(feature = "fuzzing")]
pub mod fuzz;

// 5: the Kubernetes API, the certificate, and the service
mod kubernetes_api;
mod certificate;
mod certificate_keeper;
mod service;

pub use admission::{Outcome, ReviewError, Reviewed, review, validate};
pub use annotations::{AnnotationRow, annotation_rows};
pub use certificate_keeper::{CertificateKeeper, KeeperOptions};
pub use kubernetes_api::{ApiError, KubernetesApi, KubernetesApiOptions};
pub use metrics::InjectorMetrics;
pub use options::{AllowedOverride, InjectorOptions, LoginMethod, PullPolicy, ServerDefaults};
pub use service::{InjectorService, PATH};
pub use sidecar::{CA_VARIABLE, CONFIG_FOLDER, CONFIG_VARIABLE};
