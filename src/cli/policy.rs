//! `keyward policy`: the callers of a configuration, and which of them a process is.

use clap::{Args, Subcommand};
use keyward_agent::api_proxy::explain_request;
use keyward_agent::callers::{CallerGrants, CallerPolicy, CallerRoute, CallerVerdict};
use keyward_config::{self as config, Config, Environment, Purpose, Serves};
use keyward_http::peer::{KernelSupport, PeerFacts, PeerKernel, PeerReader};
use keyward_http::server::Endpoint;
use serde::Serialize;

use super::output::json;
use super::{ConfigFiles, Exit, Format, print_error, print_line};

/// Commands about callers.
#[derive(Debug, Subcommand)]
pub(super) enum Policy {
    /// Say which caller a running process is, why, and what it may do
    #[command(
        after_help = "Examples:\n  keyward policy explain --pid 812\n  keyward policy explain --pid 812 --route token\n  keyward policy explain --pid 812 --path secret/data/web\n\n\
                      It reads the process as the agent does, with the rights of whoever runs it: run it as root to see every process. \
                      Exit code 6 says that the route or the path is refused."
    )]
    Explain(ExplainCaller),
}

/// Explain the caller of a process.
#[derive(Debug, Args)]
pub(super) struct ExplainCaller {
    #[command(flatten)]
    files: ConfigFiles,
    /// Process id
    #[arg(long)]
    pid: u32,
    /// Route to check: token, refresh, proxy, credentials, status or health
    #[arg(long, value_parser = route)]
    route: Option<CallerRoute>,
    /// Path of the server's API to check on every API proxy, such as secret/data/web
    #[arg(long)]
    path: Option<String>,
    /// Method of that request
    #[arg(long, default_value = "GET", requires = "path")]
    method: String,
    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

fn route(text: &str) -> Result<CallerRoute, String> {
    let route = CallerRoute::NAMES.iter().find(|(name, _)| *name == text).map(|(_, route)| *route);
    route.ok_or_else(|| format!("write {}", CallerRoute::NAMES.map(|(name, _)| name).join(", ")))
}

/// Caller that a process is, and its rights.
#[derive(Debug, Serialize)]
struct Explanation {
    process: ProcessFacts,
    /// Name of the caller; absent if no rule matches.
    caller: Option<String>,
    /// Result of each rule, in their order.
    rules: Vec<RuleResult>,
    routes: Vec<&'static str>,
    /// The token that it gets; absent if no rule matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    checks: Vec<CheckedRequest>,
}

#[derive(Debug, Serialize)]
struct ProcessFacts {
    pid: u32,
    uid: Option<u32>,
    gid: Option<u32>,
    groups: Vec<u32>,
    cgroup: Option<String>,
    executable: Option<String>,
}

#[derive(Debug, Serialize)]
struct RuleResult {
    caller: String,
    matches: String,
    result: String,
}

/// Subject of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckKind {
    Route,
    Request,
}

/// A route, or a request on one listener.
#[derive(Debug, Serialize)]
struct CheckedRequest {
    kind: CheckKind,
    what: String,
    granted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Policy {
    pub(super) fn run(self) -> Exit {
        match self {
            Self::Explain(explain) => explain.run(),
        }
    }
}

impl ExplainCaller {
    fn run(self) -> Exit {
        let outcome = config::load(&self.files.config, &Environment::current(), Purpose::Check);
        let Some(config) = outcome.config else {
            outcome.errors.iter().for_each(|error| print_error(&error.to_string()));
            return Exit::ConfigInvalid;
        };
        let Some(policy) = &config.callers else {
            print_error(
                "the configuration has no [caller.NAME]: the options of each listener decide, as `keyward check` says",
            );
            return Exit::Missing;
        };
        let reader = PeerReader::new(PeerKernel::new(KernelSupport::probe()).into(), policy.executables());
        let Some(facts) = reader.facts_of_process(self.pid) else {
            print_error(&format!("there is no process {}; write the id of a running one", self.pid));
            return Exit::Missing;
        };
        let explanation = self.explain(&config, policy, &facts);
        match self.format {
            Format::Json => json(&explanation),
            Format::Text => explanation.print(),
        }
        if explanation.is_granted() { Exit::Ok } else { Exit::Denied }
    }

    fn explain(&self, config: &Config, policy: &CallerPolicy, facts: &PeerFacts) -> Explanation {
        let decided = policy.decide(facts);
        let rules = policy.explain(facts).into_iter().map(|(rule, verdict)| RuleResult {
            caller: rule.name.clone(),
            matches: rule.matches.to_string(),
            result: match verdict {
                CallerVerdict::Matched => "matches".to_owned(),
                CallerVerdict::Unmet(criterion) => format!("{} differs", criterion.key()),
                CallerVerdict::NotReached => "not reached".to_owned(),
            },
        });
        let grants = decided.map(|(_, rule)| &rule.grants);
        let mut checks = Vec::new();
        if let Some(route) = self.route {
            let granted = grants.is_some_and(|grants| grants.routes.contains(&route));
            let reason = (!granted).then(|| "the caller lacks the route".to_owned());
            checks.push(CheckedRequest {
                kind: CheckKind::Route,
                what: format!("route {}", route.name()),
                granted,
                reason,
            });
        }
        if let Some(path) = &self.path {
            checks.extend(self.check_path(config, policy, facts, path));
        }
        Explanation {
            process: ProcessFacts {
                pid: self.pid,
                uid: facts.uid,
                gid: facts.gid,
                groups: facts.groups.to_vec(),
                cgroup: facts.cgroup.as_deref().map(str::to_owned),
                executable: facts.executable.as_ref().map(|program| program.path.display().to_string()),
            },
            caller: decided.map(|(_, rule)| rule.name.clone()),
            rules: rules.collect(),
            routes: grants.map(CallerGrants::route_names).unwrap_or_default(),
            token: grants.map(|grants| config::describe_token(&config.listeners, grants)),
            checks,
        }
    }

    /// Checks the request on each API proxy, by the facts that the kernel reports there.
    fn check_path(&self, config: &Config, policy: &CallerPolicy, facts: &PeerFacts, path: &str) -> Vec<CheckedRequest> {
        let mut checks = Vec::new();
        for listener in &config.listeners {
            let Serves::ApiProxy(options) = &listener.serves else { continue };
            let is_tcp = matches!(listener.endpoint, Endpoint::Tcp(_));
            let decided = if is_tcp { policy.decide(&facts.restrict_to_tcp()) } else { policy.decide(facts) };
            let decision = match decided {
                Some((index, _)) => explain_request(options, index, &self.method, path),
                None if is_tcp => {
                    Err("no caller matches by user and cgroup, which is all that the kernel tells over TCP")
                }
                None => Err("no caller matches"),
            };
            checks.push(CheckedRequest {
                kind: CheckKind::Request,
                what: format!("{} {path} on listener {}", self.method, listener.name),
                granted: decision.is_ok(),
                reason: decision.err().map(str::to_owned),
            });
        }
        if checks.is_empty() {
            let reason = Some("the configuration has no API proxy".to_owned());
            let what = format!("{} {path}", self.method);
            checks.push(CheckedRequest { kind: CheckKind::Request, what, granted: false, reason });
        }
        checks
    }
}

impl Explanation {
    /// True if the process is a caller, and each check grants its request on some listener.
    fn is_granted(&self) -> bool {
        let (routes, paths): (Vec<_>, Vec<_>) = self.checks.iter().partition(|check| check.kind == CheckKind::Route);
        let any_path = paths.is_empty() || paths.iter().any(|check| check.granted);
        self.caller.is_some() && routes.iter().all(|check| check.granted) && any_path
    }

    fn print(&self) {
        let format_id = |id: Option<u32>| id.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
        let ProcessFacts { pid, uid, gid, groups, cgroup, executable } = &self.process;
        let groups: Vec<_> = groups.iter().map(u32::to_string).collect();
        print_line(&format!(
            "process {pid}: uid {}, gid {}, groups {}",
            format_id(*uid),
            format_id(*gid),
            groups.join(" ")
        ));
        print_line(&format!("  cgroup: {}", cgroup.as_deref().unwrap_or("unknown")));
        if let Some(executable) = executable {
            print_line(&format!("  executable: {executable}"));
        }
        for rule in &self.rules {
            print_line(&format!("caller {} ({}): {}", rule.caller, rule.matches, rule.result));
        }
        match &self.caller {
            Some(caller) => print_line(&format!("it is caller {caller}, which may use {}", self.routes.join(", "))),
            None => print_line("no caller matches it: all its requests are refused"),
        }
        if let Some(token) = &self.token {
            print_line(&format!("it gets {token}"));
        }
        for check in &self.checks {
            let reason = check.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            print_line(&format!("{}: {}{reason}", check.what, if check.granted { "granted" } else { "refused" }));
        }
    }
}
