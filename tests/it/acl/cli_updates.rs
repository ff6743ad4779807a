//! Fields that `keyward acl` keeps or removes in an update.

use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use crate::acl::cli_requests::acl;
use crate::harness::acl::Acl;
use crate::harness::issuer::Key;

#[tokio::test]
async fn an_update_of_an_auth_method_keeps_the_namespace_rules_of_consul_enterprise() {
    let server = MockServer::start().await;
    let rules = json!([{"Selector": "value.team != \"\"", "BindNamespace": "${value.team}"}]);
    let record = json!({"Name": "ci", "Type": "jwt", "Config": {"BoundIssuer": "i"}, "NamespaceRules": rules});
    let response = ResponseTemplate::new(200).set_body_string(record.to_string());
    Mock::given(any()).respond_with(response).mount(&server).await;
    let ended = acl(&server.uri(), "secret", "auth-method update ci --description new", "").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let requests = server.received_requests().await.unwrap();
    let request = requests.last().unwrap();
    let body: Value = request.body_json().unwrap();
    assert_eq!((request.method.as_str(), &body["Description"]), ("PUT", &json!("new")));
    assert_eq!(body["NamespaceRules"], rules);
}

#[tokio::test]
async fn a_binding_rule_loses_the_variables_of_its_template_with_the_type() {
    let service = Acl::start().await;
    let config = json!({"JWTValidationPubKeys": [Key::shared("k").pem()], "BoundIssuer": "i", "BoundAudiences": ["a"]});
    service.make("/v1/acl/auth-method", json!({"Name": "ci", "Type": "jwt", "Config": config})).await;
    let draft = json!({"AuthMethod": "ci", "BindType": "templated-policy", "BindName": "builtin/service",
        "BindVars": {"Name": "web"}});
    let rule = service.make("/v1/acl/binding-rule", draft).await;
    let id = rule["ID"].as_str().unwrap();
    let update = async |words: &str| {
        let ended = acl(&service.url, &service.root, &format!("binding-rule update {id} {words}"), "").await;
        assert_eq!(ended.code, 0, "{words}: {ended:?}");
        service.get(&format!("/v1/acl/binding-rule/{id}")).await.json()
    };
    let kept = update("--bind-type templated-policy --description d").await;
    assert_eq!(kept["BindVars"], json!({"Name": "web"}));
    let changed = update("--bind-type role --bind-name web").await;
    assert_eq!((&changed["BindType"], changed.get("BindVars")), (&json!("role"), None));
    let back = update("--bind-type templated-policy --bind-name builtin/node --bind-var Name:n1").await;
    assert_eq!(back["BindVars"], json!({"Name": "n1"}));
}
