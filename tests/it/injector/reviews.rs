//! Requests that are no reviews of new pods, and pods that are left as they are.

use serde_json::{Value, json};

use super::{Webhook, patch, pod, review};
use crate::harness::kubernetes::KubernetesApi;

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_no_reviews_are_refused_with_a_line() {
    let api = KubernetesApi::start();
    let webhook = Webhook::ready(&api, &[]).await;
    let bundle = api.bundle(0);
    for (body, expected) in [
        (String::new(), "invalid JSON at line 1, column 0"),
        ("{".to_owned(), "invalid JSON"),
        ("[]".to_owned(), "a value of another type"),
        ("{}".to_owned(), "expected an AdmissionReview of admission.k8s.io/v1"),
        (
            json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "a"}})
                .to_string(),
            "v1 with a request",
        ),
        (json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string(), "with a request"),
        (format!("\"{}\"", "x".repeat(3 * 1024 * 1024)), "a review has at most"),
    ] {
        let (status, text) = webhook.post(&bundle, body).await.unwrap();
        assert!(
            (400..500).contains(&status) && text.contains(expected) && text.lines().count() == 1,
            "{status} {text}"
        );
    }
    let metrics = webhook.metrics().await;
    assert!(metrics.contains("keyward_injector_reviews_total{outcome=\"invalid\"} 6"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_new_pods_that_ask_for_it_are_changed() {
    let api = KubernetesApi::start();
    let webhook = Webhook::ready(&api, &[]).await;
    let asks = json!({"keyward.dev/inject": "true", "keyward.dev/role": "web", "keyward.dev/token": "true"});
    let unchanged = |mut review: Value, pointer: &str, value: Value| {
        *review.pointer_mut(pointer).unwrap() = value;
        review
    };
    let asking = review("team", &pod(&asks));
    for body in [
        review("team", &pod(&json!({}))),
        review("team", &pod(&json!({"keyward.dev/inject": "false", "keyward.dev/rolle": "x"}))),
        review("team", &pod(&json!({"vault.hashicorp.com/agent-inject": "false"}))),
        review(
            "team",
            &pod(
                &json!({"vault.hashicorp.com/agent-inject": "true", "vault.hashicorp.com/agent-inject-status": "injected"}),
            ),
        ),
        unchanged(asking.clone(), "/request/operation", json!("UPDATE")),
        unchanged(asking.clone(), "/request/resource/resource", json!("services")),
        unchanged(asking.clone(), "/request/object/metadata/annotations/keyward.dev~1inject", json!("0")),
    ] {
        let (status, text) = webhook.post(&api.bundle(0), body.to_string()).await.unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (status, &answer["response"]["allowed"], &answer["response"]["patch"]),
            (200, &json!(true), &Value::Null),
            "{body}"
        );
    }
    let mut mirror = pod(&asks);
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("a");
    assert_eq!(patch(&webhook.review(&api, "team", &mirror).await), Value::Null);
    assert_ne!(patch(&webhook.review(&api, "team", &pod(&asks)).await), Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_annotations_of_vault_those_are_nothing() {
    let api = KubernetesApi::start();
    let webhook = Webhook::ready(&api, &["--no-vault-annotations"]).await;
    let annotations = json!({"vault.hashicorp.com/agent-inject": "true", "vault.hashicorp.com/agent-configmap": "a"});
    assert_eq!(patch(&webhook.review(&api, "team", &pod(&annotations)).await), Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_fit_no_pod_end_the_webhook_at_once() {
    use crate::harness::binary::run;
    let start = |flags: &[&str]| {
        let mut args =
            vec!["kubernetes", "webhook", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0", "--image", "a"];
        args.extend(["--service", "a", "--namespace", "a", "--secret-name", "a", "--webhook-configuration", "a"]);
        args.extend(["--api-server", "https://localhost:1"]);
        args.extend(flags);
        run(&args, &[])
    };
    for (flags, expected) in [
        (&["--address", "http://vault.example.com"][..], "allow_http"),
        (&["--address", "vault"][..], "server.main.address"),
        (&["--address", "https://vault.example.com", "--method", "azure"][..], "--azure-tenant"),
        (&["--address", "https://vault.example.com", "--method", "aws"][..], "kubernetes, jwt, azure"),
        (
            &["--address", "https://vault.example.com", "--allow", "role=*"][..],
            "address, namespace, mount, method, image",
        ),
    ] {
        let (code, output, error) = start(flags);
        assert_eq!((code, output.as_str()), (1, ""), "{flags:?} {error}");
        assert!(error.contains(expected), "{flags:?}: {error}");
    }
}
