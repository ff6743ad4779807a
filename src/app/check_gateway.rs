//! The gateway's part of `check --online`: the platform's address, the connection, its product, and the token's owner.

use std::path::Path;
use std::time::Duration;

use http::{Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::one_shot::{CheckStep, login, resolve};
use super::one_shot_render::OneShotReader;
use crate::config::{Gateway, Session, TokenSource};
use crate::error_chain::format_chain;
use crate::error_code::ErrorCode;
use crate::gateway::availability::{Product, ServerInfo};
use crate::http::client::sanitize::sanitize;
use crate::http::client::{self, Client, ClientResponse, ServerAddress, TlsOptions, TransportError};
use crate::secret;

/// Time for one answer of the platform.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Checks the connection to the platform and the owner of the platform token. A token that comes from a session is read with a
/// login for this check, which is revoked at its end. Steps after a failed one are left out.
pub(crate) async fn check_gateway(gateway: &Gateway, sessions: &[Session]) -> Vec<CheckStep> {
    let mut steps = Vec::new();
    let mut note = |step, result: Result<String, String>| {
        let ok = result.is_ok();
        let found = result.unwrap_or_else(|error| error);
        steps.push(CheckStep { part: "gateway", session: None, step, ok, found });
        ok
    };
    let options = client::ClientOptions {
        address: ServerAddress::Url(gateway.proxy.upstream.clone()),
        tls: TlsOptions { ca_file: gateway.proxy.ca_file.clone(), ..TlsOptions::default() },
        proxy: gateway.proxy.proxy.clone(),
        connect_timeout: gateway.proxy.connect_timeout,
        response_timeout: gateway.proxy.response_timeout.min(ANSWERS_WITHIN),
    };
    if !note("dns", resolve(&options).await) {
        return steps;
    }
    let client = match options.build() {
        Ok(client) => client,
        Err(error) => {
            note("platform", Err(ErrorCode::tag(error.code(), &format_chain(&error))));
            return steps;
        }
    };
    let (server, reached) = match ping(&client).await {
        Ok((server, description)) => (server, Ok(description)),
        Err(error) => (ServerInfo::default(), Err(error)),
    };
    if !note("platform", reached) {
        return steps;
    }
    let whose = with_token(gateway, sessions, async |token| look_up_owner(&client, token, &server).await).await;
    note("platform token", whose);
    steps
}

/// Detects the platform's product. Most platforms name it without a token too.
async fn ping(client: &Client) -> Result<(ServerInfo, String), String> {
    let response = client.send(client.request(Method::GET, "api/v2/ping")).await;
    let response = response.map_err(|error| unreachable(client, &error))?;
    let server = ServerInfo::default().updated_by(&response.headers).unwrap_or_default();
    let status = response.status.as_u16();
    if !response.status.is_success() && response.status != StatusCode::UNAUTHORIZED && server == ServerInfo::default() {
        let found = format!(
            "{} answers {status} to /api/v2/ping, as neither HCP Terraform nor Terraform Enterprise does",
            client.server()
        );
        return Err(ErrorCode::tag(Some(ErrorCode::PlatformUnreachable), &found));
    }
    let description = format!("{} answers {status}; {}", client.server(), describe(&server));
    Ok((server, description))
}

fn unreachable(client: &Client, error: &TransportError) -> String {
    let found = format!("{}: {}", client.server(), format_chain(error));
    ErrorCode::tag(Some(ErrorCode::PlatformUnreachable), &found)
}

/// Describes the platform.
fn describe(server: &ServerInfo) -> String {
    let product = match server.product {
        Some(Product::Hosted) => "HCP Terraform",
        Some(Product::SelfManaged) => "Terraform Enterprise",
        None => "it does not say which product it is",
    };
    let release = server.release.map(|release| format!(", release {release}")).unwrap_or_default();
    let api =
        server.api_version.as_deref().map(|version| format!(", API {}", sanitize(version, ""))).unwrap_or_default();
    format!("{product}{release}{api}")
}

/// Calls `ask` with the platform token. Revokes the token's login afterwards, if it was made for this check.
async fn with_token(
    gateway: &Gateway,
    sessions: &[Session],
    ask: impl AsyncFnOnce(&SecretString) -> Result<String, String>,
) -> Result<String, String> {
    match &gateway.token {
        TokenSource::File(file) => {
            let token = read_token(file)?;
            ask(&token).await.map(|found| format!("{found} (file {})", file.display()))
        }
        TokenSource::Mint(mint) => {
            let file = &mint.parent_token_file;
            let token = read_token(file)?;
            ask(&token).await.map(|found| format!("the parent token: {found} (file {})", file.display()))
        }
        TokenSource::Secret(secret) => {
            let session = sessions.iter().find(|session| session.name == secret.session);
            let session = session.ok_or_else(|| format!("there is no session {}", secret.session))?;
            let logged_in =
                login(session).await.map_err(|error| format!("session {}: {}", session.name, format_chain(&error)))?;
            let read = OneShotReader::with_login(session, &logged_in).read(&secret.path).await;
            let found = match read {
                Err(error) => Err(format!("{}: {}", secret.path, format_chain(&error))),
                Ok(response) => match response.data.text(&secret.field) {
                    None => Err(format!("{} has no text in the field `{}`", secret.path, secret.field)),
                    Some(token) => {
                        let found = ask(&token).await.map(|found| format!("{found} ({})", secret.path));
                        match &response.lease {
                            None => found,
                            Some(lease) => {
                                let (own, namespace) = (&logged_in.token.secret, session.login.namespace.as_deref());
                                let given_back = logged_in.upstream().revoke_lease(own, lease, namespace).await;
                                given_back
                                    .map_err(|error| {
                                        format!("{}: its lease stays: {}", secret.path, format_chain(&error))
                                    })
                                    .and(found)
                            }
                        }
                    }
                },
            };
            let revoked = logged_in.revoke().await;
            match (found, revoked) {
                (Ok(found), Err(error)) => Err(format!("{found}; the login for it could not be revoked: {error}")),
                (found, _) => found,
            }
        }
    }
}

fn read_token(file: &Path) -> Result<SecretString, String> {
    secret::read_file(file)
        .map_err(|error| ErrorCode::tag(Some(ErrorCode::PlatformTokenMissing), &format_chain(&error)))
}

/// Asks the platform whose token this is.
async fn look_up_owner(client: &Client, token: &SecretString, server: &ServerInfo) -> Result<String, String> {
    let request = client.request(Method::GET, "api/v2/account/details").bearer_auth(token.expose_secret());
    let response = client.send(request).await.map_err(|error| unreachable(client, &error))?;
    // Some platforms name their product only to callers with a token.
    let is_unknown = *server == ServerInfo::default();
    let detected = is_unknown.then(|| ServerInfo::default().updated_by(&response.headers)).flatten();
    let description = detected.map(|server| format!("; {}", describe(&server))).unwrap_or_default();
    parse_owner(client, &response, token).map(|owner| format!("{owner}{description}"))
}

fn parse_owner(client: &Client, response: &ClientResponse, token: &SecretString) -> Result<String, String> {
    // A text of the response that contains the token is not shown.
    let sanitize = |text: &str| sanitize(text, token.expose_secret());
    match response.status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => {
            let found = format!("{} refuses the token: replace it", client.server());
            return Err(ErrorCode::tag(Some(ErrorCode::PlatformTokenRejected), &found));
        }
        status => {
            return Err(format!("{} answers {} to /api/v2/account/details", client.server(), status.as_u16()));
        }
    }
    let document: Value = serde_json::from_slice(&response.body)
        .map_err(|_| format!("{} answers /api/v2/account/details without a JSON document", client.server()))?;
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
