//! Flags of `keyward check`.

use std::os::unix::process::CommandExt as _;

use crate::harness::binary::run;
use crate::harness::not_run::is_root;
use crate::harness::program::copy_program;

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

/// Id of a user and of a group without rights.
const NOBODY: u32 = 65534;

#[test]
fn a_socket_for_a_group_that_the_user_is_not_in_is_reported_by_the_check_and_at_the_start() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    open(folder.path());
    let sockets = folder.path().join("sockets");
    std::fs::create_dir(&sockets).unwrap();
    std::os::unix::fs::chown(&sockets, Some(NOBODY), Some(NOBODY)).unwrap();
    let file = folder.path().join("keyward.toml");
    let text = format!(
        "[server.main]\nkind = \"vault\"\naddress = \"http://127.0.0.1:9\"\n\
         [session.web.cloud]\nrole = \"web\"\nresource = \"https://management.azure.com/\"\n\
         [listener.local]\naddress = \"unix://{}/api.sock\"\nmode = \"0660\"\ngroup = \"0\"\n",
        sockets.display(),
    );
    std::fs::write(&file, text).unwrap();
    // The test's own binary may stand where only root looks.
    let program = folder.path().join("keyward");
    copy_program(env!("CARGO_BIN_EXE_keyward"), &program);
    let as_nobody = |args: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.args(args).arg("--config").arg(&file).env_clear().uid(NOBODY).gid(NOBODY);
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, output) = as_nobody(&["check", "--host", "--quiet"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("listener.local.group: ") && output.contains("SupplementaryGroups=root"), "{output}");
    assert!(output.contains("[KW-1906] (warning)"), "{output}");
    let (code, output) = as_nobody(&["run"]);
    assert_eq!(code, Some(1), "{output}");
    let expected = "is not in the group root that the socket is for; set SupplementaryGroups=root";
    assert!(output.lines().any(|line| line.contains(expected) && line.contains("[KW-1906]")), "{output}");
    // Of another machine nothing is known, and root may use every group.
    assert!(!as_nobody(&["check"]).1.contains("SupplementaryGroups="));
    let (_, output, _) = run(&["check", "--host", "--quiet", "--config", &file.display().to_string()], &[]);
    assert!(!output.contains("SupplementaryGroups="), "{output}");
}
