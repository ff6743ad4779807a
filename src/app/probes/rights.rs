//! Rights that templates, derived tokens, credentials and the gateway need of a session's token, and the rights that it has.

use std::collections::{BTreeMap, BTreeSet};

use keyward_agent::callers::CallerPolicy;
use keyward_agent::secrets::{DerivedTokenKind, SecretOp, SecretRequest};
use keyward_agent::templates::Template;
use keyward_config::{self as config, Config};
use keyward_telemetry::error_code::ErrorCode;

use super::limits::Limits;
use crate::check_result::{Problem, StepResult};
use crate::one_shot_login::LoggedIn;

/// Capability of a path that a part of the configuration needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NeededRight {
    /// Path without `/v1/` and query.
    pub path: String,
    /// Capabilities in a policy, of which one is enough: `read`, `list`, `update`.
    pub any_of: &'static [&'static str],
    /// Part that needs it, such as `template app`.
    pub needed_by: String,
}

const READ: &[&str] = &["read"];
const LIST: &[&str] = &["list"];
const WRITE: &[&str] = &["update", "create"];

/// Lists the capabilities that the configuration needs from a session's token. Excludes paths that a template computes
/// from secrets, as they are unknown before rendering.
pub(crate) fn needed_rights(config: &Config, session: &str) -> BTreeSet<NeededRight> {
    let mut needed = BTreeSet::new();
    let mut add = |path: &str, any_of, needed_by: String| {
        let path = path.split_once('?').map_or(path, |(path, _)| path).trim_matches('/');
        // The server adds the slash to each LIST, and judges the path with it.
        let path = format!("{path}{}", if any_of == LIST { "/" } else { "" });
        needed.insert(NeededRight { path, any_of, needed_by });
    };
    let templates = config.templates.iter().map(|template| ("template", template));
    let variables = config.env_templates.iter().map(|template| ("env_template", template));
    for (part, template) in templates.chain(variables).filter(|(_, template)| template.session == session) {
        for (path, any_of) in first_requests(template) {
            add(&path, any_of, format!("{part} {}", template.options.text.name));
        }
    }
    for certificate in &config.certificates {
        if let Some(engine) = certificate.engine().filter(|engine| engine.session == session) {
            add(&engine.request.path(), WRITE, format!("certificate {}", certificate.options.name));
        }
    }
    for credential in config.credentials.iter().filter(|credential| credential.session == session) {
        add(&credential.path, READ, format!("credential {}", credential.name));
    }
    for sink in config.sinks.iter().filter(|sink| sink.session() == Some(session)) {
        let by = format!("sink {}", sink.options.name);
        match &sink.derive {
            Some(DerivedTokenKind::Child(_)) => add("auth/token/create", WRITE, by),
            Some(DerivedTokenKind::Wrapped(_)) => add("sys/wrapping/wrap", WRITE, by),
            None => {}
        }
    }
    for listener in config.listeners.iter().filter(|listener| listener.sessions.iter().any(|name| name == session)) {
        if listener.derived_token.is_some() {
            add("auth/token/create", WRITE, format!("listener {}", listener.name));
        }
    }
    for rule in config.callers.iter().flat_map(CallerPolicy::rules) {
        let serves = |listener: &config::Listener| {
            listener.callers.is_some() && listener.sessions.iter().any(|name| name == session)
        };
        if let Some(options) = &rule.grants.derived_token
            && rule.grants.permits_session(session)
            && config.listeners.iter().any(serves)
        {
            add(&options.child.path(), WRITE, format!("caller {}", rule.name));
        }
    }
    #[cfg(feature = "gateway")]
    if let Some(gateway) = &config.gateway
        && let config::TokenSource::Secret(secret) = &gateway.token
        && secret.session == session
    {
        add(&secret.path, READ, "gateway".to_owned());
    }
    needed
}

/// The requests that a template makes before it knows any secret.
fn first_requests(template: &config::Template) -> Vec<(String, &'static [&'static str])> {
    let Ok(compiled) = Template::compile(template.options.text.clone()) else { return Vec::new() };
    let right = |request: SecretRequest| match request.op {
        SecretOp::Read => (request.path, READ),
        SecretOp::List => (request.path, LIST),
        SecretOp::Write(_) | SecretOp::WriteObject(_) => (request.path, WRITE),
    };
    compiled.first_requests(std::time::SystemTime::now()).into_iter().map(right).collect()
}

/// Compares the rights of a login with those that are needed. `None` if the server has no such question.
pub(super) async fn check_rights(
    logged_in: &LoggedIn,
    needed: &BTreeSet<NeededRight>,
    limits: &Limits,
) -> Option<Vec<StepResult>> {
    if logged_in.upstream().kind().is_consul_compatible() {
        return None;
    }
    if needed.is_empty() {
        return Some(vec![Ok("the configuration needs no further rights".to_owned())]);
    }
    let needed = match limits.bound(resolve_paths(logged_in, needed)).await {
        Ok(needed) => needed,
        Err(problem) => return Some(vec![Err(problem)]),
    };
    let paths: BTreeSet<&str> = needed.iter().map(|right| right.path.as_str()).collect();
    let paths: Vec<&str> = paths.into_iter().collect();
    let request = logged_in.upstream().capabilities_self(&logged_in.token.secret, &paths, logged_in.namespace());
    let has = match limits.bound(request).await {
        Ok(Ok(has)) => has,
        Ok(Err(error)) => {
            let problem = Problem::new(error.code(), format!("sys/capabilities-self: {error}")).warning();
            return Some(vec![Err(problem)]);
        }
        Err(problem) => return Some(vec![Err(problem)]),
    };
    Some(needed.iter().map(|right| check_right(right, &has)).collect())
}

/// Inserts `data/` or `metadata/` into the paths of key-value version 2 that lack it, as the agent does when it reads them.
async fn resolve_paths(logged_in: &LoggedIn, needed: &BTreeSet<NeededRight>) -> BTreeSet<NeededRight> {
    let mut resolved = BTreeSet::new();
    for right in needed {
        let has_segment = right.path.split('/').skip(1).any(|part| ["data", "metadata"].contains(&part));
        let is_of_server = ["auth/", "sys/", "identity/"].iter().any(|part| right.path.starts_with(part));
        let mut right = right.clone();
        if !has_segment && !is_of_server {
            let op = if right.any_of == LIST { SecretOp::List } else { SecretOp::Read };
            let request = SecretRequest { path: right.path.clone(), op };
            let token = Some(&logged_in.token.secret);
            right.path = logged_in.upstream().resolve_secret_path(token, &request, logged_in.namespace()).await;
        }
        resolved.insert(right);
    }
    resolved
}

fn check_right(right: &NeededRight, has: &BTreeMap<String, Vec<String>>) -> StepResult {
    let NeededRight { path, any_of, needed_by } = right;
    let granted = has.get(path).map(Vec::as_slice).unwrap_or_default();
    if granted.iter().any(|capability| capability == "root" || any_of.contains(&capability.as_str())) {
        return Ok(format!("may {} {path}, for {needed_by}", any_of[0]));
    }
    let message = format!("the token may not {} {path}, which {needed_by} needs", any_of[0]);
    let capabilities: Vec<String> = any_of.iter().map(|capability| format!("\"{capability}\"")).collect();
    let fix =
        format!("add to a policy of the role: path \"{path}\" {{ capabilities = [{}] }}", capabilities.join(", "));
    Err(Problem::new(ErrorCode::AccessDenied, message).with_remedy(fix))
}
