//! Pods that are refused: the message names each annotation, and what to do.

use serde_json::{Value, json};

use super::{Webhook, pod};
use crate::harness::kubernetes::KubernetesApi;

/// Annotations of a pod that would be injected.
fn good(more: &Value) -> Value {
    let mut all = json!({"keyward.dev/inject": "true", "keyward.dev/role": "web", "keyward.dev/token": "true"});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

async fn refusal(webhook: &Webhook, api: &KubernetesApi, pod: &Value) -> String {
    let response = webhook.review(api, "team", pod).await;
    assert_eq!((&response["allowed"], &response["patch"]), (&json!(false), &Value::Null), "{pod}");
    assert_eq!(response["status"]["code"], 400);
    let message = response["status"]["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with(" [KW-2001]") && !message.contains('\n'), "{message}");
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_cannot_be_used_is_refused_with_its_annotation() {
    let api = KubernetesApi::start();
    let webhook = Webhook::ready(&api, &[]).await;
    for (annotations, expected) in [
        (
            json!({"keyward.dev/inject": "yes"}),
            "annotation keyward.dev/inject is \"yes\": expected \"true\" or \"false\"",
        ),
        (
            json!({"keyward.dev/unknown": "a"}),
            "annotation keyward.dev/unknown is not taken: it is unknown; `keyward kubernetes annotations` lists all",
        ),
        (json!({"keyward.dev/secret-": "a"}), "annotation keyward.dev/secret- is not taken"),
        (
            json!({"keyward.dev/perms-a": "0400"}),
            "annotation keyward.dev/perms-a is about no file: add the path of its secret, keyward.dev/secret-a",
        ),
        (
            json!({"keyward.dev/secret-a": "kv/a", "keyward.dev/perms-a": "rw"}),
            "annotation keyward.dev/perms-a is \"rw\": expected a mode",
        ),
        (
            json!({"keyward.dev/secret-a": "kv/a", "keyward.dev/file-a": "../x"}),
            "annotation keyward.dev/file-a is \"../x\": expected the path of a file below the volume",
        ),
        (
            json!({"keyward.dev/secret-a": "kv/a", "keyward.dev/file-a": "token"}),
            "two annotations ask for the file /run/keyward/token",
        ),
        (
            json!({"keyward.dev/secret-a": "kv\na"}),
            "annotation keyward.dev/secret-a is \"kv a\": expected a text of one line",
        ),
        (
            json!({"keyward.dev/volume-path": "/var/lib/keyward"}),
            "annotation keyward.dev/volume-path is \"/var/lib/keyward\": expected another folder",
        ),
        (
            json!({"keyward.dev/secret-a": "kv/a", "keyward.dev/volume-path-a": "/run/keyward/a"}),
            "the folder /run/keyward of files holds the folder of others",
        ),
        (
            json!({"keyward.dev/run-as-user": "0"}),
            "annotation keyward.dev/run-as-user is \"0\": expected a number from 1",
        ),
        (json!({"keyward.dev/run-as-same-user": "true"}), "neither the first container nor the pod has a runAsUser"),
        (
            json!({"keyward.dev/containers": "other"}),
            "annotation keyward.dev/containers is \"other\": the pod has no container called other",
        ),
        (json!({"keyward.dev/containers": ","}), "expected names of containers, separated by commas"),
        (
            json!({"keyward.dev/limits-mem": "64MB"}),
            "annotation keyward.dev/limits-mem is \"64MB\": expected a quantity",
        ),
        (json!({"keyward.dev/health-port": "80"}), "expected a port from 1024 to 65535"),
        (json!({"keyward.dev/log-level": "loud"}), "expected one of error, warn, info, debug, trace"),
        (json!({"keyward.dev/log-format": "xml"}), "expected \"json\" or \"text\""),
        (json!({"keyward.dev/default-template": "yaml"}), "expected \"map\" or \"json\""),
        (json!({"keyward.dev/interval": "soon"}), "templates.interval"),
        (
            json!({"keyward.dev/pre-populate-only": "true", "keyward.dev/revoke-on-shutdown": "true"}),
            "with pre-populate-only nothing runs at the pod's end",
        ),
        (json!({"keyward.dev/pre-populate-only": "true", "keyward.dev/pre-populate": "false"}), "exclude each other"),
        (json!({"keyward.dev/status": "injected"}), "annotation keyward.dev/status says that the pod is injected"),
        (json!({"keyward.dev/template-a": "{{ nothing }}"}), "annotation keyward.dev/template-a: "),
        (json!({"keyward.dev/template-a": "{{ key \"consul\" }}"}), "annotation keyward.dev/template-a: "),
        (json!({"keyward.dev/template-a": "{{ if }}"}), "annotation keyward.dev/template-a: "),
        (json!({"keyward.dev/template-a": "x".repeat(110_000)}), "at most 102400 fit into a pod"),
        (
            json!({"vault.hashicorp.com/role": "other"}),
            "annotations keyward.dev/role and vault.hashicorp.com/role differ; remove one of them",
        ),
    ] {
        let message = refusal(&webhook, &api, &pod(&good(&annotations))).await;
        assert!(message.contains(expected), "{annotations:.300}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_reasons_are_told_at_once() {
    let api = KubernetesApi::start();
    let webhook = Webhook::ready(&api, &[]).await;
    let annotations = json!({"keyward.dev/inject": "true", "keyward.dev/other": "a", "keyward.dev/limits-cpu": "lots", "vault.hashicorp.com/agent-configmap": "a"});
    let message = refusal(&webhook, &api, &pod(&annotations)).await;
    for expected in [
        "keyward.dev/other",
        "keyward.dev/limits-cpu",
        "vault.hashicorp.com/agent-configmap",
        "keyward.dev/role is missing",
    ] {
        assert!(message.contains(expected), "{message}");
    }
    webhook.process.logs("injector.pod.refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_annotation_of_vault_without_a_meaning_here_is_refused_with_what_to_do() {
    let api = KubernetesApi::start();
    let webhook = Webhook::ready(&api, &[]).await;
    let refused = keyward_injector::annotation_rows().into_iter().filter(|row| !row.is_taken);
    let mut number = 0;
    for row in refused {
        number += 1;
        let annotation = row.vault.replace("-NAME", "-a");
        // A value that none of them takes for nothing.
        let annotations = json!({
            "vault.hashicorp.com/agent-inject": "true", "vault.hashicorp.com/role": "web",
            "vault.hashicorp.com/agent-inject-secret-a": "kv/a", annotation.clone(): "x",
        });
        let message = refusal(&webhook, &api, &pod(&annotations)).await;
        let advice = row.meaning.split("; with `").next().unwrap();
        assert!(message.contains(&format!("annotation {annotation} is not taken: {advice}")), "{message}");
    }
    assert!(number > 30, "{number}");
    let message = refusal(&webhook, &api, &pod(&json!({
        "vault.hashicorp.com/agent-inject": "true", "vault.hashicorp.com/role": "a", "vault.hashicorp.com/made-up": "x",
    }))).await;
    assert!(
        message.contains("annotation vault.hashicorp.com/made-up is not taken: keyward has nothing of its meaning"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn t39_an_annotation_sends_the_service_accounts_token_nowhere_that_the_operator_does_not_allow() {
    let api = KubernetesApi::start();
    let strict = Webhook::ready(&api, &[]).await;
    let others = [
        ("address", "https://attacker.example.com"),
        ("namespace", "attacker"),
        ("mount", "auth/attacker"),
        ("method", "jwt"),
        ("image", "attacker.example.com/keyward"),
    ];
    for (setting, value) in others {
        let message = refusal(&strict, &api, &pod(&good(&json!({format!("keyward.dev/{setting}"): value})))).await;
        let expected =
            format!("annotation keyward.dev/{setting} is \"{value}\": the operator allows no other {setting} for this");
        assert!(message.contains(&expected) && message.contains(&format!("--allow {setting}=")), "{message}");
    }
    let message =
        refusal(&strict, &api, &pod(&good(&json!({"keyward.dev/address": "http://vault.example.com:8200"})))).await;
    assert!(message.contains("the operator allows no other address"), "{message}");
    // One allowed value allows no other.
    let one = Webhook::ready(&api, &["--allow", "address=https://b.example.com", "--allow", "method=jwt"]).await;
    for value in [
        "https://b.example.com.attacker.example.com",
        "https://b.example.com:444",
        "http://b.example.com",
        "https://b.example.com/x",
    ] {
        refusal(&one, &api, &pod(&good(&json!({"keyward.dev/address": value})))).await;
    }
    refusal(&one, &api, &pod(&good(&json!({"keyward.dev/method": "azure"})))).await;
    // Allowed, and no server's address.
    let any = Webhook::ready(&api, &["--allow", "address=*"]).await;
    let message = refusal(&any, &api, &pod(&good(&json!({"keyward.dev/address": "http://plain.example.com"})))).await;
    assert!(message.contains("server.main.address"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_pod_has_already_is_not_taken_from_it() {
    let api = KubernetesApi::start();
    let webhook = Webhook::ready(&api, &[]).await;
    let check = async |change: &dyn Fn(&mut Value), expected: &str| {
        let mut pod = pod(&good(&json!({})));
        change(&mut pod);
        let message = refusal(&webhook, &api, &pod).await;
        assert!(message.contains(expected), "{message}");
    };
    check(
        &|pod| pod["spec"]["containers"][0]["name"] = json!("keyward"),
        "the pod already has a container called keyward",
    )
    .await;
    check(
        &|pod| pod["spec"]["volumes"][0]["name"] = json!("keyward-state"),
        "the pod already has a volume called keyward-state",
    )
    .await;
    check(
        &|pod| pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 8301}]),
        "container web has the port 8301 of keyward's probes",
    )
    .await;
    check(
        &|pod| pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] = json!("/run/keyward/"),
        "container web has another volume at /run/keyward/",
    )
    .await;
    check(&|pod| pod["spec"]["os"] = json!({"name": "windows"}), "the pod is for Windows").await;
    check(&|pod| pod["spec"] = json!({"containers": "x"}), "the object is no pod").await;
    let pod = pod(&good(&json!({})));
    let response = webhook.review(&api, "kube-system", &pod).await;
    assert_eq!(response["allowed"], false);
    assert!(response["status"]["message"].as_str().unwrap().contains("namespace kube-system are not injected"));
}
