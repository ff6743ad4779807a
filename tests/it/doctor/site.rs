//! A machine for `keyward doctor`: a network and a `/run` of its own, with the packaged unit, a drop-in and a configuration that
//! fits them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use keyward_emulators::cloud::Cloud;
use keyward_emulators::secrets::SecretsOptions;
use serde_json::Value;

use crate::harness::binary::run;
use crate::harness::world::World;

/// The machine, and the emulators around it.
pub(super) struct DoctorFixture {
    pub(super) world: World,
    pub(super) text: String,
}

pub(super) const FOLDER: &str = "/run/site";
pub(super) const CONFIG: &str = "/run/site/keyward.toml";

impl DoctorFixture {
    /// Sets everything up. Call it in a network and mount namespace of its own.
    pub(super) fn start() -> Self {
        Self::with(|_, _| ())
    }

    /// The same, with other settings of the server.
    pub(super) fn with(change: impl FnOnce(&Cloud, &mut SecretsOptions)) -> Self {
        let world = world(change);
        mount_run();
        for folder in ["out", "state", "other"] {
            std::fs::create_dir_all(Path::new(FOLDER).join(folder)).unwrap();
        }
        std::fs::create_dir_all("/run/polkit-1/rules.d").unwrap();
        std::fs::create_dir_all("/run/systemd/system/keyward.service.d").unwrap();
        let text = world.config_text(Path::new(FOLDER), "out/token", &template_and_health());
        let site = Self { world, text };
        site.write_drop_in("");
        site.write(&site.text);
        site
    }

    /// Writes the configuration.
    pub(super) fn write(&self, text: &str) {
        std::fs::write(CONFIG, text).unwrap();
    }

    /// Writes the drop-in of this machine, with more lines.
    pub(super) fn write_drop_in(&self, more: &str) {
        let binary = env!("CARGO_BIN_EXE_keyward");
        let text = format!(
            "[Service]\nUser=root\nGroup=root\nExecStart=\nExecStart={binary} run --config {CONFIG}\nExecReload=\n{more}\n"
        );
        std::fs::write("/run/systemd/system/keyward.service.d/site.conf", text).unwrap();
    }

    /// Runs the command with JSON output; returns its exit code and the document.
    #[track_caller]
    pub(super) fn doctor(&self, args: &[&str]) -> (i32, Value) {
        let args = [&["doctor", "--config", CONFIG, "-o", "json"], args].concat();
        let (code, output, error) = run(&args, &[]);
        assert!(error.is_empty(), "{error}");
        (code, serde_json::from_str(&output).unwrap_or_else(|_| panic!("{output}")))
    }
}

/// Checks that are neither good nor skipped: code and text.
pub(super) fn problems(report: &Value) -> Vec<(String, String)> {
    let checks = report["checks"].as_array().unwrap().iter();
    let bad = checks.filter(|check| check["status"] == "failed" || check["status"] == "warning");
    bad.map(|check| (check["code"].as_str().unwrap_or("none").to_owned(), check.to_string())).collect()
}

/// Parts of the configuration that other tests do not have.
fn template_and_health() -> String {
    format!(
        r#"
[template.app]
destination = "{FOLDER}/out/app.conf"
contents = '{{{{ with secret "secret/data/web/app" }}}}password={{{{ .Data.data.password }}}}{{{{ end }}}}'
command = ["/usr/bin/true"]

[listener.health]
kind = "health"
address = "tcp://127.0.0.1:8219"
"#
    )
}

/// A world whose role may read and list secrets below `web/`.
pub(super) fn world(change: impl FnOnce(&Cloud, &mut SecretsOptions)) -> World {
    World::with(
        |_| (),
        |cloud, options| {
            let paths = ["secret/data/web/*", "secret/metadata/web/*"].map(str::to_owned);
            options.policies = BTreeMap::from([("web".to_owned(), paths.to_vec())]);
            change(cloud, options);
        },
    )
}

/// Mounts a `/run` of its own, with the packaged unit.
pub(super) fn mount_run() {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/run"]).status().unwrap();
    assert!(mounted.success());
    std::fs::create_dir_all("/run/systemd/system").unwrap();
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd/keyward.service");
    std::fs::copy(unit, "/run/systemd/system/keyward.service").unwrap();
}

/// Runs a command line without quotes.
#[track_caller]
pub(super) fn execute(line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}
