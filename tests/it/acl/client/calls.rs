//! Method, path and body of each call of the client.

use std::collections::BTreeMap;
use std::time::Duration;

use keyward_acl::client::{
    AclLink, AclLinks, AuthMethod, AuthorizationRequest, BindingRule, LoginRequest, Namespace, NamespaceDefaults,
    NewAuthMethod, NewBindingRule, NewNamespace, NewPolicy, NewRole, NewToken, NodeIdentity, OidcBegin, OidcFinish,
    Policy, QueryOptions, ReadConsistency, Role, ServiceIdentity, TemplatedPolicy, Token, TokenListFilter, TokenUpdate,
};
use keyward_machine::secret_string::SecretString;
use serde_json::{Map, Value, json};

use super::{ID, SECRET, id, mock_server, sent, token};

#[tokio::test]
async fn token_and_role_calls_use_the_paths_of_the_api() {
    let links = AclLinks {
        policies: vec![AclLink::by_name("web-read"), AclLink::by_id(id())],
        templated_policies: vec![TemplatedPolicy { template_name: "builtin/dns".into(), ..TemplatedPolicy::default() }],
        service_identities: vec![ServiceIdentity { service_name: "web".into(), datacenters: vec!["dc1".into()] }],
        node_identities: vec![NodeIdentity { node_name: "n1".into(), datacenter: "dc1".into() }],
    };
    let links_sent = json!({"Policies": [{"Name": "web-read"}, {"ID": ID}],
        "TemplatedPolicies": [{"TemplateName": "builtin/dns"}],
        "ServiceIdentities": [{"ServiceName": "web", "Datacenters": ["dc1"]}],
        "NodeIdentities": [{"NodeName": "n1", "Datacenter": "dc1"}]});
    let with_links = |body: Value| -> Value {
        let mut all = body.as_object().unwrap().clone();
        all.extend(links_sent.as_object().unwrap().clone());
        all.into()
    };
    let (server, client) = mock_server(200, token().to_string()).await;
    let created = client.create::<Token>(&NewToken::default()).await.unwrap();
    assert_eq!(created.secret_id.as_ref().unwrap().expose_secret(), SECRET);
    assert_eq!(sent(&server).await, ("PUT /v1/acl/token".into(), json!({"Description": "", "Local": false})));
    let new = NewToken {
        accessor_id: Some(id()),
        secret_id: Some(SecretString::from(SECRET)),
        description: "web".into(),
        roles: vec![AclLink::by_name("web")],
        links: links.clone(),
        local: true,
        expiration_time: None,
        expiration_ttl: Some(Duration::from_mins(90)),
    };
    client.in_namespace(Some("team 1")).create::<Token>(&new).await.unwrap();
    let body = with_links(json!({"AccessorID": ID, "SecretID": SECRET, "Description": "web", "Local": true,
        "Roles": [{"Name": "web"}], "ExpirationTTL": "5400s"}));
    assert_eq!(sent(&server).await, ("PUT /v1/acl/token?ns=team+1".into(), body));
    client.read::<Token>(&id(), &QueryOptions::default()).await.unwrap();
    assert_eq!(sent(&server).await, (format!("GET /v1/acl/token/{ID}"), Value::Null));
    client.read_token_expanded(&id(), &QueryOptions::default()).await.unwrap();
    assert_eq!(sent(&server).await.0, format!("GET /v1/acl/token/{ID}?expanded=true"));
    let query = QueryOptions { index: 9, wait: Some(Duration::from_mins(1)), consistency: ReadConsistency::Stale };
    client.read_self(&query).await.unwrap();
    assert_eq!(sent(&server).await.0, "GET /v1/acl/token/self?index=9&wait=60s&stale=");
    let mut update = TokenUpdate::from(&created);
    update.links = links.clone();
    client.update::<Token>(&id(), &update).await.unwrap();
    let body = with_links(json!({"Description": "web", "Local": true}));
    assert_eq!(sent(&server).await, (format!("PUT /v1/acl/token/{ID}"), body));
    client.clone_token(&id(), None).await.unwrap();
    assert_eq!(sent(&server).await, (format!("PUT /v1/acl/token/{ID}/clone"), json!({})));
    client.clone_token(&id(), Some("two")).await.unwrap();
    assert_eq!(sent(&server).await.1, json!({"Description": "two"}));

    let (server, client) = mock_server(200, "[]").await;
    let filter = TokenListFilter {
        policy: Some(id()),
        role: Some(id()),
        service_name: Some("web".into()),
        auth_method: Some("cloud".into()),
        auth_method_namespace: Some("team".into()),
    };
    client.in_namespace(Some("*")).list::<Token>(&filter, &QueryOptions::default()).await.unwrap();
    let expected =
        format!("GET /v1/acl/tokens?ns=*&policy={ID}&role={ID}&servicename=web&authmethod=cloud&authmethod-ns=team");
    assert_eq!(sent(&server).await.0, expected);
    client.list::<Role>(&Some(id()), &QueryOptions::default()).await.unwrap();
    assert_eq!(sent(&server).await.0, format!("GET /v1/acl/roles?policy={ID}"));

    let (server, client) = mock_server(200, json!({"ID": ID, "Name": "web"}).to_string()).await;
    let new = NewRole { name: "web".into(), description: "w".into(), links };
    client.create::<Role>(&new).await.unwrap();
    let body = with_links(json!({"Name": "web", "Description": "w"}));
    assert_eq!(sent(&server).await, ("PUT /v1/acl/role".into(), body));
    let role = client.read::<Role>(&id(), &QueryOptions::default()).await.unwrap().value;
    assert_eq!(sent(&server).await.0, format!("GET /v1/acl/role/{ID}"));
    client.read_by_name::<Role>("web", &QueryOptions::default()).await.unwrap();
    assert_eq!(sent(&server).await.0, "GET /v1/acl/role/name/web");
    client.update::<Role>(&id(), &NewRole::from(&role)).await.unwrap();
    assert_eq!(sent(&server).await, (format!("PUT /v1/acl/role/{ID}"), json!({"Name": "web", "Description": ""})));

    let (server, client) = mock_server(200, "true").await;
    assert_eq!(client.delete::<Token>(&id()).await, Ok(true));
    assert_eq!(sent(&server).await, (format!("DELETE /v1/acl/token/{ID}"), Value::Null));
    assert_eq!(client.delete::<Role>(&id()).await, Ok(true));
    assert_eq!(sent(&server).await.0, format!("DELETE /v1/acl/role/{ID}"));
}

#[tokio::test]
async fn namespace_calls_use_the_paths_of_the_api_and_send_no_namespace() {
    let namespace = json!({"Name": "team", "Description": "d", "Meta": {"a": "b"}, "DeletedAt": "2030-01-02T03:04:05Z",
        "ACLs": {"PolicyDefaults": [{"ID": ID, "Name": "p"}], "RoleDefaults": null}});
    let (server, client) = mock_server(200, namespace.to_string()).await;
    let client = client.in_namespace(Some("other"));
    let new = NewNamespace {
        name: "team".into(),
        description: "d".into(),
        acls: Some(NamespaceDefaults { policy_defaults: vec![AclLink::by_name("p")], role_defaults: Vec::new() }),
        meta: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
    };
    client.create::<Namespace>(&new).await.unwrap();
    let body = json!({"Name": "team", "Description": "d", "ACLs": {"PolicyDefaults": [{"Name": "p"}]},
        "Meta": {"a": "b"}});
    assert_eq!(sent(&server).await, ("PUT /v1/namespace".into(), body.clone()));
    let read = client.read::<Namespace>("team", &QueryOptions::default()).await.unwrap().value;
    assert_eq!(sent(&server).await.0, "GET /v1/namespace/team");
    assert_eq!(read.acls.policy_defaults, [AclLink { id: Some(ID.into()), name: Some("p".into()) }]);
    assert_eq!(read.deleted_at.unwrap().to_string(), "2030-01-02T03:04:05Z");
    client.update::<Namespace>(&new.name, &new).await.unwrap();
    assert_eq!(sent(&server).await, ("PUT /v1/namespace/team".into(), body));
    let (server, client) = mock_server(200, "[]").await;
    client.list::<Namespace>(&(), &QueryOptions::default()).await.unwrap();
    assert_eq!(sent(&server).await.0, "GET /v1/namespaces");
    let (server, client) = mock_server(200, "").await;
    assert_eq!(client.delete::<Namespace>("team").await, Ok(true), "nothing is said but by the status");
    assert_eq!(sent(&server).await.0, "DELETE /v1/namespace/team");
}

#[tokio::test]
async fn policy_method_rule_and_operator_calls_use_the_paths_of_the_api() {
    let (server, client) =
        mock_server(200, json!({"ID": ID, "Name": "p", "Rules": "acl = \"read\""}).to_string()).await;
    let new = NewPolicy { name: "p".into(), rules: "acl = \"read\"".into(), ..NewPolicy::default() };
    let policy = client.create::<Policy>(&new).await.unwrap();
    let body = json!({"Name": "p", "Description": "", "Rules": "acl = \"read\""});
    assert_eq!(sent(&server).await, ("PUT /v1/acl/policy".into(), body.clone()));
    client.read::<Policy>(&id(), &QueryOptions::default()).await.unwrap();
    assert_eq!(sent(&server).await.0, format!("GET /v1/acl/policy/{ID}"));
    client.read_by_name::<Policy>("builtin/x", &QueryOptions::default()).await.unwrap();
    assert_eq!(sent(&server).await.0, "GET /v1/acl/policy/name/builtin%2Fx");
    client.update::<Policy>(&id(), &NewPolicy::from(&policy)).await.unwrap();
    assert_eq!(sent(&server).await, (format!("PUT /v1/acl/policy/{ID}"), body));
    let variables = Map::from_iter([("name".to_owned(), json!("web"))]);
    client.preview_template("builtin/service", &variables).await.unwrap();
    let expected = ("POST /v1/acl/templated-policy/preview/builtin%2Fservice".into(), json!({"name": "web"}));
    assert_eq!(sent(&server).await, expected);

    let method = json!({"Name": "m", "Type": "jwt", "MaxTokenTTL": "0s", "Config": {"BoundIssuer": "i"}});
    let (server, client) = mock_server(200, method.to_string()).await;
    let read = client.read::<AuthMethod>("m", &QueryOptions::default()).await.unwrap().value;
    assert_eq!(sent(&server).await.0, "GET /v1/acl/auth-method/m");
    assert_eq!(read.max_token_ttl, None);
    client.create::<AuthMethod>(&NewAuthMethod::from(&read)).await.unwrap();
    let body = json!({"Name": "m", "Type": "jwt", "Description": "", "Config": {"BoundIssuer": "i"}});
    assert_eq!(sent(&server).await, ("PUT /v1/acl/auth-method".into(), body.clone()));
    client.update::<AuthMethod>("m", &NewAuthMethod::from(&read)).await.unwrap();
    assert_eq!(sent(&server).await, ("PUT /v1/acl/auth-method/m".into(), body));

    let rule = json!({"ID": ID, "AuthMethod": "m", "Description": "", "Selector": "", "BindType": "policy",
        "BindName": "p"});
    let (server, client) = mock_server(200, rule.to_string()).await;
    let BindingRule { rule, .. } = client.read::<BindingRule>(&id(), &QueryOptions::default()).await.unwrap().value;
    assert_eq!(sent(&server).await.0, format!("GET /v1/acl/binding-rule/{ID}"));
    client.create::<BindingRule>(&NewBindingRule { selector: "a == 1".into(), ..rule.clone() }).await.unwrap();
    let body = json!({"AuthMethod": "m", "Description": "", "Selector": "a == 1", "BindType": "policy",
        "BindName": "p"});
    assert_eq!(sent(&server).await, ("PUT /v1/acl/binding-rule".into(), body));
    client.update::<BindingRule>(&id(), &rule).await.unwrap();
    assert_eq!(sent(&server).await.0, format!("PUT /v1/acl/binding-rule/{ID}"));

    let (server, client) = mock_server(200, token().to_string()).await;
    client.bootstrap(None).await.unwrap();
    assert_eq!(sent(&server).await, ("PUT /v1/acl/bootstrap".into(), json!({})));
    client.bootstrap(Some(SecretString::from(SECRET))).await.unwrap();
    assert_eq!(sent(&server).await.1, json!({"BootstrapSecret": SECRET}));
    let login = LoginRequest {
        auth_method: "m".into(),
        bearer_token: Some(SecretString::from("proof")),
        meta: BTreeMap::from([("host".to_owned(), "web-1".to_owned())]),
    };
    client.login(&login).await.unwrap();
    let body = json!({"AuthMethod": "m", "BearerToken": "proof", "Meta": {"host": "web-1"}});
    assert_eq!(sent(&server).await, ("POST /v1/acl/login".into(), body));
    let nonce = SecretString::from("nonce");
    let finish = OidcFinish {
        auth_method: "m".into(),
        state: SecretString::from("state"),
        code: SecretString::from("code"),
        client_nonce: nonce.clone(),
    };
    client.finish_oidc(&finish).await.unwrap();
    let body = json!({"AuthMethod": "m", "State": "state", "Code": "code", "ClientNonce": "nonce"});
    assert_eq!(sent(&server).await, ("POST /v1/acl/oidc/callback".into(), body));
    let requests = server.received_requests().await.unwrap();
    for name in ["x-service-token", "x-consul-token"] {
        assert!(requests.iter().all(|request| !request.headers.contains_key(name)), "these calls need no token");
    }

    // As Consul Enterprise answers.
    let (server, client) = mock_server(200, json!({"AuthURL": "https://login.example/?state=s"}).to_string()).await;
    let begin = OidcBegin {
        auth_method: "m".into(),
        redirect_uri: "http://localhost:8550/oidc/callback".into(),
        client_nonce: nonce,
        meta: BTreeMap::from([("host".to_owned(), "web-1".to_owned())]),
    };
    let begun = client.begin_oidc(&begin).await.unwrap();
    assert_eq!((begun.auth_url.as_str(), begun.issuer), ("https://login.example/?state=s", None));
    let body = json!({"AuthMethod": "m", "RedirectURI": "http://localhost:8550/oidc/callback", "ClientNonce": "nonce",
        "Meta": {"host": "web-1"}});
    assert_eq!(sent(&server).await, ("POST /v1/acl/oidc/auth-url".into(), body));

    let (server, client) = mock_server(200, "[]").await;
    client.list::<Policy>(&(), &QueryOptions::default()).await.unwrap();
    assert_eq!(sent(&server).await.0, "GET /v1/acl/policies");
    client.list::<AuthMethod>(&(), &QueryOptions::default()).await.unwrap();
    assert_eq!(sent(&server).await.0, "GET /v1/acl/auth-methods?configured=true");
    client.list::<BindingRule>(&Some("m".to_owned()), &QueryOptions::default()).await.unwrap();
    assert_eq!(sent(&server).await.0, "GET /v1/acl/binding-rules?authmethod=m");
    let (server, client) = mock_server(200, "true").await;
    assert_eq!(client.logout().await, Ok(true));
    assert_eq!(sent(&server).await, ("POST /v1/acl/logout".into(), Value::Null));
    for (result, path) in [
        (client.delete::<Policy>(&id()).await, format!("policy/{ID}")),
        (client.delete::<AuthMethod>("m").await, "auth-method/m".to_owned()),
        (client.delete::<BindingRule>(&id()).await, format!("binding-rule/{ID}")),
    ] {
        assert_eq!(result, Ok(true));
        let requests = server.received_requests().await.unwrap();
        assert!(requests.iter().any(|request| request.url.path() == format!("/v1/acl/{path}")), "{path}");
    }

    let template = json!({"TemplateName": "builtin/dns", "Schema": "", "Template": "node_prefix \"\" {}"});
    let (server, client) = mock_server(200, json!({"builtin/dns": template}).to_string()).await;
    let all = client.list_templates(&QueryOptions::default()).await.unwrap().value;
    assert_eq!(all["builtin/dns"].template, "node_prefix \"\" {}");
    assert_eq!(sent(&server).await.0, "GET /v1/acl/templated-policies");
    let (server, client) = mock_server(200, template.to_string()).await;
    client.read_template("builtin/dns", &QueryOptions::default()).await.unwrap();
    assert_eq!(sent(&server).await.0, "GET /v1/acl/templated-policy/name/builtin%2Fdns");
    let (server, client) = mock_server(200, json!({"KeyID": "k", "Rewritten": 7, "Done": true}).to_string()).await;
    let came = client.rekey(true).await.unwrap();
    assert_eq!((came.key_id.as_str(), came.rewritten, came.done, came.unreadable.len()), ("k", 7, true, 0));
    assert_eq!(sent(&server).await, ("PUT /v1/operator/rekey".into(), json!({"Generate": true})));
    let ruling = json!([{"Resource": "acl", "Access": "read", "Allow": true}]);
    let (server, client) = mock_server(200, ruling.to_string()).await;
    let question = AuthorizationRequest { resource: "acl".into(), access: "read".into(), segment: String::new() };
    assert!(client.authorize(&[question]).await.unwrap()[0].allow);
    let expected = ("POST /v1/internal/acl/authorize".into(), json!([{"Resource": "acl", "Access": "read"}]));
    assert_eq!(sent(&server).await, expected);
}
