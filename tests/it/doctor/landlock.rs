//! A kernel without Landlock: `doctor` names the drop-in that makes up for it, and has no finding with it.

use std::process::Command;

use super::site::{CONFIG, DoctorFixture, execute, problems};
use crate::harness::refused_calls::{CREATE_RULESET, ENOSYS, can_refuse_calls, without};
use crate::harness::world::run_in_network_namespace;

#[test]
fn a_kernel_without_landlock_needs_the_drop_in_that_doctor_names() {
    if !can_refuse_calls() {
        return;
    }
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        assert_eq!(problems(&site.doctor(&[]).1), Vec::new());
        let old = without(&[(CREATE_RULESET, -1, 0, ENOSYS)]);
        let doctor = || {
            let binary = env!("CARGO_BIN_EXE_keyward");
            let command = ["-c", &old, binary, "doctor", "--config", CONFIG, "-o", "json"];
            let output = Command::new("/bin/sh").args(command).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            problems(&serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}")))
        };
        let found = doctor();
        assert_eq!(found.len(), 1, "{found:#?}");
        let place = "/etc/systemd/system/keyward.service.d/40-without-landlock.conf";
        let packaged = "/usr/share/doc/keyward/examples/systemd/40-without-landlock.conf";
        let fix = format!("install -D -m 644 {packaged} {place},");
        assert!(found[0].0 == "KW-1913" && found[0].1.contains(&fix), "{found:#?}");
        let drop_in = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd/drop-ins/40-without-landlock.conf");
        execute(&format!("install -m 644 {drop_in} /run/systemd/system/keyward.service.d/"));
        assert_eq!(doctor(), Vec::new());
    });
}
