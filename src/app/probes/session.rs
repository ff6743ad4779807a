//! Probes of a session: its server, the identity, a login that is revoked at once, and the rights of its token.

use http::{Method, StatusCode};
use keyward_agent::identity::IdentityProof;
use keyward_config::{Config, Session};
use keyward_http::client::ClientResponse;
use keyward_telemetry::error_code::ErrorCode;

use super::connection::{check_clock, check_connection};
use super::limits::Limits;
use super::rights::{check_rights, needed_rights};
use crate::check_result::{CheckResult, Problem, Progress, StepResult, Steps};
use crate::error_codes;
use crate::one_shot_login::{self, LoggedIn, OneShotError, ProvenIdentity};

/// Tries what a session needs: the server's name, a connection to it, its clock, the identity source, and a login that is
/// revoked at once. Later steps are omitted once one has failed.
pub async fn check_session(
    config: &Config,
    session: &Session,
    limits: Limits,
    progress: &Progress,
) -> Vec<CheckResult> {
    let mut steps = Steps::new("session", Some(&session.name), progress);
    if check_connection(&session.upstream.client, ErrorCode::ServerUnreachable, &limits, &mut steps).await {
        let answered = check_server(session, &limits, &mut steps).await;
        let identity = check_identity(session, &limits, &mut steps).await;
        if let (true, Some(identity)) = (answered, identity) {
            check_login(config, session, identity, &limits, &mut steps).await;
        }
    } else if limits.is_bounded() {
        check_identity(session, &limits, &mut steps).await;
    }
    steps.into_results()
}

async fn check_server(session: &Session, limits: &Limits, steps: &mut Steps) -> bool {
    let response = limits.bound(probe_server(session)).await.and_then(|response| response);
    match response {
        Err(problem) => steps.record("server", Err(problem)),
        Ok((server, response)) => {
            let is_ok = steps.record("server", describe_health(&server, response.status));
            if let Some(result) = check_clock(&response.headers, &server) {
                steps.record("clock", result);
            }
            is_ok
        }
    }
}

/// Sends any HTTP request: a sealed or standby server reports its state at login.
async fn probe_server(session: &Session) -> Result<(String, ClientResponse), Problem> {
    let client = session.upstream.client.build().map_err(|error| {
        let error = anyhow::Error::from(error);
        Problem::new(error_codes::find(&error), format!("{error:#}"))
    })?;
    let response = client.send(client.request(Method::GET, "v1/sys/health")).await;
    let server = client.server().to_owned();
    match response {
        Ok(response) => Ok((server, response)),
        Err(error) => Err(Problem::new(error.code(), format!("{server}: {error}"))),
    }
}

/// The statuses are those of Vault's `sys/health`; other servers answer 404, or 200.
fn describe_health(server: &str, status: StatusCode) -> StepResult {
    let message = format!("{server} answers (health {})", status.as_u16());
    match status.as_u16() {
        501 => Err(Problem::new(ErrorCode::ServerFailed, format!("{message}: it is not initialized")).warning()),
        503 => Err(Problem::new(ErrorCode::ServerSealed, format!("{message}: it is sealed")).warning()),
        _ => Ok(message),
    }
}

async fn check_identity(session: &Session, limits: &Limits, steps: &mut Steps) -> Option<ProvenIdentity> {
    let identity = limits.bound(one_shot_login::prove(session, limits.is_bounded())).await;
    let identity = identity.and_then(|identity| identity.map_err(|error| problem(&error)));
    match identity {
        Ok(identity) => {
            steps.record("identity", Ok(describe_identity(&identity)));
            Some(identity)
        }
        Err(problem) => {
            steps.record("identity", Err(problem));
            None
        }
    }
}

/// Describes this machine by the claims and fields of its identity.
fn describe_identity(identity: &ProvenIdentity) -> String {
    let IdentityProof::Signed(token) = &identity.proof else { return identity.source.clone() };
    let mut facts = vec![identity.source.clone()];
    if let Some(claims) = &token.claims {
        let ids = [("object id", &claims.oid), ("client id", &claims.appid), ("tenant", &claims.tid)];
        facts.extend(ids.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?))));
        if !claims.aud.is_empty() {
            facts.push(format!("audience {}", claims.aud.join(", ")));
        }
        facts.extend(claims.xms_az_rid.as_ref().or(claims.xms_mirid.as_ref()).map(|id| format!("resource {id}")));
    }
    let fields = &token.fields;
    let names = [("vm", &fields.vm_name), ("scale set", &fields.vmss_name), ("group", &fields.resource_group_name)];
    facts.extend(names.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?))));
    keyward_http::client::sanitize::sanitize(&facts.join("; "), "")
}

async fn check_login(config: &Config, session: &Session, identity: ProvenIdentity, limits: &Limits, steps: &mut Steps) {
    let logged_in = limits.bound(identity.login(session)).await;
    let logged_in = match logged_in.and_then(|login| login.map_err(|error| problem(&error))) {
        Ok(logged_in) => logged_in,
        Err(problem) => {
            steps.record("login", Err(problem));
            return;
        }
    };
    let policies = match logged_in.token.policies.as_slice() {
        [] => "no policies".to_owned(),
        policies => format!("policies {}", policies.join(", ")),
    };
    let by = match session.login.mount.as_str() {
        "" => String::new(),
        mount => format!(" by auth/{mount}"),
    };
    steps.record("login", Ok(format!("logged in{by}; {policies}")));
    if session.login.wrap_ttl.is_none() {
        check_token(config, session, &logged_in, limits, steps).await;
    }
    let revoked = limits.bound_revocation(logged_in.try_revoke()).await;
    let revoked = revoked.and_then(|revoked| {
        revoked.map(str::to_owned).map_err(|error| Problem::new(ErrorCode::TokenNotRevoked, error.to_string()))
    });
    steps.record("revocation", revoked);
}

async fn check_token(config: &Config, session: &Session, logged_in: &LoggedIn, limits: &Limits, steps: &mut Steps) {
    let needed = needed_rights(config, &session.name);
    let Some(results) = check_rights(logged_in, &needed, limits).await else {
        let message =
            "not checked: the server does not report capabilities; the login above lists the policies of the token";
        steps.record("rights", Ok(message.to_owned()));
        return;
    };
    for result in results {
        steps.record("rights", result);
    }
}

fn problem(error: &OneShotError) -> Problem {
    Problem::new(error.code(), keyward_telemetry::error_chain::format_chain(error))
}
