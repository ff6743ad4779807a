//! Methods without a cloud, and the server with its own login: their errors and their descriptions.

use super::{check, clean, environment};
use keyward_config::{Purpose, load};

const SERVERS: &str = "[server.main]\nkind = \"vault\"\naddress = \"https://secrets.example.com\"\n\
    [server.acl]\nkind = \"consul\"\naddress = \"https://acl.example.com\"\n[session.a]\n";

/// Mistakes of the session `a`, without their places.
fn mistakes(text: &str) -> Vec<String> {
    let (folder, outcome) = check(&format!("{SERVERS}{text}"));
    let diagnostics = folder.short(&outcome.errors).into_iter();
    diagnostics.map(|line| line.split_once("session.a").unwrap_or_else(|| panic!("{line}")).1.to_owned()).collect()
}

fn words(text: &str) -> String {
    let (_folder, outcome) = check(&format!("{SERVERS}{text}"));
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
    outcome.description().unwrap().to_string()
}

#[test]
fn a_session_has_one_method_with_its_required_keys() {
    let main = "server = \"main\"\n";
    let check = |text: &str, expected: &[&str]| assert_eq!(mistakes(&format!("{main}{text}")), expected, "{text}");
    check(
        "[session.a.jwt]\nrole = \"r\"\nfile = \"/f\"\n[session.a.approle]\nrole_id_file = \"/r\"\n",
        &[".approle: conflicts with session.a.jwt: a session has one method; keep one, or write another session"],
    );
    check(
        "[session.a.jwt]\n",
        &[".jwt.role: missing; the role to log in as", ".jwt.file: missing; the file that holds the signed token"],
    );
    check("[session.a.kubernetes]\nrole = \"r\"\n", &[]);
    check(
        "[session.a.approle]\nsecret_id_wrapping_path = \"a b\"\n",
        &[
            ".approle.role_id_file: missing; the file that holds the role's id",
            ".approle.secret_id_wrapping_path: has no effect without secret_id_file; set secret_id_file, or leave it out",
            ".approle.secret_id_wrapping_path: \"a b\" is not a path; write the path that created the wrapping, such as \"auth/approle/role/web/secret-id\"",
        ],
    );
    check(
        "[session.a.cert]\n",
        &[".cert.client_cert: missing; the certificate to log in with, and client_key; the server's section has none"],
    );
    check(
        "revoke_on_exit = true\nmount = \"x\"\n[session.a.token_file]\n",
        &[
            ".revoke_on_exit: conflicts with token_file: token_file sessions do not own their token; keep one of the two",
            ".mount: conflicts with token_file: there is no login; keep one of the two",
            ".token_file.file: missing; the file that holds a token of the server",
        ],
    );
    check(
        "auth_method = \"x\"\n[session.a.cloud]\nrole = \"r\"\nresource = \"x\"\n",
        &[".auth_method: only allowed for a server of the kind consul; write mount, or leave it out"],
    );
}

#[test]
fn a_server_with_its_own_login_takes_a_methods_name_and_a_signed_token() {
    let check = |text: &str, expected: &[&str]| assert_eq!(mistakes(&format!("server = \"acl\"\n{text}")), expected);
    check("auth_method = \"fleet\"\n[session.a.cloud]\nresource = \"x\"\n", &[]);
    check(
        "mount = \"x\"\nwrap_ttl = \"5m\"\n[session.a.jwt]\nrole = \"r\"\nfile = \"/f\"\n",
        &[
            ".auth_method: missing; the name of the auth method to log in by, on the server",
            ".mount: conflicts with a server of the kind consul: its auth methods have names: write auth_method; keep one of the two",
            ".wrap_ttl: conflicts with a server of the kind consul: its login does not wrap tokens; keep one of the two",
            ".jwt.role: not allowed for a server of the kind consul, whose binding rules decide the rights of a login; leave it out",
        ],
    );
    let approle = mistakes("server = \"acl\"\nauth_method = \"a b\"\n[session.a.approle]\nrole_id_file = \"/r\"\n");
    assert_eq!(
        approle,
        [
            ".auth_method: not the name of a method; a name has letters, digits, - and _",
            ".approle: a method that a server of the kind consul does not have; its own login takes a signed token: write cloud, jwt or kubernetes",
        ]
    );
}

#[test]
fn methods_are_described() {
    let jwt =
        words("server = \"main\"\n[session.a.jwt]\nrole = \"ci\"\nfile = \"/run/jwt\"\nremove_after_reading = true\n");
    assert!(
        jwt.contains("logs in to the vault server main at https://secrets.example.com, as role ci by auth/jwt\n"),
        "{jwt}"
    );
    assert!(jwt.contains("authenticates with the signed token in /run/jwt, and removes it after reading\n"), "{jwt}");
    let acl = words(
        "server = \"acl\"\nauth_method = \"fleet\"\nnamespace = \"team\"\n[session.a.jwt]\nfile = \"/run/jwt\"\n",
    );
    let expected =
        "logs in to the consul server acl at https://acl.example.com, by its auth method fleet, in namespace team\n";
    assert!(acl.contains(expected) && acl.contains("  logs out when the agent stops\n"), "{acl}");
    let approle = words(
        "server = \"main\"\n[session.a.approle]\nrole_id_file = \"/r\"\nsecret_id_file = \"/s\"\nsecret_id_wrapping_path = \"a\"\n",
    );
    assert!(
        approle.contains("by auth/approle\n") && approle.contains("  and the wrapped secret id in /s\n"),
        "{approle}"
    );
    let token = words("server = \"main\"\n[session.a.token_file]\nfile = \"/t\"\n");
    assert!(token.contains("uses an existing token at the vault server main"), "{token}");
    assert!(token.contains("uses the token in /t, and never revokes it\n"), "{token}");
}

#[test]
fn a_method_is_described_by_its_references() {
    let text = format!(
        "{SERVERS}server = \"main\"\n[session.a.jwt]\nrole = \"${{env:ROLE}}\"\nfile = \"/run/${{env:ROLE}}\"\n"
    );
    let folder = super::Folder::with(&[("a.toml", &text)]);
    let outcome = load(&[folder.path("a.toml")], &environment(&[("ROLE", "hush")]), Purpose::Check);
    let description = outcome.description().unwrap().to_string();
    assert!(description.contains("as role ${env:ROLE}") && !description.contains("hush"), "{description}");
}

#[test]
fn a_session_logs_out_of_a_consul_server_unless_its_token_is_saved() {
    let text = |more: &str| {
        format!("{SERVERS}server = \"acl\"\nauth_method = \"fleet\"\n{more}[session.a.jwt]\nfile = \"/f\"\n")
    };
    assert!(clean(&text("")).sessions[0].lifecycle.revoke_on_exit);
    assert!(!clean(&text("revoke_on_exit = false\n")).sessions[0].lifecycle.revoke_on_exit);
}

#[test]
fn responses_of_a_consul_server_are_not_cached() {
    let text = format!(
        "{SERVERS}server = \"acl\"\nauth_method = \"fleet\"\n[session.a.jwt]\nfile = \"/f\"\n\
         [listener.p]\nkind = \"api_proxy\"\naddress = \"unix:///tmp/p.sock\"\n[listener.p.cache]\n"
    );
    let (folder, outcome) = check(&text);
    let diagnostics = folder.short(&outcome.errors);
    assert!(
        diagnostics.len() == 1 && diagnostics[0].contains("has a server of kind \"consul\"; leave it out"),
        "{diagnostics:?}"
    );
}
