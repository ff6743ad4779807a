//! Probes of the gateway: the platform's address, the connection, its product, and the owner of the platform token.

use std::path::Path;
use std::time::Duration;

use http::{Method, StatusCode};
use keyward_config::{Gateway, SecretToken, Session, TokenSource};
use keyward_gateway::availability::{Product, ServerInfo};
use keyward_http::client::sanitize::sanitize;
use keyward_http::client::{self, Client, ClientResponse, ServerAddress, TlsOptions, TransportError};
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;
use serde_json::Value;

use super::connection::{check_clock, check_connection};
use super::limits::Limits;
use crate::check_result::{CheckResult, Problem, Progress, StepResult, Steps};
use crate::one_shot_login::{LoggedIn, login};
use crate::one_shot_render::OneShotReader;

/// Time for one answer of the platform.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Checks the connection to the platform and the owner of the platform token. A token that comes from a session is read with a
/// login for this check, which is revoked at its end. Steps after a failed one are omitted.
pub async fn check_gateway(
    gateway: &Gateway,
    sessions: &[Session],
    limits: Limits,
    progress: &Progress,
) -> Vec<CheckResult> {
    let mut steps = Steps::new("gateway", None, progress);
    let options = platform_client(gateway);
    if !check_connection(&options, ErrorCode::PlatformUnreachable, &limits, &mut steps).await {
        return steps.into_results();
    }
    let client = match options.build() {
        Ok(client) => client,
        Err(error) => {
            steps.record("platform", Err(Problem::new(error.code(), format_chain(&error))));
            return steps.into_results();
        }
    };
    match limits.bound(ping(&client)).await.and_then(|pinged| pinged) {
        Err(problem) => {
            steps.record("platform", Err(problem));
        }
        Ok((server, response, description)) => {
            steps.record("platform", Ok(description));
            if let Some(result) = check_clock(&response.headers, client.server()) {
                steps.record("clock", result);
            }
            let ask = async |token: &SecretString| look_up_owner(&client, token, &server).await;
            steps.record("platform token", with_token(gateway, sessions, &limits, ask).await);
        }
    }
    steps.into_results()
}

/// Returns the options of a client that reaches the platform as the gateway does.
pub(crate) fn platform_client(gateway: &Gateway) -> client::ClientOptions {
    client::ClientOptions {
        address: ServerAddress::Url(gateway.proxy.upstream.clone()),
        tls: TlsOptions { ca_file: gateway.proxy.ca_file.clone(), ..TlsOptions::default() },
        proxy: gateway.proxy.proxy.clone(),
        connect_timeout: gateway.proxy.connect_timeout,
        response_timeout: gateway.proxy.response_timeout.min(ANSWERS_WITHIN),
    }
}

/// Detects the platform's product. Most platforms name it without a token too.
async fn ping(client: &Client) -> Result<(ServerInfo, ClientResponse, String), Problem> {
    let response = client.send(client.request(Method::GET, "api/v2/ping")).await;
    let response = response.map_err(|error| unreachable(client, &error))?;
    let server = ServerInfo::default().updated_by(&response.headers).unwrap_or_default();
    let status = response.status.as_u16();
    if !response.status.is_success() && response.status != StatusCode::UNAUTHORIZED && server == ServerInfo::default() {
        let message = format!(
            "{} answers {status} to /api/v2/ping, as neither HCP Terraform nor Terraform Enterprise does",
            client.server()
        );
        return Err(Problem::new(ErrorCode::PlatformUnreachable, message));
    }
    let description = format!("{} answers {status}; {}", client.server(), describe(&server));
    Ok((server, response, description))
}

fn unreachable(client: &Client, error: &TransportError) -> Problem {
    Problem::new(ErrorCode::PlatformUnreachable, format!("{}: {}", client.server(), format_chain(error)))
}

/// Describes the platform.
fn describe(server: &ServerInfo) -> String {
    let product = match server.product {
        Some(Product::Hosted) => "HCP Terraform",
        Some(Product::SelfManaged) => "Terraform Enterprise",
        None => "it does not report its product",
    };
    let release = server.release.map(|release| format!(", release {release}")).unwrap_or_default();
    let api =
        server.api_version.as_deref().map(|version| format!(", API {}", sanitize(version, ""))).unwrap_or_default();
    format!("{product}{release}{api}")
}

/// Calls `ask` with the platform token, then revokes a login that this check made.
async fn with_token(
    gateway: &Gateway,
    sessions: &[Session],
    limits: &Limits,
    ask: impl AsyncFnOnce(&SecretString) -> StepResult,
) -> StepResult {
    let (file, before) = match &gateway.token {
        TokenSource::File(file) => (file, ""),
        TokenSource::Mint(mint) => (&mint.parent_token_file, "the parent token: "),
        TokenSource::Secret(secret) => return with_leased_token(secret, sessions, limits, ask).await,
    };
    let token = read_token(file)?;
    let result = limits.bound(ask(&token)).await.and_then(|result| result);
    result.map(|message| format!("{before}{message} (file {})", file.display()))
}

async fn with_leased_token(
    secret: &SecretToken,
    sessions: &[Session],
    limits: &Limits,
    ask: impl AsyncFnOnce(&SecretString) -> StepResult,
) -> StepResult {
    let session = sessions.iter().find(|session| session.name == secret.session);
    let session = session.ok_or_else(|| Problem::new(None, format!("there is no session {}", secret.session)))?;
    let logged_in = limits.bound(login(session)).await?;
    let logged_in = logged_in
        .map_err(|error| Problem::new(error.code(), format!("session {}: {}", session.name, format_chain(&error))))?;
    let result = limits.bound(ask_with_secret(secret, session, &logged_in, ask)).await.and_then(|result| result);
    let revoked = limits.bound_revocation(logged_in.try_revoke()).await;
    match (result, revoked) {
        (Ok(message), Ok(Err(error))) => {
            let text = format!("{message}; the login for it could not be revoked: {error}");
            Err(Problem::new(ErrorCode::TokenNotRevoked, text))
        }
        (Ok(message), Err(late)) => Err(late.with_prefix(&format!("{message}; the login for it was not revoked: "))),
        (result, _) => result,
    }
}

/// Reads the secret, asks with its token, and gives its lease back.
async fn ask_with_secret(
    secret: &SecretToken,
    session: &Session,
    logged_in: &LoggedIn,
    ask: impl AsyncFnOnce(&SecretString) -> StepResult,
) -> StepResult {
    let path = &secret.path;
    let response = OneShotReader::with_login(session, logged_in).read(path).await;
    let response = response.map_err(|error| Problem::new(error.code(), format!("{path}: {}", format_chain(&error))))?;
    let token = response.data.text(&secret.field);
    let token = token.ok_or_else(|| {
        Problem::new(ErrorCode::SecretUnusable, format!("{path} has no string in the field `{}`", secret.field))
    })?;
    let result = ask(&token).await.map(|message| format!("{message} ({path})"));
    let Some(lease) = &response.lease else { return result };
    let token = &logged_in.token.secret;
    let namespace = session.login.namespace.as_deref();
    let revocation = logged_in.upstream().revoke_lease(token, lease, namespace).await;
    let lease_problem = |error| Problem::new(None, format!("{path}: its lease stays: {}", format_chain(&error)));
    revocation.map_err(lease_problem).and(result)
}

fn read_token(file: &Path) -> Result<SecretString, Problem> {
    secret::read_file(file).map_err(|error| Problem::new(ErrorCode::PlatformTokenMissing, format_chain(&error)))
}

/// Asks the platform whose token this is.
async fn look_up_owner(client: &Client, token: &SecretString, server: &ServerInfo) -> StepResult {
    let request = client.request(Method::GET, "api/v2/account/details").bearer_auth(token.expose_secret());
    let response = client.send(request).await.map_err(|error| unreachable(client, &error))?;
    // Some platforms report their product only to authenticated callers.
    let is_unknown = *server == ServerInfo::default();
    let detected = is_unknown.then(|| ServerInfo::default().updated_by(&response.headers)).flatten();
    let description = detected.map(|server| format!("; {}", describe(&server))).unwrap_or_default();
    owner(client, &response, token).map(|owner| format!("{owner}{description}"))
}

fn owner(client: &Client, response: &ClientResponse, token: &SecretString) -> StepResult {
    // No text of the answer is shown with the token in it.
    let sanitize = |text: &str| sanitize(text, token.expose_secret());
    match response.status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => {
            let message = format!("{} refuses the token: replace it", client.server());
            return Err(Problem::new(ErrorCode::PlatformTokenRejected, message));
        }
        status => {
            let message = format!("{} answers {} to /api/v2/account/details", client.server(), status.as_u16());
            return Err(Problem::new(None, message));
        }
    }
    let document: Value = serde_json::from_slice(&response.body).map_err(|_| {
        Problem::new(None, format!("{} answers /api/v2/account/details without a JSON document", client.server()))
    })?;
    let data = &document["data"];
    let name = sanitize(data["attributes"]["username"].as_str().unwrap_or("without a name"));
    let resource = &data["relationships"]["authenticated-resource"]["data"];
    let text = |name: &str| resource[name].as_str().map(&sanitize);
    Ok(match (text("type"), text("id")) {
        (Some(kind), Some(id)) if kind != "users" => {
            let kind = kind.strip_suffix('s').unwrap_or(&kind);
            format!("the token of {kind} {id}, as user {name}")
        }
        _ => format!("the token of user {name}"),
    })
}
