//! Bootstrap reset: another first token, if an operator allows it by a file.

use std::path::PathBuf;

use serde_json::json;

use crate::harness::{Acl, Answer, log};

async fn bootstrap(acl: &Acl) -> Answer {
    acl.call("PUT", "/v1/acl/bootstrap", None, None).await
}

/// Returns the reset index in the error.
pub(crate) fn index(refused: &Answer) -> String {
    assert_eq!(refused.status, 403, "{refused:?}");
    let (_, rest) = refused.text.split_once("ACL bootstrap no longer allowed (reset index: ").unwrap();
    rest.strip_suffix(')').unwrap().to_owned()
}

fn file(acl: &Acl) -> PathBuf {
    acl.options.store.folder().unwrap().join("acl-bootstrap-reset")
}

#[tokio::test]
async fn a_reset_file_with_the_index_allows_another_bootstrap() {
    let acl = Acl::start().await;
    log::keep();
    let first = index(&bootstrap(&acl).await);
    // Other writes do not change it.
    acl.make("/v1/acl/role", json!({"Name": "r"})).await;
    assert_eq!(index(&bootstrap(&acl).await), first);

    for wrong in ["", "x", "0", &format!("{first}0"), &format!("{first}\n{first}"), "-1"] {
        std::fs::write(file(&acl), wrong).unwrap();
        assert_eq!(index(&bootstrap(&acl).await), first, "{wrong:?}");
        assert!(file(&acl).exists());
    }
    std::fs::remove_file(file(&acl)).unwrap();
    std::fs::create_dir(file(&acl)).unwrap();
    assert_eq!(index(&bootstrap(&acl).await), first);
    std::fs::remove_dir(file(&acl)).unwrap();
    let unusable = log::lines().iter().filter(|line| line["fields"]["event"] == "acl.bootstrap.reset.unusable").count();
    assert_eq!(unusable, 5);

    std::fs::write(file(&acl), format!("{first}\n")).unwrap();
    let responses = futures_util::future::join_all((0..4).map(|_| bootstrap(&acl))).await;
    let (made, refused): (Vec<_>, Vec<_>) = responses.iter().partition(|response| response.status == 200);
    assert_eq!((made.len(), refused.len()), (1, 3), "{responses:?}");
    assert!(!file(&acl).exists());
    let next = index(refused[0]);
    assert_ne!(next, first, "an index counts once");
    let secret = made[0].json()["SecretID"].as_str().unwrap().to_owned();
    assert_ne!(secret, acl.root);
    for secret in [&secret, &acl.root] {
        let listed = acl.call("GET", "/v1/acl/tokens?ns=*", Some(secret), None).await;
        assert_eq!(listed.status, 200, "both tokens count: {listed:?}");
    }
    assert!(log::lines().iter().any(|line| line["fields"]["event"] == "acl.bootstrap.reset"));

    // The used index is ignored, also after a restart; the next one works.
    std::fs::write(file(&acl), &first).unwrap();
    let acl = acl.restarted().await;
    assert_eq!(index(&bootstrap(&acl).await), next);
    std::fs::write(file(&acl), &next).unwrap();
    assert_eq!(bootstrap(&acl).await.status, 200);
    assert_eq!(acl.call("GET", "/v1/acl/token/self", Some(&secret), None).await.status, 200);
}

#[tokio::test]
async fn a_bootstrap_secret_that_is_reserved_or_in_use_is_refused() {
    let acl = Acl::start().await;
    let ask = async |secret: &str| {
        let response = acl.call("PUT", "/v1/acl/bootstrap", None, Some(json!({"BootstrapSecret": secret}))).await;
        (response.status, response.text)
    };
    let token = acl.make("/v1/acl/token", json!({})).await;
    let (accessor, root) = (token["AccessorID"].as_str().unwrap(), acl.root.as_str());
    // A caller that may not bootstrap does not learn which secrets are in use.
    assert_eq!(ask(root).await.0, 403);
    let reset_index = index(&bootstrap(&acl).await);
    std::fs::write(file(&acl), &reset_index).unwrap();
    let in_use = (409, "Invalid Token: BootstrapSecret is already in use".to_owned());
    for taken in [root, &root.to_uppercase(), accessor] {
        assert_eq!(ask(taken).await, in_use, "{taken}");
    }
    for number in [0, 2, 0xff] {
        let (status, text) = ask(&format!("00000000-0000-0000-0000-0000000000{number:02x}")).await;
        assert!(status == 400 && text.contains("BootstrapSecret") && text.contains("are reserved"), "{status} {text}");
    }
    let (status, text) = ask("no-uuid").await;
    assert!(status == 400 && text.starts_with("Invalid BootstrapSecret: "), "{status} {text}");
    // The refused calls used nothing up.
    assert!(file(&acl).exists());
    let secret = "6a1253d2-1785-24fd-91c2-f8e78c745511";
    let made = acl.call("PUT", "/v1/acl/bootstrap", None, Some(json!({"BootstrapSecret": secret}))).await;
    assert_eq!((made.status, &made.json()["SecretID"]), (200, &json!(secret)), "{made:?}");
    assert_eq!(acl.call("GET", "/v1/acl/tokens", Some(secret), None).await.status, 200);
}
