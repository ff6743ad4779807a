//! Rights of tokens over HTTP: linked rules, namespace defaults, the server's default policy.

use keyward_acl::model::authorize::DefaultPolicy;
use serde_json::{Value, json};

use crate::harness::Acl;

/// Returns the allowed ones of `ACCESS RESOURCE SEGMENT` requests.
async fn allowed<'a>(acl: &Acl, secret: &str, namespace: &str, questions: &[&'a str]) -> Vec<&'a str> {
    let requests: Vec<Value> = questions
        .iter()
        .map(|question| {
            let mut words = question.split(' ');
            let mut next = || words.next().unwrap_or_default();
            json!({"Access": next(), "Resource": next(), "Segment": next()})
        })
        .collect();
    let path = format!("/v1/internal/acl/authorize?ns={namespace}");
    let response = acl.call("POST", &path, Some(secret), Some(requests.into())).await;
    assert_eq!(response.status, 200, "{response:?}");
    let rulings = response.json();
    let rulings = rulings.as_array().unwrap();
    assert_eq!(rulings.len(), questions.len());
    let yes = |ruling: &Value| ruling["Allow"].as_bool().unwrap();
    questions.iter().zip(rulings).filter(|(_, ruling)| yes(ruling)).map(|(question, _)| *question).collect()
}

async fn policy(acl: &Acl, name: &str, namespace: &str, rules: &str) -> Value {
    acl.make("/v1/acl/policy", json!({"Name": name, "Namespace": namespace, "Rules": rules})).await
}

async fn token(acl: &Acl, body: Value) -> String {
    acl.make("/v1/acl/token", body).await["SecretID"].as_str().unwrap().to_owned()
}

const KEYS: &[&str] =
    &["read key a", "write key a", "read key b", "write key b", "read service web", "write service web"];

#[tokio::test]
async fn namespace_defaults_apply_only_where_no_linked_rule_matches() {
    let acl = Acl::start().await;
    policy(&acl, "keys", "default", "key_prefix \"\" { policy = \"write\" }").await;
    policy(&acl, "webs", "default", "service_prefix \"\" { policy = \"write\" }").await;
    acl.make("/v1/acl/role", json!({"Name": "webs", "Policies": [{"Name": "webs"}]})).await;
    let acls = json!({"PolicyDefaults": [{"Name": "keys"}], "RoleDefaults": [{"Name": "webs"}]});
    acl.make("/v1/namespace", json!({"Name": "team", "ACLs": acls})).await;
    let reads_a = policy(&acl, "reads-a", "team", "key \"a\" { policy = \"read\" }").await;
    acl.make("/v1/acl/role?ns=team", json!({"Name": "by-role", "Policies": [{"Name": "reads-a"}]})).await;

    // A linked rule that grants read overrides a default that grants write.
    let linked = token(&acl, json!({"Namespace": "team", "Policies": [{"ID": reads_a["ID"]}]})).await;
    let by_role = token(&acl, json!({"Namespace": "team", "Roles": [{"Name": "by-role"}]})).await;
    let expected = ["read key a", "read key b", "write key b", "read service web", "write service web"];
    assert_eq!(allowed(&acl, &linked, "team", KEYS).await, expected);
    assert_eq!(allowed(&acl, &by_role, "team", KEYS).await, expected);
    // A service identity has a rule for all services, so the default applies to none.
    let identity = json!([{"ServiceName": "own"}]);
    let identity = token(&acl, json!({"Namespace": "team", "ServiceIdentities": identity})).await;
    let expected = ["read key a", "write key a", "read key b", "write key b", "read service web"];
    assert_eq!(allowed(&acl, &identity, "team", KEYS).await, expected);
    assert_eq!(
        allowed(&acl, &identity, "team", &["write service own", "write service own-sidecar-proxy"]).await.len(),
        2
    );
    // A token without links has the defaults; without a matching rule the default policy decides.
    let bare = token(&acl, json!({"Namespace": "team"})).await;
    assert_eq!(allowed(&acl, &bare, "team", KEYS).await, KEYS);
    assert_eq!(allowed(&acl, &bare, "team", &["read node n", "read acl", "read operator"]).await, [""; 0]);
    // Defaults apply to tokens of the namespace, in the namespace.
    assert_eq!(allowed(&acl, &bare, "default", KEYS).await, [""; 0]);
    let elsewhere = token(&acl, json!({})).await;
    assert_eq!(allowed(&acl, &elsewhere, "team", KEYS).await, [""; 0]);

    // Deleted or removed defaults stop applying at once.
    acl.make("/v1/namespace/team", json!({})).await;
    assert_eq!(allowed(&acl, &linked, "team", KEYS).await, ["read key a"]);
    acl.delete(&format!("/v1/acl/policy/{}?ns=team", reads_a["ID"].as_str().unwrap())).await;
    assert_eq!(allowed(&acl, &by_role, "team", KEYS).await, [""; 0]);
    let read = acl.call("GET", "/v1/acl/token/self", Some(&linked), None).await;
    assert_eq!((read.status, read.json().get("Policies")), (200, None));
}

#[tokio::test]
async fn the_default_policy_applies_without_a_rule_but_never_grants_acl_rights() {
    let acl = Acl::start_with(|options| options.default_policy = DefaultPolicy::Allow).await;
    let some = acl.token_with("key \"a\" { policy = \"read\" }\nservice \"web\" { policy = \"deny\" }").await;
    let requests =
        ["write key b", "write operator", "read node n", "read acl", "write acl", "write key a", "read service web"];
    assert_eq!(allowed(&acl, &some, "default", &requests).await, ["write key b", "write operator", "read node n"]);
    let list = acl.call("GET", "/v1/acl/roles", Some(&some), None).await;
    assert_eq!((list.status, list.headers["x-service-default-acl-policy"].to_str().unwrap()), (403, "allow"));
    // `operator` allows creating namespaces, but not with defaults.
    let made = acl.call("PUT", "/v1/namespace", Some(&some), Some(json!({"Name": "team"}))).await;
    assert_eq!(made.status, 200, "{made:?}");
    let acls = json!({"PolicyDefaults": [{"Name": "global-management"}]});
    let refused = acl.call("PUT", "/v1/namespace/team", Some(&some), Some(json!({"ACLs": acls}))).await;
    assert_eq!(refused.status, 403);
    assert!(refused.text.contains("lacks permission 'acl:write'"), "{refused:?}");
}

#[tokio::test]
async fn mesh_peering_and_intentions_of_all_services_are_decided_by_other_rules() {
    let lenient = Acl::start_with(|options| options.default_policy = DefaultPolicy::Allow).await;
    let strict = Acl::start().await;
    let check = async |acl: &Acl, rules: &str, requests: &[&str], expected: &[&str]| {
        let secret = acl.token_with(rules).await;
        assert_eq!(allowed(acl, &secret, "default", requests).await, expected, "{rules}");
    };
    let shared = ["read mesh", "write mesh", "read peering", "write peering"];
    check(&lenient, "operator = \"deny\"", &shared, &[]).await;
    check(&strict, "operator = \"write\"", &shared, &shared).await;
    check(&strict, "operator = \"write\"\nmesh = \"read\"", &shared[..2], &shared[..1]).await;
    let intentions = ["read intention *", "write intention *"];
    let all = "service_prefix \"\" { policy = \"write\" intentions = \"write\" }";
    let db = "service \"db\" { policy = \"read\" intentions = \"deny\" }";
    check(&strict, &format!("{all}\n{db}"), &intentions, &intentions[..1]).await;
    check(&strict, "service \"web\" { policy = \"read\" }", &intentions, &intentions[..1]).await;
}

#[tokio::test]
async fn only_policies_of_default_apply_in_other_namespaces() {
    let acl = Acl::start().await;
    for name in ["team", "team-2", "other"] {
        acl.make("/v1/namespace", json!({"Name": name})).await;
    }
    let blocks = "acl = \"read\"\nnamespace \"team\" { acl = \"write\" key_prefix \"\" { policy = \"write\" } }\n\
                  namespace_prefix \"team\" { acl = \"read\" }";
    let rights = ["read acl", "write acl", "write key a"];
    let far = acl.token_with(blocks).await;
    assert_eq!(allowed(&acl, &far, "default", &rights).await, ["read acl"]);
    assert_eq!(allowed(&acl, &far, "team", &rights).await, rights);
    assert_eq!(allowed(&acl, &far, "TEAM", &rights).await, rights);
    assert_eq!(allowed(&acl, &far, "team-2", &rights).await, ["read acl"]);
    assert_eq!(allowed(&acl, &far, "other", &rights).await, [""; 0]);
    // The same policy in another namespace: rules outside of namespace blocks apply there, the blocks nowhere.
    let near = acl.token_in("other", blocks).await;
    for (namespace, expected) in [("other", &rights[..1]), ("default", &[]), ("team", &[]), ("team-2", &[])] {
        assert_eq!(allowed(&acl, &near, namespace, &rights).await, expected, "{namespace}");
    }
    let operator = acl.token_in("other", "operator = \"write\"").await;
    assert_eq!(allowed(&acl, &operator, "other", &["read operator", "write operator"]).await, [""; 0]);
    let refused = acl.call("PUT", "/v1/namespace", Some(&operator), Some(json!({"Name": "x"}))).await;
    assert_eq!(refused.status, 403);
    assert!(refused.text.contains("lacks permission 'operator:write'"), "{refused:?}");

    // Lists contain readable records, and a header says that others are omitted.
    for name in ["default", "team", "team-2", "other"] {
        acl.make("/v1/acl/role", json!({"Name": "same", "Description": name, "Namespace": name})).await;
    }
    let list = async |secret: &str| {
        let response = acl.call("GET", "/v1/acl/roles?ns=*", Some(secret), None).await;
        let names: Vec<Value> =
            response.json().as_array().unwrap().iter().map(|one| one["Namespace"].clone()).collect();
        (names, response.headers.contains_key("x-service-results-filtered-by-acls"))
    };
    assert_eq!(list(&acl.root).await, (vec![json!("default"), json!("other"), json!("team"), json!("team-2")], false));
    assert_eq!(list(&far).await, (vec![json!("default"), json!("team"), json!("team-2")], true));
    assert_eq!(list(&near).await, (vec![json!("other")], true));
    assert_eq!(list(&operator).await, (vec![], true));
    let one = acl.call("GET", "/v1/acl/roles?ns=other", Some(&far), None).await;
    assert_eq!(one.status, 403, "a list of one namespace is refused as a whole");
    for (method, path) in [("PUT", "/v1/acl/role?ns=*"), ("GET", "/v1/acl/role/name/same?ns=*")] {
        let response = acl.call(method, path, Some(&acl.root), Some(json!({"Name": "x"}))).await;
        assert_eq!(
            (response.status, response.text.contains("only lists span all namespaces")),
            (400, true),
            "{response:?}"
        );
    }
}

#[tokio::test]
async fn a_caller_sees_the_namespaces_that_a_rule_about_them_shows() {
    let acl = Acl::start().await;
    for name in ["team", "other"] {
        acl.make("/v1/namespace", json!({"Name": name})).await;
    }
    let list = async |secret: &str| {
        let response = acl.call("GET", "/v1/namespaces", Some(secret), None).await;
        assert_eq!(response.status, 200, "{response:?}");
        let names: Vec<Value> = response.json().as_array().unwrap().iter().map(|one| one["Name"].clone()).collect();
        (Value::from(names), response.headers.contains_key("x-service-results-filtered-by-acls"))
    };
    assert_eq!(list(&acl.root).await, (json!(["default", "other", "team"]), false));
    assert_eq!(list(&acl.token_with("operator = \"read\"").await).await, (json!(["default", "other", "team"]), false));
    let one = acl.token_in("team", "key \"a\" { policy = \"read\" }").await;
    assert_eq!(list(&one).await, (json!([]), true), "what a token may do in a namespace does not show it");
    let manager = acl.token_with("acl = \"write\"").await;
    assert_eq!(list(&manager).await, (json!([]), true));
    let far = "namespace \"other\" { service_prefix \"\" { policy = \"read\" } policy = \"read\" }";
    let far = acl.token_with(far).await;
    assert_eq!(list(&far).await, (json!(["other"]), true));
    let by_policy = acl.token_with("namespace_prefix \"\" { policy = \"read\" }").await;
    assert_eq!(list(&by_policy).await, (json!(["default", "other", "team"]), false));
    assert_eq!(list(&acl.token_in("team", "").await).await, (json!([]), true));

    let read = async |secret: &str, name: &str| {
        let response = acl.call("GET", &format!("/v1/namespace/{name}"), Some(secret), None).await;
        (response.status, response.text.contains("lacks permission 'operator:read'"))
    };
    assert_eq!(read(&far, "other").await, (200, false));
    assert_eq!(read(&one, "team").await, (403, true));
    assert_eq!(read(&manager, "default").await, (403, true));
    assert_eq!(read(&one, "other").await, (403, true));
    assert_eq!(read(&one, "none").await, (403, true), "who may not see it learns not whether it is there");
    assert_eq!(read(&by_policy, "none").await, (404, false));
}

#[tokio::test]
async fn links_for_other_datacenters_grant_nothing() {
    let acl = Acl::start().await;
    let rules = "key_prefix \"\" { policy = \"read\" }";
    for (name, datacenters) in [("here", json!(["dc2", "dc1"])), ("there", json!(["dc2"])), ("everywhere", json!([]))] {
        acl.make("/v1/acl/policy", json!({"Name": name, "Rules": rules, "Datacenters": datacenters})).await;
        let by_policy = token(&acl, json!({"Policies": [{"Name": name}]})).await;
        let identity = json!([{"ServiceName": "web", "Datacenters": datacenters}]);
        let by_identity = token(&acl, json!({"ServiceIdentities": identity})).await;
        let template = json!([{
            "TemplateName": "builtin/service", "TemplateVariables": {"name": "web"}, "Datacenters": datacenters,
        }]);
        let by_template = token(&acl, json!({"TemplatedPolicies": template})).await;
        let expected = usize::from(name != "there");
        assert_eq!(allowed(&acl, &by_policy, "default", &["read key a"]).await.len(), expected, "{name}");
        assert_eq!(allowed(&acl, &by_identity, "default", &["write service web"]).await.len(), expected, "{name}");
        assert_eq!(allowed(&acl, &by_template, "default", &["write service web"]).await.len(), expected, "{name}");
    }
    for (datacenter, expected) in [("dc1", 1), ("dc2", 0)] {
        let identity = json!([{"NodeName": "n", "Datacenter": datacenter}]);
        let by_identity = token(&acl, json!({"NodeIdentities": identity})).await;
        assert_eq!(allowed(&acl, &by_identity, "default", &["write node n"]).await.len(), expected, "{datacenter}");
    }
}

#[tokio::test]
async fn the_namespace_comes_from_body_query_header_or_token() {
    let acl = Acl::start().await;
    for name in ["a", "b", "c", "d"] {
        acl.make("/v1/namespace", json!({"Name": name})).await;
    }
    let of_d = acl.token_in("d", "acl = \"write\"").await;
    let check = async |secret: &str, body: Option<&str>, query: &str, headers: &[(&str, &str)], expected: &str| {
        let body = json!({"Name": format!("r-{}", uuid::Uuid::new_v4()), "Namespace": body}).to_string();
        let headers: Vec<_> = headers.iter().copied().chain([("X-Consul-Token", secret)]).collect();
        let made = acl.send("PUT", &format!("/v1/acl/role{query}"), &headers, body.as_bytes()).await;
        assert_eq!(made.status, 200, "{body} {query} {headers:?} {made:?}");
        assert_eq!(made.json()["Namespace"], expected, "{body} {query} {headers:?}");
    };
    let (ours, theirs) = (("X-Service-Namespace", "c"), ("X-Consul-Namespace", "c"));
    check(&acl.root, Some("a"), "?ns=b", &[ours], "a").await;
    check(&acl.root, None, "?ns=b", &[ours], "b").await;
    check(&acl.root, Some(""), "?ns=b", &[ours], "b").await;
    check(&acl.root, None, "", &[ours], "c").await;
    check(&acl.root, None, "?ns=", &[theirs], "c").await;
    check(&acl.root, None, "", &[ours, theirs], "c").await;
    check(&acl.root, None, "", &[], "default").await;
    check(&of_d, None, "", &[], "d").await;
    check(&of_d, Some("D"), "?ns=a", &[ours], "d").await;
    let differing = [("X-Service-Namespace", "b"), theirs, ("X-Service-Token", acl.root.as_str())];
    let refused = acl.send("GET", "/v1/acl/roles", &differing, b"").await;
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("x-service-namespace"), "{refused:?}");
    let invalid = acl.get("/v1/acl/roles?ns=a_b").await;
    assert_eq!((invalid.status, invalid.text.contains("Invalid namespace \"a_b\"")), (400, true), "{invalid:?}");

    // Reads search one namespace only: each may have the same name, an id is in one.
    for name in ["a", "b"] {
        acl.make("/v1/acl/role", json!({"Name": "same", "Namespace": name})).await;
    }
    let a = acl.get("/v1/acl/role/name/same?ns=a").await.json();
    assert_ne!(a["ID"], acl.get("/v1/acl/role/name/same?ns=b").await.json()["ID"]);
    let elsewhere = acl.get(&format!("/v1/acl/role/{}?ns=b", a["ID"].as_str().unwrap())).await;
    assert_eq!(elsewhere.status, 404);
}

#[tokio::test]
async fn authorize_answers_for_each_requested_namespace() {
    let acl = Acl::start().await;
    acl.make("/v1/namespace", json!({"Name": "team"})).await;
    let secret = acl.token_in("team", "key \"a\" { policy = \"list\" }").await;
    let ask = async |secret: Option<&str>, body: Value| {
        acl.call("POST", "/v1/internal/acl/authorize", secret, Some(body)).await
    };
    let response = ask(
        Some(&secret),
        json!([
            {"Resource": "key", "Segment": "a", "Access": "list"},
            {"resource": "key", "Segment": "a", "Access": "read", "Namespace": "default"},
            {"Resource": "namespace", "Access": "read"},
        ]),
    )
    .await;
    let expected = json!([
        {"Resource": "key", "Segment": "a", "Access": "list", "Allow": true},
        {"Resource": "key", "Segment": "a", "Access": "read", "Namespace": "default", "Allow": false},
        {"Resource": "namespace", "Access": "read", "Allow": false},
    ]);
    assert_eq!((response.status, response.json()), (200, expected));
    assert!(!response.headers.contains_key("x-service-index"));
    let one = json!({"Resource": "acl", "Access": "read"});
    assert_eq!(ask(None, json!([one])).await.json()[0]["Allow"], false);
    assert_eq!(ask(None, json!([])).await.text, "[]");
    assert_eq!(ask(None, vec![one.clone(); 64].into()).await.status, 200);
    let unknown = ask(Some("11111111-1111-1111-1111-111111111111"), json!([one])).await;
    assert_eq!((unknown.status, unknown.text.as_str()), (403, "ACL not found"));
    let refused = async |body: Value, text: &str| {
        let response = ask(Some(&secret), body).await;
        assert_eq!((response.status, response.text.contains(text)), (400, true), "{response:?}");
    };
    refused(vec![one.clone(); 65].into(), "65 authorization requests exceed the limit of 64").await;
    refused(json!([{"Resource": "acls", "Access": "read"}]), "Invalid Resource \"acls\"").await;
    refused(json!([{"Resource": "acl", "Access": "own"}]), "Invalid Access \"own\"").await;
    refused(json!([{"Resource": "acl"}]), "Invalid Access \"\"").await;
    refused(json!([{"Resource": "acl", "Access": "read", "Foo": 1}]), "unknown field \"Foo\"").await;
    refused(json!([1]), "cannot unmarshal number into an object").await;
    refused(one, "cannot unmarshal object into an array").await;
}

#[tokio::test]
async fn an_explanation_names_the_rule_and_the_policy_that_decide() {
    let acl = Acl::start().await;
    let team = json!({"Name": "team"});
    acl.make("/v1/namespace", team).await;
    policy(&acl, "open", "default", "event \"a\" { policy = \"write\" }").await;
    let defaults = json!({"Name": "team", "ACLs": {"PolicyDefaults": [{"Name": "open"}]}});
    assert_eq!(acl.call("PUT", "/v1/namespace/team", Some(&acl.root), Some(defaults)).await.status, 200);
    let own = policy(&acl, "web", "team", "key_prefix \"app/\" { policy = \"read\" }").await;
    let made = acl
        .make(
            "/v1/acl/token",
            json!({"Namespace": "team", "Policies": [{"Name": "web"}],
        "ServiceIdentities": [{"ServiceName": "web"}]}),
        )
        .await;
    let questions = json!([
        {"Resource": "key", "Segment": "app/x", "Access": "write"},
        {"Resource": "event", "Segment": "a", "Access": "write", "Namespace": "team"},
        {"Resource": "service", "Segment": "web", "Access": "write"},
        {"Resource": "acl", "Access": "read"},
    ]);
    let path = format!("/v1/acl/token/{}/explain?ns=team", made["AccessorID"].as_str().unwrap());
    let response = acl.call("POST", &path, Some(&acl.root), Some(questions.clone())).await;
    assert_eq!(response.status, 200, "{response:?}");
    let responses = response.json();
    let rule = |at: usize| {
        (responses[at]["Allow"].as_bool().unwrap(), responses[at]["Rule"].as_str().unwrap_or("none").to_owned())
    };
    assert_eq!(rule(0), (false, "key_prefix \"app/\" { policy = \"read\" }".to_owned()));
    assert_eq!((&responses[0]["PolicyID"], &responses[0]["PolicyName"]), (&own["ID"], &json!("web")));
    assert_eq!(
        (rule(1), &responses[1]["NamespaceDefault"]),
        ((true, "event \"a\" { policy = \"write\" }".to_owned()), &json!(true))
    );
    assert_eq!(rule(2), (true, "service \"web\" { policy = \"write\" }".to_owned()));
    assert!(!responses[2]["PolicyName"].as_str().unwrap().is_empty(), "{responses}");
    assert_eq!(rule(3), (false, "none".to_owned()));
    // A token may ask about itself; about another it needs acl:read.
    let secret = made["SecretID"].as_str().unwrap();
    let itself = acl.call("POST", "/v1/acl/token/self/explain", Some(secret), Some(questions.clone())).await;
    assert_eq!((itself.status, &itself.json()), (200, &responses));
    assert_eq!(acl.call("POST", &path, Some(secret), Some(questions.clone())).await.status, 403);
    let unknown = "/v1/acl/token/6a1253d2-1785-24fd-91c2-f8e78c745511/explain";
    assert_eq!(acl.call("POST", unknown, Some(&acl.root), Some(questions)).await.status, 404);
}
