//! Calls of a real Terraform to its credentials helper: `init`, `login` and `logout`.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use parking_lot::Mutex;

use super::exec::World;
use crate::harness::binary::eventually;
use crate::harness::terraform::{HOST, Terraform};

/// Runs Terraform in a folder with a user's input; returns its success and its output.
fn run(
    program: &str,
    folder: &Path,
    home: &str,
    config: Option<&str>,
    arguments: &[&str],
    typed: &str,
) -> (bool, String) {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env_clear();
    command.env("HOME", home).env("PATH", "/usr/bin:/bin").env("CHECKPOINT_DISABLE", "1");
    command.envs(config.map(|config| ("TF_CLI_CONFIG_FILE", config)));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let output_bytes = Mutex::new(Vec::new());
    let output = std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut piece) {
                output_bytes.lock().extend_from_slice(&piece[..length]);
            }
        });
        for (place, line) in typed.lines().enumerate() {
            // Terraform discards input that comes before its prompt.
            eventually(Duration::from_secs(30), || {
                let text = String::from_utf8_lossy(&output_bytes.lock()).into_owned();
                let is_prompted = text.matches("Enter a value:").count() > place;
                (is_prompted || child.try_wait().unwrap().is_some()).then_some(()).ok_or(text)
            });
            // A process that has ended reads nothing.
            let _ = keyboard.write_all(format!("{line}\n").as_bytes());
        }
        drop(keyboard);
        child.wait_with_output().unwrap()
    });
    let bytes = [output_bytes.into_inner(), output.stderr].concat();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // Its lines are broken and framed for people.
    (output.status.success(), text.replace(['\u{2502}', '\n'], " ").split_whitespace().collect::<Vec<_>>().join(" "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terraform_gets_the_local_token_from_the_helper_which_stores_no_login_and_deletes_nothing() {
    let Some(terraform) = Terraform::find() else { return };
    let world = World::start("", "");
    let plugins = Path::new(&world.home()).join(".terraform.d/plugins");
    std::fs::create_dir(&plugins).unwrap();
    let link = plugins.join("terraform-credentials-keyward");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_keyward"), link).unwrap();
    let project = terraform.folder("http://127.0.0.1:1", "none", "");
    let folder = project.folder.path();
    let config = folder.join("helper.tfrc").display().to_string();
    let api = format!("{}/api/v2/", world.gateway);
    let text = format!(
        "host \"{HOST}\" {{\n  services = {{ \"tfe.v2\" = \"{api}\", \"tfe.v2.1\" = \"{api}\", \"state.v2\" = \"{api}\" }}\n}}\n\
         credentials_helper \"keyward\" {{\n  args = [\"--config\", \"{}\"]\n}}\n",
        world.config
    );
    std::fs::write(&config, text).unwrap();
    let local = world.local();
    let ask = |arguments: &[&str], typed: &str| {
        run(terraform.program(), folder, &world.home(), Some(&config), arguments, typed)
    };
    let (ok, output) = ask(&["init", "-no-color", "-input=false"], "");
    assert!(ok, "{output}");
    let (ok, output) = ask(&["login", HOST], &format!("yes\n{local}\n"));
    assert!(!ok && output.contains(&format!("the token of {HOST} is managed by keyward")), "{output}");
    let (ok, output) = ask(&["logout", HOST], "");
    assert!(ok, "{output}");
    // The token is still stored.
    let (ok, output) = ask(&["init", "-no-color", "-input=false"], "");
    assert!(ok && world.local() == local, "{output}");
    let own = std::fs::read_dir(Path::new(&world.home()).join(".terraform.d")).unwrap().count();
    assert_eq!(own, 2, "the folder of the program and the user's own file");
    assert!(world.untouched_files());

    // The helper reports a stopped agent in one line; Terraform reports that there is no token.
    std::fs::remove_file(world.folder.path().join("state/gateway.token")).unwrap();
    let (ok, output) = ask(&["init", "-no-color", "-input=false"], "");
    assert!(!ok && output.contains("terraform login"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terraform_refuses_a_login_to_the_host_of_the_managed_file() {
    let Some(terraform) = Terraform::find() else {
        return;
    };
    let drop_in = "[gateway.terraform_config_file]\npath = \"FOLDER/home/.terraform.d/zz-keyward.tfrc.json\"";
    let world = World::start("", drop_in);
    let written = Path::new(&world.home()).join(".terraform.d/zz-keyward.tfrc.json");
    eventually(Duration::from_secs(30), || written.exists().then_some(()).ok_or_else(|| "no file".to_owned()));
    let project = terraform.folder("http://127.0.0.1:1", "none", "");
    let ask = |arguments: &[&str], typed: &str| {
        run(terraform.program(), project.folder.path(), &world.home(), None, arguments, typed)
    };
    let (ok, output) = ask(&["login", HOST], "yes\nanother\n");
    assert!(!ok && output.contains("manually configured"), "{output}");
    let (ok, output) = ask(&["init", "-no-color", "-input=false"], "");
    assert!(ok, "the last file by name leads to the gateway: {output}");
    assert!(world.untouched_files());
}
