//! The drop-in and the polkit rule that a configuration needs beside the packaged unit.

use std::path::PathBuf;

use keyward_config::systemd::UnitNeeds;

use super::{BASE, Folder, load};
use crate::harness::systemd::assert_drop_in_is_valid;
use keyward_config::{Environment, Purpose};

fn needs(sections: &str) -> UnitNeeds {
    let folder = Folder::with(&[("keyward.toml", &format!("{BASE}{sections}"))]);
    let outcome = load(&[folder.path("keyward.toml")], &Environment::default(), Purpose::Check);
    assert_eq!(outcome.errors, [], "{sections}");
    UnitNeeds::new(&outcome).unwrap()
}

/// The settings of a drop-in, without its comments.
fn settings(needs: &UnitNeeds) -> Vec<String> {
    let text = needs.drop_in().unwrap_or_default();
    if !text.is_empty() {
        assert_drop_in_is_valid(&text);
    }
    text.lines().filter(|line| line.contains('=') && !line.starts_with('#')).map(str::to_owned).collect()
}

#[track_caller]
fn check(sections: &str, expected: &[&str]) {
    assert_eq!(settings(&needs(sections)), expected, "{sections}");
}

#[test]
fn a_configuration_within_the_folders_of_the_unit_needs_nothing() {
    check("[sink.a]\npath = \"/run/keyward/a\"\n[agent]\nstate_dir = \"/var/lib/keyward\"", &[]);
    check("[listener.a]\naddress = \"unix:///run/keyward/a.sock\"\nmode = \"0660\"\ngroup = \"keyward\"", &[]);
    assert_eq!(needs("[sink.a]\npath = \"/run/keyward/a\"").polkit_rule(), None);
}

#[test]
fn folders_files_and_programs_need_nothing_of_the_unit_and_folders_a_right_of_its_user() {
    let needs = needs(
        "[sink.a]\npath = \"/srv/app/secrets/token\"\n[sink.b]\npath = \"/srv/app/token\"\n\
         [listener.c]\naddress = \"unix:///run/app/api.sock\"\n\
         [template.d]\ncontents = \"x\"\ndestination = \"/etc/app/100%/a b/app.conf\"\n\
         command = [\"/opt/app/bin/reload\"]\n\
         [template.e]\nsource = \"/home/ci/app.tmpl\"\ndestination = \"/run/keyward/app.conf\"\nread_folders = [\"/home/ci/more\"]\n\
         [agent]\nstate_dir = \"/srv/keyward\"",
    );
    assert_eq!((needs.drop_in(), needs.polkit_rule()), (None, None));
    let folders = ["/etc/app/100%/a b", "/run/app", "/srv/app", "/srv/keyward"];
    assert_eq!(needs.writable, folders.map(PathBuf::from).into());
}

#[test]
fn a_reload_is_allowed_by_polkit_alone() {
    let sections = "[template.a]\ncontents = \"x\"\ndestination = \"/run/keyward/a\"\ncommand = [\"systemctl\", \"reload\", \"nginx\"]\n\
         [template.b]\ncontents = \"x\"\ndestination = \"/run/keyward/b\"\nshell = true\n\
         command = \"/usr/local/bin/check && systemctl restart app@1.service\"\n\
         [env_template.C]\ncontents = \"x\"\n[process]\ncommand = [\"/opt/app/bin/serve\"]";
    let needs = needs(sections);
    assert_eq!(needs.drop_in(), None);
    let rule = needs.polkit_rule().unwrap();
    let cases: Vec<&str> = rule.lines().filter(|line| line.starts_with("        [")).map(str::trim).collect();
    assert_eq!(cases, ["[\"nginx.service\", \"reload\"],", "[\"app@1.service\", \"restart\"]"]);
    assert!(rule.contains("subject.user != \"keyward\""), "{rule}");
}

#[test]
fn owners_groups_and_low_ports_need_their_rights() {
    check(
        "[sink.a]\npath = \"/run/keyward/a\"\ngroup = \"no-such-group\"\nmode = \"0640\"\n[sink.b]\npath = \"/run/keyward/b\"\nowner = \"1234\"\n\
         [listener.c]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:80\"",
        &[
            "SupplementaryGroups=no-such-group",
            "CapabilityBoundingSet=CAP_CHOWN",
            "AmbientCapabilities=CAP_CHOWN",
            "CapabilityBoundingSet=CAP_NET_BIND_SERVICE",
            "AmbientCapabilities=CAP_NET_BIND_SERVICE",
        ],
    );
}

#[test]
fn callers_need_a_capability_for_executables_and_nothing_for_users_and_groups() {
    let listener = "[listener.a]\naddress = \"unix:///run/keyward/a.sock\"\n";
    check(&format!("{listener}[caller.a]\nuid = \"33\"\ngroup = \"33\"\nroutes = [\"token\"]"), &[]);
    check(
        &format!("{listener}[caller.a]\nexecutable = \"/usr/bin/env\"\nroutes = [\"token\"]"),
        &["CapabilityBoundingSet=CAP_SYS_PTRACE", "AmbientCapabilities=CAP_SYS_PTRACE", "ProtectProc=default"],
    );
}

#[test]
fn a_group_that_a_unit_file_cannot_hold_is_left_out_with_a_comment() {
    let needs = needs("[sink.a]\npath = '/srv/a/token'\ngroup = \"app users\"\nmode = \"0640\"");
    assert_eq!(settings(&needs), Vec::<String>::new());
    let text = needs.drop_in().unwrap();
    assert!(text.contains("# SupplementaryGroups= cannot name the group \"app users\""), "{text}");
}

#[cfg(feature = "gateway")]
#[test]
fn the_gateways_files_are_among_the_needs() {
    let needs = needs(
        "[gateway]\nupstream = \"https://app.terraform.io\"\nlisten = \"tcp://127.0.0.1:8800\"\ntoken_file = \"/home/ci/platform.token\"\n\
         local_token_file = \"/srv/gateway/local.token\"\n[gateway.terraform_config_file]\npath = \"/home/ci/.terraform.d/zz-keyward.tfrc.json\"\nowner = \"1234\"",
    );
    assert_eq!(settings(&needs), ["CapabilityBoundingSet=CAP_CHOWN", "AmbientCapabilities=CAP_CHOWN"]);
    assert_eq!(needs.writable, ["/home/ci/.terraform.d", "/srv/gateway"].map(PathBuf::from).into());
}

#[test]
fn many_connections_of_an_api_proxy_need_more_open_files() {
    let proxy = "[listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix:///run/keyward/proxy.sock\"\n";
    check(proxy, &[]);
    check(&format!("{proxy}connections = 10000"), &["LimitNOFILE=11280"]);
}

#[cfg(feature = "acl")]
#[test]
fn many_connections_of_the_acl_server_need_more_open_files() {
    let acl = "[acl]\nlisten = [\"tcp://127.0.0.1:8500\", \"unix:///run/keyward/acl.sock\"]\ndata_dir = \"/var/lib/keyward/acl\"\n";
    check(acl, &[]);
    check(&format!("{acl}connections = 10000"), &["LimitNOFILE=20256"]);
}

#[cfg(feature = "gateway")]
#[test]
fn many_connections_of_the_gateway_need_more_open_files() {
    let gateway = "[gateway]\nupstream = \"https://app.terraform.io\"\nlisten = \"tcp://127.0.0.1:8800\"\n\
                   token_file = \"/etc/keyward/platform.token\"\nlocal_token_file = \"/var/lib/keyward/local.token\"\n";
    check(gateway, &[]);
    check(&format!("{gateway}connections = 10000"), &["LimitNOFILE=11280"]);
}
