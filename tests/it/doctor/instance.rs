//! An instance of the template unit: its specifiers, and the folders that systemd makes for it.

use super::site::{DoctorFixture, problems};
use crate::harness::world::run_in_network_namespace;

#[test]
fn an_instance_of_the_template_unit_is_checked_by_its_own_user_configuration_and_folders() {
    run_in_network_namespace(|| {
        let site = DoctorFixture::start();
        let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd/keyward@.service");
        std::fs::copy(unit, "/run/systemd/system/keyward@.service").unwrap();
        let drop_ins = "/run/systemd/system/keyward@root.service.d";
        std::fs::create_dir_all(drop_ins).unwrap();
        let write_drop_in = |config: &str| {
            let binary = env!("CARGO_BIN_EXE_keyward");
            let text = format!(
                "[Service]\nUser=%i\nGroup=%i\nExecStart=\nExecStart={binary} run --config {config}\nExecReload=\n"
            );
            std::fs::write(format!("{drop_ins}/site.conf"), text).unwrap();
        };
        // `RuntimeDirectory=keyward-%i` of the template.
        std::fs::create_dir_all("/run/keyward-root").unwrap();
        site.write(&site.text.replace("unix:///run/site/api.sock", "unix://${env:RUNTIME_DIRECTORY}/api.sock"));
        let doctor = || site.doctor(&["--unit", "keyward@root.service"]);
        write_drop_in("/run/site/%p.toml");
        let (code, report) = doctor();
        assert_eq!((code, problems(&report)), (0, Vec::new()), "{report:#}");
        assert!(report.to_string().contains("/run/keyward-root/api.sock is free"), "{report:#}");
        write_drop_in("/run/site/%i.toml");
        let found = problems(&doctor().1);
        assert!(found.len() == 1 && found[0].1.contains("keyward doctor -c /run/site/root.toml"), "{found:#?}");
    });
}
