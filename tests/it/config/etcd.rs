//! `[acl.etcd]`: the ACL server's store on etcd.

use std::path::Path;
use std::time::Duration;

use keyward_acl::store::StoreOptions;
use keyward_acl::store::etcd::{EtcdLogin, EtcdOptions};
use keyward_config::{Environment, Purpose, load};

use super::{check, clean};

const SERVICE: &str = r#"[acl]
listen = "tcp://127.0.0.1:8500"
key_file = "/tmp/seal.key"
[acl.method.cloud]
issuer = "https://sts.example/t/"
audience = "https://management.example/"
jwks_url = "http://127.0.0.1:8000/keys"
[acl.method.cloud.role.web]
principals = ["p"]
[acl.etcd]
"#;

const FULL: &str = r#"endpoints = ["https://a:2379", "https://b:2379"]
ca_file = "/tmp/ca.pem"
client_cert = "/tmp/client.pem"
client_key = "/tmp/client.key"
user = "keyward"
password_file = "/tmp/password"
prefix = "somewhere/else/"
connect_timeout = "1s"
request_timeout = "10s"
"#;

fn read(section: &str) -> EtcdOptions {
    let service = clean(&format!("{SERVICE}{section}")).acl.unwrap().service;
    assert_eq!(service.validation_errors(), []);
    match service.store {
        StoreOptions::Etcd(options) => options,
        other @ StoreOptions::Embedded { .. } => panic!("{other:?}"),
    }
}

#[test]
fn a_store_on_etcd_is_read_with_its_defaults() {
    let least = read("endpoints = [\"http://127.0.0.1:2379\"]\n");
    assert_eq!(least.to_string(), "etcd at http://127.0.0.1:2379 under keyward/");
    assert_eq!((least.ca_file, least.identity, least.login), (None, None, None));
    assert_eq!((least.connect_timeout, least.request_timeout), (Duration::from_secs(2), Duration::from_secs(5)));

    let full = read(FULL);
    assert_eq!(full.to_string(), "etcd at https://a:2379, https://b:2379 under somewhere/else/");
    assert_eq!(full.ca_file.as_deref(), Some(Path::new("/tmp/ca.pem")));
    assert_eq!(full.identity.unwrap().key, Path::new("/tmp/client.key"));
    assert_eq!(full.login, Some(EtcdLogin { user: "keyward".into(), password_file: "/tmp/password".into() }));
    assert_eq!((full.connect_timeout, full.request_timeout), (Duration::from_secs(1), Duration::from_secs(10)));
}

#[test]
fn the_example_describes_its_store() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/acl-etcd.toml");
    let description = load(&[path], &Environment::default(), Purpose::Check).description().unwrap().to_string();
    let expected = concat!(
        "  stores the tokens of datacenter dc1 in etcd at https://etcd-1.example:2379, ",
        "https://etcd-2.example:2379, https://etcd-3.example:2379 under keyward/\n",
    );
    assert!(description.contains(expected), "{description}");
}

#[test]
fn every_error_comes_with_advice() {
    let check_diagnostics = |text: &str, expected: &[&str]| {
        let (folder, outcome) = check(text);
        assert_eq!(folder.short(&outcome.errors), expected, "{text}");
    };
    let changed = |from: &str, to: &str, expected: &[&str]| {
        assert!(FULL.contains(from), "{from}");
        check_diagnostics(&format!("{SERVICE}{}", FULL.replace(from, to)), expected);
    };
    check_diagnostics(
        &format!("{SERVICE}{FULL}").replace("key_file = \"/tmp/seal.key\"", "data_dir = \"/tmp/a\""),
        &[
            "a.toml:1:2: acl.key_file: missing; the file of the key that seals tokens; the same on every server of the cluster",
            "a.toml:3:1: acl.data_dir: conflicts with etcd: the records are kept in one place; keep one of the two",
        ],
    );
    check_diagnostics(
        SERVICE,
        &[
            "a.toml:10:6: acl.etcd.endpoints: missing; the members of the cluster, such as [\"https://etcd-1.example:2379\"]",
        ],
    );
    changed(
        "https://b:2379",
        "http://127.0.0.1:2379",
        &[concat!(
            "a.toml:11:14: acl.etcd.endpoints: mixes https:// and http://: all members of a cluster use TLS, or none; ",
            "write https:// for all"
        )],
    );
    changed(
        "https://b:2379",
        "http://b:2379",
        &[concat!(
            "a.toml:11:32: acl.etcd.endpoints: \"http://b:2379\" would send records unencrypted; ",
            "use https://; http:// is for loopback only"
        )],
    );
    changed(
        "https://b:2379",
        "https://me:hush@b:2379",
        &[
            "a.toml:11:32: acl.etcd.endpoints: the value is not an address; set user and password_file instead; write \"https://HOST:2379\"",
        ],
    );
    changed(
        "https://b:2379",
        "b:2379/v3",
        &[
            "a.toml:11:32: acl.etcd.endpoints: \"b:2379/v3\" is not the address of a member; write \"https://HOST:2379\"",
        ],
    );
    changed(
        "ca_file = \"/tmp/ca.pem\"\n",
        "",
        &["a.toml:10:6: acl.etcd.ca_file: missing; the PEM file of the CA certificates that the cluster is trusted by"],
    );
    changed(
        "[\"https://a:2379\", \"https://b:2379\"]",
        "[\"http://127.0.0.1:2379\"]",
        &["a.toml:12:1: acl.etcd.ca_file: not allowed without TLS; leave it out, or use https://"],
    );
    changed("client_key = \"/tmp/client.key\"\n", "", &["a.toml:10:6: acl.etcd.client_key: missing; its private key"]);
    changed("user = \"keyward\"\n", "", &["a.toml:10:6: acl.etcd.user: missing; the user of password_file"]);
    changed(
        "somewhere/else/",
        "somewhere",
        &[concat!(
            "a.toml:17:10: acl.etcd.prefix: \"somewhere\" is not a key prefix; ",
            "write 2 to 128 letters, digits and -_./, one slash at the end"
        )],
    );
    changed("prefix", "prefiks", &["a.toml:17:1: acl.etcd.prefiks: an unknown key; did you mean prefix?"]);
}
