//! The gateway's part of `check --online`: the platform's name, the way to it, what it is, and whose token there is.

use std::time::Duration;

use http::{Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::one_shot::{CheckStep, login, resolve};
use super::one_shot_render::OneShotReader;
use crate::config::{Gateway, Session, TokenSource};
use crate::error_chain::format_chain;
use crate::gateway::availability::{Product, ServerInfo};
use crate::http::client::sanitize::sanitize;
use crate::http::client::{self, Client, ClientResponse, ServerAddress, TlsOptions};
use crate::secret;

/// Time for one answer of the platform.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Tries the way to the platform, and asks it whose token there is. A token that has to be read through a session is read by a
/// login of its own, and given back. Later steps are left out once one has failed.
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
            note("platform", Err(format_chain(&error)));
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
    let whose = with_token(gateway, sessions, async |token| whose(&client, token, &server).await).await;
    note("platform token", whose);
    steps
}

/// Asks what the platform is. It says so without a token too.
async fn ping(client: &Client) -> Result<(ServerInfo, String), String> {
    let response = client.send(client.request(Method::GET, "api/v2/ping")).await;
    let response = response.map_err(|error| format!("{}: {}", client.server(), format_chain(&error)))?;
    let server = ServerInfo::default().updated_by(&response.headers).unwrap_or_default();
    let status = response.status.as_u16();
    if !response.status.is_success() && response.status != StatusCode::UNAUTHORIZED && server == ServerInfo::default() {
        return Err(format!(
            "{} answers {status} to /api/v2/ping, as neither HCP Terraform nor Terraform Enterprise does",
            client.server()
        ));
    }
    let description = format!("{} answers {status}; {}", client.server(), describe(&server));
    Ok((server, description))
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

/// Gives the platform token to `ask`, and gives it back after that, where it was had for this alone.
async fn with_token(
    gateway: &Gateway,
    sessions: &[Session],
    ask: impl AsyncFnOnce(&SecretString) -> Result<String, String>,
) -> Result<String, String> {
    match &gateway.token {
        TokenSource::File(file) => {
            let token = secret::read_file(file).map_err(|error| format_chain(&error))?;
            ask(&token).await.map(|found| format!("{found} (file {})", file.display()))
        }
        TokenSource::Mint(mint) => {
            let file = &mint.parent_token_file;
            let token = secret::read_file(file).map_err(|error| format_chain(&error))?;
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

/// Asks the platform whose token this is.
async fn whose(client: &Client, token: &SecretString, server: &ServerInfo) -> Result<String, String> {
    let request = client.request(Method::GET, "api/v2/account/details").bearer_auth(token.expose_secret());
    let response =
        client.send(request).await.map_err(|error| format!("{}: {}", client.server(), format_chain(&error)))?;
    // Some platforms tell what they are to those alone that bring a token.
    let description =
        (*server == ServerInfo::default()).then(|| ServerInfo::default().updated_by(&response.headers)).flatten();
    let description = description.map(|server| format!("; {}", describe(&server))).unwrap_or_default();
    owner(client, &response, token).map(|owner| format!("{owner}{description}"))
}

fn owner(client: &Client, response: &ClientResponse, token: &SecretString) -> Result<String, String> {
    // No text of the answer is shown with the token in it.
    let sanitize = |text: &str| sanitize(text, token.expose_secret());
    match response.status {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => return Err(format!("{} refuses the token: replace it", client.server())),
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
