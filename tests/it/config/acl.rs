//! `[acl]`: the ACL server.

use std::path::Path;
use std::time::Duration;

use keyward_acl::model::authorize::DefaultPolicy;
use keyward_acl::model::azure_identity::BoundClaims;
use keyward_acl::service::issuer_keys::KeyDocument;
use keyward_acl::service::login::{MethodOptions, TokenMethodOptions};
use keyward_config::{AclServer, Environment, Purpose, load};
use keyward_http::server::Endpoint;

use super::{check, clean, environment};

const METHOD: &str = r#"
[acl.method.cloud]
issuer = "https://sts.example/t/"
audience = "https://management.example/"
jwks_url = "http://127.0.0.1:8000/keys"

[acl.method.cloud.role.web]
principals = ["p"]
policies = ["a", "b"]
"#;

fn with(section: &str) -> String {
    format!("[acl]\n{section}{METHOD}")
}

/// Returns a method of the type `azure`.
fn azure<'a>(acl: &'a AclServer, name: &str) -> &'a TokenMethodOptions<BoundClaims> {
    match &acl.service.methods[name] {
        MethodOptions::Azure(method) => method,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_acl_server_with_one_auth_method_is_read_with_its_defaults() {
    let config = clean(&with("listen = \"tcp://127.0.0.1:8500\"\ndata_dir = \"/tmp/acl\"\n"));
    let acl = config.acl.unwrap();
    assert_eq!(acl.endpoints, [Endpoint::Tcp("127.0.0.1:8500".parse().unwrap())]);
    assert_eq!((&acl.tls, &acl.service.key_file), (&None, &None));
    assert_eq!(acl.service.datacenter, "dc1");
    assert_eq!(acl.service.validation_errors(), []);
    let method = azure(&acl, "cloud");
    assert_eq!(method.trust.issuer, "https://sts.example/t/");
    assert!(matches!(&method.keys.source, KeyDocument::Jwks(url) if url.path() == "/keys"));
    let role = &method.roles["web"];
    assert_eq!((role.ttl, role.policies.join(" ").as_str()), (Duration::from_hours(1), "a b"));
    assert_eq!(role.bounds.principals, ["p"]);
}

#[test]
fn the_folder_of_the_store_may_exist() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(path("acl")).unwrap();
    std::fs::write(path("file"), "").unwrap();
    let warnings = |data_dir: &str| {
        let text = with(&format!("listen = \"tcp://127.0.0.1:8500\"\ndata_dir = {data_dir:?}\n"));
        let (_, outcome) = check(&text);
        let diagnostics = outcome.errors.iter().chain(&outcome.warnings).chain(&outcome.notes);
        diagnostics.map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(warnings(&path("acl")), "");
    assert_eq!(warnings(&path("new")), "");
    assert!(warnings(&path("file")).contains("file is not a folder"), "{}", warnings(&path("file")));
    assert!(warnings(&path("none/acl")).contains("none does not exist"), "{}", warnings(&path("none/acl")));
}

#[test]
fn an_acl_server_listens_on_several_addresses() {
    let keys = "listen = [\"tcp://127.0.0.1:8500\", \"unix:///tmp/a.sock\"]\ndata_dir = \"/tmp/a\"\n\
                base_path = \"/acl-server/x\"\ntoken_in_query = false\nlogin_burst = 7\ndefault_policy = \"allow\"\nconnections = 20_000\n";
    let acl = clean(&with(keys)).acl.unwrap();
    assert_eq!((acl.endpoints.len(), acl.connections), (2, Some(20_000)));
    let api = &acl.service.api;
    assert_eq!((api.base_path.as_str(), api.token_in_query), ("/acl-server/x", false));
    assert_eq!((api.login_limit.burst, api.login_limit.per_second), (7, 20));
    assert_eq!(acl.service.default_policy, DefaultPolicy::Allow);
    for wrong in ["acl", "/acl/", "/", "/a/../b", "/a b"] {
        let (_, outcome) = check(&with(&keys.replace("/acl-server/x", wrong)));
        assert!(outcome.errors[0].to_string().contains("is not a base path"), "{wrong} {:?}", outcome.errors);
    }
    let (_, outcome) = check(&with(&keys.replace("unix:///tmp/a.sock", "tcp://127.0.0.1:8500")));
    assert!(outcome.errors[0].to_string().contains("a duplicate address"), "{:?}", outcome.errors);
}

#[test]
fn the_example_is_described() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/acl.toml");
    let outcome = load(&[path], &Environment::default(), Purpose::Check);
    let description = outcome.description().unwrap().to_string();
    for expected in [
        "acl\n  serves the ACL API on tcp://0.0.0.0:8500, over TLS\n",
        "  stores the tokens of datacenter dc1 in /var/lib/keyward/acl\n",
        "  accepts logins at auth/azure with tokens of issuer https://sts.windows.net/00000000-0000-0000-0000-000000000000/ for ",
        "  gives logins with role deploy of azure a token for 10m with deploy\n",
    ] {
        assert!(description.contains(expected), "{expected} is not in\n{description}");
    }
}

#[test]
fn bound_principals_accept_references() {
    let text = with("listen = \"unix:///tmp/a\"\ndata_dir = \"/tmp/a\"\n").replace("\"p\"", "\"${env:PRINCIPAL}\"");
    let folder = super::Folder::with(&[("a.toml", &text)]);
    let outcome = load(&[folder.path("a.toml")], &environment(&[("PRINCIPAL", "x")]), Purpose::Check);
    let acl = outcome.config.unwrap().acl.unwrap();
    assert_eq!(azure(&acl, "cloud").roles["web"].bounds.principals, ["x"]);
}

#[test]
fn methods_of_other_clouds_are_read_and_bounds_that_admit_everyone_are_errors() {
    let acl =
        |method: &str| format!("[acl]\nlisten = \"unix:///tmp/a\"\ndata_dir = \"/tmp/a\"\n[acl.method.a]\n{method}");
    let google = "type = \"gcp\"\naudience = \"http://vault/web\"\n[acl.method.a.role.web]\n";
    let aws = "type = \"aws\"\nserver_id = \"acl.example.com\"\nregions = [\"eu-west-1\"]\n[acl.method.a.role.web]\n";
    let config = clean(&acl(&format!("{google}projects = [\"p\"]\n")));
    let MethodOptions::Google(method) = &config.acl.unwrap().service.methods["a"] else { panic!("it is Google's") };
    assert_eq!(method.trust.issuer, "https://accounts.google.com");
    assert!(
        matches!(&method.keys.source, KeyDocument::Jwks(url) if url.as_str() == "https://www.googleapis.com/oauth2/v3/certs")
    );
    let config = clean(&acl(&format!("{aws}accounts = [\"111122223333\"]\n"))).acl.unwrap();
    assert_eq!(config.service.validation_errors(), []);
    let MethodOptions::Aws(method) = &config.service.methods["a"] else { panic!("it is AWS's") };
    assert_eq!((method.trust.server_id.as_str(), method.sts.url.as_ref()), ("acl.example.com", None));
    let check_error = |text: &str, expected: &str| {
        let (_, outcome) = check(&acl(text));
        assert!(
            outcome.errors.iter().any(|error| error.to_string().contains(expected)),
            "{text}: {:?}",
            outcome.errors
        );
    };
    check_error(google, "would admit machines of every customer of Google");
    check_error(&format!("{google}zones = [\"z\"]\n"), "would admit machines of every customer of Google");
    check_error(&format!("{google}projects = [\"*\"]\n"), "a bound is empty or has a");
    check_error(&format!("{google}instance_ids = [\"web\"]\n"), "write the numeric id");
    check_error(&format!("{google}principals = [\"p\"]\n"), "an unknown key");
    let cluster = "type = \"kubernetes\"\naudience = \"a\"\n@[acl.method.a.role.web]\n";
    let in_pod = format!("{}namespaces = [\"shop\"]\n", cluster.replace('@', ""));
    let config = clean(&acl(&in_pod)).acl.unwrap();
    let MethodOptions::Kubernetes(method) = &config.service.methods["a"] else { panic!("it is a cluster's") };
    assert_eq!(method.api.url.as_str(), "https://kubernetes.default.svc/");
    assert_eq!(method.api.token_file, Path::new("/var/run/secrets/kubernetes.io/serviceaccount/token"));
    let elsewhere =
        |url: &str| in_pod.replace("[acl.method.a.role", &format!("api_url = \"{url}\"\n[acl.method.a.role"));
    check_error(&elsewhere("https://10.0.0.1:6443"), "token_file: missing");
    check_error(&elsewhere("http://10.0.0.1:6443"), "would send tokens without TLS");
    check_error(&cluster.replace('@', ""), "would admit every pod of the cluster");
    check_error(&in_pod.replace("shop", "*"), "is not the name of a namespace");
    check_error(&in_pod.replace("namespaces", "service_accounts"), "is not NAMESPACE/NAME");
    check_error(aws, "would admit every customer of AWS");
    check_error(&format!("{aws}accounts = [\"*\"]\n"), "twelve digits");
    check_error(&format!("{aws}accounts = [\"111122223333\"]\nroles = [\"a/b\"]\n"), "without path");
    check_error(&aws.replace("eu-west-1", "eu_west"), "is not the name of a region");
    check_error(&aws.replace("server_id = \"acl.example.com\"\n", ""), "the name of this server that sessions sign");
    check_error(
        &aws.replace("regions", "sts_url = \"http://sts.example.com\"\nregions"),
        "would ask for identities without TLS",
    );
    check_error("type = \"gcp\"\n", "\"http://vault/ROLE\"");
}

#[test]
fn every_error_comes_with_advice() {
    let sound = with("listen = \"tcp://127.0.0.1:8500\"\ndata_dir = \"/tmp/acl\"\n");
    let check_diagnostics = |text: &str, expected: &[&str]| {
        let (folder, outcome) = check(text);
        assert_eq!(folder.short(&outcome.errors), expected, "{text}");
    };
    let changed = |from: &str, to: &str, expected: &[&str]| {
        assert!(sound.contains(from), "{from}");
        check_diagnostics(&sound.replace(from, to), expected);
    };
    check_diagnostics(
        "[acl]\n",
        &[
            "a.toml:1:2: acl.listen: missing; the address to listen on, such as \"tcp://127.0.0.1:8500\", or a list",
            "a.toml:1:2: acl.data_dir: missing; the folder of its store, such as \"/var/lib/keyward/acl\"",
        ],
    );
    changed(
        "127.0.0.1:8500",
        "0.0.0.0:8500",
        &[concat!(
            "a.toml:2:10: acl.listen: would take and give unencrypted tokens; ",
            "write tls_cert and tls_key, or listen on loopback or a unix socket"
        )],
    );
    changed(
        "data_dir",
        "connections = 8\ndata_dir",
        &["a.toml:3:15: acl.connections: 8 is out of range; write 16 to 1000000, without quotes"],
    );
    changed(
        "data_dir",
        "connections = \"many\"\ndata_dir",
        &["a.toml:3:15: acl.connections: expected a number, found a string; write 16 to 1000000, without quotes"],
    );
    changed(
        "data_dir",
        "tls_cert = \"/tmp/a.pem\"\ndata_dri",
        &[
            "a.toml:1:2: acl.tls_key: missing; the private key that belongs to tls_cert",
            "a.toml:1:2: acl.data_dir: missing; the folder of its store, such as \"/var/lib/keyward/acl\"",
            "a.toml:4:1: acl.data_dri: an unknown key; did you mean data_dir?",
        ],
    );
    changed(
        "principals = [\"p\"]",
        "",
        &[concat!(
            "a.toml:10:24: acl.method.cloud.role.web: the role has no bounds and would admit every identity of the ",
            "tenant; set principals or subscriptions"
        )],
    );
    changed(
        "principals",
        "virtual_machines",
        &[concat!(
            "a.toml:10:24: acl.method.cloud.role.web: resource group and machine names are unique only within a ",
            "subscription; set subscriptions too"
        )],
    );
    changed(
        "\"a\", \"b\"",
        "\"a b\"",
        &[
            "a.toml:12:13: acl.method.cloud.role.web.policies: \"a b\" is not a name; write 1 to 128 letters, digits, - and _",
        ],
    );
    changed(
        "policies",
        "ttl = \"30s\"\npolicies",
        &["a.toml:12:7: acl.method.cloud.role.web.ttl: \"30s\" is out of range; write one from 1m to 1d"],
    );
    changed(
        "http://127.0.0.1:8000/keys",
        "http://keys.example/",
        &[concat!(
            "a.toml:8:12: acl.method.cloud.jwks_url: \"http://keys.example/\" would fetch keys without TLS; ",
            "use https://; http:// is for loopback only"
        )],
    );
    changed(
        "http://127.0.0.1:8000/keys",
        "https://me:hush@keys.example/",
        &[
            "a.toml:8:12: acl.method.cloud.jwks_url: the value contains a user, a query or a fragment; write \"https://HOST/PATH\"",
        ],
    );
    changed(
        "jwks_url",
        "discovery_url = \"https://a\"\njwks_url",
        &[concat!(
            "a.toml:9:1: acl.method.cloud.jwks_url: conflicts with discovery_url: the keys have one source; ",
            "keep one of the two"
        )],
    );
}
