//! AKS identity bindings: a pod's workload identity is exchanged at the cluster's token proxy.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;

use keyward_agent::identity::IdentityErrorKind;
use keyward_emulators::cloud::FaultTarget;

use super::Scene;
use super::requests::{passes, trap};

/// A pod of an emulated cloud whose token endpoint is the pod's token proxy, while its authority is another cloud's.
struct Bound {
    pod: Scene,
    authority: Scene,
}

impl Bound {
    fn new(more: impl FnOnce(&mut BTreeMap<String, String>, &Path)) -> Self {
        let authority = Scene::new();
        let pod = Scene::new().environment(|cloud| {
            let mut variables = cloud.variables_for_workload_identity();
            let url = authority.cloud.authority_url().to_string();
            variables.insert("AZURE_AUTHORITY_HOST".to_owned(), url);
            set(&mut variables, "TOKEN_PROXY", cloud.authority_url().as_str());
            more(&mut variables, &cloud.ca_file());
            variables
        });
        Self { pod, authority }
    }

    /// Returns the number of requests to the authority and the proxy.
    fn request_counts(&self) -> (u64, u64) {
        let count = |scene: &Scene| scene.cloud.faults().requests(FaultTarget::Authority);
        (count(&self.authority), count(&self.pod))
    }
}

fn set(variables: &mut BTreeMap<String, String>, name: &str, value: impl Into<String>) {
    variables.insert(format!("AZURE_KUBERNETES_{name}"), value.into());
}

/// Certificate of an authority that has issued none of the certificates here.
fn other_ca() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["other.example".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.self_signed(&key).unwrap().pem()
}

#[tokio::test]
async fn the_exchange_goes_to_the_proxy_and_the_authority_sees_no_request() {
    for data in [false, true] {
        let bound = Bound::new(|variables, ca| {
            if data {
                set(variables, "CA_DATA", std::fs::read_to_string(ca).unwrap());
            } else {
                set(variables, "CA_FILE", ca.display().to_string());
            }
        });
        let proof = bound.pod.prove().await.unwrap();
        assert_eq!(proof.claims.unwrap().oid.as_ref(), Some(&bound.pod.cloud.identities().workload.object_id));
        assert_eq!(bound.request_counts(), (0, 1));
        let source = bound.pod.options.build(bound.pod.clock.clone()).unwrap();
        assert!(source.describe().contains("by the token proxy 127.0.0.1:"), "{}", source.describe());
    }
}

#[tokio::test]
async fn the_certificate_must_have_the_configured_server_name() {
    let with = |name: &'static str| {
        Bound::new(move |variables, ca| {
            set(variables, "CA_FILE", ca.display().to_string());
            set(variables, "SNI_NAME", name);
        })
    };
    let right = with("localhost");
    right.pod.prove().await.unwrap();
    assert_eq!(right.request_counts(), (0, 1));
    let wrong = with("other.example");
    let error = wrong.pod.prove().await.unwrap_err();
    assert!(error.kind == IdentityErrorKind::Config && error.message.contains("TLS"), "{error}");
    let proxy = wrong.pod.cloud.authority_url().to_string();
    let address = proxy.trim_start_matches("https://").trim_end_matches('/');
    let named = format!(", at the token proxy {address} (AZURE_KUBERNETES_TOKEN_PROXY) with ");
    assert!(error.message.contains(&named) && error.message.ends_with(" (AZURE_KUBERNETES_CA_FILE)"), "{error}");
    assert_eq!(wrong.request_counts(), (0, 0));
}

#[tokio::test]
async fn only_the_configured_authorities_are_trusted_else_those_of_the_system() {
    for named in [true, false] {
        let bound = Bound::new(|variables, _| {
            if named {
                set(variables, "CA_DATA", other_ca());
            }
        });
        let error = bound.pod.prove().await.unwrap_err();
        assert!(error.kind == IdentityErrorKind::Config && error.message.contains("TLS"), "{error}");
        assert_eq!(bound.request_counts(), (0, 0), "the token is not shown to an impostor");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replaced_ca_file_is_used_at_the_next_login_and_an_empty_one_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let bound = Bound::new(|variables, _| set(variables, "CA_FILE", file.display().to_string()));
    let right = std::fs::read(bound.pod.cloud.ca_file()).unwrap();
    let source = bound.pod.options.build(bound.pod.clock.clone()).unwrap();
    assert_eq!(source.files().last(), Some(&file));
    let error = source.prove().await.unwrap_err();
    assert!(error.kind == IdentityErrorKind::Transient && error.message.contains("does not exist"), "{error}");
    std::fs::write(&file, "").unwrap();
    let error = source.prove().await.unwrap_err();
    assert!(error.kind == IdentityErrorKind::Transient && error.message.contains("is empty"), "{error}");

    std::fs::write(&file, other_ca()).unwrap();
    assert_eq!(source.prove().await.unwrap_err().kind, IdentityErrorKind::Config);
    std::fs::write(&file, &right).unwrap();
    source.prove().await.unwrap();
    std::fs::write(&file, "").unwrap();
    source.prove().await.unwrap();
    std::fs::write(&file, other_ca()).unwrap();
    source.prove().await.unwrap_err();
    std::fs::write(&file, "nonsense").unwrap();
    let error = source.prove().await.unwrap_err();
    assert!(error.message.contains("(AZURE_KUBERNETES_CA_FILE) holds no PEM certificate"), "{error}");
    assert_eq!(bound.request_counts(), (0, 2));

    // A file with a damaged block is refused as a whole, as all certificate files are.
    let damaged = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    std::fs::write(&file, [&*right, damaged.as_bytes()].concat()).unwrap();
    let error = source.prove().await.unwrap_err();
    let expected = "PEM block 2 of ";
    assert!(
        error.message.contains(expected) && error.message.contains("(AZURE_KUBERNETES_CA_FILE) is not a valid X.509"),
        "{error}"
    );
    assert_eq!(bound.request_counts(), (0, 2));
}

/// Variable with the file of the system's authorities, for a run of the test below by another process.
const SYSTEM: &str = "SYSTEM_AUTHORITIES";

#[tokio::test]
async fn trusts_by_the_variables_when_started_with_authorities_of_the_system() {
    let Some(file) = std::env::var_os(SYSTEM) else { return };
    let systems = Bound::new(|_, ca| {
        std::fs::copy(ca, &file).unwrap();
    });
    systems.pod.prove().await.unwrap();
    assert_eq!(systems.request_counts(), (0, 1));
    let impostor = Bound::new(|variables, ca| {
        std::fs::copy(ca, &file).unwrap();
        set(variables, "CA_DATA", other_ca());
    });
    let error = impostor.pod.prove().await.unwrap_err();
    assert!(error.kind == IdentityErrorKind::Config && error.message.contains("TLS"), "{error}");
    assert_eq!(impostor.request_counts(), (0, 0));
}

#[test]
fn an_impostor_whom_the_system_trusts_is_refused_and_no_other_proxy_is_used() {
    let (address, caught) = trap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("system.pem").display().to_string();
    let test = "identity::token_proxy::trusts_by_the_variables_when_started_with_authorities_of_the_system";
    let proxies = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"].map(|name| (name, address.as_str()));
    let variables = [&[("SSL_CERT_FILE", file.as_str()), (SYSTEM, &file)][..], &proxies].concat();
    assert!(passes(test, &variables));
    assert_eq!(caught.load(Ordering::SeqCst), 0);
}
