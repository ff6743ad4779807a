//! The state folder of a user's agent, which systemd may make a symlink to the folder of the configuration.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use keyward_emulators::secrets::{LoginMethod, Role, Secrets, SecretsOptions};
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;

use crate::harness::binary::{Binary, wait_until_token_saved};
use crate::harness::program::copy_program;

const JWT: &str = "eyJhbGciOiJub25lIn0.e30.c2ln";

/// Id of a user without rights.
const NOBODY: u32 = 65534;

/// The home folder of a user who is not root, with configuration and program.
struct Home {
    folder: tempfile::TempDir,
    /// Another user, if the test runs as root.
    user: Option<u32>,
}

impl Home {
    fn new(server: &str) -> Self {
        let user = rustix::process::geteuid().is_root().then_some(NOBODY);
        let home = Self { folder: tempfile::tempdir().unwrap(), user };
        std::fs::create_dir_all(home.path(".config/keyward")).unwrap();
        std::fs::create_dir_all(home.path(".local/state")).unwrap();
        symlink("../../.config/keyward", home.path(".local/state/keyward")).unwrap();
        // The test's own binary may stand where only root looks.
        copy_program(env!("CARGO_BIN_EXE_keyward"), &home.path("program"));
        let config = format!(
            "[agent]\nstate_dir = \"${{env:STATE_DIRECTORY}}\"\n[server.main]\nkind = \"vault\"\naddress = \"{server}\"\n\
             [session.web]\nseal_key_file = \"HOME/seal.key\"\n[session.web.jwt]\nrole = \"ci\"\nfile = \"HOME/jwt\"\n\
             [listener.api]\naddress = \"unix://HOME/api.sock\"\n"
        );
        let config = config.replace("HOME", &home.path("").display().to_string());
        for (name, text) in [
            ("jwt", JWT),
            ("seal.key", "0123456789-0123456789-0123456789-0123456789"),
            (".config/keyward/keyward.toml", config.as_str()),
        ] {
            std::fs::write(home.path(name), text).unwrap();
            home.own(name, 0o600);
        }
        for name in ["", "program", ".config", ".config/keyward", ".local", ".local/state"] {
            home.own(name, 0o700);
        }
        lchown(home.path(".local/state/keyward"), user, user).unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.folder.path().to_owned() } else { self.folder.path().join(name) }
    }

    /// Gives a file or folder to the user.
    fn own(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
        lchown(self.path(name), self.user, self.user).unwrap();
    }

    fn state_file(&self) -> PathBuf {
        self.path(".config/keyward/web.state")
    }

    /// Returns `keyward ARGS` with the configuration, as the user, and the variable that systemd sets.
    fn command(&self, args: &[&str]) -> (Command, String) {
        let mut command = Command::new(self.path("program"));
        command.args(args).arg("--config").arg(self.path(".config/keyward/keyward.toml"));
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        (command, self.path(".local/state/keyward").display().to_string())
    }

    fn start(&self) -> Binary {
        let (command, state) = self.command(&["run"]);
        Binary::spawn(command, &[("STATE_DIRECTORY", &state)], self.folder.path())
    }

    /// Runs a command to its end: exit code and standard output.
    fn run(&self, args: &[&str]) -> (Option<i32>, String) {
        let (mut command, state) = self.command(args);
        let output = command.env_clear().env("STATE_DIRECTORY", state).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }
}

fn server(tasks: &mut TaskGroup) -> Secrets {
    let roles = BTreeMap::from([("ci".to_owned(), Role::default())]);
    let method = LoginMethod::jwt(vec![SecretString::from(JWT)], roles);
    let options = SecretsOptions {
        methods: BTreeMap::from([("jwt".to_owned(), method)]),
        ..SecretsOptions::for_anyone(keyward_machine::clock::Clock::System, "dev", Role::default())
    };
    Secrets::start(options, tasks).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_is_saved_through_a_symlink_of_the_agents_user_that_no_other_user_could_have_made() {
    let mut tasks = TaskGroup::default();
    let secrets = server(&mut tasks);
    let home = Home::new(secrets.url());
    tokio::task::block_in_place(|| {
        let (code, output) = home.run(&["check", "--host", "--quiet"]);
        assert_eq!((code, output.contains("agent.state_dir")), (Some(0), false), "{output}");
        let agent = home.start();
        wait_until_token_saved(&home.state_file());
        let (status, output) = agent.stop();
        assert!(status.success() && !output.contains("state.write.failed"), "{output}");
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_symlink_in_a_folder_that_others_can_write_leads_to_no_state_and_is_reported() {
    let mut tasks = TaskGroup::default();
    let secrets = server(&mut tasks);
    let home = Home::new(secrets.url());
    home.own(".local/state", 0o777);
    tokio::task::block_in_place(|| {
        for args in [&["check", "--host", "--quiet"][..], &["doctor", "-o", "json"]] {
            let (_, output) = home.run(args);
            assert!(output.contains("agent.state_dir: ") && output.contains("leads through a symlink"), "{output}");
        }
        let agent = home.start();
        agent.logs("state.write.failed");
        agent.stop();
        assert!(!home.state_file().exists());
    });
}

/// From systemd 254 on, a state folder with the name of a folder in `~/.config` is a symlink to that.
#[test]
fn the_users_unit_names_its_state_folder_unlike_the_folder_of_its_configuration() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/systemd/user/keyward.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let (_, config) = unit.split_once("run --config %E/").unwrap();
    let config = config.split('/').next().unwrap();
    let state = unit.lines().find_map(|line| line.strip_prefix("StateDirectory=")).unwrap();
    assert_ne!(state, config);
}
