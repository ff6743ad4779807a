//! Flags of `keyward check`.

use crate::harness::binary::run;

#[test]
fn a_quiet_check_prints_errors_alone_and_one_of_the_host_requires_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("seal.key");
    let file = folder.path().join("keyward.toml");
    let text = format!(
        "[server.main]\nkind = \"vault\"\naddress = \"http://127.0.0.1:9\"\n\
         [session.web]\nseal_key_file = \"{}\"\n\
         [session.web.cloud]\nrole = \"web\"\nresource = \"https://management.azure.com/\"\n\
         [listener.local]\naddress = \"unix://{folder}/api.sock\"\n[agent]\nstate_dir = \"{folder}\"\n",
        key.display(),
        folder = folder.path().display(),
    );
    std::fs::write(&file, text).unwrap();
    let check = |flags: &[&str]| {
        let (code, output, error) = run(&[&["check", "--config", file.to_str().unwrap()], flags].concat(), &[]);
        assert_eq!(error, "");
        (code, output)
    };
    let (code, output) = check(&["--quiet"]);
    assert_eq!((code, output.contains("session web")), (0, false), "{output}");
    let (code, output) = check(&["--quiet", "--host"]);
    assert_eq!(code, 3, "a reload does not find the key: {output}");
    assert!(output.contains("seal.key") && output.lines().all(|line| line.ends_with(" (error)")), "{output}");

    std::fs::write(&key, "0123456789abcdef".repeat(4)).unwrap();
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(check(&["--quiet", "--host"]), (0, String::new()));
    std::fs::write(&file, "not = 1\n").unwrap();
    let (code, output) = check(&["--quiet", "--host"]);
    assert_eq!(code, 3);
    assert!(output.contains("keyward.toml:1:1"), "{output}");
}
