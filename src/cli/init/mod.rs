//! `keyward init`: files for a machine or a pod, and the commands for the other side.
//!
//! Each kind of use turns its flags, or answers on a terminal, into a [`Plan`]; this module checks the configuration in it,
//! adds what the systemd unit needs, and writes.

// 0: answers, texts
mod answers;
mod names;
mod local_file;
mod shell;
mod folders;
mod plan;

// 1: commands for the server's side
mod server_side;
mod machine;

// 2: one file a kind of use
#[cfg(feature = "acl")]
mod acl;
mod aks;
mod aws_vm;
mod azure_vm;
mod gcp_vm;
#[cfg(feature = "gateway")]
mod terraform;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use keyward_config::systemd::UnitNeeds;
use keyward_config::{self as config, Environment, LoadOutcome, Purpose};

use super::setup_files::{self, Content, Destination, Existing, SetupFile, SetupFileAccess};
use super::{Exit, print_error, print_line, print_warning};
use answers::{PlanInputs, Terminal};
pub(super) use folders::folder_commands;
use plan::{Plan, Target};

/// Write the configuration of a machine or a pod, and print the commands for the server's side.
#[derive(Debug, Args)]
pub(super) struct Init {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Log in a VM on Azure to Vault or OpenBao, as a systemd service
    #[command(
        after_help = "Examples:\n  keyward init azure-vm\n  keyward init azure-vm --server https://vault.example.com:8200 --role web --group app\n\n\
                      Without a terminal nothing is asked: a missing value is an error that names its flag."
    )]
    AzureVm(Box<azure_vm::AzureVm>),
    /// Log in a VM on AWS to Vault or OpenBao, as a systemd service
    #[command(
        after_help = "Examples:\n  keyward init aws-vm\n  keyward init aws-vm --server https://vault.example.com:8200 --role web --group app"
    )]
    AwsVm(Box<aws_vm::AwsVm>),
    /// Log in a VM on Google Cloud to Vault or OpenBao, as a systemd service
    #[command(
        after_help = "Examples:\n  keyward init gcp-vm\n  keyward init gcp-vm --server https://vault.example.com:8200 --role web --group app"
    )]
    GcpVm(Box<gcp_vm::GcpVm>),
    /// Log in a pod on AKS to Vault or OpenBao, with keyward as its sidecar
    #[command(
        after_help = "Examples:\n  keyward init aks --server https://bao.example.com:8200 --role web --client-id CLIENT_ID --tenant TENANT --image REGISTRY/keyward:0.1.0\n  \
                      keyward init aks ... --template app.conf.tmpl --destination app.conf      a secret as the file /run/keyward/app.conf\n  \
                      keyward init aks ... --kind job --name report -- /usr/bin/report --all    a job, and its program"
    )]
    Aks(Box<aks::Aks>),
    /// Run the gateway in front of HCP Terraform or Terraform Enterprise, as a systemd service
    #[cfg(feature = "gateway")]
    #[command(after_help = "Example:\n  keyward init terraform --token-file /run/ci/platform.token")]
    Terraform(Box<terraform::Terraform>),
    /// Run the Consul-compatible ACL server, as a systemd service
    #[cfg(feature = "acl")]
    #[command(after_help = "Example:\n  keyward init acl --tenant TENANT --resource-group web --role web")]
    Acl(Box<acl::Acl>),
}

impl Kind {
    /// Takes the names of the machine that this runs on, where the kind has such names.
    fn with_machine_names(self) -> anyhow::Result<Self> {
        Ok(match self {
            Self::AzureVm(vm) => Self::AzureVm(Box::new(vm.with_machine_names()?)),
            Self::AwsVm(vm) => Self::AwsVm(Box::new(vm.with_machine_names()?)),
            Self::GcpVm(vm) => Self::GcpVm(Box::new(vm.with_machine_names()?)),
            pod @ Self::Aks(_) => pod,
            #[cfg(feature = "gateway")]
            gateway @ Self::Terraform(_) => gateway,
            #[cfg(feature = "acl")]
            server @ Self::Acl(_) => server,
        })
    }
}

/// Flags that say where the files go.
#[derive(Debug, Args)]
struct OutputFlags {
    /// Write below this folder instead of /, such as the root of an image
    #[arg(long, value_name = "DIR", conflicts_with = "out", help_heading = "Output")]
    root: Option<PathBuf>,
    /// Write all files into this folder, by their names
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    out: Option<PathBuf>,
    /// Replace existing files, except keys
    #[arg(long, help_heading = "Output")]
    force: bool,
    /// Print the files and commands, and write nothing
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
}

impl Init {
    pub(super) fn run(mut self) -> anyhow::Result<Exit> {
        self.kind = self.kind.with_machine_names()?;
        let (plan, output): (&dyn Fn(&mut PlanInputs<'_>) -> Plan, &OutputFlags) = match &self.kind {
            Kind::AzureVm(vm) => (&|answers| vm.plan(answers), &vm.output),
            Kind::AwsVm(vm) => (&|answers| vm.plan(answers), &vm.output),
            Kind::GcpVm(vm) => (&|answers| vm.plan(answers), &vm.output),
            Kind::Aks(pod) => (&|answers| pod.plan(answers), &pod.output),
            #[cfg(feature = "gateway")]
            Kind::Terraform(gateway) => (&|answers| gateway.plan(answers), &gateway.output),
            #[cfg(feature = "acl")]
            Kind::Acl(server) => (&|answers| server.plan(answers), &server.output),
        };
        match complete(plan)? {
            Ok(plan) => output.finish(&plan),
            Err(exit) => Ok(exit),
        }
    }
}

/// Makes a plan from only the flags. If a flag is missing, asks for all values on a terminal, or else prints the
/// missing flags.
fn complete(plan: &dyn Fn(&mut PlanInputs<'_>) -> Plan) -> anyhow::Result<Result<Plan, Exit>> {
    let mut answers = PlanInputs::from_flags();
    let result = plan(&mut answers);
    if !answers.invalid.is_empty() {
        for reason in answers.invalid {
            print_error(&reason);
        }
        return Ok(Err(Exit::Failed));
    }
    if answers.missing.is_empty() {
        return Ok(Ok(result));
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        for (flag, text) in &answers.missing {
            print_error(&format!("{flag} is missing ({text}); pass it, or run the command on a terminal"));
        }
        return Ok(Err(Exit::Failed));
    }
    let mut input = std::io::stdin().lock();
    let mut output = std::io::stderr();
    let mut answers = PlanInputs::interactive(Terminal { input: &mut input, output: &mut output });
    let result = plan(&mut answers);
    if let Some(failure) = answers.failure {
        return Err(failure.context("the questions were not answered; nothing was written"));
    }
    Ok(Ok(result))
}

impl OutputFlags {
    /// Returns true if the files are for another machine than this.
    const fn is_elsewhere(&self) -> bool {
        self.root.is_some() || self.out.is_some()
    }

    fn finish(&self, plan: &Plan) -> anyhow::Result<Exit> {
        let name = Path::new("the new configuration");
        let outcome = config::load_text(name, &plan.config, &Environment::current(), Purpose::Check);
        for error in &outcome.errors {
            print_error(&error.to_string());
        }
        for warning in &outcome.warnings {
            print_warning(&warning.to_string());
        }
        if outcome.config.is_none() {
            print_error("nothing is written: correct the flags that the errors are about");
            return Ok(Exit::ConfigInvalid);
        }
        let (files, needs) = plan.files(&outcome)?;
        let root = match self.destination(plan.target) {
            Destination::Root(root) => Some(root),
            Destination::Folder(_) => None,
        };
        let refused = folders::find_refused(&needs, &outcome.needs, root.as_deref());
        if !refused.is_empty() {
            for error in refused {
                print_error(&error);
            }
            print_error("nothing is written: name a path in a folder of its own, such as /etc/app or /run/app");
            return Ok(Exit::ConfigInvalid);
        }
        if self.dry_run {
            files.iter().for_each(print_file);
        } else {
            let destination = self.destination(plan.target);
            let existing = if self.force { Existing::Replace } else { Existing::Keep("pass --force to replace it") };
            if let Err(exit) = setup_files::write(&files, &destination, existing, print_line)? {
                return Ok(exit);
            }
            for path in setup_files::stale_unit_files(&files, &destination) {
                print_warning(&format!("{} grants what this configuration does not need: remove it", path.display()));
            }
        }
        // A trial run may be for another machine.
        let root = root.filter(|_| !self.dry_run);
        for (title, commands) in plan.sections(&needs, root.as_deref()) {
            print_line(&format!("\n# {title}\n{}", commands.trim_end()));
        }
        Ok(Exit::Ok)
    }

    fn destination(&self, target: Target) -> Destination {
        match (&self.root, &self.out, target) {
            (Some(root), ..) => Destination::Root(root.clone()),
            (None, Some(folder), _) => Destination::Folder(folder.clone()),
            (None, None, Target::Unit) => Destination::Root("/".into()),
            (None, None, Target::Pod) => Destination::Folder(".".into()),
        }
    }
}

impl Plan {
    /// Returns the files, and what the systemd unit needs; a pod has no unit.
    fn files(&self, outcome: &LoadOutcome) -> anyhow::Result<(Vec<SetupFile>, UnitNeeds)> {
        let needs = UnitNeeds::new(outcome).filter(|_| self.target == Target::Unit).unwrap_or_default();
        let mut files = vec![SetupFile {
            path: self.main_path.clone(),
            content: Content::Text(self.main_text().to_owned()),
            access: if self.target == Target::Unit {
                SetupFileAccess::ReadByService
            } else {
                SetupFileAccess::Everybody
            },
        }];
        for key in &self.keys {
            files.push(key.make()?);
        }
        files.extend(setup_files::unit_files(&needs));
        Ok((files, needs))
    }
}

fn print_file(file: &SetupFile) {
    print_line(&format!("# {}, mode {:04o}", file.path.display(), file.access.mode()));
    match &file.content {
        Content::Text(text) => print_line(text),
        Content::Key(key) => print_line(&format!("({} random characters)\n", key.expose_secret().len())),
    }
}
