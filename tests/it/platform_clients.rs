//! Clients of provisioning platforms that nobody here wrote: Terraform, pytfe, terrasnek and go-tfe. What they do and
//! expect is in `tests/clients`; here the platform is started for them.

use std::path::Path;
use std::process::{Command, Stdio};

use keyward::dev::platform::OLD_REGISTRY_ROUTES;

use crate::clients::{clients, scripts};
use crate::harness::platform::Emulated;
use crate::harness::terraform::{HOST, Terraform};

/// A platform as the scripts expect it.
fn platform() -> Emulated {
    let it = Emulated::start();
    assert_eq!(it.platform.dials().fill("ssh-keys", "example", 250), 250);
    it
}

/// A client that is run against an address.
#[derive(Debug, Clone, Copy)]
enum Client {
    Pytfe,
    Terrasnek,
    GoTfe,
}

impl Client {
    /// Runs it to its end: whether all went well, and what it said.
    async fn run(self, address: &str, token: &str) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut command = match self {
            Self::Pytfe => script("platform_pytfe.py"),
            Self::Terrasnek => script("platform_terrasnek.py"),
            Self::GoTfe => Command::new(clients().join("bin/go-tfe")),
        };
        command.current_dir(scripts()).env_clear().env("HOME", folder.path()).env("LC_ALL", "C.UTF-8");
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("TFE_ADDRESS", address).env("TFE_TOKEN", token);
        // The platform runs on this thread.
        let output = tokio::process::Command::from(command).stdin(Stdio::null()).output().await.unwrap();
        let told = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&told).into_owned())
    }
}

fn script(name: &str) -> Command {
    let mut command = Command::new(clients().join("bin/python"));
    command.arg(Path::new(name));
    command
}

/// How often the routes of before 2021-06-8 were asked for.
fn old_calls(it: &Emulated) -> usize {
    let calls = it.platform.dials().calls();
    calls
        .iter()
        .filter(|call| OLD_REGISTRY_ROUTES.contains(&format!("{} {}", call.method, call.route).as_str()))
        .count()
}

async fn goes_well(client: Client, old: usize) {
    let it = platform();
    // One of them does not wait when it is told to.
    it.platform.dials().limit(None);
    let (good, told) = client.run(it.platform.url(), it.token()).await;
    assert!(good, "{told}");
    assert_eq!(old_calls(&it), old, "calls that were replaced in 2021");
    let without = platform();
    without.platform.dials().limit(None);
    without.platform.dials().routes(OLD_REGISTRY_ROUTES, false);
    let (good, told) = client.run(without.platform.url(), without.token()).await;
    assert_eq!(good, old == 0, "without the old routes: {told}");
}

#[tokio::test]
async fn pytfe_does_its_work_and_still_needs_five_routes_of_before_2021() {
    goes_well(Client::Pytfe, 7).await;
}

#[tokio::test]
async fn terrasnek_does_its_work_and_needs_no_old_route() {
    goes_well(Client::Terrasnek, 0).await;
}

#[tokio::test]
async fn go_tfe_does_its_work_and_needs_all_six_old_routes() {
    goes_well(Client::GoTfe, 11).await;
}

#[tokio::test]
async fn pytfe_waits_when_the_limit_is_reached() {
    let it = platform();
    it.platform.dials().limit(Some(10));
    let (good, told) = Client::Pytfe.run(it.platform.url(), it.token()).await;
    let refused = it.platform.dials().calls().iter().filter(|call| call.status == 429).count();
    assert!(good && refused > 0, "{refused} refusals: {told}");
}

#[tokio::test]
async fn terraform_initializes_applies_and_shows_outputs_and_gets_a_module() {
    let it = platform();
    let Some(terraform) = Terraform::find("terraform_initializes_applies_and_shows_outputs_and_gets_a_module") else {
        return;
    };
    it.upload_module("net", "null", "1.0.0", "output \"where\" {\n  value = \"there\"\n}\n").await;
    let run = terraform.folder(
        it.platform.url(),
        it.token(),
        &format!(
            "module \"net\" {{\n  source = \"{HOST}/example/net/null\"\n  version = \"1.0.0\"\n}}\n\
         resource \"terraform_data\" \"one\" {{\n  input = module.net.where\n}}\n\
         output \"place\" {{\n  value = terraform_data.one.output\n}}\n\
         output \"hidden\" {{\n  value = \"hush\"\n  sensitive = true\n}}\n",
        ),
    );
    for arguments in [&["init", "-input=false"][..], &["apply", "-input=false", "-auto-approve"]] {
        run.goes_well(arguments).await;
    }
    assert_eq!(run.goes_well(&["output", "-raw", "place"]).await, "there");
    assert_eq!(run.goes_well(&["output", "-raw", "hidden"]).await, "hush");
    assert!(!run.folder.path().join("terraform.tfstate").exists(), "the state is on the platform");
    run.goes_well(&["apply", "-destroy", "-input=false", "-auto-approve"]).await;
    let calls = it.platform.dials().calls();
    let unlocked = calls.iter().filter(|call| call.route.ends_with("/unlock") && call.status == 200).count();
    assert_eq!(unlocked, 2, "{calls:?}");
    // It waits and asks again when the limit is reached.
    assert!(calls.iter().all(|call| call.status < 400 || [404, 429].contains(&call.status)), "{calls:?}");
    it.get("/api/v2/organizations/example/workspaces/web").await.with(200);
}

#[tokio::test]
async fn terraform_that_is_refused_says_so() {
    let it = platform();
    let Some(terraform) = Terraform::find("terraform_that_is_refused_says_so") else { return };
    let run = terraform.folder(it.platform.url(), "emulatedXXXXXX.atlasv1.nobodys", "");
    let (good, told) = run.run(&["init", "-input=false"]).await;
    assert!(!good && told.contains("unauthorized"), "{told}");
}
