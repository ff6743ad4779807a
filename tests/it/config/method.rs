//! The `cloud` method's parameters: each row of the table of its specification, by name.

use keyward_agent::identity::{IdentityMethod, IdentityOrigin, LoginFields, ManagedIdentity};

use super::{Folder, check, clean, environment};
use keyward_config::{Config, Purpose, load};

const SERVER: &str = "[server.main]\nkind = \"vault\"\naddress = \"https://secrets.example.com\"\n[sink.a]\npath = \"/a\"\n[session.main.cloud]\n";

fn with(parameters: &str) -> String {
    format!("{SERVER}{parameters}")
}

fn identity(config: &Config) -> &keyward_agent::identity::CloudIdentityOptions {
    match &config.sessions[0].identity {
        IdentityMethod::Cloud(options) => options,
        other => panic!("{other:?}"),
    }
}

/// Azure identity, key `role`: a string, required; the role to authenticate against in Vault.
#[test]
fn role_is_required() {
    let (folder, outcome) = check(&with("resource = \"r\"\n"));
    let expected = "a.toml:6:15: session.main.cloud.role: missing; the role to log in as";
    assert_eq!(folder.short(&outcome.errors), [expected]);
    let config = clean(&with("role = \"web\"\nresource = \"r\"\n"));
    assert_eq!(config.sessions[0].login.role, "web");
}

/// Azure identity, key `resource`: a string, required; the resource name used when getting identity information.
#[test]
fn resource_is_required() {
    let (folder, outcome) = check(&with("role = \"web\"\n"));
    let expected = "a.toml:6:15: session.main.cloud.resource: missing; the resource to request an identity token for, such as \"https://management.azure.com/\"";
    assert_eq!(folder.short(&outcome.errors), [expected]);
    let config = clean(&with("role = \"web\"\nresource = \"https://management.azure.com/\"\n"));
    assert_eq!(identity(&config).resource, "https://management.azure.com/");
}

/// Azure identity, key `scope`: a string; by default the value of resource followed by `/.default`.
#[test]
fn scope_defaults_to_the_resource_with_suffix_and_keeps_a_double_slash() {
    let text = with("role = \"web\"\nresource = \"https://m.example/\"\nauthenticate_from_environment = true\n");
    let (_, outcome) = check(&text);
    assert_eq!(identity(outcome.config.as_ref().unwrap()).scope, None);
    let words = outcome.description().unwrap().to_string();
    assert!(words.contains("for the scope https://m.example//.default\n"), "{words}");

    let config = clean(&format!("{text}scope = \"https://m.example/.default\"\n"));
    assert_eq!(identity(&config).scope.as_deref(), Some("https://m.example/.default"));
}

#[test]
fn a_scope_with_instance_identity_that_differs_from_the_default_is_a_warning() {
    let text = with("role = \"web\"\nresource = \"https://m.example/\"\nscope = \"https://m.example/.default\"\n");
    let (folder, outcome) = check(&text);
    assert!(outcome.config.is_some());
    let expected = concat!(
        "a.toml:9:9: session.main.cloud.scope: ignored: a managed identity is requested for resource; ",
        "leave it out, or set authenticate_from_environment = true"
    );
    assert_eq!(folder.short(&outcome.warnings), [expected]);
    let (_, outcome) = check(&text.replace("example/.default", "example//.default"));
    assert_eq!(outcome.warnings, []);
}

/// Azure identity, key `object_id`: only one of object_id or client_id may be given.
/// Azure identity, key `client_id`: only one of object_id or client_id may be given.
#[test]
fn object_id_and_client_id_exclude_each_other_in_either_mode() {
    for mode in ["", "authenticate_from_environment = true\n"] {
        let text = with(&format!("role = \"web\"\nresource = \"r\"\nclient_id = \"c\"\nobject_id = \"o\"\n{mode}"));
        let (folder, outcome) = check(&text);
        let expected = concat!(
            "a.toml:10:13: session.main.cloud.object_id: set only one of object_id and client_id; ",
            "keep the one that names the managed identity"
        );
        assert_eq!(folder.short(&outcome.errors), [expected]);
    }
}

/// Azure identity, key `object_id`: a string; the user-assigned managed identity that gives the token.
#[test]
fn object_id_names_the_managed_identity() {
    let config = clean(&with("role = \"web\"\nresource = \"r\"\nobject_id = \"o\"\n"));
    assert_eq!(identity(&config).from, IdentityOrigin::Instance(ManagedIdentity::ObjectId("o".to_owned())));
}

/// Azure identity, key `client_id`: a string; the user-assigned managed identity that gives the token.
#[test]
fn client_id_names_the_managed_identity() {
    let config = clean(&with("role = \"web\"\nresource = \"r\"\nclient_id = \"c\"\n"));
    assert_eq!(identity(&config).from, IdentityOrigin::Instance(ManagedIdentity::ClientId("c".to_owned())));
}

/// Azure identity, key `authenticate_from_environment`: a boolean, false by default.
#[test]
fn authenticate_from_environment_is_false_unless_given() {
    let config = clean(&with("role = \"web\"\nresource = \"r\"\n"));
    assert_eq!(identity(&config).from, IdentityOrigin::Instance(ManagedIdentity::System));
    let config = clean(&with("role = \"web\"\nresource = \"r\"\nauthenticate_from_environment = false\n"));
    assert_eq!(identity(&config).from, IdentityOrigin::Instance(ManagedIdentity::System));
    let config = clean(&with("role = \"web\"\nresource = \"r\"\nauthenticate_from_environment = true\n"));
    assert_eq!(identity(&config).from, IdentityOrigin::Environment);
}

/// Azure identity, key `authenticate_from_environment`: when true, object_id and client_id are ignored.
#[test]
fn authenticate_from_environment_ignores_an_id_with_a_warning() {
    for id in ["object_id", "client_id"] {
        let parameters =
            format!("role = \"web\"\nresource = \"r\"\n{id} = \"x\"\nauthenticate_from_environment = true\n");
        let (folder, outcome) = check(&with(&parameters));
        assert_eq!(identity(outcome.config.as_ref().unwrap()).from, IdentityOrigin::Environment);
        let expected = format!(
            "a.toml:9:{}: session.main.cloud.{id}: ignored, because authenticate_from_environment is true; \
             leave it out, or name the identity by the variable AZURE_CLIENT_ID",
            id.len() + 4,
        );
        assert_eq!(folder.short(&outcome.warnings), [expected]);
    }
}

#[test]
fn login_fields_can_be_set() {
    let config = clean(&with(concat!(
        "role = \"web\"\nresource = \"r\"\nvm_name = \"v\"\nvmss_name = \"s\"\nresource_group_name = \"g\"\n",
        "subscription_id = \"u\"\nresource_id = \"/subscriptions/u\"\n",
    )));
    let expected = LoginFields {
        subscription_id: Some("u".to_owned()),
        resource_group_name: Some("g".to_owned()),
        vm_name: Some("v".to_owned()),
        vmss_name: Some("s".to_owned()),
        resource_id: Some("/subscriptions/u".to_owned()),
    };
    assert_eq!(identity(&config).overrides, expected);
}

#[test]
fn incomplete_variables_are_reported_before_anything_starts() {
    let text = with("role = \"web\"\nresource = \"r\"\nauthenticate_from_environment = true\n");
    let folder = Folder::with(&[("a.toml", &text)]);
    let environment = environment(&[("AZURE_CLIENT_ID", "c"), ("AZURE_CLIENT_SECRET", "canary-7f3a91")]);
    let check = load(&[folder.path("a.toml")], &environment, Purpose::Check);
    let run = load(&[folder.path("a.toml")], &environment, Purpose::Run);
    assert_eq!(check.errors, []);
    assert_eq!(check.notes.last(), run.errors.first());
    let errors = folder.short(&run.errors).concat();
    assert!(errors.starts_with("a.toml:6:15: session.main.cloud: ") && errors.contains("AZURE_TENANT_ID"), "{errors}");
    assert!(!errors.contains("canary"), "{errors}");
}

#[test]
fn a_server_that_is_called_without_tls_is_a_warning_each_time() {
    let (folder, outcome) = check(
        "[server.a]\nkind = \"vault\"\naddress = \"http://10.0.0.1:8200\"\nallow_http = true\n\
         [session.c.cloud]\nrole = \"c\"\nresource = \"r\"\n[sink.t]\npath = \"/run/keyward/t\"\n",
    );
    let expected = [concat!(
        "a.toml:3:11: server.a.address: logins, tokens and secrets cross the network unencrypted; ",
        "give the server a certificate, and write https://"
    )];
    assert_eq!(folder.short(&outcome.warnings), expected);
    let config = outcome.config.unwrap();
    assert!(config.sessions[0].upstream.client.build().is_ok());
}

#[test]
fn unused_servers_and_sessions_are_warnings() {
    let (folder, outcome) = check(
        "[server.a]\nkind = \"vault\"\naddress = \"https://a\"\n[server.b]\nkind = \"vault\"\naddress = \"https://b\"\n\
         [session.c]\nserver = \"a\"\n[session.c.cloud]\nrole = \"c\"\nresource = \"r\"\n",
    );
    let expected = [
        "a.toml:4:9: server.b: no session uses this server; leave it out, or name it in a session",
        "a.toml:7:10: session.c: no sink, listener, template or certificate uses this session; add a [sink.NAME] or a [listener.NAME]",
    ];
    assert_eq!(folder.short(&outcome.warnings), expected);
    assert!(outcome.config.is_some());
}
