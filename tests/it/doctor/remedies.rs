//! Remedies that `keyward doctor` prints: they mend the fault, and take nothing from others.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use super::site::{CONFIG, DoctorFixture, FOLDER, execute};
use crate::harness::world::run_in_network_namespace;

/// The remedies of the findings with this code.
fn remedies(report: &Value, code: &str) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap().iter();
    let found = checks.filter(|check| check["code"] == code);
    found.map(|check| check["fix"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_remedy_changes_neither_the_owner_nor_the_mode_of_what_exists() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        let mode = |path: &str, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        let denied = || remedies(&site.doctor(&["--as", "nobody"]).1, "KW-1907");
        let own = "name a path below /run/keyward";
        let folder = format!("{own}; or setfacl -m u:nobody:rwx /run/site/out");
        // The template's file, and the token's, which goes to no folder that others own.
        assert!(denied().contains(&folder) && denied().iter().any(|fix| fix == own), "{:?}", denied());
        // A folder on the way is only passed.
        mode(FOLDER, 0o700);
        assert!(denied().iter().any(|fix| fix == "setfacl -m u:nobody:x /run/site"), "{:?}", denied());
        assert!(!denied().iter().any(|fix| fix.contains("/run/site/")), "{:?}", denied());
        mode(FOLDER, 0o755);
        for (path, expected) in [("/run/token", own), ("/run/new/token", "install -d -o nobody -m 0755 /run/new")] {
            site.write(&site.text.replace("/run/site/out/token", path));
            assert!(denied().iter().any(|fix| fix == expected), "{path}: {:?}", denied());
        }
        assert!(!denied().iter().any(|fix| fix.contains("chown") || fix.contains("chmod")), "{:?}", denied());
    });
}

#[test]
fn a_device_is_never_removed_and_a_symlink_or_a_fifo_is() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        execute("mkfifo /run/site/out/fifo");
        std::os::unix::fs::symlink("/run/site/other/token", "/run/site/out/link").unwrap();
        for (path, expected) in [
            ("/dev/null", "name a regular file"),
            ("/run/site/out/fifo", "rm /run/site/out/fifo"),
            ("/run/site/out/link", "rm /run/site/out/link"),
        ] {
            site.write(&site.text.replace("/run/site/out/token", path));
            let (_, report) = site.doctor(&[]);
            let found = remedies(&report, "KW-1404");
            assert!(!found.is_empty() && found.iter().all(|fix| fix == expected), "{path}: {found:?}");
        }
    });
}

#[test]
fn settings_of_a_unit_are_lines_of_their_own_and_paths_are_absolute() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        site.write(&site.text.replace("127.0.0.1:8219", "127.0.0.1:443"));
        std::fs::set_permissions(CONFIG, PermissionsExt::from_mode(0o666)).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_keyward"))
            .args(["doctor", "--config", "keyward.toml"])
            .current_dir(FOLDER)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let expected = "        fix: systemctl edit keyward.service, and add under [Service]:\n             \
                      CapabilityBoundingSet=CAP_NET_BIND_SERVICE\n             AmbientCapabilities=CAP_NET_BIND_SERVICE\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains(CONFIG) && !text.contains(" keyward.toml"), "{text}");
    });
}
