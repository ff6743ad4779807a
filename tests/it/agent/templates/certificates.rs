//! `pkiCert` with the answers of a PKI engine, whose PEM fields have no newline at their end.

use super::*;

const CERTIFICATE: &str = "pkiCert \"pki/issue/web\" \"common_name=web.example\" \"ttl=60m\"";

/// Requests a certificate as another client, and returns the fields of the answer without newlines at their end.
async fn issue(world: &World) -> serde_json::Map<String, serde_json::Value> {
    let token = world.secrets.token(&Role::default());
    let request = reqwest::Client::new().post(format!("{}/v1/pki/issue/web", world.secrets.url()));
    let request = request.header("x-vault-token", token.expose_secret());
    let answer = request.json(&json!({ "common_name": "web.example", "ttl": "60m" })).send().await.unwrap();
    let answer: serde_json::Value = answer.json().await.unwrap();
    let mut data = answer["data"].as_object().unwrap().clone();
    for value in data.values_mut() {
        match value {
            serde_json::Value::String(text) => *text = text.trim_end().to_owned(),
            serde_json::Value::Array(texts) => {
                *value = texts.iter().map(|text| text.as_str().unwrap().trim_end().to_owned()).collect();
            }
            _ => {}
        }
    }
    data
}

fn answer(world: &World, data: serde_json::Map<String, serde_json::Value>) {
    let body = json!({ "lease_id": "", "lease_duration": 0, "renewable": false, "data": data });
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::new(200, body.to_string())));
}

#[tokio::test(start_paused = true)]
async fn each_block_ends_with_a_newline_and_a_bundle_is_split() {
    let world = world();
    let session = world.start();
    let data = issue(&world).await;
    let text = |name: &str| format!("{}\n", data[name].as_str().unwrap());
    let (certificate, key, ca) = (text("certificate"), text("private_key"), text("issuing_ca"));
    let mut bundle = data.clone();
    bundle.insert("certificate".to_owned(), format!("{key}{certificate}{}", ca.trim_end()).into());
    let mut signed = data.clone();
    for name in ["private_key", "issuing_ca", "ca_chain"] {
        signed.remove(name);
    }
    let parts = "{{ .Cert }}|{{ .Key }}|{{ .CA }}|{{ range .CAChain }}{{ . }},{{ end }}|{{ .Data.Cert }}|{{ range .Data.CAChain }}{{ . }}{{ end }}";
    for (name, data, expected) in [
        ("pem", data.clone(), format!("{certificate}|{key}|{ca}|{ca},|{certificate}|{ca}")),
        ("bundle", bundle, format!("{certificate}|{key}|{ca}|{ca},|{certificate}|{ca}")),
        ("signed", signed, format!("{certificate}||||{certificate}|")),
    ] {
        answer(&world, data);
        let mut bench = Bench::new(&world, &session);
        bench.start(name, &format!("{{{{ with {CERTIFICATE} }}}}{parts}{{{{ end }}}}"));
        sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.read(name), Some(expected), "{name}: {}", bench.reason(name));
    }
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_replaced_by_its_own_end_whatever_the_answer_says() {
    let world = world();
    let session = world.start();
    let mut data = issue(&world).await;
    data.remove("expiration");
    answer(&world, data);
    let mut bench = Bench::new(&world, &session);
    bench.start("cert", &format!("{{{{ with {CERTIFICATE} }}}}{{{{ .Cert }}}}{{{{ end }}}}"));
    sleep(MINUTE).await;
    world.faults().respond_always(Operation::Secret, None);
    let first = bench.read("cert").unwrap();
    let writes = world.count(Operation::Secret);
    sleep(MINUTE * 30).await;
    assert_eq!(world.count(Operation::Secret), writes, "half of its life");
    sleep(MINUTE * 15).await;
    assert_eq!(world.count(Operation::Secret), writes + 1, "two thirds of its life");
    assert_ne!(bench.read("cert").unwrap(), first);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_pem_is_an_error() {
    let world = world();
    let session = world.start();
    let mut data = issue(&world).await;
    for name in ["certificate", "private_key", "issuing_ca"] {
        data.insert(name.to_owned(), "AQID".into());
    }
    data.remove("ca_chain");
    answer(&world, data);
    let mut bench = Bench::new(&world, &session);
    bench.start("cert", &format!("{{{{ with {CERTIFICATE} }}}}{{{{ .Cert }}}}{{{{ end }}}}"));
    sleep(MINUTE).await;
    assert!(
        bench.reason("cert").ends_with("pkiCert \"pki/issue/web\": the answer has no certificate in PEM"),
        "{}",
        bench.reason("cert")
    );
}
