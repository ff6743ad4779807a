//! Beside a running agent, and where nothing responds.

use std::net::TcpListener;
use std::time::Duration;

use keyward_emulators::secrets::Operation;
use serde_json::json;
use tokio::time::Instant;

use super::site::{CONFIG, DoctorFixture, FOLDER, problems};
use crate::harness::binary::{Binary, eventually, run};
use crate::harness::world::run_in_network_namespace;

#[test]
fn a_running_agent_is_asked_and_not_disturbed() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        site.world.put("web/app", &json!({ "password": "canary-password" }));
        let folder = tempfile::tempdir().unwrap();
        let agent = Binary::start(&["run", "--config", CONFIG], &[], folder.path());
        eventually(Duration::from_secs(30), || {
            let (code, _, error) = run(&["healthcheck", "--config", CONFIG], &[]);
            if code == 0 { Ok(()) } else { Err(format!("{error}{}", agent.output())) }
        });
        let token = || std::fs::read_to_string(format!("{FOLDER}/out/token")).unwrap();
        let tokens = site.world.secrets.faults().tokens();
        let (before, log) = (token(), agent.output());
        let (code, report) = site.doctor(&[]);
        assert_eq!((code, problems(&report)), (0, Vec::new()), "{report:#}");
        let text = report.to_string();
        let expected = "127.0.0.1:8219 is held by the running agent";
        for part in [&format!("the agent runs as process {}", agent.id()), expected, "agent and program are release"] {
            assert!(text.contains(part), "{part}: {report:#}");
        }
        assert_eq!((token(), agent.output()), (before, log), "the agent noticed it");
        assert_eq!(site.world.secrets.faults().tokens(), tokens, "the login of the check is revoked");
        assert_eq!(site.world.secrets.faults().counts().get(Operation::Login), 2);

        agent.stop();

        site.world.set_vault_offline(true);
        std::fs::remove_dir_all(format!("{FOLDER}/state")).unwrap();
        std::fs::create_dir(format!("{FOLDER}/state")).unwrap();
        let agent = Binary::start(&["run", "--config", CONFIG], &[], folder.path());
        let components = eventually(Duration::from_secs(30), || {
            let (_, report) = site.doctor(&[]);
            let all = problems(&report);
            let found: Vec<_> = all.into_iter().filter(|(_, text)| text.contains("\"part\":\"agent\"")).collect();
            let knows = found.iter().any(|(code, text)| code == "KW-1201" && text.contains("session/web: "));
            if knows { Ok(found.len()) } else { Err(format!("{report:#}{}", agent.output())) }
        });
        assert!(components > 1, "the session and its outputs");
    });
}

#[test]
fn services_without_a_local_api_are_healthy_while_they_hold_their_own_addresses() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        let acl = format!("[acl]\nlisten = \"tcp://127.0.0.1:8500\"\ndata_dir = \"{FOLDER}/state/acl\"\n");
        let token = site.world.platform.faults().mint("doctor").token;
        let token_file = format!("{FOLDER}/out/platform.token");
        std::fs::write(&token_file, token.expose_secret()).unwrap();
        std::fs::set_permissions(&token_file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let gateway = format!(
            "[gateway]\nupstream = \"{}\"\nlisten = [\"tcp://127.0.0.1:8800\", \"unix://{FOLDER}/gateway.sock\"]\n\
             token_file = \"{token_file}\"\nlocal_token_file = \"{FOLDER}/state/gateway.token\"\n",
            site.world.platform.url().trim_end_matches('/')
        );
        let addresses = ["127.0.0.1:8800", "/run/site/gateway.sock"];
        for (text, addresses) in [(acl, &["127.0.0.1:8500"][..]), (gateway, &addresses)] {
            site.write(&text);
            let folder = tempfile::tempdir().unwrap();
            let agent = Binary::start(&["run", "--config", CONFIG], &[], folder.path());
            eventually(Duration::from_secs(30), || {
                let output = agent.output();
                if output.contains("agent.ready") { Ok(()) } else { Err(output) }
            });
            let (code, report) = site.doctor(&[]);
            assert_eq!((code, problems(&report)), (0, Vec::new()), "{report:#}");
            for address in addresses {
                let expected = format!("{address} is held by keyward, process {}", agent.id());
                assert!(report.to_string().contains(&expected), "{expected}: {report:#}");
            }
            assert!(report.to_string().contains("the configuration has no local API to ask"), "{report:#}");
            agent.stop();
        }
        let _holder = TcpListener::bind("127.0.0.1:8800").unwrap();
        let (code, report) = site.doctor(&[]);
        let codes: Vec<String> = problems(&report).into_iter().map(|(code, _)| code).collect();
        assert_eq!((code, codes), (1, vec!["KW-1501".to_owned()]), "{report:#}");
    });
}

#[test]
fn all_checks_end_within_ten_seconds_where_nothing_responds() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        // It accepts connections in its queue and never responds.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        site.write(&site.text.replace(site.world.secrets.url(), &format!("http://{address}")));
        site.world.cloud.faults().delay(Duration::from_mins(1));
        let begun = Instant::now();
        let (code, report) = site.doctor(&[]);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "{took:?}");
        let codes: Vec<String> = problems(&report).into_iter().map(|(code, _)| code).collect();
        assert_eq!((code, codes), (2, vec!["KW-1911".to_owned(), "KW-1911".to_owned()]), "{report:#}");
    });
}

#[test]
fn the_report_has_a_line_for_each_check_with_code_and_command() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        let names = "[template.names]\ncontents = '{{ range secrets \"secret/metadata/web\" }}{{ . }}{{ end }}'\n\
            destination = \"/run/site/out/names\"\n";
        let text = site.text.replace("secret/data/web/app", "secret/web/app");
        site.write(&format!("{}{names}", text.replace("127.0.0.1:8219", "127.0.0.1:443")));
        let (code, output, error) = run(&["doctor", "--config", CONFIG], &[]);
        assert_eq!((code, error.as_str()), (1, ""), "{output}");
        let lines: Vec<&str> = output.lines().collect();
        let failed =
            lines.iter().position(|line| line.starts_with("FAILED  unit: listeners: listener health: ")).unwrap();
        assert!(lines[failed].ends_with(" [KW-1906]"), "{output}");
        let fix = "        fix: systemctl edit keyward.service, and add under [Service]:";
        assert_eq!(lines[failed + 1], fix);
        for expected in [
            "ok      session web: dns: 127.0.0.1",
            "ok      session web: identity: ",
            "ok      session web: rights: may read secret/data/web/app",
            "ok      session web: rights: may list secret/metadata/web/, for template names",
            "ok      session web: revocation: the token is revoked",
        ] {
            assert!(lines.iter().any(|line| line.starts_with(expected)), "{expected}: {output}");
        }
        assert!(lines.last().unwrap().contains(" checks as user root in "), "{output}");
        assert!(!output.contains("eyJ") && !output.contains("hvs."), "{output}");
    });
}
