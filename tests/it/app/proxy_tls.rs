//! An API proxy that callers reach by TLS.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::harness::agent::Agent;
use crate::harness::binary::run;
use crate::harness::ports;
use crate::harness::world::{World, run_in_network_namespace};

/// Writes a certificate for 127.0.0.1 and its key into a folder; returns its authority in PEM.
fn certificate(folder: &Path) -> String {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let trusted = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    std::fs::write(folder.join("cert.pem"), leaf.pem()).unwrap();
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    std::fs::set_permissions(folder.join("key.pem"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    trusted
}

async fn get(url: &str, authority: &str) -> Result<(u16, String), reqwest::Error> {
    let authority = reqwest::Certificate::from_pem(authority.as_bytes()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).build().unwrap();
    let response = client.get(url).header("x-vault-request", "true").send().await?;
    Ok((response.status().as_u16(), response.text().await?))
}

#[test]
fn an_api_proxy_with_a_certificate_is_called_by_tls_alone() {
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let authority = certificate(folder.path());
        let port = ports::reserve().port();
        let agent = Agent::ready(&world, &[], |text| {
            format!(
                "{text}[listener.proxy]\nkind = \"api_proxy\"\naddress = \"tcp://127.0.0.1:{port}\"\nany_local_user = true\n\
                 tls_cert = \"{0}/cert.pem\"\ntls_key = \"{0}/key.pem\"\n",
                folder.path().display()
            )
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let path = format!("127.0.0.1:{port}/v1/secret/data/example");
            let (status, body) = get(&format!("https://{path}"), &authority).await.unwrap();
            assert_eq!(status, 200, "{body}");
            assert!(get(&format!("http://{path}"), &authority).await.is_err(), "{}", agent.binary.output());
            // A new certificate is used without a reload.
            let other = certificate(folder.path());
            assert!(get(&format!("https://{path}"), &authority).await.is_err());
            assert_eq!(get(&format!("https://{path}"), &other).await.unwrap().0, 200);
        });
        // The commands do not know its authority.
        let (config, template) = (agent.config.display().to_string(), agent.path("a.tmpl"));
        std::fs::write(&template, "{{ secret \"secret/data/example\" }}").unwrap();
        let (code, _, error) = run(&["template", "try", template.to_str().unwrap(), "--config", &config], &[]);
        assert_eq!(code, 1, "{error}");
        assert!(error.contains("the configuration has no API proxy for session web"), "{error}");
    });
}
