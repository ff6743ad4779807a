//! Faults that are seeded one at a time: each gives its finding, and a machine without one gives none.

use std::net::TcpListener;

use keyward_emulators::secrets::{CannedResponse, Operation};

use super::site::{CONFIG, DoctorFixture, FOLDER, problems};
use crate::harness::world::run_in_network_namespace;

/// A fault of the configuration or of the unit.
struct Fault {
    name: &'static str,
    /// Text of the configuration, and what replaces it.
    change: (&'static str, &'static str),
    /// Lines added to the drop-in of the unit.
    drop_in: &'static str,
    args: &'static [&'static str],
    code: &'static str,
}

const NO_CHANGE: (&str, &str) = ("", "");

const fn configured(name: &'static str, from: &'static str, to: &'static str, code: &'static str) -> Fault {
    Fault { name, change: (from, to), drop_in: "", args: &[], code }
}

const fn of_unit(name: &'static str, drop_in: &'static str, code: &'static str) -> Fault {
    Fault { name, change: NO_CHANGE, drop_in, args: &[], code }
}

/// Each gives findings with its code and none with another.
const FAULTS: [Fault; 18] = [
    configured("a misspelt key", "mode = \"0640\"", "mood = \"0640\"", "KW-1003"),
    configured("a folder that is missing", "site/out/token", "site/missing/token", "KW-1011"),
    configured(
        "a name that nobody knows",
        "address = \"http://127.0.0.1",
        "address = \"https://no-such-host.invalid",
        "KW-1202",
    ),
    configured("a role that the server lacks", "role = \"web\"", "role = \"other\"", "KW-1102"),
    configured("another audience", "https://management.azure.com/", "https://vault.azure.net", "KW-1103"),
    configured(
        "an identity that is not assigned",
        "role = \"web\"",
        "role = \"web\"\nobject_id = \"99999999-9999-9999-9999-999999999999\"",
        "KW-1121",
    ),
    configured("a secret that no policy allows", "secret/data/web/app", "secret/data/other/app", "KW-1211"),
    configured(
        "a derived token that no policy allows",
        "mode = \"0640\"",
        "mode = \"0640\"\nderived_token = { ttl = \"1h\" }",
        "KW-1211",
    ),
    configured("a program that cannot gain rights", "[\"/usr/bin/true\"]", "[\"sudo\", \"true\"]", "KW-1903"),
    configured("a port below 1024", "127.0.0.1:8219", "127.0.0.1:443", "KW-1906"),
    configured("a group that the user is not in", "mode = \"0640\"", "mode = \"0640\"\ngroup = \"54321\"", "KW-1906"),
    configured("a socket that nobody passes", "unix:///run/site/api.sock", "systemd:api", "KW-1912"),
    of_unit("a filter that lets no server pass", "IPAddressDeny=any", "KW-1905"),
    of_unit("no family of the server's address", "RestrictAddressFamilies=~AF_INET", "KW-1905"),
    of_unit("a user that does not exist", "User=no-such-user", "KW-1912"),
    of_unit("another configuration", "ExecStart=\nExecStart=/usr/bin/keyward run -c /run/other.toml", "KW-1912"),
    of_unit(
        "a reload that checks another configuration",
        "ExecReload=/usr/bin/keyward check -c /run/other.toml",
        "KW-1912",
    ),
    Fault {
        name: "a folder that the user may not write",
        change: NO_CHANGE,
        drop_in: "",
        args: &["--as", "nobody"],
        code: "KW-1907",
    },
];

#[test]
fn every_seeded_fault_gives_its_finding_and_a_clean_machine_none() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        let clean = || {
            let (code, report) = site.doctor(&[]);
            assert_eq!((code, &report["ok"], problems(&report)), (0, &true.into(), Vec::new()), "{report:#}");
        };
        clean();
        for Fault { name, change: (from, to), drop_in, args, code } in FAULTS {
            assert!(site.text.contains(from), "{name}: {from}");
            site.write(&site.text.replace(from, to));
            site.write_drop_in(drop_in);
            expect(&site, name, args, code);
        }
        site.write(&site.text);
        site.write_drop_in("");
        clean();
    });
}

/// Every problem has the code, and a failure makes the command fail.
#[track_caller]
fn expect(site: &DoctorFixture, name: &str, args: &[&str], code: &str) {
    let (exit, report) = site.doctor(args);
    let found = problems(&report);
    assert!(
        !found.is_empty() && found.iter().all(|(found_code, _)| found_code == code),
        "{name}: expected {code}: {found:#?}"
    );
    let failed = found.iter().any(|(_, text)| text.contains("\"status\":\"failed\""));
    assert_eq!((exit != 0, &report["ok"]), (failed, &(!failed).into()), "{name}: {report:#}");
    assert!(found.iter().all(|(_, text)| text.contains("\"fix\":")), "{name}: nothing mends it: {found:#?}");
}

#[test]
fn faults_of_servers_files_and_ports_give_their_findings() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        let secrets = site.world.secrets.faults();
        secrets.skew(600);
        expect(&site, "a server whose clock is ahead", &[], "KW-1908");
        secrets.skew(0);
        secrets.respond_always(Operation::Revoke, Some(CannedResponse::error(403, "1 error occurred: denied")));
        expect(&site, "a token that cannot be revoked", &[], "KW-1304");
        secrets.respond_always(Operation::Revoke, None);
        secrets.respond_always(Operation::Login, Some(CannedResponse::error(503, "Vault is sealed")));
        expect(&site, "a sealed server", &[], "KW-1205");
        secrets.respond_always(Operation::Login, None);
        site.world.set_vault_offline(true);
        expect(&site, "a server that is away", &[], "KW-1201");
        site.world.set_vault_offline(false);

        let holder = TcpListener::bind("127.0.0.1:8219").unwrap();
        expect(&site, "a port that is in use", &[], "KW-1501");
        drop(holder);
        std::fs::write(format!("{FOLDER}/api.sock"), "no socket").unwrap();
        expect(&site, "a file in the place of the socket", &[], "KW-1504");
        std::fs::remove_file(format!("{FOLDER}/api.sock")).unwrap();
        std::os::unix::fs::symlink("/run/site/other/token", format!("{FOLDER}/out/token")).unwrap();
        expect(&site, "an output that is a symlink", &[], "KW-1404");
        std::fs::remove_file(format!("{FOLDER}/out/token")).unwrap();
        let mode = |mode| std::fs::set_permissions(CONFIG, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        mode(0o666);
        expect(&site, "a configuration that everybody may write", &[], "KW-1012");
        mode(0o644);
        let (code, report) = site.doctor(&[]);
        assert_eq!((code, problems(&report)), (0, Vec::new()));
    });
}

#[test]
fn a_refused_platform_token_and_a_store_that_is_away_are_found() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        let secret = |name: &str, text: &str| {
            let path = format!("{FOLDER}/{name}");
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        };
        let gateway = format!(
            "\n[gateway]\nupstream = \"{}\"\nlisten = \"tcp://127.0.0.1:8800\"\ntoken_file = \"{FOLDER}/platform.token\"\n\
             local_token_file = \"{FOLDER}/out/local.token\"\n",
            site.world.platform.url().trim_end_matches('/')
        );
        site.write(&(site.text.clone() + &gateway));
        secret("platform.token", site.world.platform.faults().mint("doctor").token.expose_secret());
        let (code, report) = site.doctor(&[]);
        assert_eq!((code, problems(&report)), (0, Vec::new()), "{report:#}");
        secret("platform.token", "canary-of-another-platform");
        expect(&site, "a token that the platform rejects", &[], "KW-1701");
        if cfg!(feature = "etcd") {
            secret("seal.key", &"0123456789abcdef".repeat(4));
            let acl = format!(
                "\n[acl]\nlisten = \"tcp://127.0.0.1:8500\"\nkey_file = \"{FOLDER}/seal.key\"\n[acl.etcd]\n\
                 endpoints = [\"http://127.0.0.1:9\"]\n"
            );
            site.write(&(site.text.clone() + &acl));
            expect(&site, "a cluster that is away", &[], "KW-1608");
        }
    });
}

#[test]
fn a_reload_needs_a_rule_of_polkit_for_the_unit_and_the_user() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        site.write(&site.text.replace("[\"/usr/bin/true\"]", "[\"systemctl\", \"reload\", \"nginx\"]"));
        let denied = |user: &str| {
            let (_, report) = site.doctor(&["--as", user]);
            problems(&report)
                .into_iter()
                .filter(|(code, _)| code == "KW-1904")
                .map(|(_, text)| text)
                .collect::<Vec<_>>()
        };
        let found = denied("nobody");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(denied("root").is_empty(), "root needs no rule");
        let fix = found[0].split_once("50-keyward.rules: ").unwrap().1;
        let rule = fix.split_once("});").unwrap().0.replace("\\\"", "\"") + "});";
        std::fs::write("/run/polkit-1/rules.d/50-keyward.rules", &rule).unwrap();
        assert!(denied("nobody").is_empty(), "{rule}");
        std::fs::write("/run/polkit-1/rules.d/50-keyward.rules", rule.replace("nginx", "apache2")).unwrap();
        assert_eq!(denied("nobody").len(), 1);
    });
}
