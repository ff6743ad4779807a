//! The real Terraform, where this machine has one.

use std::path::PathBuf;
use std::process::Stdio;

use http::Method;
use serde_json::json;
use tokio::process::{Child, Command};

use crate::harness::not_run::not_run;
use crate::harness::platform::{Emulated, text};

/// Host name of the platform in the configurations. It is never resolved: a `host` block has its address.
pub(crate) const HOST: &str = "platform.example.test";

/// The program.
pub(crate) struct Terraform(PathBuf);

/// A folder with a configuration whose workspace `web` is on a platform.
pub(crate) struct Run {
    program: PathBuf,
    pub(crate) folder: tempfile::TempDir,
}

impl Terraform {
    /// Finds Terraform on `PATH`. Without one, says that the test was not run.
    pub(crate) fn find() -> Option<Self> {
        Self::find_program("terraform")
    }

    /// The same for a program that takes its place: `tofu`.
    pub(crate) fn find_program(name: &str) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file());
        if found.is_none() {
            not_run(&format!("there is no {name} on PATH"));
        }
        found.map(Self)
    }

    /// Its path.
    pub(crate) fn program(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// A new folder with `configuration`, and a configuration of Terraform's own that leads to `address`.
    pub(crate) fn folder(&self, address: &str, token: &str, configuration: &str) -> Run {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let services: String = ["tfe.v2", "tfe.v2.1", "tfe.v2.2", "state.v2"]
            .map(|service| format!("\"{service}\" = \"{address}/api/v2/\", "))
            .concat();
        let modules = format!("\"modules.v1\" = \"{address}/api/registry/v1/modules/\"");
        write(
            "cli.tfrc",
            &format!(
                "disable_checkpoint = true\nhost \"{HOST}\" {{\n  services = {{ {services}{modules} }}\n}}\n\
             credentials \"{HOST}\" {{\n  token = \"{token}\"\n}}\n",
            ),
        );
        write(
            "main.tf",
            &format!(
                "terraform {{\n  cloud {{\n    hostname = \"{HOST}\"\n    organization = \"example\"\n    \
             workspaces {{\n      name = \"web\"\n    }}\n  }}\n}}\n{configuration}",
            ),
        );
        Run { program: self.0.clone(), folder }
    }
}

impl Run {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // `state` is a family of commands.
        let (words, options) = arguments.split_at(if arguments[0] == "state" { 2 } else { 1 });
        command.args(words).arg("-no-color").args(options).current_dir(self.folder.path()).env_clear();
        command.env("HOME", self.folder.path()).env("PATH", "/usr/bin:/bin").env("CHECKPOINT_DISABLE", "1");
        command.env("TF_CLI_CONFIG_FILE", self.folder.path().join("cli.tfrc")).env("TF_IN_AUTOMATION", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Starts it and does not wait.
    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().unwrap()
    }

    /// Runs it to its end; returns its success and its output.
    pub(crate) async fn run(&self, arguments: &[&str]) -> (bool, String) {
        let output = self.command(arguments).output().await.unwrap();
        let output_bytes = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&output_bytes).into_owned())
    }

    /// Runs it to its end, which must be a success; returns its output.
    pub(crate) async fn run_successfully(&self, arguments: &[&str]) -> String {
        let (ok, output) = self.run(arguments).await;
        assert!(ok, "{arguments:?}: {output}");
        output
    }
}

impl Emulated {
    /// Publishes a module of one file.
    pub(crate) async fn upload_module(&self, name: &str, provider: &str, version: &str, content: &str) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("main.tf"), content).unwrap();
        let packed =
            Command::new("tar").args(["-czf", "-", "main.tf"]).current_dir(folder.path()).output().await.unwrap();
        assert!(packed.status.success(), "{packed:?}");
        let modules = "/api/v2/organizations/example/registry-modules";
        self.make(modules, json!({"name": name, "provider": provider})).await;
        let versions = format!("{modules}/private/example/{name}/{provider}/versions");
        let made = self.post(&versions, json!({ "version": version })).await.with(201);
        let upload = text(&made["data"]["links"]["upload"]);
        self.send(Method::PUT, &upload, None, Some(packed.stdout)).await.with(200);
    }
}
