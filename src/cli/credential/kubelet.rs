//! The kubelet's side: `kubelet-credential-keyward get`, a request and a response as JSON
//! (kubernetes.io, "Configure a kubelet image credential provider").

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{HelperRequest, HostCredential, print_response, read_input};
use crate::cli::{Exit, print_error};

/// Version of request and response.
const VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";

/// Longest time for which the kubelet keeps a response.
const CACHE: Duration = Duration::from_mins(5);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    api_version: String,
    image: String,
}

pub(super) fn respond(request: &HelperRequest) -> Exit {
    if request.verb != "get" {
        print_error("the kubelet runs this program, with the argument get");
        return Exit::Failed;
    }
    get(request).unwrap_or_else(|exit| exit)
}

fn get(helper: &HelperRequest) -> Result<Exit, Exit> {
    let request: Request = serde_json::from_str(&read_input()?).map_err(|_| {
        print_error("standard input is not a CredentialProviderRequest");
        Exit::Failed
    })?;
    if request.api_version != VERSION {
        print_error(&format!("the request has another version than {VERSION}: set it in the kubelet's configuration"));
        return Err(Exit::Failed);
    }
    let config = helper.load()?;
    let registry = registry(&request.image);
    let mut auth = Map::new();
    let mut cache = CACHE;
    if let Some(credential) = names(registry).find_map(|host| config.find_for_host(host)) {
        let login = config.read(credential)?;
        cache = cache_duration(&login, SystemTime::now());
        let login = json!({ "username": login.username.expose_secret(), "password": login.password.expose_secret() });
        auth.insert(registry.to_owned(), login);
    }
    Ok(print_response(&format!("{}\n", response(&auth, cache))))
}

fn response(auth: &Map<String, Value>, cache: Duration) -> Value {
    json!({ "apiVersion": VERSION, "kind": "CredentialProviderResponse", "cacheKeyType": "Registry",
        "cacheDuration": format!("{}s", cache.as_secs()), "auth": auth })
}

/// Returns the time for which the kubelet may use a credential: not beyond its end.
fn cache_duration(login: &HostCredential, now: SystemTime) -> Duration {
    let rest = login.expires.map(|end| end.duration_since(now).unwrap_or(Duration::ZERO));
    rest.map_or(CACHE, |rest| rest.min(CACHE))
}

/// Returns the registry of an image: its first segment if that is a host, else Docker's.
fn registry(image: &str) -> &str {
    let is_host = |part: &&str| part.contains(['.', ':']) || *part == "localhost";
    let first = image.split_once('/').map(|(first, _)| first);
    first.filter(is_host).unwrap_or(DOCKER)
}

/// Names under which a registry may be configured.
fn names(registry: &str) -> impl Iterator<Item = &str> {
    // Docker's own clients call it `index.docker.io`.
    std::iter::once(registry).chain((registry == DOCKER).then_some("index.docker.io"))
}

const DOCKER: &str = "docker.io";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_the_host_of_an_image_or_dockers() {
        let check = |image: &str, expected: &str| assert_eq!(registry(image), expected, "{image}");
        check("registry.example.com:5000/team/app:1", "registry.example.com:5000");
        check("localhost/app", "localhost");
        check("app", DOCKER);
        check("team/app@sha256:00", DOCKER);
        check("docker.io/library/nginx", DOCKER);
        check("", DOCKER);
        assert_eq!(names(DOCKER).collect::<Vec<_>>(), [DOCKER, "index.docker.io"]);
    }

    #[test]
    fn a_credential_is_kept_no_longer_than_it_lives() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(1);
        let check = |expires: Option<u64>, expected: u64| {
            let expires = expires.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
            let login = HostCredential { username: "u".into(), password: "p".into(), expires };
            assert_eq!(cache_duration(&login, now).as_secs(), expected);
        };
        check(None, 300);
        check(Some(3660), 60);
        check(Some(7200), 300);
        check(Some(60), 0);
    }
}
