//! Docker's side: `docker-credential-keyward VERB`, JSON on standard output, and a fixed line for "none here"
//! (docker-credential-helpers, `credentials`).

use serde::Serialize;

use super::{HelperRequest, print_response, read_input};
use crate::cli::{Exit, print_error};

/// Text by which Docker distinguishes a missing credential from a failure.
const NONE: &str = "credentials not found in native keychain\n";

pub(super) fn respond(request: &HelperRequest) -> Exit {
    match request.verb.as_str() {
        "get" => exit_code(get(request)),
        "list" => exit_code(list(request)),
        "store" => {
            // `docker login` shows this.
            let _ = print_response(
                "keyward stores nothing: write a [credential.NAME] and keep the password in Vault or OpenBao\n",
            );
            Exit::Failed
        }
        // `docker logout`: nothing is stored.
        "erase" => Exit::Ok,
        "version" => print_response(concat!("docker-credential-keyward (keyward) v", env!("CARGO_PKG_VERSION"), "\n")),
        _ => {
            print_error("Docker runs this program, with get, store, erase, list or version");
            Exit::Failed
        }
    }
}

fn exit_code(response: Result<Exit, Exit>) -> Exit {
    // Docker only checks for zero; other codes are for people.
    response.unwrap_or_else(|exit| exit)
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DockerResponse<'a> {
    #[serde(rename = "ServerURL")]
    server: &'a str,
    username: &'a str,
    secret: &'a str,
}

fn get(request: &HelperRequest) -> Result<Exit, Exit> {
    let text = read_input()?;
    let server = text.trim();
    let config = request.load()?;
    let Some(credential) = host(server).and_then(|host| config.find_for_host(host)) else {
        let _ = print_response(NONE);
        return Ok(Exit::Failed);
    };
    let login = config.read(credential)?;
    let credential =
        DockerResponse { server, username: login.username.expose_secret(), secret: login.password.expose_secret() };
    let line = serde_json::to_string(&credential).map_err(|_| Exit::Failed)?;
    Ok(print_response(&(line + "\n")))
}

/// Each host with its user's name. A credential that cannot be read is omitted, with an error on standard error.
fn list(request: &HelperRequest) -> Result<Exit, Exit> {
    let config = request.load()?;
    let mut all = serde_json::Map::new();
    for credential in config.credentials() {
        let name = match &credential.username {
            Some(name) => name.clone(),
            None => match config.read(credential) {
                Ok(login) => login.username.expose_secret().to_owned(),
                Err(_) => continue,
            },
        };
        all.extend(credential.hosts.iter().map(|host| (host.clone(), name.clone().into())));
    }
    Ok(print_response(&format!("{}\n", serde_json::Value::Object(all))))
}

/// The host of a registry, as Docker writes it: a host, or an address such as `https://index.docker.io/v1/`.
fn host(server: &str) -> Option<&str> {
    let rest = match server.split_once("://") {
        Some(("https", rest)) => rest,
        // A password is not sent in the clear.
        Some(_) => return None,
        None => server,
    };
    rest.split('/').next().filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn a_registry_is_known_by_its_host() {
        let check = |server: &str, expected: Option<&str>| assert_eq!(host(server), expected, "{server}");
        check("registry.example.com", Some("registry.example.com"));
        check("registry.example.com:5000/team", Some("registry.example.com:5000"));
        check("https://index.docker.io/v1/", Some("index.docker.io"));
        check("http://registry.example.com", None);
        check("", None);
        check("https://", None);
    }
}
