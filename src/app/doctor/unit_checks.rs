//! Checks the service's unit against what the configuration runs, hands over and connects to.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use keyward_config::systemd::{command_lines, raises_rights, split_unit_words, unit_actions};
use keyward_config::{Need, NeedKind};
use keyward_http::server::Endpoint;
use keyward_machine::os;
use keyward_telemetry::error_code::ErrorCode;

use super::file_owners::find_program;
use super::files::FileChecker;
use super::polkit;
use super::remedies::edit_unit;
use super::rights::{FileOperation, UserIdentity};
use super::unit_files::UnitFiles;
use super::unit_parser::Unit;
use super::unit_sandbox::Sandbox;
use crate::check_result::Problem;
use crate::sandbox;

/// A unit with what was read from it.
#[derive(Debug)]
pub(crate) struct ServiceUnit {
    /// Name with suffix.
    pub name: String,
    /// Settings of its `[Service]`.
    pub unit: Unit,
    /// Folders that the service manager makes for the service's user.
    pub created: Vec<PathBuf>,
    /// Its limits.
    pub sandbox: Sandbox,
}

impl ServiceUnit {
    fn edit(&self, setting: impl Into<String>) -> String {
        edit_unit(&self.name, &[setting.into()])
    }

    /// Returns true if the service manager makes this path, or a folder above it, when the service starts.
    pub(crate) fn creates(&self, path: &Path) -> bool {
        self.created.iter().any(|created| path.starts_with(created))
    }

    /// Returns users and groups that the unit names and that do not exist, and a configuration other than the
    /// checked one.
    pub(crate) fn settings_problems(&self, files: &UnitFiles, configs: &[PathBuf]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let is_dynamic = self.unit.flag("DynamicUser");
        for (key, kind) in [("User", "user"), ("Group", "group"), ("SupplementaryGroups", "group")] {
            // Only groups add up.
            let single = self.unit.last(key).map(str::to_owned).into_iter().collect();
            let names = if key == "SupplementaryGroups" { self.unit.words(key) } else { single };
            for name in names.iter().map(|name| files.expand(name)) {
                let id = if kind == "user" { os::user_id(&name) } else { os::group_id(&name) };
                if !is_dynamic && matches!(id, Ok(None)) {
                    let message = format!("{key}= of {} names the {kind} {name}, which does not exist", self.name);
                    let command = if kind == "user" { "useradd --system" } else { "groupadd --system" };
                    problems
                        .push(Problem::new(ErrorCode::UnitSettings, message).with_remedy(format!("{command} {name}")));
                }
            }
        }
        problems.extend(self.config_problem(files, configs));
        problems
    }

    /// Returns the drop-in that a kernel without Landlock needs: neither the agent nor the unit limits files and programs there.
    pub(crate) fn landlock_problem(&self) -> Option<Problem> {
        if sandbox::has_landlock() || self.unit.last("ProtectSystem") == Some("strict") {
            return None;
        }
        let message = "this machine has no Landlock (Linux 5.13, in the list of lsm=), so that nothing keeps the agent from files and \
                       programs beyond its configuration";
        let name = "40-without-landlock.conf";
        let fix = format!(
            "install -D -m 644 /usr/share/doc/keyward/examples/systemd/{name} /etc/systemd/system/{}.d/{name}, add the \
             configuration's folders and programs to it, then systemctl daemon-reload and systemctl restart {}",
            self.name, self.name
        );
        Some(Problem::new(ErrorCode::LandlockMissing, message).warning().with_remedy(fix))
    }

    /// The unit may start the agent, or check a reload, with another configuration.
    fn config_problem(&self, files: &UnitFiles, configs: &[PathBuf]) -> Option<Problem> {
        let named_configs = |line: &str| named_configs(&files.expand(line));
        let canonicalize = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let is_other =
            |path: &String| !configs.iter().any(|config| canonicalize(config) == canonicalize(Path::new(path)));
        let started = self.unit.values("ExecStart").last().map(|line| named_configs(line)).unwrap_or_default();
        if started.iter().any(is_other) {
            let message = format!("{} starts the agent with {}, which was not checked", self.name, started.join(", "));
            let fix = format!("keyward doctor -c {}", started.join(" -c "));
            return Some(Problem::new(ErrorCode::UnitSettings, message).warning().with_remedy(fix));
        }
        let reload =
            self.unit.values("ExecReload").into_iter().find(|line| named_configs(line).iter().any(is_other))?;
        let message = format!(
            "ExecReload= of {} checks {}, not the agent's configuration",
            self.name,
            named_configs(reload).join(", ")
        );
        let fix = self.edit("ExecReload=, then both lines of the unit with the agent's --config");
        Some(Problem::new(ErrorCode::UnitSettings, message).warning().with_remedy(fix))
    }

    /// Returns why configured commands cannot run or cannot do their work. `rules` are polkit's; `None` if they are
    /// unreadable.
    pub(crate) fn program_problems(
        &self,
        by: &str,
        command: &[String],
        checker: &FileChecker<'_>,
        rules: Option<&[String]>,
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        for command in command_lines(command) {
            let Some(program) = command.first() else { continue };
            problems.extend(self.exec_problem(by, program, checker));
            for control in unit_actions(&command) {
                if checker.identity.uid == 0 {
                    continue;
                }
                let denial = format!("{by}: user {} may not {} {}", checker.identity.name, control.verb, control.unit);
                match rules {
                    Some(rules) if polkit::allows(rules, checker.identity, &control) => {}
                    Some(_) => {
                        let rule = polkit::rule(&checker.identity.name, &control);
                        let fix = format!("add to /etc/polkit-1/rules.d/50-keyward.rules: {rule}");
                        let message = format!("{denial}: no polkit rule allows it");
                        problems.push(Problem::new(ErrorCode::UnitControlDenied, message).with_remedy(fix));
                    }
                    None => {
                        let message = format!("{by}: only root may read polkit's rules for {}", control.unit);
                        problems.push(Problem::skipped(message));
                    }
                }
            }
        }
        problems
    }

    fn exec_problem(&self, by: &str, program: &str, checker: &FileChecker<'_>) -> Option<Problem> {
        if raises_rights(program) && self.sandbox.no_new_privileges {
            let message =
                format!("{by}: NoNewPrivileges=yes of {} keeps {program} from another user's rights", self.name);
            let fix = "run the command as the agent's user; let a polkit rule allow what it does";
            return Some(Problem::new(ErrorCode::SandboxProgram, message).with_remedy(fix));
        }
        // The configuration reports a program that is not there.
        let path = find_program(program)?;
        let program_path = path.canonicalize().unwrap_or(path);
        checker.rights_problem(by, &program_path, FileOperation::Execute)
    }

    /// Returns why a file or socket cannot get its owner or group.
    pub(crate) fn owner_problem(&self, need: &Need, identity: &UserIdentity) -> Option<Problem> {
        let is_missing = match need.kind {
            NeedKind::Owner(_, Some(owner)) => owner != identity.uid,
            NeedKind::Group(_, Some(group)) => !identity.is_member(group),
            _ => false,
        };
        if !is_missing || self.sandbox.has_capability("CAP_CHOWN", identity.uid == 0) {
            return None;
        }
        let by = need.part();
        let unit = &self.name;
        if let NeedKind::Group(group, _) = &need.kind {
            let message = format!("{by}: user {} is not in the group {group} that the file is for", identity.name);
            let fix = self.edit(format!("SupplementaryGroups={group}"));
            return Some(Problem::new(ErrorCode::SandboxCapability, message).with_remedy(fix));
        }
        let message = format!("{by}: {unit} has no CAP_CHOWN, which another owner needs");
        let mut settings = capability_settings("CAP_CHOWN");
        settings.push("SystemCallFilter=@chown".to_owned());
        let fix = format!("use `group` without `owner`; or {}", edit_unit(unit, &settings));
        Some(Problem::new(ErrorCode::SandboxCapability, message).with_remedy(fix))
    }

    /// Returns why an address cannot be listened on.
    pub(crate) fn listen_problems(&self, by: &str, endpoint: &Endpoint, identity: &UserIdentity) -> Vec<Problem> {
        let mut problems = Vec::new();
        let family = match endpoint {
            Endpoint::Unix(_) => "AF_UNIX",
            Endpoint::Tcp(address) if address.is_ipv6() => "AF_INET6",
            Endpoint::Tcp(_) => "AF_INET",
            Endpoint::Activated(_) => return problems,
        };
        problems.extend(self.family_problem(by, family));
        if let Endpoint::Tcp(address) = endpoint
            && (1..1024).contains(&address.port())
            && !self.sandbox.has_capability("CAP_NET_BIND_SERVICE", identity.uid == 0)
        {
            let message =
                format!("{by}: {} has no CAP_NET_BIND_SERVICE, which port {} needs", self.name, address.port());
            let fix = edit_unit(&self.name, &capability_settings("CAP_NET_BIND_SERVICE"));
            problems.push(Problem::new(ErrorCode::SandboxCapability, message).with_remedy(fix));
        }
        problems
    }

    fn family_problem(&self, by: &str, family: &str) -> Option<Problem> {
        if self.sandbox.allows_family(family) {
            return None;
        }
        let message = format!("{by}: RestrictAddressFamilies= of {} does not have {family}", self.name);
        let fix = self.edit(format!("RestrictAddressFamilies={family}"));
        Some(Problem::new(ErrorCode::SandboxNetwork, message).with_remedy(fix))
    }

    /// Returns why a peer at an address cannot be reached from the sandbox.
    pub(crate) fn peer_problem(&self, by: &str, address: IpAddr) -> Option<Problem> {
        let family = if address.is_ipv6() { "AF_INET6" } else { "AF_INET" };
        if let Some(problem) = self.family_problem(by, family) {
            return Some(problem);
        }
        if self.sandbox.allows_address(address) {
            return None;
        }
        let message = format!("{by}: IPAddressDeny= of {} covers {address}", self.name);
        Some(
            Problem::new(ErrorCode::SandboxNetwork, message)
                .with_remedy(self.edit(format!("IPAddressAllow={address}"))),
        )
    }
}

/// Returns the settings that give a service without root's rights a capability.
fn capability_settings(capability: &str) -> Vec<String> {
    ["CapabilityBoundingSet", "AmbientCapabilities"].map(|key| format!("{key}={capability}")).to_vec()
}

/// Returns the configurations that a command line of a unit names by `--config` or `-c`.
fn named_configs(line: &str) -> Vec<String> {
    let words = split_unit_words(line);
    let separate = words.windows(2).filter(|pair| pair[0] == "--config" || pair[0] == "-c").map(|pair| pair[1].clone());
    let joined = words.iter().filter_map(|word| word.strip_prefix("--config=").map(str::to_owned));
    separate.chain(joined).collect()
}
