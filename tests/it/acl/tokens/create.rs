//! Creating tokens.

use std::time::{Duration, SystemTime};

use keyward_acl::model::timestamp::Timestamp;
use serde_json::{Value, json};

use super::{TOKEN, path_of, policy, refused, secret_of};
use crate::harness::Acl;

#[tokio::test]
async fn a_link_with_contradicting_id_and_name_is_refused() {
    let acl = Acl::start().await;
    let (one, _) = (policy(&acl, "one", "").await, policy(&acl, "two", "").await);
    let role = acl.make("/v1/acl/role", json!({"Name": "r"})).await;
    let check = async |path: &str, body: Value, text: &str| {
        let refused = acl.put(path, body).await;
        assert_eq!(refused.status, 400, "{path} {refused:?}");
        assert!(refused.text.contains(text) && refused.text.contains("give only the ID or the Name"), "{refused:?}");
    };
    let policies = json!([{"ID": one["ID"], "Name": "two"}]);
    let text =
        format!("The link to ACL policy {} names it \"two\", and its name is \"one\"", one["ID"].as_str().unwrap());
    check(TOKEN, json!({"Policies": policies}), &text).await;
    check("/v1/acl/role", json!({"Name": "s", "Policies": policies}), &text).await;
    check("/v1/namespace", json!({"Name": "n", "ACLs": {"PolicyDefaults": policies}}), &text).await;
    // The name from before a rename, which no other record has.
    let renamed = json!([{"ID": role["ID"], "Name": "none"}]);
    assert_eq!(acl.make(TOKEN, json!({"Roles": renamed})).await["Roles"][0]["Name"], "r");
    let same = json!([{"ID": one["ID"], "Name": "one"}, {"ID": one["ID"], "Name": ""}]);
    assert_eq!(acl.make(TOKEN, json!({"Policies": same})).await["Policies"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_token_is_created_from_links_by_id_and_by_name() {
    let acl = Acl::start().await;
    let (one, two) = (policy(&acl, "one", "").await, policy(&acl, "two", "").await);
    let role = acl.make("/v1/acl/role", json!({"Name": "r"})).await;
    let body = json!({
        "Description": "d",
        "Policies": [{"ID": one["ID"]}, {"Name": "two"}, {"Name": "one"}, {"ID": two["ID"], "Name": "two"}],
        "Roles": [{"Name": "r"}, {"ID": role["ID"]}],
        "NodeIdentities": [{"NodeName": "n1", "Datacenter": "dc1"}],
        "TemplatedPolicies": [{"TemplateName": "builtin/service", "TemplateVariables": {"name": "web"}}],
    });
    let made = acl.make(TOKEN, body).await;
    for id in ["AccessorID", "SecretID"] {
        assert_eq!(made[id].as_str().unwrap().len(), 36);
    }
    assert_eq!(
        made["Policies"],
        json!([{"ID": one["ID"], "Name": "one"}, {"ID": two["ID"], "Name": "two"}]),
        "links are ids, and each stands there once"
    );
    assert_eq!(made["Roles"], json!([{"ID": role["ID"], "Name": "r"}]));
    assert!(made["CreateIndex"].as_u64().unwrap() > 0 && made["CreateIndex"] == made["ModifyIndex"], "{made}");
    assert!(!made["Hash"].as_str().unwrap().is_empty());
    assert_eq!((&made["Namespace"], &made["Partition"]), (&json!("default"), &json!("default")));
    assert_eq!(acl.get(&path_of(&made)).await.json(), made, "what is read is what was made");

    let local = acl.make(TOKEN, json!({"Local": true})).await;
    assert_eq!(local["Local"], true);
    let bare = acl.make(TOKEN, json!({})).await;
    assert_eq!((&bare["Local"], &bare["Description"]), (&json!(false), &json!("")));
    let left_out = ["Policies", "Roles", "ServiceIdentities", "NodeIdentities", "TemplatedPolicies", "ExpirationTime"];
    assert!(left_out.iter().all(|field| bare.get(field).is_none()), "{bare}");
    assert_ne!(bare["Hash"], local["Hash"]);
}

#[tokio::test]
async fn deeply_nested_template_variables_can_be_read_and_deleted() {
    let acl = Acl::start().await;
    for depth in 1..128 {
        let nested = (0..depth).fold(json!("x"), |inner, _| json!({ "a": inner }));
        let templates = json!([{"TemplateName": "builtin/dns", "TemplateVariables": {"v": nested}}]);
        let response = acl.put(TOKEN, json!({"TemplatedPolicies": templates})).await;
        assert_eq!(response.status, if depth <= 16 { 200 } else { 400 }, "{depth}: {response:?}");
        let role = json!({"Name": format!("r{depth}"), "TemplatedPolicies": templates});
        let role = acl.put("/v1/acl/role", role).await;
        assert_eq!(role.status, response.status, "{depth}: {role:?}");
        if response.status == 200 {
            let path = path_of(&response.json());
            assert_eq!(acl.get(&path).await.json()["TemplatedPolicies"], templates, "{depth}");
            assert_eq!(acl.delete(&path).await.text, "true", "{depth}");
        }
    }
}

#[tokio::test]
async fn requested_ids_are_used_and_must_be_unique() {
    let acl = Acl::start().await;
    let id = || uuid::Uuid::new_v4().to_string();
    let (first, second, third, fourth) = (id(), id(), id(), id());
    let made = acl.make(TOKEN, json!({ "AccessorID": first })).await;
    assert_eq!(made["AccessorID"], json!(first));
    let made = acl.make(TOKEN, json!({"SecretID": second.to_uppercase()})).await;
    assert_eq!(made["SecretID"], json!(second));
    // A requested secret is kept as given.
    for presented in [second.to_uppercase(), second.clone()] {
        let own = acl.call("GET", "/v1/acl/token/self", Some(&presented), None).await;
        assert_eq!((own.status, &own.json()["AccessorID"]), (200, &made["AccessorID"]), "{presented}");
    }
    let made = acl.make(TOKEN, json!({"AccessorID": third, "SecretID": fourth})).await;
    assert_eq!((&made["AccessorID"], &made["SecretID"]), (&json!(third), &json!(fourth)));
    let own = acl.call("GET", "/v1/acl/token/self", Some(&fourth), None).await.json();
    assert_eq!(own["AccessorID"], json!(third));

    for taken in [&first, &second, &third, &fourth, &third.to_uppercase()] {
        for field in ["AccessorID", "SecretID"] {
            let found = refused(&acl, json!({ field: taken })).await;
            assert_eq!(found, (409, format!("Invalid Token: {field} is already in use")));
        }
    }
    let same = id();
    let found = refused(&acl, json!({"AccessorID": same, "SecretID": same})).await;
    assert_eq!(found, (409, "Invalid Token: SecretID is already in use".to_owned()));
    let reserved = "UUIDs with the prefix \"00000000-0000-0000-0000-0000000000\" are reserved";
    for field in ["AccessorID", "SecretID"] {
        for (value, reason) in [
            ("00000000-0000-0000-0000-00000000005b", reserved),
            ("foo", "not a valid UUID"),
            ("<hidden>", "not a valid UUID"),
        ] {
            let found = refused(&acl, json!({ field: value })).await;
            assert_eq!(found, (400, format!("Invalid Token: {field} - {reason}")), "{value}");
        }
    }
}

#[tokio::test]
async fn one_of_many_concurrent_creates_with_one_id_succeeds() {
    let acl = Acl::start().await;
    let body = json!({"AccessorID": uuid::Uuid::new_v4().to_string(), "SecretID": uuid::Uuid::new_v4().to_string()});
    let ask = || acl.put(TOKEN, body.clone());
    let (one, two, three, four) = tokio::join!(ask(), ask(), ask(), ask());
    let mut made = 0;
    for response in [one, two, three, four] {
        match (response.status, response.text.as_str()) {
            (200, _) => made += 1,
            // Either id may be found in use first.
            (409, "Invalid Token: AccessorID is already in use" | "Invalid Token: SecretID is already in use") => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(made, 1);
}

#[tokio::test]
async fn identity_names_are_validated_and_duplicates_merged() {
    let acl = Acl::start().await;
    let lower = "Only lowercase alphanumeric characters, '-' and '_' are allowed";
    let service = |name: &str| json!({"ServiceIdentities": [{"ServiceName": name}]});
    let node = |name: &str, datacenter: &str| json!({"NodeIdentities": [{"NodeName": name, "Datacenter": datacenter}]});
    let long = "x".repeat(257);
    for name in ["FOO", "-abc", "abc-", "_abc", "abc_", ":abc", "abc:", "a:bc", "Abc", "aBc", "abC", &long] {
        let text = format!("Service identity {name:?} has an invalid name. {lower}");
        assert_eq!(refused(&acl, service(name)).await, (400, text));
    }
    for name in ["a-bc", "a_bc", "0abc", "abc0", "a0bc", &long[1..]] {
        assert_eq!(acl.make(TOKEN, service(name)).await["ServiceIdentities"], json!([{"ServiceName": name}]));
    }
    for (body, text) in [
        (service(""), "Service identity is missing the service name field on this token".to_owned()),
        (node("", "dc1"), "Node identity is missing the node name field on this token".to_owned()),
        (node("n1", ""), "Node identity is missing the datacenter field on this token".to_owned()),
        (node("FOO", "dc1"), format!("Node identity has an invalid name. {lower}")),
        (node("foo.bar", "dc1"), format!("Node identity has an invalid name. {lower}")),
    ] {
        assert_eq!(refused(&acl, body).await, (400, text));
    }

    let twice = json!({"ServiceIdentities": [{"ServiceName": "web"}, {"ServiceName": "web"}]});
    assert_eq!(acl.make(TOKEN, twice).await["ServiceIdentities"], json!([{"ServiceName": "web"}]));
    let merged = json!([
        {"ServiceName": "web", "Datacenters": ["dc2", "dc3"]},
        {"ServiceName": "web", "Datacenters": ["dc1", "dc2"]},
    ]);
    let made = acl.make(TOKEN, json!({"ServiceIdentities": merged})).await;
    assert_eq!(made["ServiceIdentities"], json!([{"ServiceName": "web", "Datacenters": ["dc1", "dc2", "dc3"]}]));
    let local = json!({"Local": true, "ServiceIdentities": [{"ServiceName": "web", "Datacenters": ["dc1"]}]});
    let text = "Service identity \"web\" cannot specify a list of datacenters on a local token".to_owned();
    assert_eq!(refused(&acl, local).await, (400, text));
}

#[tokio::test]
async fn token_ttls_are_between_a_minute_and_a_day() {
    let acl = Acl::start().await;
    let later = |seconds: i64| {
        let now = SystemTime::now();
        let span = Duration::from_secs(seconds.unsigned_abs());
        Timestamp::from_system_time(if seconds < 0 { now - span } else { now + span }).to_string()
    };
    for (body, text) in [
        (json!({"ExpirationTime": later(-60)}), "ExpirationTime cannot be before CreateTime"),
        (json!({"ExpirationTime": later(30)}), "ExpirationTime cannot be less than 1m0s in the future (was 29."),
        (
            json!({"ExpirationTime": later(90_000)}),
            "ExpirationTime cannot be more than 24h0m0s in the future (was 24h59m",
        ),
        (json!({"ExpirationTime": "tomorrow"}), "Token decoding failed: json: field ExpirationTime: not a time"),
        (
            json!({"ExpirationTime": 5}),
            "Token decoding failed: json: cannot unmarshal number into field ExpirationTime",
        ),
        (json!({"ExpirationTTL": "-5m"}), "Token Expiration TTL '-5m0s' should be > 0"),
        (json!({"ExpirationTTL": "1ms"}), "ExpirationTime cannot be less than 1m0s in the future (was 1ms)"),
        (json!({"ExpirationTTL": "59.999s"}), "ExpirationTime cannot be less than 1m0s in the future (was 59.999s)"),
        (json!({"ExpirationTTL": "25h"}), "ExpirationTime cannot be more than 24h0m0s in the future (was 25h0m0s)"),
        (json!({"ExpirationTTL": "soon"}), "Token decoding failed: json: field ExpirationTTL: not a duration"),
        (json!({"ExpirationTTL": 1.5}), "Token decoding failed: json: field ExpirationTTL: neither a duration"),
        (
            json!({"ExpirationTTL": "5m", "ExpirationTime": later(300)}),
            "Token Expiration TTL and Expiration Time cannot both be set",
        ),
    ] {
        let found = refused(&acl, body.clone()).await;
        assert!(found.0 == 400 && found.1.starts_with(text), "{body}: {found:?}");
    }

    let nanos = |token: &Value, field: &str| token[field].as_str().unwrap().parse::<Timestamp>().unwrap();
    for (ttl, seconds) in
        [(json!("5m"), 300), (json!(300_000_000_000_i64), 300), (json!("1m"), 60), (json!("24h"), 86_400)]
    {
        let made = acl.make(TOKEN, json!({ "ExpirationTTL": ttl })).await;
        let (made_at, end) = (nanos(&made, "CreateTime"), nanos(&made, "ExpirationTime"));
        assert_eq!(end, made_at.after(Duration::from_secs(seconds)), "{ttl}");
        assert!(made.get("ExpirationTTL").is_none());
    }
    let end = later(600);
    assert_eq!(acl.make(TOKEN, json!({ "ExpirationTime": end })).await["ExpirationTime"], json!(end));
    for unset in [
        json!({"ExpirationTime": "0001-01-01T00:00:00Z", "ExpirationTTL": 0}),
        json!({"ExpirationTime": null, "ExpirationTTL": "0s"}),
        json!({"ExpirationTime": "", "ExpirationTTL": ""}),
    ] {
        assert!(acl.make(TOKEN, unset).await.get("ExpirationTime").is_none());
    }
}

#[tokio::test]
async fn errors_name_the_links_that_cannot_be_resolved() {
    let acl = Acl::start().await;
    let nobody = "11111111-1111-1111-1111-111111111111";
    for (field, word) in [("Policies", "policy"), ("Roles", "role")] {
        for (link, text) in [
            (json!({"Name": "x"}), format!("No such ACL {word} with name \"x\"")),
            (json!({"Name": "a/b"}), format!("No such ACL {word} with name \"a/b\"")),
            (json!({"ID": nobody, "Name": "global-management"}), format!("No such ACL {word} with ID \"{nobody}\"")),
            (json!({"ID": "x"}), format!("No such ACL {word} with ID \"x\"")),
            (json!({}), format!("A link to an ACL {word} has neither an ID nor a Name")),
        ] {
            assert_eq!(refused(&acl, json!({ field: [link] })).await, (400, text));
        }
    }
    let unknown = refused(&acl, json!({"TemplatedPolicies": [{"TemplateName": "nope"}]})).await;
    assert_eq!(unknown, (400, "acl templated policy does not exist: \"nope\"".to_owned()));
    let found = refused(&acl, json!({"AuthMethod": "m"})).await;
    assert_eq!(found, (400, "AuthMethod field is disallowed outside of login".to_owned()));
}

#[tokio::test]
async fn token_bodies_are_one_json_object_whatever_the_content_type() {
    let acl = Acl::start().await;
    let as_root = [("X-Consul-Token", acl.root.as_str())];
    let made = acl.send("PUT", TOKEN, &as_root, b"{\"policies\": null, \"description\": \"d\"}").await;
    assert_eq!((made.status, &made.json()["Description"]), (200, &json!("d")));
    let binary: Vec<u8> = (0..32).collect();
    for (path, kind) in [(TOKEN, "Token"), ("/v1/acl/role", "Role"), ("/v1/acl/policy", "Policy")] {
        // A body is decoded before the caller is authenticated.
        for headers in [&as_root[..], &[]] {
            for (body, text) in [
                (binary.as_slice(), "invalid JSON"),
                (b"{\"Foo\": 1}", "json: unknown field \"Foo\""),
                (b"", "EOF"),
                (b"[]", "json: cannot unmarshal array into an object"),
                (b"{\"Description\": 5}", "json: cannot unmarshal number into field Description of type string"),
                (b"{\"Partition\": \"p\"}", ""),
            ] {
                let response = acl.send("PUT", path, headers, body).await;
                let decoding = format!("{kind} decoding failed: {text}");
                let text = if text.is_empty() { "Partition \"p\" does not exist" } else { decoding.as_str() };
                assert!(response.status == 400 && response.text.starts_with(text), "{path}: {response:?}");
            }
        }
    }
}

#[tokio::test]
async fn creating_tokens_needs_acl_write() {
    let acl = Acl::start().await;
    for rules in ["acl = \"read\"", "node_prefix \"\" { policy = \"write\" }", "operator = \"write\""] {
        let secret = acl.token_with(rules).await;
        let own = acl.call("GET", "/v1/acl/token/self", Some(&secret), None).await.json();
        let refused = acl.call("PUT", TOKEN, Some(&secret), Some(json!({}))).await;
        let accessor = own["AccessorID"].as_str().unwrap();
        let text = format!("Permission denied: token with AccessorID '{accessor}' lacks permission 'acl:write'");
        assert_eq!((refused.status, refused.text), (403, text));
    }
    let anonymous = acl.call("PUT", TOKEN, None, Some(json!({"Policies": [{"Name": "unknown"}]}))).await;
    let text = "Permission denied: anonymous token lacks permission 'acl:write'. The anonymous token is used \
                implicitly when a request does not specify a token.";
    assert_eq!((anonymous.status, anonymous.text.as_str()), (403, text));
    let secret = acl.token_with("acl = \"write\"").await;
    let made = acl.call("PUT", TOKEN, Some(&secret), Some(json!({}))).await.json();
    assert_eq!(acl.call("GET", "/v1/acl/token/self", Some(secret_of(&made)), None).await.status, 200);
}
