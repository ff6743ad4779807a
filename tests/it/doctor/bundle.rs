//! The bundle: its contents, its mode, and that it holds no secret.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::site::{CONFIG, DoctorFixture, FOLDER};
use crate::harness::binary::{Binary, eventually, run};
use crate::harness::program::write_script;
use crate::harness::world::run_in_network_namespace;

/// The files of an archive by name.
fn contents(path: &str) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(std::fs::File::open(path).unwrap());
    let mut found = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!(entry.header().mode().unwrap(), 0o600);
        let name = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        found.insert(name, text);
    }
    found
}

#[test]
fn the_bundle_lists_its_contents_and_holds_no_secret() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        site.world.put("web/app", &json!({ "password": "canary-in-vault" }));
        std::fs::write(format!("{FOLDER}/key"), "canary-listener-key-0123456789abcdef\n").unwrap();
        let key = format!("{FOLDER}/key");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let text = site.text.replace("}}password=", "}}canary-in-template password=")
            + &format!(
                "# canary-in-comment\n[listener.keyed]\naddress = \"tcp://127.0.0.1:8220\"\nkey_file = \"{key}\"\n"
            );
        site.write(&text);
        site.write_drop_in(
            "# canary-in-unit\nEnvironment=APP_PASSWORD=canary-in-environment\nSetCredential=x:canary-credential",
        );
        // Stands in for the journal, with a line that an error of another program could have left.
        let tools = tempfile::tempdir().unwrap();
        let journalctl = tools.path().join("journalctl");
        let lines = "echo \"$@\"\ncat /run/site/out/token\necho canary-listener-key-0123456789abcdef\n\
                     echo hvs.canary0123456789 eyJcanary0123.eyJcanary.sig";
        write_script(&journalctl, lines);
        let path = format!("{}:/usr/bin:/bin", tools.path().display());

        let agent = Binary::start(&["run", "--config", CONFIG], &[], tools.path());
        eventually(Duration::from_secs(30), || {
            let (code, _, error) = run(&["healthcheck", "--config", CONFIG], &[]);
            if code == 0 { Ok(()) } else { Err(format!("{error}{}", agent.output())) }
        });
        let token = std::fs::read_to_string(format!("{FOLDER}/out/token")).unwrap();
        let bundle = format!("{FOLDER}/bundle.tar");
        let variables = [("PATH", path.as_str()), ("VAULT_TOKEN", "canary-in-variable")];
        let (code, output, error) = run(&["doctor", "--config", CONFIG, "--bundle", &bundle], &variables);
        assert_eq!((code, error.as_str()), (0, ""), "{output}");
        assert_eq!(std::fs::metadata(&bundle).unwrap().permissions().mode() & 0o7777, 0o600);

        let files = contents(&bundle);
        let names: Vec<&str> = files.keys().map(|name| name.strip_prefix("keyward-doctor/").unwrap()).collect();
        let expected = [
            "configuration/00-keyward.toml",
            "doctor.json",
            "doctor.txt",
            "journal.txt",
            "metrics.txt",
            "status.json",
            "system.txt",
            "unit/00-keyward.service",
            "unit/01-site.conf",
        ];
        assert_eq!(names, expected);
        for name in expected {
            assert!(output.lines().any(|line| line.trim_start().ends_with(name)), "{name}: {output}");
        }
        for (name, text) in &files {
            assert!(!text.contains("canary") && !text.contains(token.trim()), "{name}: {text}");
            assert!(!text.is_empty(), "{name}");
        }
        assert!(!output.contains("canary"), "{output}");
        let text_of = |name: &str| &files[&format!("keyward-doctor/{name}")];
        assert!(text_of("configuration/00-keyward.toml").contains("mount = \"azure\""));
        assert!(text_of("unit/01-site.conf").contains("Environment=APP_PASSWORD=[redacted]"));
        assert!(text_of("journal.txt").contains("_SYSTEMD_UNIT=keyward.service"), "{}", text_of("journal.txt"));
        assert!(text_of("metrics.txt").contains("keyward_"));
        let status: Value = serde_json::from_str(text_of("status.json")).unwrap();
        assert_eq!(status["ready"], true);

        let (code, _, error) = run(&["doctor", "--config", CONFIG, "--bundle", &bundle], &variables);
        assert!(code == 1 && error.contains("cannot write the bundle") && error.contains("exists"), "{error}");
    });
}
