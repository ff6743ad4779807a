//! Gives up rights, for this thread and those that it starts.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use keyward_config::SandboxMode;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::collect::OWN_FOLDERS;
#[cfg(feature = "sandbox")]
use super::collect::SYSTEM_FILES;
use super::plan::{AllowedAccess, AllowedFiles, SandboxPlan, capability_names, rule_folder};
use super::report::{Part, SandboxReport};

/// Reason why a sandbox with `sandbox = "enforce"` is not complete.
#[derive(Debug, thiserror::Error)]
#[error("agent.sandbox is \"enforce\", and the sandbox is incomplete: {}; remedy it, or set agent.sandbox = \"best_effort\" (--sandbox best_effort)", .0.join("; "))]
pub struct SandboxError(Vec<String>);

/// Applies a plan to this thread, and so to all that it starts. Call it while there is no other thread. Returns what is
/// allowed now, and a report.
///
/// # Errors
/// The mode is `enforce`, and a part of the sandbox is missing.
pub fn apply(
    plan: &SandboxPlan,
    mode: SandboxMode,
    has_spawner: bool,
) -> Result<(AllowedAccess, SandboxReport), SandboxError> {
    let mut report = SandboxReport::new(mode);
    let mut allowed = AllowedAccess { spawner: true, ..AllowedAccess::default() };
    if mode == SandboxMode::Off {
        return Ok((allowed, report));
    }
    // Capabilities, `no_new_privs` and Landlock belong to a thread; only threads that it starts later inherit them.
    if count_threads() > 1 {
        report.missing.push("the process has other threads, which keep their rights".to_owned());
    }
    allowed.spawner = has_spawner;
    // Landlock refuses a thread without it, unless that has CAP_SYS_ADMIN (landlock_restrict_self(2)).
    match rustix::thread::set_no_new_privs(true) {
        Ok(()) => report.parts.extend([Part::NoNewPrivileges]),
        Err(error) => report.missing.push(format!("no_new_privs cannot be set: {error}")),
    }
    // Before the capabilities go: the paths of the rules are opened with them.
    restrict(plan, &mut allowed, &mut report);
    match drop_capabilities(plan) {
        Ok(capabilities) => {
            allowed.capabilities = Some(capabilities);
            report.parts.extend([Part::Capabilities]);
            report.capabilities = capability_names(capabilities).collect();
        }
        Err(error) => report.missing.push(format!("capabilities cannot be dropped: {error}")),
    }
    if mode == SandboxMode::Enforce && !report.missing.is_empty() {
        return Err(SandboxError(report.missing));
    }
    Ok((allowed, report))
}

/// Returns the number of this process's threads; 1 where that is unknown.
fn count_threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// Drops all capabilities but those that the plan needs. Returns those that are left.
fn drop_capabilities(plan: &SandboxPlan) -> io::Result<CapabilitySet> {
    let current = rustix::thread::capabilities(None)?;
    let mut capabilities = current.permitted & plan.capabilities;
    let capability_sets =
        |effective, permitted| CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() };
    // Tried without it, so that the kernel decides who may read what.
    rustix::thread::set_capabilities(None, capability_sets(capabilities, current.permitted))?;
    let is_denied = |path: &Path, access| {
        matches!(
            accessat(CWD, path, access, AtFlags::EACCESS),
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM)
        )
    };
    let reads = plan.read.iter().any(|path| is_denied(path, Access::READ_OK));
    let writes = plan.write.iter().any(|path| is_denied(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK));
    if reads || writes {
        capabilities |= current.permitted & CapabilitySet::DAC_OVERRIDE;
    }
    // Ambient capabilities would pass to the programs that this process executes (capabilities(7)).
    let _ = rustix::thread::clear_ambient_capability_set();
    rustix::thread::set_capabilities(None, capability_sets(capabilities, capabilities))?;
    Ok(capabilities)
}

/// Follows the symlinks of a path, up to its nearest parent that exists.
pub(super) fn resolve(path: &Path) -> PathBuf {
    path.ancestors().find_map(|ancestor| ancestor.canonicalize().ok()).unwrap_or_else(|| PathBuf::from("/"))
}

impl SandboxPlan {
    /// Returns true if a process in the sandbox may write one of these files, or replace a folder on the way to it.
    pub fn may_write(&self, files: &[PathBuf]) -> bool {
        let written: Vec<PathBuf> = self.write.iter().map(|folder| resolve(folder)).collect();
        files.iter().any(|file| {
            let file = resolve(file);
            written.iter().any(|folder| file.starts_with(folder))
        })
    }
}

impl AllowedAccess {
    /// Lists what a plan needs and this sandbox does not allow, by the machine's symlinks.
    pub fn missing_here(&self, plan: &SandboxPlan) -> Vec<String> {
        self.missing(plan, resolve)
    }
}

/// Computes the files and folders of the rules. Files of the system that do not exist need no rule.
#[cfg_attr(not(feature = "sandbox"), expect(dead_code, reason = "without Landlock there are no rules"))]
fn allowed_files(plan: &SandboxPlan) -> AllowedFiles {
    let mut read = BTreeSet::new();
    for path in &plan.read {
        let is_file = !path.is_dir();
        if path.starts_with("/dev") || !(path.exists() || path.parent().is_some_and(Path::exists)) {
            read.extend(path.canonicalize());
            continue;
        }
        let target = path.canonicalize().ok();
        // Of a symlink and of its target: other files take the places of both.
        for file in [Some(path), target.as_ref()].into_iter().flatten().filter(|_| is_file) {
            let is_shared = SHARED_FOLDERS.iter().any(|folder| file.starts_with(folder));
            read.extend(rule_folder(file).filter(|_| !is_shared).map(resolve));
        }
        read.extend(target);
    }
    let write = plan.write.iter().filter(|path| !is_own_and_missing(path)).map(|path| resolve(path)).collect();
    AllowedFiles { read, write, planned_read: plan.read.clone(), planned_write: plan.write.clone() }
}

/// Lists the files of the configuration whose folder has no rule: another file under their name cannot be read.
#[cfg(feature = "sandbox")]
fn denied_replacements(plan: &SandboxPlan, files: &AllowedFiles) -> Vec<String> {
    let is_of_system = |path: &Path| SYSTEM_FILES.iter().any(|file| path == Path::new(file));
    let is_denied = |file: &Path| {
        let folder = file.parent().filter(|folder| folder.exists());
        folder.is_some_and(|folder| !files.may_read(&resolve(folder)))
    };
    let is_replacement_denied = |path: &&PathBuf| {
        let is_target_denied = || path.canonicalize().is_ok_and(|target| is_denied(&target));
        !path.is_dir() && !is_of_system(path) && (is_denied(path) || is_target_denied())
    };
    plan.read.iter().filter(is_replacement_denied).map(|path| plan.show(path)).collect()
}

/// Folders of the system whose files are listed one by one.
const SHARED_FOLDERS: [&str; 5] = ["/etc/ssl", "/etc/pki", "/usr", "/lib", "/sys"];

/// Returns true for a folder of the packaged unit that this machine lacks: nothing is created there then.
fn is_own_and_missing(path: &Path) -> bool {
    OWN_FOLDERS.iter().any(|own| path == Path::new(own)) && !path.exists()
}

/// Returns true if the kernel has Landlock, and this program can use it.
pub(crate) fn has_landlock() -> bool {
    #[cfg(feature = "sandbox")]
    return landlock_rules::is_supported();
    #[cfg(not(feature = "sandbox"))]
    return false;
}

#[cfg(not(feature = "sandbox"))]
fn restrict(_: &SandboxPlan, _: &mut AllowedAccess, report: &mut SandboxReport) {
    report.missing.push("this program was built without Landlock".to_owned());
}

#[cfg(feature = "sandbox")]
fn restrict(plan: &SandboxPlan, allowed: &mut AllowedAccess, report: &mut SandboxReport) {
    let files = allowed_files(plan);
    match landlock_rules::restrict(plan, &files) {
        Ok(abi) => {
            report.landlock_abi = abi;
            if abi == 0 {
                report.missing.push("the kernel has no Landlock (Linux 5.13, in the list of lsm=)".to_owned());
                return;
            }
            report.parts.extend([Part::Files]);
            report.denied_replacements = denied_replacements(plan, &files);
            allowed.files = Some(files);
            if abi < 4 {
                report.missing.push("the kernel cannot limit TCP ports (Landlock ABI 4, Linux 6.7)".to_owned());
            } else {
                report.parts.extend([Part::Ports]);
                allowed.bind = Some(plan.bind.clone());
                allowed.connect.clone_from(&plan.connect);
            }
            if abi < 6 {
                let reason = "the kernel cannot limit signals and abstract sockets (Landlock ABI 6, Linux 6.12)";
                report.missing.push(reason.to_owned());
            } else {
                report.parts.extend([Part::Scopes]);
            }
        }
        Err(error) => report.missing.push(format!("Landlock rules cannot be applied: {error}")),
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
mod tests;

/// Calls of Landlock.
#[cfg(feature = "sandbox")]
mod landlock_rules {
    use std::path::Path;

    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus, NetPort,
        PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, Scope,
    };

    use super::{AllowedFiles, SandboxPlan};

    /// Newest rights that the rules know; an older kernel has fewer.
    const KNOWN: ABI = ABI::V6;

    /// Asks the kernel for its oldest right.
    pub(super) fn is_supported() -> bool {
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::ReadFile).is_ok()
    }

    /// Restricts this thread. Returns the kernel's ABI; 0 without Landlock.
    ///
    /// # Errors
    /// A rule cannot be made. Nothing is restricted then.
    pub(super) fn restrict(plan: &SandboxPlan, files: &AllowedFiles) -> Result<u32, RulesetError> {
        let mut ruleset =
            Ruleset::default().handle_access(AccessFs::from_all(KNOWN))?.handle_access(AccessNet::BindTcp)?;
        if plan.connect.is_some() {
            ruleset = ruleset.handle_access(AccessNet::ConnectTcp)?;
        }
        ruleset = ruleset.scope(Scope::Signal)?;
        if !plan.abstract_socket {
            ruleset = ruleset.scope(Scope::AbstractUnixSocket)?;
        }
        let mut created = ruleset.create()?;
        for path in &files.read {
            created = add_path(created, path, AccessFs::ReadFile | AccessFs::ReadDir)?;
        }
        for path in &files.write {
            created = add_path(created, path, WRITE)?;
        }
        // Only libraries and redirections of this program write there.
        created = add_path(created, Path::new("/dev/null"), AccessFs::ReadFile | AccessFs::WriteFile)?;
        for port in &plan.bind {
            created = created.add_rule(NetPort::new(*port, AccessNet::BindTcp))?;
        }
        for port in plan.connect.iter().flatten() {
            created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
        let status = created.restrict_self()?;
        Ok(match status.landlock {
            LandlockStatus::Available { effective_abi, kernel_abi } => {
                kernel_abi.and_then(|abi| u32::try_from(abi).ok()).unwrap_or(effective_abi as u32)
            }
            _ => 0,
        })
    }

    /// Rights in a folder whose files are created, replaced and removed. No devices, no moves to other folders.
    const WRITE: BitFlags<AccessFs> = landlock::make_bitflags!(AccessFs::{
        ReadFile | ReadDir | WriteFile | Truncate | RemoveFile | RemoveDir | MakeReg | MakeDir | MakeSock | MakeSym
    });

    /// Adds a rule for a path. One that has gone needs none.
    fn add_path(
        ruleset: RulesetCreated,
        path: &Path,
        access: impl Into<BitFlags<AccessFs>>,
    ) -> Result<RulesetCreated, RulesetError> {
        let Ok(descriptor) = PathFd::new(path) else { return Ok(ruleset) };
        let access = access.into();
        // A file has no rights of a folder.
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(KNOWN) };
        ruleset.add_rule(PathBeneath::new(descriptor, access))
    }
}
