//! Programs that keyward runs find the gateway by variables, and Terraform by a generated file. The user's files stay as they
//! are. Real processes.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use keyward_emulators::platform::PresentedToken;

use crate::emulators::platform::clients::platform;
use crate::harness::binary::{Binary, eventually, run};
use crate::harness::platform::Emulated;
use crate::harness::ports;
use crate::harness::terraform::{HOST, Terraform};

/// A platform, a gateway to it in a separate process, and the home of a user whose Terraform is configured for another host.
pub(super) struct World {
    it: Emulated,
    pub(super) config: String,
    pub(super) gateway: String,
    pub(super) folder: tempfile::TempDir,
    agent: Option<Binary>,
}

const RC: &str = "disable_checkpoint = true\n# mine\nhost \"HOST\" {\n  services = { \"tfe.v2\" = \"http://127.0.0.1:1/api/v2/\" }\n}";
const LOGIN: &str = "{\n  \"credentials\": { \"other.example.com\": { \"token\": \"theirs\" } }\n}\n";

impl World {
    pub(super) fn start(child: &str, more: &str) -> Self {
        let it = platform();
        let folder = tempfile::tempdir().unwrap();
        let address = ports::reserve();
        let here = folder.path().display().to_string();
        let text = format!(
            "[agent]\nstate_dir = \"{here}/state\"\n[gateway]\nupstream = \"{}\"\nlisten = \"tcp://{address}\"\n\
             token_file = \"{here}/platform.token\"\nhost = \"{HOST}\"\n{child}\n{more}\n",
            it.platform.url()
        );
        std::fs::create_dir(folder.path().join("state")).unwrap();
        std::fs::create_dir_all(folder.path().join("home/.terraform.d")).unwrap();
        let config = format!("{here}/keyward.toml");
        std::fs::write(&config, text.replace("FOLDER", &here)).unwrap();
        std::fs::write(format!("{here}/platform.token"), it.token()).unwrap();
        std::fs::write(format!("{here}/home/.terraformrc"), RC.replace("HOST", HOST)).unwrap();
        std::fs::write(format!("{here}/home/.terraform.d/credentials.tfrc.json"), LOGIN).unwrap();
        let mut world = Self { it, config, gateway: format!("http://{address}"), folder, agent: None };
        let variables = [("PATH", "/usr/bin:/bin"), ("HOME", &*world.home())];
        let agent = Binary::start(&["run", "--config", &world.config], &variables, world.folder.path());
        eventually(Duration::from_secs(30), || {
            let token = world.folder.path().join("state/gateway.token").exists();
            let responses = token && std::net::TcpStream::connect(address).is_ok();
            responses.then_some(()).ok_or_else(|| agent.output())
        });
        world.agent = Some(agent);
        world
    }

    pub(super) fn home(&self) -> String {
        self.folder.path().join("home").display().to_string()
    }

    pub(super) fn local(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("state/gateway.token")).unwrap().trim().to_owned()
    }

    fn exec(&self, more: &[&str], variables: &[(&str, &str)], command: &[&str]) -> (i32, String, String) {
        let home = self.home();
        let variables = [&[("PATH", "/usr/bin:/bin"), ("HOME", &home)], variables].concat();
        run(&[&["exec", "--config", &self.config], more, &["--"], command].concat(), &variables)
    }

    /// Returns true if the user's own files are unchanged.
    pub(super) fn untouched_files(&self) -> bool {
        let read = |name: &str| std::fs::read_to_string(Path::new(&self.home()).join(name)).unwrap();
        read(".terraformrc") == RC.replace("HOST", HOST) && read(".terraform.d/credentials.tfrc.json") == LOGIN
    }

    /// The same, and no file was added.
    fn untouched(&self) -> bool {
        let names = |folder: &str| std::fs::read_dir(Path::new(&self.home()).join(folder)).unwrap().count();
        self.untouched_files() && names(".terraform.d") == 1 && names("") == 2
    }
}

fn value<'a>(output: &'a str, name: &str) -> &'a str {
    output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec_points_a_program_at_the_gateway_and_keeps_user_files() {
    let world = World::start("process_token = \"local_token\"", "");
    let local = world.local();
    let (code, output, error) = world.exec(&[], &[("TFE_TOKEN", "stale")], &["/usr/bin/env"]);
    assert_eq!((code, error.as_str()), (0, ""));
    let names = ["TFE_ADDRESS", "TFE_HOSTNAME", "TFE_TOKEN", "TF_TOKEN_platform_example_test"];
    assert_eq!(names.map(|name| value(&output, name)), [&*world.gateway, HOST, &*local, &*local]);
    assert_eq!(["NO_PROXY", "no_proxy"].map(|name| value(&output, name)), ["127.0.0.1"; 2]);
    let proxied = [("NO_PROXY", "a.example.com")];
    let (_, other, _) = world.exec(&["--pass-env", "NO_PROXY"], &proxied, &["/usr/bin/env"]);
    assert_eq!(value(&other, "NO_PROXY"), "a.example.com,127.0.0.1");
    let file = value(&output, "TF_CLI_CONFIG_FILE").to_owned();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("# mine\n") && text.contains("\"token\" = \"theirs\""), "{text}");
    assert!(text.contains(&format!("\"tfe.v2\" = \"{}/api/v2/\"", world.gateway)), "{text}");
    assert!(!text.contains(&local) && !output.contains(world.it.token()), "{text}");
    assert!(world.untouched());

    // The settings of a file that the user names are in the generated file.
    let own = world.folder.path().join("own.tfrc").display().to_string();
    std::fs::write(&own, "plugin_cache_may_break_dependency_lock_file = true\n").unwrap();
    let named = [("TF_CLI_CONFIG_FILE", own.as_str())];
    let (_, output, _) = world.exec(&["--pass-env", "TF_*"], &named, &["/usr/bin/env"]);
    let other = value(&output, "TF_CLI_CONFIG_FILE");
    assert!(other != file && other != own && !output.contains("theirs"), "{output}");
    let text = std::fs::read_to_string(other).unwrap();
    assert!(text.contains("plugin_cache_may") && !text.contains("# mine"), "{text}");
    assert_eq!(std::fs::read_to_string(&own).unwrap(), "plugin_cache_may_break_dependency_lock_file = true\n");

    // A file that cannot be merged is an error, and nothing runs.
    std::fs::write(&own, "{ no document").unwrap();
    let (code, output, error) = world.exec(&["--pass-env", "TF_*"], &named, &["/usr/bin/env"]);
    assert!(code == 1 && output.is_empty() && error.contains("own.tfrc"), "{code} {output} {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec_as_another_user_leaves_the_file_of_the_first_user_alone() {
    let world = World::start("process_token = \"local_token\"", "");
    let (code, output, error) = world.exec(&[], &[], &["/usr/bin/env"]);
    assert_eq!(code, 0, "{error}");
    let file = value(&output, "TF_CLI_CONFIG_FILE").to_owned();
    let inode = || std::fs::metadata(&file).unwrap().ino();
    let before = inode();
    // In a user namespace the same files belong to a user of another id.
    let other = if rustix::process::geteuid().is_root() { "65534" } else { "0" };
    let ended = Command::new("/usr/bin/unshare")
        .args(["--user", &format!("--map-user={other}"), env!("CARGO_BIN_EXE_keyward")])
        .args(["exec", "-c", &world.config, "--", "/usr/bin/env"])
        .env_clear()
        .envs([("PATH", "/usr/bin:/bin"), ("HOME", &*world.home())])
        .output()
        .unwrap();
    let (output, error) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{error}");
    let theirs = value(&output, "TF_CLI_CONFIG_FILE");
    assert!(
        Path::new(theirs).extension() == Some("tfrc".as_ref()) && theirs != file && inode() == before,
        "{theirs} {file}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec_passes_the_platform_token_only_if_configured() {
    let world = World::start("process_token = \"platform_token\"", "");
    let (code, output, error) = world.exec(&[], &[], &["/usr/bin/env"]);
    assert_eq!((code, error.as_str()), (0, ""));
    let found = ["TFE_ADDRESS", "TFE_TOKEN", "TF_CLI_CONFIG_FILE"].map(|name| value(&output, name));
    assert_eq!(found, [world.it.platform.url(), world.it.token(), ""]);
    let world = World::start("", "");
    let (code, _, error) = world.exec(&[], &[], &["/usr/bin/env"]);
    assert!(code == 1 && error.contains("no [gateway] with process_token"), "{code} {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terraform_uses_the_gateway_by_exec_and_as_a_child_whatever_the_users_files_configure() {
    let Some(terraform) = Terraform::find() else { return };
    let program = terraform.program();
    let configuration = "resource \"terraform_data\" \"one\" {\n  input = \"made\"\n}\n";
    let run = terraform.folder("http://127.0.0.1:1", "none", configuration);
    let at = format!("-chdir={}", run.folder.path().display());
    let script = format!(
        "cd {} && {program} init -no-color -input=false && {program} apply -no-color -input=false -auto-approve && touch done; \
         exec sleep 600",
        run.folder.path().display()
    );
    let child = format!("[process]\ncommand = [\"/bin/sh\", \"-c\", \"{script}\"]");
    let world = World::start("process_token = \"local_token\"", &child);
    let agent = world.agent.as_ref().unwrap();
    eventually(Duration::from_mins(2), || {
        run.folder.path().join("done").exists().then_some(()).ok_or_else(|| agent.output())
    });
    for command in [&["plan", "-input=false", "-detailed-exitcode"][..], &["state", "list"]] {
        let (code, output, error) = world.exec(&[], &[], &[&[program, &at], command].concat());
        assert_eq!((code, error.as_str()), (0, ""), "{output}");
    }
    let known = world.it.first.id.clone();
    let calls = world.it.platform.faults().calls();
    assert!(calls.len() > 10 && calls.iter().all(|call| call.token != PresentedToken::Unknown), "{calls:?}");
    assert!(calls.iter().any(|call| call.token == PresentedToken::Known(known.clone())));
    assert!(world.untouched());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terraform_loads_modules_of_the_generic_host_through_the_gateway() {
    let Some(terraform) = Terraform::find() else { return };
    let world = World::start("process_token = \"local_token\"", "");
    world.it.upload_module("one", "null", "1.0.0", "output \"made\" {\n  value = \"by the module\"\n}\n").await;
    let module = "module \"one\" {\n  source  = \"localterraform.com/example/one/null\"\n  version = \"1.0.0\"\n}\n";
    let run = terraform.folder("http://127.0.0.1:1", "none", module);
    let at = format!("-chdir={}", run.folder.path().display());
    let (code, output, error) = world.exec(&[], &[], &[terraform.program(), &at, "init", "-no-color", "-input=false"]);
    assert_eq!(code, 0, "{output}{error}");
    assert!(run.folder.path().join(".terraform/modules/modules.json").exists(), "{output}");
    let versions = "/api/registry/v1/modules/example/one/null/versions";
    assert!(world.it.platform.faults().calls().iter().any(|call| call.path == versions));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terraform_reads_the_settings_of_several_files_as_it_does_without_the_gateway() {
    let Some(terraform) = Terraform::find() else { return };
    let world = World::start("process_token = \"local_token\"", "");
    let home = world.folder.path().join("home");
    let cache = |name: &str| {
        let folder = world.folder.path().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        format!("plugin_cache_dir = \"{}\"\n", folder.display())
    };
    let rc = RC.replace("HOST", HOST);
    std::fs::write(home.join(".terraformrc"), format!("{}{rc}", cache("first"))).unwrap();
    std::fs::write(home.join(".terraform.d/a.tfrc"), format!("{}disable_checkpoint = true\n", cache("second")))
        .unwrap();
    // Terraform says in its log which folder it uses.
    let run = |command: &[&str]| {
        let home = world.home();
        let mut process = Command::new(command[0]);
        process.args(&command[1..]).env_clear().envs([("PATH", "/usr/bin:/bin"), ("HOME", &home), ("TF_LOG", "debug")]);
        let ended = process.output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr))
    };
    let program = terraform.program();
    let exec =
        [env!("CARGO_BIN_EXE_keyward"), "exec", "-c", &world.config, "--pass-env", "TF_LOG", "--", program, "version"];
    for output in [run(&[program, "version"]), run(&exec)] {
        assert!(!output.contains("Error:") && !output.contains("problems with the CLI configuration"), "{output}");
    }
    let (_, text, _) = world.exec(&[], &[], &["/bin/sh", "-c", "cat \"$TF_CLI_CONFIG_FILE\""]);
    assert!(text.contains("/first\"\n") && !text.contains("/second\""), "{text}");
    assert_eq!(text.matches("disable_checkpoint").count(), 1, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opentofu_finds_its_own_files_before_the_gateway_and_terraform_its_own() {
    let world = World::start("process_token = \"local_token\"", "");
    let home = world.folder.path().join("home");
    std::fs::write(home.join(".tofurc"), "disable_checkpoint = true\n# of OpenTofu\n").unwrap();
    let config_home = world.folder.path().join("config").display().to_string();
    std::fs::create_dir_all(format!("{config_home}/opentofu")).unwrap();
    std::fs::write(format!("{config_home}/opentofu/tofurc"), "# of a fresh OpenTofu\n").unwrap();
    // The programs are shells by other names.
    let text = |name: &str| {
        let program = world.folder.path().join(name).display().to_string();
        if !Path::new(&program).exists() {
            std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        }
        let variables = [("XDG_CONFIG_HOME", config_home.as_str())];
        let (code, text, error) = world.exec(&[], &variables, &[&program, "-c", "cat \"$TF_CLI_CONFIG_FILE\""]);
        assert_eq!((code, error.as_str()), (0, ""), "{name}");
        // The tfe provider reads only this file, and of the blocks for a host the last one.
        let last = text.rfind(&format!("host \"{HOST}\"")).unwrap();
        assert!(text[last..].contains(&format!("\"tfe.v2\" = \"{}/api/v2/\"", world.gateway)), "{text}");
        text
    };
    for (name, expected) in [("tofu", "# of OpenTofu\n"), ("terraform", "# mine\n"), ("wrapper", "# mine\n")] {
        let text = text(name);
        assert!(
            text.contains(expected) && text.matches("# of OpenTofu").count() + text.matches("# mine").count() == 1,
            "{text}"
        );
    }
    std::fs::remove_file(home.join(".tofurc")).unwrap();
    assert!(text("tofu").contains("# mine\n"), "OpenTofu reads Terraform's file where it has none of its own");
    std::fs::remove_file(home.join(".terraformrc")).unwrap();
    std::fs::remove_dir_all(home.join(".terraform.d")).unwrap();
    for (name, own) in [("tofu", true), ("terraform", false), ("wrapper", true)] {
        assert_eq!(text(name).contains("# of a fresh OpenTofu\n"), own, "{name}");
    }
}
