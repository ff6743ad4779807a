//! Third-party clients of Terraform Enterprise: Terraform, pytfe, terrasnek and go-tfe. What they do and
//! expect is in `tests/clients`; here the platform is started for them.

use std::process::{Command, Stdio};

use keyward_emulators::platform::OLD_REGISTRY_ROUTES;

use crate::acl::third_party_clients::{clients, scripts};
use crate::harness::platform::Emulated;
use crate::harness::terraform::{HOST, Terraform};

/// A platform as the scripts expect it.
pub(crate) fn platform() -> Emulated {
    let it = Emulated::start();
    assert_eq!(it.platform.faults().fill("ssh-keys", "example", 250), 250);
    it
}

/// A client that is run against an address.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Client {
    Pytfe,
    Terrasnek,
    GoTfe,
    GoTfeCurrent,
}

impl Client {
    /// Runs it to its end; returns its success and its output. `others` is `taken` or `refused`: the expected result of calls
    /// with tokens that it makes for others.
    pub(crate) async fn run(self, address: &str, token: &str, others: &str) -> (bool, String) {
        let mut command = match self {
            Self::Pytfe => script("platform_pytfe.py", address, token),
            Self::Terrasnek => script("platform_terrasnek.py", address, token),
            Self::GoTfe => with_platform_env(Command::new(clients().join("bin/go-tfe")), address, token),
            Self::GoTfeCurrent => with_platform_env(Command::new(clients().join("bin/go-tfe-current")), address, token),
        };
        command.env("OTHERS", others);
        // The platform runs on this thread.
        let output = tokio::process::Command::from(command).stdin(Stdio::null()).output().await.unwrap();
        let bytes = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// One of the scripts, with its arguments.
pub(crate) fn script(name: &str, address: &str, token: &str) -> Command {
    let mut command = Command::new(clients().join("bin/python"));
    command.arg(name);
    with_platform_env(command, address, token)
}

fn with_platform_env(mut command: Command, address: &str, token: &str) -> Command {
    command.current_dir(scripts()).env_clear().env("HOME", "/nonexistent").env("LC_ALL", "C.UTF-8");
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("TFE_ADDRESS", address).env("TFE_TOKEN", token);
    command
}

/// Number of calls to the routes of before 2021-06-8.
pub(crate) fn old_calls(it: &Emulated) -> usize {
    let calls = it.platform.faults().calls();
    calls
        .iter()
        .filter(|call| OLD_REGISTRY_ROUTES.contains(&format!("{} {}", call.method, call.route).as_str()))
        .count()
}

async fn run_successfully(client: Client, old: usize) {
    let it = platform();
    // One of them ignores `Retry-After`.
    it.platform.faults().limit(None);
    let (ok, output) = client.run(it.platform.url(), it.token(), "taken").await;
    assert!(ok, "{output}");
    assert_eq!(old_calls(&it), old, "calls that were replaced in 2021");
    let without = platform();
    without.platform.faults().limit(None);
    without.platform.faults().routes(OLD_REGISTRY_ROUTES, false);
    let (ok, output) = client.run(without.platform.url(), without.token(), "taken").await;
    assert_eq!(ok, old == 0, "without the old routes: {output}");
}

#[tokio::test]
async fn pytfe_does_its_work_and_still_needs_five_routes_of_before_2021() {
    run_successfully(Client::Pytfe, 7).await;
}

#[tokio::test]
async fn terrasnek_does_its_work_and_needs_no_old_route() {
    run_successfully(Client::Terrasnek, 0).await;
}

#[tokio::test]
async fn go_tfe_does_its_work_and_needs_all_six_old_routes() {
    run_successfully(Client::GoTfe, 11).await;
}

#[tokio::test]
async fn go_tfe_of_today_does_its_work_and_needs_one_old_route() {
    run_successfully(Client::GoTfeCurrent, 1).await;
}

#[tokio::test]
async fn pytfe_waits_when_the_limit_is_reached() {
    let it = platform();
    it.platform.faults().limit(Some(10));
    let (ok, output) = Client::Pytfe.run(it.platform.url(), it.token(), "taken").await;
    let refused = it.platform.faults().calls().iter().filter(|call| call.status == 429).count();
    assert!(ok && refused > 0, "{refused} refusals: {output}");
}

/// A module and its resources, from the first `init` to the last `destroy`.
pub(crate) async fn whole_life(terraform: &Terraform, it: &Emulated, address: &str, token: &str) {
    it.upload_module("net", "null", "1.0.0", "output \"where\" {\n  value = \"there\"\n}\n").await;
    let configuration = format!(
        r#"
module "net" {{
  source  = "{HOST}/example/net/null"
  version = "1.0.0"
}}
resource "terraform_data" "one" {{
  input = module.net.where
}}
output "place" {{
  value = terraform_data.one.output
}}
output "hidden" {{
  value     = "hush"
  sensitive = true
}}
"#
    );
    let run = terraform.folder(address, token, &configuration);
    for arguments in [&["init", "-input=false"][..], &["apply", "-input=false", "-auto-approve"]] {
        run.run_successfully(arguments).await;
    }
    assert_eq!(run.run_successfully(&["output", "-raw", "place"]).await, "there");
    assert_eq!(run.run_successfully(&["output", "-raw", "hidden"]).await, "hush");
    // Each of these reads the state that is on the platform.
    run.run_successfully(&["plan", "-input=false"]).await;
    run.run_successfully(&["apply", "-input=false", "-auto-approve"]).await;
    assert!(run.run_successfully(&["state", "pull"]).await.contains("\"terraform_data\""));
    assert!(run.run_successfully(&["state", "list"]).await.contains("terraform_data.one"));
    assert!(!run.folder.path().join("terraform.tfstate").exists(), "the state is on the platform");
    run.run_successfully(&["apply", "-destroy", "-input=false", "-auto-approve"]).await;
    let calls = it.platform.faults().calls();
    let unlocked = calls.iter().filter(|call| call.route.ends_with("/unlock") && call.status == 200).count();
    assert_eq!(unlocked, 4, "{calls:?}");
    // It waits and retries when the limit is reached.
    assert!(calls.iter().all(|call| call.status < 400 || [404, 429].contains(&call.status)), "{calls:?}");
    it.get("/api/v2/organizations/example/workspaces/web").await.with(200);
}

#[tokio::test]
async fn terraform_initializes_applies_and_shows_outputs_and_gets_a_module() {
    let Some(terraform) = Terraform::find() else { return };
    let it = platform();
    whole_life(&terraform, &it, it.platform.url(), it.token()).await;
}

#[tokio::test]
async fn terraform_reports_a_refused_token() {
    let it = platform();
    let Some(terraform) = Terraform::find() else { return };
    let run = terraform.folder(it.platform.url(), "emulatedXXXXXX.atlasv1.nobodys", "");
    let (ok, output) = run.run(&["init", "-input=false"]).await;
    assert!(!ok && output.contains("unauthorized"), "{output}");
}
