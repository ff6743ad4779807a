//! Runs all checks: those of the machine first, then all that wait for others, at once.

use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use keyward_config::{Config, Diagnostic, Environment, LoadOutcome, Need, NeedKind, PathUse, Purpose};
use keyward_http::server::Endpoint;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::wording::format_count;

use super::files::FileChecker;
use super::listeners::ListenerChecker;
use super::rights::UserIdentity;
use super::running_agent::{self, AgentContact, AgentProcess, RunningAgent};
use super::unit_checks::ServiceUnit;
use super::unit_environment::{created_folders, unit_environment};
use super::unit_files::{self, UnitFiles};
use super::unit_parser::Unit;
use super::unit_sandbox::Sandbox;
use super::{credentials, file_owners, peers};
use crate::certificate_files;
use crate::check_result::{CheckResult, CheckStatus, Problem, Progress, Steps};
use crate::probes::{Limits, check_session, check_tool_identity, describe_expiry, resolve_host};

/// Options of `keyward doctor`.
pub struct Options<'a> {
    /// Files and folders of the configuration.
    pub files: Vec<PathBuf>,
    /// Variables of this process.
    pub environment: Environment,
    /// Name of the service's unit, or path of its file.
    pub unit: String,
    /// User whose rights are checked; `None` for the unit's, or this process's.
    pub user: Option<String>,
    /// Reads the configuration.
    pub load: &'a dyn Fn(&Environment, Purpose) -> anyhow::Result<LoadOutcome>,
    /// Finds the agent's address in a configuration.
    pub contact: &'a dyn Fn(&LoadOutcome) -> Option<AgentContact>,
    /// The agent is that of a running `keyward dev`, which has no sandbox on purpose.
    pub is_demo: bool,
    /// Receives the names of the checks that have ended.
    pub progress: Progress,
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("files", &self.files).field("unit", &self.unit).finish_non_exhaustive()
    }
}

/// All results, and the inputs that they are based on.
#[derive(Debug)]
pub struct Diagnosis {
    /// The results, in the order in which they are shown.
    pub results: Vec<CheckResult>,
    /// User whose rights were checked.
    pub user: String,
    /// Files of the unit.
    pub unit: UnitFiles,
    /// The configuration as it was read.
    pub(crate) outcome: LoadOutcome,
    /// The running agent.
    pub(crate) agent: Option<RunningAgent>,
}

/// Time limit of remote checks. The revocation of a login has two more seconds.
const REMOTE_TIME: Duration = Duration::from_secs(6);

/// Runs all checks, within ten seconds.
pub async fn diagnose(options: &Options<'_>) -> anyhow::Result<Diagnosis> {
    let unit_files = UnitFiles::read(&options.unit);
    let service = service(&unit_files);
    let identity = select_user(options, service.as_ref(), &unit_files)?;
    let mut environment =
        unit_environment(&options.environment, service.as_ref().map(|service| &service.unit), &unit_files);
    environment.user = identity.uid;
    let outcome = (options.load)(&environment, Purpose::Run)?;
    // A missing file is an error on this machine, but must not stop the other checks.
    let check_outcome = (options.load)(&environment, Purpose::Check)?;
    let config = check_outcome.config.as_ref();
    let mut results = check_configuration(options, &outcome, service.as_ref(), &unit_files);
    let contact = (options.contact)(&check_outcome);
    let limits = Limits::all_within(REMOTE_TIME);
    let (agent, network, remote) = tokio::join!(
        async {
            match &contact {
                Some(contact) => Some(running_agent::query(contact).await),
                None => None,
            }
        },
        check_network(service.as_ref(), config),
        check_peers(config, &check_outcome, limits, &options.progress),
    );
    let machine = HostFacts { options, identity: &identity, unit_files: &unit_files, service: service.as_ref() };
    results.extend(machine.check_files(&outcome));
    results.extend(machine.check_unit(&check_outcome, network));
    if let Some(config) = config {
        results.extend(check_certificates(config, &options.progress));
        results.extend(machine.check_listeners(&check_outcome, AgentProcess::from_response(agent.as_ref())));
        results.extend(credentials::check_units(config, &options.progress));
    }
    let mut steps = Steps::new("agent", None, &options.progress);
    running_agent::record_agent(agent.as_ref(), &unit_files.name, &mut steps);
    let excuse = |result| if options.is_demo { running_agent::excuse_demo(result) } else { result };
    results.extend(steps.into_results().into_iter().map(excuse));
    results.extend(remote);
    let agent = agent.and_then(Result::ok).flatten();
    Ok(Diagnosis { results, user: identity.name.clone(), unit: unit_files, outcome: check_outcome, agent })
}

impl Diagnosis {
    /// Returns the worst outcome.
    pub fn worst(&self) -> CheckStatus {
        self.results.iter().map(|result| result.status).max().unwrap_or(CheckStatus::Ok)
    }
}

fn service(files: &UnitFiles) -> Option<ServiceUnit> {
    if files.files.is_empty() {
        return None;
    }
    let unit = Unit::parse("Service", files.texts());
    let created = created_folders(&unit, files);
    let sandbox = Sandbox::new(&unit);
    Some(ServiceUnit { name: files.name.clone(), unit, created, sandbox })
}

/// The user of `--as`, else the unit's for root, else the current one. Where the unit's user does not exist, which its own check
/// reports, the current user is checked.
fn select_user(
    options: &Options<'_>,
    service: Option<&ServiceUnit>,
    files: &UnitFiles,
) -> anyhow::Result<UserIdentity> {
    let current = rustix::process::geteuid();
    let of_unit = service.and_then(|service| service.unit.last("User")).filter(|_| current.is_root());
    let mut identity = match (&options.user, of_unit.map(|user| files.expand(user))) {
        (Some(user), _) => file_owners::identity(user).map_err(|error| anyhow::anyhow!("--as: {error}"))?,
        (None, user) => {
            user.and_then(|user| file_owners::identity(&user).ok()).unwrap_or_else(file_owners::current_identity)
        }
    };
    if let Some(service) = service {
        let main = service.unit.last("Group").map(str::to_owned);
        let extra = service.unit.words("SupplementaryGroups").into_iter().chain(main).map(|group| files.expand(&group));
        identity.groups.extend(extra.filter_map(|group| keyward_machine::os::group_id(&group).ok().flatten()));
        identity.passes_modes &= service.sandbox.has_capability("CAP_DAC_OVERRIDE", true);
    }
    Ok(identity)
}

/// Reports errors and warnings of the configuration. Ignores missing folders that the service manager creates, and
/// credentials that it passes.
fn check_configuration(
    options: &Options<'_>,
    outcome: &LoadOutcome,
    service: Option<&ServiceUnit>,
    files: &UnitFiles,
) -> Vec<CheckResult> {
    let is_passed = |diagnostic: &Diagnostic| {
        let ids = credentials::find_credential_ids(&outcome.references, &diagnostic.key);
        let passes = |service: &ServiceUnit| ids.iter().all(|id| credentials::passes(&service.unit, files, id));
        diagnostic.code == ErrorCode::UnresolvedValue && !ids.is_empty() && service.is_some_and(passes)
    };
    let is_created = |diagnostic: &Diagnostic| {
        let mut needs = outcome.needs.iter().filter(|need| need.key == diagnostic.key && !need.is_hidden);
        let path = needs.find_map(Need::path);
        diagnostic.code == ErrorCode::MissingOnHost
            && path.zip(service).is_some_and(|((path, _), service)| service.creates(path))
    };
    // The unit's check knows the groups that the unit adds.
    let is_of_unit = |diagnostic: &Diagnostic| diagnostic.code == ErrorCode::SandboxCapability && service.is_some();
    let to_problem = |diagnostic: &Diagnostic| {
        let position =
            diagnostic.position.map(|position| format!(":{}:{}", position.line, position.column)).unwrap_or_default();
        let key = if diagnostic.key.is_empty() { String::new() } else { format!(" {}:", diagnostic.key) };
        let message = format!("{}{position}:{key} {}", diagnostic.file.display(), diagnostic.message);
        let problem = Problem::new(diagnostic.code, message);
        if diagnostic.advice.is_empty() { problem } else { problem.with_remedy(diagnostic.advice.clone()) }
    };
    let errors =
        outcome.errors.iter().filter(|diagnostic| !is_created(diagnostic) && !is_passed(diagnostic)).map(to_problem);
    let warnings =
        outcome.warnings.iter().filter(|diagnostic| !is_created(diagnostic) && !is_of_unit(diagnostic)).map(to_problem);
    let problems: Vec<Problem> = errors.chain(warnings.map(Problem::warning)).collect();
    let files: Vec<String> = options.files.iter().map(|file| file.display().to_string()).collect();
    let mut steps = Steps::new("configuration", None, &options.progress);
    steps.record_all("check", problems, format!("{} has no errors", files.join(", ")));
    steps.into_results()
}

/// Facts read from this machine.
struct HostFacts<'a> {
    options: &'a Options<'a>,
    identity: &'a UserIdentity,
    unit_files: &'a UnitFiles,
    service: Option<&'a ServiceUnit>,
}

impl HostFacts<'_> {
    fn file_checker(&self) -> FileChecker<'_> {
        let created = self.service.map(|service| service.created.as_slice()).unwrap_or_default();
        FileChecker { identity: self.identity, created }
    }

    fn check_files(&self, outcome: &LoadOutcome) -> Vec<CheckResult> {
        let files = self.options.files.iter().map(|path| {
            let usage = if path.is_dir() { PathUse::ReadFolder } else { PathUse::Read };
            ("--config", path, usage)
        });
        let needs = outcome.needs.iter().filter(|need| !need.is_hidden);
        let named = needs.filter_map(|need| need.path().map(|(path, usage)| (need.key.as_str(), path, usage)));
        let paths: Vec<_> = files.chain(named).collect();
        let checker = self.file_checker();
        let mut steps = Steps::new("files", None, &self.options.progress);
        let count = paths.len();
        let mut problems = Vec::new();
        for (key, path, usage) in paths {
            for problem in checker.problems(key, path, usage) {
                // Two keys in one folder would report the same problem twice.
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
        let user = &self.identity.name;
        steps.record_all("rights", problems, format!("user {user} has its rights on {count} files and folders"));
        steps.into_results()
    }

    fn check_unit(&self, outcome: &LoadOutcome, network: NetworkFindings) -> Vec<CheckResult> {
        let mut steps = Steps::new("unit", None, &self.options.progress);
        let name = &self.unit_files.name;
        for unreadable in &self.unit_files.unreadable {
            steps.record("files", Err(Problem::skipped(unreadable.clone())));
        }
        let Some(service) = self.service else {
            steps.record(
                "files",
                Err(Problem::skipped(format!("this machine has no unit {name}: unit checks are skipped"))),
            );
            return steps.into_results();
        };
        let settings = service.settings_problems(self.unit_files, &self.options.files);
        let count = self.unit_files.files.len();
        steps.record_all(
            "settings",
            settings,
            format!("{name} in {}, user {}", format_count(count as u64, "file"), self.identity.name),
        );
        if let Some(problem) = service.landlock_problem() {
            steps.record("landlock", Err(problem));
        }
        if outcome.config.is_none() {
            return steps.into_results();
        }
        let checker = self.file_checker();
        let rules = unit_files::polkit_rules();
        let commands = outcome.needs.iter().filter_map(|need| match &need.kind {
            NeedKind::Run(command) => Some((need.part(), command)),
            _ => None,
        });
        let programs: Vec<_> = commands.collect();
        let problems =
            programs.iter().flat_map(|(by, command)| service.program_problems(by, command, &checker, rules.as_deref()));
        steps.record_all(
            "programs",
            problems.collect(),
            format!("{} may run", format_count(programs.len() as u64, "command")),
        );
        let owners = outcome.needs.iter().filter(|need| matches!(need.kind, NeedKind::Owner(..) | NeedKind::Group(..)));
        let count = owners.clone().count();
        let problems = owners.filter_map(|need| service.owner_problem(need, self.identity));
        steps.record_all(
            "owners",
            problems.collect(),
            format!("{} of files and sockets", format_count(count as u64, "owner")),
        );
        let endpoints: Vec<_> = endpoints(outcome).collect();
        let problems = endpoints.iter().flat_map(|(by, endpoint)| service.listen_problems(by, endpoint, self.identity));
        steps.record_all(
            "listeners",
            problems.collect(),
            format!("{} to listen on", format_count(endpoints.len() as u64, "endpoint")),
        );
        steps.record_all(
            "network",
            network.problems,
            format!("{} to connect to", format_count(network.addresses as u64, "peer")),
        );
        steps.into_results()
    }

    fn check_listeners(&self, outcome: &LoadOutcome, agent: AgentProcess) -> Vec<CheckResult> {
        let passed = self.service.map(|_| unit_files::passed_sockets(self.unit_files));
        let checker = ListenerChecker { identity: self.identity, agent, passed: passed.as_deref() };
        let mut results = Vec::new();
        for (by, endpoint) in endpoints(outcome) {
            let mut steps = Steps::new("listener", Some(by.trim_start_matches("listener ")), &self.options.progress);
            steps.record("address", checker.check(endpoint));
            results.extend(steps.into_results());
        }
        results
    }
}

/// Lists the addresses that are listened on, each with its part.
fn endpoints(outcome: &LoadOutcome) -> impl Iterator<Item = (String, &Endpoint)> {
    outcome.needs.iter().filter_map(|need| match &need.kind {
        NeedKind::Listen(endpoint) => Some((need.part(), endpoint)),
        _ => None,
    })
}

/// Time limit of name lookups: other checks report a resolver that does not answer.
const NAMES_TIME: Duration = Duration::from_secs(2);

/// Addresses that the sandbox lets the agent reach, and those that it does not.
#[derive(Debug, Default)]
struct NetworkFindings {
    addresses: usize,
    problems: Vec<Problem>,
}

/// Compares the addresses of all peers with the sandbox.
async fn check_network(service: Option<&ServiceUnit>, config: Option<&Config>) -> NetworkFindings {
    let mut findings = NetworkFindings::default();
    let Some((service, config)) = service.zip(config) else { return findings };
    let peers = peers::peers(config);
    let lookups = peers.iter().map(|peer| tokio::time::timeout(NAMES_TIME, resolve_host(&peer.host, peer.port)));
    for (peer, resolved) in peers.iter().zip(join_all(lookups).await) {
        for address in resolved.into_iter().flatten().flatten() {
            findings.addresses += 1;
            findings.problems.extend(service.peer_problem(&peer.by, address.ip()));
        }
    }
    findings.problems.dedup();
    findings
}

/// Days left of the certificates in files.
fn check_certificates(config: &Config, progress: &Progress) -> Vec<CheckResult> {
    let mut steps = Steps::new("certificates", None, progress);
    for (key, files) in certificate_files::files(config) {
        let result = match files.read() {
            Ok(certificates) => describe_expiry(&certificates, &files.describe(), SystemTime::now()),
            Err(error) => Err(Problem::new(ErrorCode::CertificateFile, format_chain(&error))),
        };
        steps.record(key, result);
    }
    steps.into_results()
}

/// Checks sessions, gateway and etcd, all at once.
async fn check_peers(
    config: Option<&Config>,
    outcome: &LoadOutcome,
    limits: Limits,
    progress: &Progress,
) -> Vec<CheckResult> {
    let Some(config) = config else { return Vec::new() };
    let mut checks: Vec<Pin<Box<dyn Future<Output = Vec<CheckResult>> + '_>>> = Vec::new();
    for session in &config.sessions {
        let key_prefixes = [format!("session.{}.", session.name), format!("server.{}.", session.upstream.name)];
        let missing = outcome.placeholders.iter().find(|key| key_prefixes.iter().any(|prefix| key.starts_with(prefix)));
        match missing {
            None => checks.push(Box::pin(check_session(config, session, limits, progress))),
            Some(key) => {
                let mut steps = Steps::new("session", Some(&session.name), progress);
                steps.record("login", Err(Problem::skipped(format!("{key} has no value on this machine"))));
                checks.push(Box::pin(std::future::ready(steps.into_results())));
            }
        }
    }
    for identity in &config.identities {
        checks.push(Box::pin(check_tool_identity(identity, limits, progress)));
    }
    #[cfg(feature = "gateway")]
    if let Some(gateway) = &config.gateway
        && !outcome.placeholders.iter().any(|key| key.starts_with("gateway."))
    {
        checks.push(Box::pin(crate::probes::check_gateway(gateway, &config.sessions, limits, progress)));
    }
    #[cfg(feature = "etcd")]
    if let Some(acl) = &config.acl
        && let keyward_acl::store::StoreOptions::Etcd(etcd) = &acl.service.store
    {
        checks.push(Box::pin(crate::probes::check_etcd(etcd, limits, progress)));
    }
    join_all(checks).await.into_iter().flatten().collect()
}
