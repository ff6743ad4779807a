//! The webhook's certificate: made, shared, replaced, and told to the API server.

use std::time::Duration;

use serde_json::json;

use super::{Webhook, pod, review};
use crate::harness::binary::eventually;
use crate::harness::kubernetes::KubernetesApi;

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_makes_its_certificate_and_tells_the_api_server_its_authority() {
    let api = KubernetesApi::start();
    let webhook = Webhook::ready(&api, &[]).await;
    let bundle = api.bundle(0);
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 1);
    assert_eq!(api.bundle(1), bundle, "each webhook of the configuration has the authority");
    let secret = api.secret();
    assert_eq!(secret["metadata"]["labels"]["a"], "b", "the rest of the Secret stays");
    let (status, _) = webhook.post(&bundle, review("team", &pod(&json!({}))).to_string()).await.unwrap();
    assert_eq!(status, 200);
    let metrics = webhook.metrics().await;
    for line in [
        "keyward_injector_reviews_total{outcome=\"unchanged\"} 1",
        "keyward_injector_reviews_total{outcome=\"refused\"} 0",
        "keyward_injector_api_calls_total{outcome=\"ok\"}",
        "keyward_ready{component=\"injector/certificate\",required=\"true\"} 1",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
    let ends = metrics
        .lines()
        .find(|line| line.starts_with("keyward_injector_certificate_expiry_timestamp_seconds "))
        .unwrap();
    assert!(ends.split(' ').nth(1).unwrap().parse::<f64>().unwrap() > 1.7e9, "{ends}");
    let (status, output) = webhook.process.stop();
    assert!(status.success(), "{output}");
    assert!(!output.contains("PRIVATE KEY") && !output.contains("\"panic"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_serve_one_certificate() {
    let api = KubernetesApi::start();
    let (first, second) = tokio::join!(Webhook::ready(&api, &[]), Webhook::ready(&api, &[]));
    let bundle = api.bundle(0);
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 1);
    for webhook in [&first, &second] {
        assert_eq!(webhook.post(&bundle, review("team", &pod(&json!({}))).to_string()).await.unwrap().0, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_webhook_keeps_the_certificate() {
    let api = KubernetesApi::start();
    drop(Webhook::ready(&api, &[]).await);
    let (secret, bundle) = (api.secret()["data"].clone(), api.bundle(0));
    let webhook = Webhook::ready(&api, &[]).await;
    assert_eq!((api.secret()["data"].clone(), api.bundle(0)), (secret, bundle.clone()));
    assert_eq!(webhook.post(&bundle, review("team", &pod(&json!({}))).to_string()).await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_loses_the_race_serves_the_other_ones_certificate() {
    let api = KubernetesApi::start();
    api.conflict(2);
    let webhook = Webhook::ready(&api, &[]).await;
    let (status, _) = webhook.post(&api.bundle(0), review("team", &pod(&json!({}))).to_string()).await.unwrap();
    assert_eq!(status, 200);
    assert!(webhook.metrics().await.contains("keyward_injector_api_calls_total{outcome=\"conflict\"} 2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_name_or_without_a_key_is_replaced() {
    use base64::Engine as _;
    let api = KubernetesApi::start();
    let other = crate::harness::certificates::Authority::new();
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    for data in [
        json!({"tls.crt": encode(&other.pem), "tls.key": "eA==", "ca.crt": encode(&other.pem)}),
        json!({"tls.crt": "!"}),
    ] {
        api.set_secret_data(data);
        let webhook = Webhook::ready(&api, &[]).await;
        let bundle = api.bundle(0);
        assert!(!bundle.contains(other.pem.trim()), "an authority that signed nothing is not trusted");
        assert_eq!(webhook.post(&bundle, review("team", &pod(&json!({}))).to_string()).await.unwrap().0, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_whose_time_has_come_is_replaced_and_its_authority_stays_trusted() {
    use base64::Engine as _;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let day = time::Duration::days(1);
    let now = time::OffsetDateTime::now_utc();
    let dated = |mut params: CertificateParams| {
        (params.not_before, params.not_after) = (now - day * 80, now + day * 10);
        params
    };
    let authority_key = KeyPair::generate().unwrap();
    let mut params = dated(CertificateParams::default());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let leaf = dated(CertificateParams::new(vec![super::NAME.to_owned()]).unwrap()).signed_by(&key, &issuer).unwrap();
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let api = KubernetesApi::start();
    api.set_secret_data(json!({
        "tls.crt": encode(&leaf.pem()), "tls.key": encode(&key.serialize_pem()), "ca.crt": encode(&authority),
    }));
    let webhook = Webhook::ready(&api, &[]).await;
    let bundle = api.bundle(0);
    assert!(bundle.matches("BEGIN CERTIFICATE").count() == 2 && bundle.contains(authority.trim()), "{bundle}");
    assert!(webhook.process.output().contains("\"reason\":\"due\""), "{}", webhook.process.output());
    let own = bundle.replace(&authority, "");
    assert_eq!(webhook.post(&own, review("team", &pod(&json!({}))).to_string()).await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_that_somebody_removes_is_set_again() {
    let api = KubernetesApi::start();
    let webhook = Webhook::ready(&api, &[]).await;
    let bundle = api.bundle(0);
    // The watch is what notices the change; another round would be minutes away.
    eventually(Duration::from_secs(20), || {
        let watches = api.requests().iter().filter(|request| request.target.contains("watch=true")).count();
        if watches > 0 { Ok(()) } else { Err("no watch yet".to_owned()) }
    });
    api.remove_bundles();
    eventually(Duration::from_secs(20), || {
        let bundles = [api.bundle(0), api.bundle(1)];
        if bundles.iter().all(|it| *it == bundle) { Ok(()) } else { Err(format!("{bundles:?}")) }
    });
    drop(webhook);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_call_of_the_api_is_reported_with_the_servers_words() {
    let api = KubernetesApi::start();
    api.fail(403, "secrets \"keyward-webhook\" is forbidden");
    let webhook = Webhook::start(&api, &[]);
    webhook.process.logs("injector.certificate.failed");
    let ready = webhook.becomes("/readyz", 503).await;
    assert!(ready.contains("is forbidden"), "{ready}");
    let output = webhook.process.output();
    assert!(
        output.contains("KW-2002") && output.contains("retry_in_seconds") && !output.contains("service-account\""),
        "{output}"
    );
    assert_eq!(webhook.becomes("/livez", 200).await, "{\"live\":true}");
    assert!(webhook.post(&api.ca, String::new()).await.is_err(), "there is no certificate to serve");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_files_needs_no_api() {
    use crate::harness::binary::Binary;
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![super::NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
    let (cert_file, key_file) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&cert_file, certificate.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let mut args = vec!["kubernetes", "webhook", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"];
    args.extend(["--tls-cert-file", cert_file.to_str().unwrap(), "--tls-key-file", key_file.to_str().unwrap()]);
    args.extend(super::OPERATOR);
    let process = Binary::start(&args, &[], folder.path());
    process.logs("serving probes and metrics on ");
    let address = super::after(&process.output(), "https://");
    let health = super::after(&process.output(), "metrics on http://");
    let webhook = Webhook { process, address, health, _folder: folder };
    webhook.becomes("/readyz", 200).await;
    let (status, _) = webhook.post(&certificate.pem(), review("team", &pod(&json!({}))).to_string()).await.unwrap();
    assert_eq!(status, 200);
}
