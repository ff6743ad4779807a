//! `keyward acl` and the client module against the real ACL server.

use std::time::Duration;

use keyward_acl::client::{
    AclClient, AclClientError, AclClientOptions, AclLink, AclLinks, AuthorizationRequest, NewPolicy, NewRole, NewToken,
    Policy, QueryOptions, Role, Token, TokenUpdate,
};
use keyward_acl::model::timestamp::Timestamp;
use keyward_machine::secret_string::SecretString;
use serde_json::{Value, json as object};

use crate::acl::cli_requests::{CommandOutput, acl};
use crate::harness::acl::Acl;
use crate::harness::issuer::Key;

fn client(service: &Acl, token: &str) -> AclClient {
    let mut options = AclClientOptions::for_url(service.url.parse().unwrap());
    options.token = Some(SecretString::from(token));
    AclClient::new(&options).unwrap()
}

/// Runs a command as the first token; it must succeed.
async fn run_ok(service: &Acl, words: &str, input: &str) -> String {
    let output = acl(&service.url, &service.root, words, input).await;
    assert_eq!(output.code, 0, "{words}: {output:?}");
    output.out
}

async fn json(service: &Acl, words: &str) -> Value {
    serde_json::from_str(&run_ok(service, &format!("{words} --format json"), "").await).unwrap()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned()
}

#[tokio::test]
async fn commands_create_read_update_and_delete_policies_roles_and_tokens() {
    let service = Acl::start().await;
    run_ok(&service, "policy create web-read --description d --rules -", "key \"web\" { policy = \"read\" }").await;
    run_ok(&service, "policy create web-write --rules -", "key \"web\" { policy = \"write\" }").await;
    let printed = run_ok(&service, "policy read web-read", "").await;
    assert!(printed.contains("  key \"web\" { policy = \"read\" }"), "{printed}");
    let id = text(&json(&service, "policy read web-read").await["ID"]);
    run_ok(&service, &format!("policy update {} --name web-look", &id[..8]), "").await;
    let all = run_ok(&service, "policy list", "").await;
    assert!(all.contains("web-look") && all.contains("global-management") && !all.contains("web-read"), "{all}");

    run_ok(&service, &format!("role create ops --policy-id {} --service-identity web:dc1", &id[..8]), "").await;
    run_ok(&service, "role update ops --policy-name web-write --merge --node-identity n1:dc1", "").await;
    let role = json(&service, "role read ops").await;
    assert_eq!(role["Policies"].as_array().unwrap().len(), 2, "{role}");
    assert_eq!(
        (&role["ServiceIdentities"][0]["ServiceName"], &role["NodeIdentities"][0]["NodeName"]),
        (&"web".into(), &"n1".into())
    );
    run_ok(&service, "role update ops --no-service-identities --policy-name web-look", "").await;
    let role = json(&service, "role read ops").await;
    assert_eq!((role["Policies"].as_array().unwrap().len(), &role["ServiceIdentities"]), (1, &Value::Null), "{role}");
    let listed = json(&service, "role list --policy web-look").await;
    assert_eq!(listed[0]["Name"], "ops", "{listed}");
    assert_eq!(json(&service, "role list --policy web-write").await, Value::Array(Vec::new()));

    let words = "token create --description web --role-name ops --policy-name web-look --local --ttl 90m \
                 --templated-policy builtin/service --var name:api --templated-policy builtin/dns";
    let token = json(&service, words).await;
    let (accessor, secret) = (text(&token["AccessorID"]), text(&token["SecretID"]));
    assert_eq!(token["TemplatedPolicies"].as_array().unwrap().len(), 2, "{token}");
    let own = acl(&service.url, &secret, "whoami", "").await;
    assert!(own.out.contains("Remaining life:      89 min") || own.out.contains("90 min"), "{own:?}");
    assert!(own.out.contains("ops (") && own.out.contains("builtin/service name=api"), "{own:?}");
    run_ok(&service, &format!("token update {accessor} --description new --no-roles"), "").await;
    let read = json(&service, &format!("token read {accessor}")).await;
    assert_eq!((&read["Description"], &read["Roles"], &read["Local"]), (&"new".into(), &Value::Null, &true.into()));
    assert_eq!((&read["ExpirationTime"], &read["SecretID"]), (&token["ExpirationTime"], &Value::Null));
    let cloned = json(&service, &format!("token clone {accessor} --description two")).await;
    assert_eq!((&cloned["Description"], &cloned["TemplatedPolicies"]), (&"two".into(), &read["TemplatedPolicies"]));
    let deleted = run_ok(&service, &format!("token delete {accessor}"), "").await;
    assert_eq!(deleted, format!("token {accessor} is deleted\n"));
    for (words, code, expected) in [
        (format!("token delete {accessor}"), 8, "no token "),
        (format!("token read {accessor}"), 8, "does not exist"),
        ("role create ops".to_owned(), 9, "already exists"),
        ("role read nobody".to_owned(), 8, "no role has the name or id"),
        ("token create --policy-name nobody".to_owned(), 2, "nobody"),
        ("token create --service-identity Web".to_owned(), 2, "invalid name"),
        ("token create --ttl 30s".to_owned(), 2, "cannot be less than"),
    ] {
        let output = acl(&service.url, &service.root, &words, "").await;
        assert!(output.code == code && output.error.contains(expected) && output.out.is_empty(), "{words}: {output:?}");
    }
    let old = acl(&service.url, &secret, "whoami", "").await;
    assert!(old.code == 6 && old.error.contains("wrong, expired or deleted"), "{old:?}");
    run_ok(&service, "role delete ops", "").await;
    run_ok(&service, "policy delete web-look", "").await;
}

#[tokio::test]
async fn tokens_are_found_by_links_and_by_accessor_prefix() {
    let service = Acl::start().await;
    run_ok(&service, "policy create web-read --rules -", "key \"web\" { policy = \"read\" }").await;
    run_ok(&service, "role create ops --policy-name web-read", "").await;
    let by_policy = json(&service, "token create --description one --policy-name web-read").await;
    let by_role = json(&service, "token create --description two --role-name ops --node-identity n1:dc1").await;
    let by_service = json(&service, "token create --description three --service-identity web --ttl 1h").await;
    for (filter, token) in
        [("--policy web-read", &by_policy), ("--role ops", &by_role), ("--service-name web", &by_service)]
    {
        let found = json(&service, &format!("token list {filter}")).await;
        assert_eq!((found.as_array().unwrap().len(), &found[0]["AccessorID"]), (1, &token["AccessorID"]), "{filter}");
    }
    let table = run_ok(&service, "token list", "").await;
    assert_eq!(table.lines().count(), 6, "a head, three of ours, the first and the anonymous one: {table}");
    for (words, expected) in [("one", "policy web-read"), ("two", "role ops, node n1"), ("three", "service web")] {
        let line = table.lines().find(|line| line.ends_with(words)).unwrap_or_else(|| panic!("{words}: {table}"));
        assert!(line.contains(expected) && !line.contains(&text(&by_policy["SecretID"])), "{line}");
    }
    let two = acl(&service.url, &service.root, "token list --policy web-read --role ops", "").await;
    assert!(two.code == 1 && two.error.contains("cannot be used with"), "{two:?}");

    let accessor = text(&by_role["AccessorID"]);
    let expanded = run_ok(&service, &format!("token read {} --expanded", &accessor[..13]), "").await;
    for expected in ["policy web-read (", "  key \"web\" { policy = \"read\" }", "node \"n1\"", "All roles:", "ops ("] {
        assert!(expanded.contains(expected), "{expected}: {expanded}");
    }
    let expanded = json(&service, &format!("token read {accessor} --expanded")).await;
    assert_eq!(expanded["ExpandedPolicies"].as_array().unwrap().len(), 2, "{expanded}");
    assert_eq!((&expanded["AgentACLDefaultPolicy"], &expanded["SecretID"]), (&"deny".into(), &Value::Null));
    let nobody = acl(&service.url, &service.root, "token read ffff0000ffff", "").await;
    assert!(nobody.code == 8 && nobody.error.contains("no token has the id"), "{nobody:?}");
}

#[tokio::test]
async fn a_reader_sees_no_secrets_and_errors_name_the_missing_permission() {
    let service = Acl::start().await;
    let reader = service.token_with("acl = \"read\"").await;
    let made = json(&service, "token create --description web").await;
    let (accessor, secret) = (text(&made["AccessorID"]), text(&made["SecretID"]));
    let run = async |words: String| acl(&service.url, &reader, &words, "").await;
    let read = run(format!("token read {accessor} --show-secret")).await;
    assert!(read.code == 0 && read.out.contains("requires acl:write") && !read.out.contains(&secret), "{read:?}");
    let own = run("token read --self --format json".to_owned()).await;
    let own: Value = serde_json::from_str(&own.out).unwrap();
    let refused = run(format!("token update {accessor} --description new")).await;
    let expected = format!("the token with accessor {} lacks acl:write", text(&own["AccessorID"]));
    assert!(refused.code == 6 && refused.error.contains(&expected), "{refused:?}");
    let none = acl(&service.url, "", &format!("token read {accessor}"), "").await;
    assert!(none.code == 6 && none.error.contains("no token was sent"), "{none:?}");
}

#[tokio::test]
async fn a_rotated_token_is_refused_and_its_successor_has_the_same_rights() {
    let service = Acl::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ops.token");
    let made = json(&service, "token create --description ops --policy-name global-management").await;
    let (accessor, secret) = (text(&made["AccessorID"]), text(&made["SecretID"]));
    std::fs::write(&file, &secret).unwrap();
    let words = format!("token rotate --self --grace 0s --token-file {0} --out {0}", file.display());
    let output: CommandOutput = acl(&service.url, "", &words, "").await;
    assert_eq!(output.code, 0, "{output:?}");
    let fresh = std::fs::read_to_string(&file).unwrap();
    assert!(!output.out.contains(&fresh) && !output.error.contains(&fresh), "{output:?}");
    let client = client(&service, &fresh);
    let own = client.read_self(&QueryOptions::default()).await.unwrap().value;
    assert_eq!((own.description.as_str(), own.links.policies.len()), ("ops", 1));
    assert!(matches!(
        client.read::<Token>(&accessor.parse().unwrap(), &QueryOptions::default()).await,
        Err(AclClientError::NotFound { .. })
    ));
    let old = client.with_token(SecretString::from(secret));
    assert_eq!(old.read_self(&QueryOptions::default()).await.unwrap_err(), AclClientError::Unauthenticated);

    let short = json(&service, "token create --description job --ttl 2m --policy-name global-management").await;
    let words = format!("token rotate {} --grace 0s --ttl 1h --format json", text(&short["AccessorID"]));
    let next: Value = serde_json::from_str(&run_ok(&service, &words, "").await).unwrap();
    assert!(text(&next["ExpirationTime"]) > text(&short["ExpirationTime"]), "{next}");
    assert_eq!((&next["Description"], &next["Policies"]), (&short["Description"], &short["Policies"]));
}

#[tokio::test]
async fn the_client_distinguishes_the_errors_of_the_real_server() {
    let service = Acl::start().await;
    let root = client(&service, &service.root);
    let policy = NewPolicy { name: "p".into(), rules: "acl = \"read\"".into(), ..NewPolicy::default() };
    let policy = root.create::<Policy>(&policy).await.unwrap();
    let role = root.create::<Role>(&NewRole { name: "r".into(), ..NewRole::default() }).await.unwrap();
    let again = root.create::<Role>(&NewRole { name: "r".into(), ..NewRole::default() }).await.unwrap_err();
    assert!(matches!(again, AclClientError::Conflict { .. }), "{again:?}");
    let links = AclLinks { policies: vec![AclLink::by_id(policy.id.parse().unwrap())], ..AclLinks::default() };
    let token = root.create::<Token>(&NewToken { links: links.clone(), ..NewToken::default() }).await.unwrap();
    let reader = root.with_token(token.secret_id.clone().unwrap());
    let denied = reader.create::<Role>(&NewRole { name: "x".into(), ..NewRole::default() }).await.unwrap_err();
    let AclClientError::PermissionDenied(denial) = &denied else { panic!("{denied:?}") };
    assert_eq!(denial.accessor.as_deref(), Some(token.accessor_id.to_string().as_str()));
    assert_eq!(denial.permission.as_deref(), Some("acl:write"));
    let hidden = reader.read::<Token>(&token.accessor_id, &QueryOptions::default()).await.unwrap().value;
    assert!(hidden.secret_id.is_none());
    let unknown = root.with_token(SecretString::from("45a3bd52-07c7-47a4-52fd-0745e0cfe967"));
    assert_eq!(
        unknown.read::<Role>(&role.id, &QueryOptions::default()).await.unwrap_err(),
        AclClientError::Unauthenticated
    );
    assert_eq!(unknown.read_self(&QueryOptions::default()).await.unwrap_err(), AclClientError::Unauthenticated);
    let missing = root.read_by_name::<Role>("nobody", &QueryOptions::default()).await.unwrap_err();
    assert!(matches!(missing, AclClientError::NotFound { .. }), "{missing:?}");
    let wrong = NewToken { expiration_ttl: Some(Duration::from_secs(1)), ..NewToken::default() };
    let wrong = root.create::<Token>(&wrong).await.unwrap_err();
    assert!(matches!(wrong, AclClientError::Invalid { .. }), "{wrong:?}");
    let large = NewToken { description: "x".repeat(8 * 1024 * 1024), ..NewToken::default() };
    let large = root.create::<Token>(&large).await.unwrap_err();
    assert!(matches!(large, AclClientError::TooLarge { .. } | AclClientError::Transport(_)), "{large:?}");
    let itself = root.read_self(&QueryOptions::default()).await.unwrap().value;
    let itself = root.delete::<Token>(&itself.accessor_id).await.unwrap_err();
    assert!(matches!(itself, AclClientError::Invalid { .. }), "{itself:?}");
    let mut update = TokenUpdate::from(&token);
    update.links.policies.push(AclLink::by_name("nobody"));
    let refused = root.update::<Token>(&token.accessor_id, &update).await.unwrap_err();
    assert!(matches!(refused, AclClientError::Invalid { .. }), "{refused:?}");
    assert_eq!(token.secret_id.as_ref().map(|secret| secret.expose_secret().len()), Some(36));
    assert_eq!(root.delete::<Token>(&token.accessor_id).await, Ok(true));
    assert_eq!(root.delete::<Token>(&token.accessor_id).await, Ok(false));
}

#[tokio::test]
async fn the_client_reads_the_rights_of_its_token() {
    let service = Acl::start().await;
    let reader = client(&service, &service.token_with("acl = \"read\" key \"web\" { policy = \"write\" }").await);
    let ask = |resource: &str, access: &str, segment: &str| AuthorizationRequest {
        resource: resource.into(),
        access: access.into(),
        segment: segment.into(),
    };
    let requests =
        [ask("acl", "read", ""), ask("acl", "write", ""), ask("key", "write", "web"), ask("key", "read", "other")];
    let responses = reader.authorize(&requests).await.unwrap();
    assert_eq!(responses.iter().map(|ruling| ruling.allow).collect::<Vec<_>>(), [true, false, true, false]);
    assert_eq!((responses[2].resource.as_str(), responses[2].segment.as_str()), ("key", "web"));
    let many = vec![ask("acl", "read", ""); 65];
    let error = reader.authorize(&many).await.unwrap_err();
    assert!(matches!(error, AclClientError::Invalid { .. }), "{error:?}");
}

#[tokio::test]
async fn a_blocking_read_of_the_client_returns_when_something_changes() {
    let service = Acl::start().await;
    let root = client(&service, &service.root);
    let first = root.list::<Role>(&None, &QueryOptions::default()).await.unwrap();
    assert!(first.known_leader && first.value.is_empty());
    let waiting = QueryOptions { index: first.index, wait: Some(Duration::from_secs(30)), ..QueryOptions::default() };
    let change = async {
        service.until_a_query_waits().await;
        root.create::<Role>(&NewRole { name: "r".into(), ..NewRole::default() }).await.unwrap()
    };
    let (second, role) = tokio::join!(root.list::<Role>(&None, &waiting), change);
    let second = second.unwrap();
    assert!(second.index > first.index && second.value[0].id == role.id, "{second:?}");
}

#[tokio::test]
async fn commands_create_fill_list_and_delete_namespaces() {
    let service = Acl::start().await;
    run_ok(&service, "policy create web-read --rules -", "key \"web\" { policy = \"read\" }").await;
    run_ok(&service, "role create ops", "").await;
    let words = "namespace create team-1 --description d --default-policy-name web-read --meta owner=ops --meta tier=1";
    let made = json(&service, words).await;
    assert_eq!(made["ACLs"]["PolicyDefaults"][0]["Name"], "web-read", "{made}");
    let words = "namespace update team-1 --default-role-name ops --meta tier=2 --merge";
    run_ok(&service, words, "").await;
    let printed = run_ok(&service, "namespace read team-1", "").await;
    for expected in ["web-read (", "ops (", "owner=ops", "tier=2"] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    run_ok(&service, "namespace update team-1 --no-meta --no-default-roles --description new", "").await;
    let read = json(&service, "namespace read team-1").await;
    assert_eq!((&read["Description"], &read["Meta"]), (&"new".into(), &Value::Null), "{read}");
    assert_eq!(read["ACLs"]["PolicyDefaults"].as_array().unwrap().len(), 1, "{read}");
    let names: Vec<_> =
        json(&service, "namespace list").await.as_array().unwrap().iter().map(|item| text(&item["Name"])).collect();
    assert_eq!(names, ["default", "team-1"]);

    run_ok(&service, "role create ops --description theirs --namespace team-1", "").await;
    assert_eq!(json(&service, "role read ops --namespace team-1").await["Description"], "theirs");
    assert_eq!(json(&service, "role read ops").await["Description"], "");
    let all = json(&service, "role list --namespace *").await;
    assert_eq!(all.as_array().unwrap().len(), 2, "{all}");
    let token = json(&service, "token create --role-name ops --namespace team-1").await;
    let secret = text(&token["SecretID"]);
    let own = acl(&service.url, &secret, "whoami", "").await;
    assert!(own.code == 0 && own.out.contains("team-1") && own.out.contains("ops ("), "{own:?}");

    // A token without links may have the rights of its namespace's defaults.
    run_ok(&service, "namespace update team-1 --default-role-name ops --merge", "").await;
    let bare = text(&json(&service, "token create --namespace team-1").await["SecretID"]);
    let own = acl(&service.url, &bare, "whoami", "").await;
    assert!(own.code == 0 && own.error.contains("may not read its namespace: default policies and roles"), "{own:?}");
    let rules = "namespace \"team-1\" { policy = \"read\" }";
    run_ok(&service, "policy create shows-team-1 --rules -", rules).await;
    run_ok(&service, "namespace update team-1 --default-policy-name shows-team-1 --merge", "").await;
    let own = acl(&service.url, &bare, "whoami", "").await;
    assert!(own.out.contains("web-read (") && own.out.contains("Default roles:     ops ("), "{own:?}");
    assert!(own.error.contains("its rights come from the defaults of its namespace"), "{own:?}");
    let own = acl(&service.url, &bare, "whoami --format json", "").await;
    let own: Value = serde_json::from_str(&own.out).unwrap();
    assert_eq!(own["NamespaceDefaults"]["PolicyDefaults"][0]["Name"], "web-read", "{own}");
    let bare = text(&json(&service, "token create").await["SecretID"]);
    let own = acl(&service.url, &bare, "whoami", "").await;
    assert!(own.code == 0 && own.error.contains("may not read its namespace"), "{own:?}");
    let nobody = acl(&service.url, "", "whoami", "").await;
    assert!(nobody.code == 6 && nobody.error.starts_with("error: no token was given: pass --token-file"), "{nobody:?}");
    let unknown = acl(&service.url, "", "login --method ci --bearer-token-file -", "header.payload.signature").await;
    assert!(unknown.code == 8 && unknown.error.contains("auth method \"ci\" not found"), "{unknown:?}");

    let deleted = acl(&service.url, &service.root, "namespace delete team-1", "").await;
    assert!(
        deleted.code == 0
            && deleted.out == "namespace team-1 is deleted\n"
            && deleted.error.contains("in the background")
    );
    let own = acl(&service.url, &secret, "whoami", "").await;
    assert_eq!(own.code, 6, "{own:?}");
    let missing = acl(&service.url, &service.root, "namespace delete nobody", "").await;
    assert_eq!(missing.code, 8, "{missing:?}");
    let reader = service.token_with("acl = \"read\"").await;
    let refused = acl(&service.url, &reader, "namespace create team-2", "").await;
    assert!(refused.code == 6 && refused.error.contains("lacks operator:write"), "{refused:?}");
}

#[tokio::test]
async fn commands_log_in_by_a_stored_auth_method_and_log_out() {
    let service = Acl::start().await;
    let key = Key::shared("k");
    let config = object!({
        "JWTValidationPubKeys": [key.pem()], "BoundIssuer": "i", "BoundAudiences": ["a"],
        "ClaimMappings": {"first_name": "name"},
    });
    let words = "auth-method create people --type jwt --max-token-ttl 10m --config -";
    run_ok(&service, words, &config.to_string()).await;
    run_ok(&service, "auth-method update people --display-name Staff", "").await;
    let method = json(&service, "auth-method read people").await;
    assert_eq!((&method["DisplayName"], &method["MaxTokenTTL"]), (&"Staff".into(), &"10m0s".into()), "{method}");
    assert_eq!(method["Config"], config);
    assert!(run_ok(&service, "auth-method list", "").await.contains("people"));

    let words = "binding-rule create --method people --bind-type service --bind-name ${value.name} \
                 --selector value.name==\"jeff\"";
    let rule = json(&service, words).await;
    let id = text(&rule["ID"]);
    run_ok(&service, &format!("binding-rule update {id} --description d"), "").await;
    let read = json(&service, &format!("binding-rule read {id}")).await;
    assert_eq!((&read["Description"], &read["BindName"]), (&"d".into(), &"${value.name}".into()), "{read}");
    assert_eq!(json(&service, "binding-rule list --method people").await[0]["ID"], id.as_str());

    let now = Timestamp::from_system_time(service.now()).unix_seconds();
    let jwt = key.sign(&object!({"iss": "i", "aud": "a", "exp": now + 600, "iat": now, "first_name": "jeff"}));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("jeff.token");
    let words = format!("login --method people --bearer-token-file - --meta host=web-1 --out {}", out.display());
    let output = acl(&service.url, "", &words, &jwt).await;
    assert_eq!(output.code, 0, "{output:?}");
    let secret = std::fs::read_to_string(&out).unwrap();
    assert!(!output.out.contains(&secret) && !output.error.contains(&secret), "{output:?}");
    let own = acl(&service.url, &secret, "whoami", "").await;
    assert!(own.out.contains("  people\n") && own.out.contains("  jeff\n"), "{own:?}");
    let listed = json(&service, "token list --auth-method people").await;
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(acl(&service.url, &secret, "logout", "").await.code, 0);
    assert_eq!(acl(&service.url, &secret, "whoami", "").await.code, 6);

    // A login without a matching rule, or with an invalid JWT, is refused.
    let other = key.sign(&object!({"iss": "i", "aud": "a", "exp": now + 600, "iat": now, "first_name": "eve"}));
    for (proof, code) in [(other.as_str(), 6), ("no.such.proof", 2)] {
        let refused = acl(&service.url, "", "login --method people --bearer-token-file -", proof).await;
        assert_eq!((refused.code, refused.out.as_str()), (code, ""), "{refused:?}");
        assert!(!refused.error.contains(proof), "{refused:?}");
    }
    run_ok(&service, &format!("binding-rule delete {id}"), "").await;
    run_ok(&service, "auth-method delete people", "").await;
    assert_eq!(acl(&service.url, &service.root, "auth-method read people", "").await.code, 8);
}

#[tokio::test]
async fn a_template_preview_shows_the_generated_policy() {
    let service = Acl::start().await;
    assert!(run_ok(&service, "templated-policy list", "").await.contains("builtin/service"));
    assert!(run_ok(&service, "templated-policy read builtin/node", "").await.contains("name"));
    let printed = run_ok(&service, "templated-policy preview builtin/service --var name:web", "").await;
    assert!(printed.contains("service \"web\"") && printed.contains("web-sidecar-proxy"), "{printed}");
    let refused = acl(&service.url, &service.root, "templated-policy preview builtin/service", "").await;
    assert!(refused.code != 0 && refused.error.contains("name"), "{refused:?}");
    let missing = acl(&service.url, &service.root, "templated-policy read builtin/nothing", "").await;
    assert_eq!(missing.code, 8, "{missing:?}");
}
