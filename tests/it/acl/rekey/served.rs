//! `PUT /v1/operator/rekey` from the view of operators and callers.

use super::*;
use crate::harness::issuer::Key as Signer;
use crate::harness::{Acl, log};

fn seal_key(acl: &Acl) -> PathBuf {
    acl.options.store.folder().unwrap().join("seal.key")
}

#[tokio::test]
async fn tokens_stay_valid_during_a_rekey_and_the_old_key_decrypts_none() {
    let acl = Acl::start().await;
    let signer = Signer::shared("k");
    acl.jwt_method("ci", &signer).await;
    let mut secrets = vec![acl.root.clone()];
    for _ in 0..5 {
        let login = acl.log_in("ci", &acl.proof(&signer)).await;
        assert_eq!(login.status, 200, "{login:?}");
        secrets.push(secret_of(&login.json()));
    }
    let makes = (0..300).map(|number| acl.make("/v1/acl/token", json!({"Description": format!("token {number}")})));
    secrets.extend(futures_util::future::join_all(makes).await.iter().map(secret_of));
    for secret in &secrets {
        check_token(&acl, secret).await;
    }

    log::keep();
    let done = AtomicBool::new(false);
    let reads = AtomicUsize::new(0);
    let readers = futures_util::future::join_all((0..4).map(async |start| {
        let mut number = start;
        while !done.load(Ordering::SeqCst) {
            check_token(&acl, &secrets[number % secrets.len()]).await;
            reads.fetch_add(1, Ordering::SeqCst);
            number += 37;
        }
    }));
    let writer = async {
        let mut made = Vec::new();
        while !done.load(Ordering::SeqCst) {
            let token = acl.make("/v1/acl/token", json!({"Description": "meanwhile"})).await;
            let path = format!("/v1/acl/token/{}", token["AccessorID"].as_str().unwrap());
            acl.make(&path, json!({"Description": "changed"})).await;
            if made.len() % 2 == 0 {
                made.push(secret_of(&token));
            } else {
                assert_eq!(acl.delete(&path).await.text, "true");
                made.push(String::new());
            }
        }
        made
    };
    let change = async {
        let response = acl.make("/v1/operator/rekey", json!({"Generate": true})).await;
        let read_count = reads.load(Ordering::SeqCst);
        assert!(read_count > 0, "nobody read meanwhile");
        done.store(true, Ordering::SeqCst);
        response
    };
    let (response, _, meanwhile) = tokio::join!(change, readers, writer);
    assert_eq!(response["Done"], true, "{response}");
    assert!(response["Rewritten"].as_u64().unwrap() >= secrets.len() as u64, "{response}");
    assert!(response["Message"].as_str().unwrap().contains("remove the other lines from the key file"), "{response}");
    let audit: Vec<Value> = log::lines()
        .into_iter()
        .filter(|line| line["fields"]["event"] == "acl.changed" && line["fields"]["operation"] == "rekey")
        .collect();
    assert_eq!(audit.len(), 1);
    assert_eq!(audit[0]["fields"]["what"], response["KeyID"]);
    secrets.extend(meanwhile.into_iter().filter(|secret| !secret.is_empty()));
    for secret in &secrets {
        check_token(&acl, secret).await;
    }
    let again = acl.make("/v1/operator/rekey", Value::Null).await;
    assert_eq!((&again["Rewritten"], &again["Done"], &again["KeyID"]), (&json!(0), &json!(true), &response["KeyID"]));
    let text = log::text();
    let audited = text.lines().filter(|line| line.contains("\"rekey\"") && line.contains("acl.changed")).count();
    assert_eq!(audited, 1, "what changes nothing has no line");

    let file = seal_key(&acl);
    let lines = std::fs::read_to_string(&file).unwrap();
    let (new, old) = lines.split_once('\n').unwrap();
    assert!(!text.contains(new) && !text.contains(old.trim()), "a key is in the log");
    std::fs::write(&file, new).unwrap();
    let other = tempfile::tempdir().unwrap();
    let old_file = other.path().join("old.key");
    std::fs::write(&old_file, old).unwrap();
    let acl = acl
        .restarted_with(async |store| {
            assert_eq!(keys_in_use(&*store).await, [response["KeyID"].as_str().unwrap()]);
            let refused = open_error(store, &old_file).await;
            assert!(refused.contains("but the store requires"), "{refused}");
        })
        .await;
    for secret in &secrets {
        check_token(&acl, secret).await;
    }
}

#[tokio::test]
async fn rekey_requires_operator_write_a_valid_body_and_a_writable_key_file() {
    let acl = Acl::start().await;
    let file = seal_key(&acl);
    let before = std::fs::read(&file).unwrap();
    let rekey =
        async |secret: Option<&str>, body: Value| acl.call("PUT", "/v1/operator/rekey", secret, Some(body)).await;
    acl.make("/v1/namespace", json!({"Name": "team"})).await;
    let reads = acl.token_with("operator = \"read\" acl = \"write\"").await;
    let elsewhere = acl.token_in("team", "operator = \"write\"").await;
    for secret in [None, Some(reads.as_str()), Some(elsewhere.as_str())] {
        let refused = rekey(secret, json!({"Generate": true})).await;
        assert_eq!(refused.status, 403, "{refused:?}");
        assert!(refused.text.contains("'operator:write'"), "{refused:?}");
    }
    let writes = acl.token_with("operator = \"write\"").await;
    for wrong in [json!({"Genrate": true}), json!({"Generate": "yes"}), json!([])] {
        let refused = rekey(Some(&writes), wrong).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    assert_eq!(acl.call("GET", "/v1/operator/rekey", Some(&writes), None).await.status, 405);

    // Like a mounted Kubernetes secret: a symlink to a place without write access.
    std::fs::rename(&file, file.with_extension("mounted")).unwrap();
    std::os::unix::fs::symlink("seal.mounted", &file).unwrap();
    let refused = rekey(Some(&writes), json!({"Generate": true})).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text.contains("add the new key as the first line of every key file by hand"), "{refused:?}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let nothing = rekey(Some(&writes), json!({})).await;
    assert_eq!((nothing.status, &nothing.json()["Rewritten"]), (200, &json!(0)), "{nothing:?}");

    std::fs::write(&file, line('c')).unwrap();
    let refused = rekey(Some(&writes), json!({})).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text.contains("but the store requires"), "{refused:?}");
    check_token(&acl, &writes).await;
}
