//! Git's side: `git-credential-keyward VERB`, lines of `NAME=VALUE` both ways (gitcredentials(7), git-credential(1)).

use std::time::SystemTime;

use keyward_http::client::is_loopback;
use keyward_machine::secret_string::SecretString;
use url::{Host, Url};

use super::{HelperRequest, HostCredential, print_response, read_input};
use crate::cli::{Exit, print_error};

pub(super) fn respond(request: &HelperRequest) -> Exit {
    // Other verbs (store, erase, future ones) are ignored silently, as gitcredentials(7) asks of a helper.
    if request.verb == "get" { get(request).unwrap_or_else(|exit| exit) } else { Exit::Ok }
}

fn get(request: &HelperRequest) -> Result<Exit, Exit> {
    let text = read_input()?;
    let Some(git_request) = GitRequest::read(&text) else { return Ok(Exit::Ok) };
    let config = request.load()?;
    // Without output, git asks the next helper.
    let Some(credential) = config.find_for_host(git_request.host) else { return Ok(Exit::Ok) };
    let login = config.read(credential)?;
    if git_request.username.is_some_and(|name| name != login.username.expose_secret()) {
        return Ok(Exit::Ok);
    }
    let Some(lines) = format_response(&login) else {
        print_error(&format!("credential {}: the name or the password has more than one line", credential.name));
        return Err(Exit::Failed);
    };
    Ok(print_response(&lines))
}

/// Host and user for which git wants a credential.
#[derive(Debug, PartialEq, Eq)]
struct GitRequest<'a> {
    host: &'a str,
    username: Option<&'a str>,
}

impl<'a> GitRequest<'a> {
    /// `None` where no host is named, or the password would be sent in the clear.
    fn read(text: &'a str) -> Option<Self> {
        let lines = text.lines().take_while(|line| !line.is_empty());
        let pairs: Vec<_> = lines.filter_map(|line| line.split_once('=')).collect();
        let value = |name: &str| pairs.iter().rfind(|(key, _)| *key == name).map(|(_, value)| *value);
        let protocol = value("protocol")?;
        let host = value("host").filter(|host| !host.is_empty())?;
        let secret = match protocol {
            "https" => true,
            "http" => Url::parse(&format!("http://{host}/"))
                .is_ok_and(|url| is_loopback(&url) && matches!(url.host(), Some(Host::Ipv4(_) | Host::Ipv6(_)))),
            _ => false,
        };
        secret.then(|| Self { host, username: value("username").filter(|name| !name.is_empty()) })
    }
}

/// Formats the lines for git; `None` if a value has a line break, which would begin another attribute.
fn format_response(login: &HostCredential) -> Option<String> {
    let line = |value: &SecretString| !value.expose_secret().contains(['\n', '\r', '\0']);
    if !line(&login.username) || !line(&login.password) {
        return None;
    }
    let name = login.username.expose_secret();
    let password = login.password.expose_secret();
    let since = login.expires.and_then(|expires| expires.duration_since(SystemTime::UNIX_EPOCH).ok());
    // Git before 2.40 ignores it. Later versions ask again after it, and pass it to helpers that store passwords.
    let expiry = since.map(|since| format!("password_expiry_utc={}\n", since.as_secs())).unwrap_or_default();
    Some(format!("username={name}\npassword={password}\n{expiry}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn git_is_answered_where_the_password_goes_in_secret() {
        let check = |text: &str, expected: Option<(&str, Option<&str>)>| {
            let expected = expected.map(|(host, username)| GitRequest { host, username });
            assert_eq!(GitRequest::read(text), expected, "{text}");
        };
        check("protocol=https\nhost=git.example.com\n\n", Some(("git.example.com", None)));
        check(
            "capability[]=authtype\nprotocol=https\nhost=a:8443\npath=x\nusername=ci\n",
            Some(("a:8443", Some("ci"))),
        );
        check("protocol=https\nhost=a\n\nhost=b\n", Some(("a", None)));
        check("protocol=http\nhost=git.example.com\n", None);
        check("protocol=http\nhost=127.0.0.1:3000\n", Some(("127.0.0.1:3000", None)));
        check("protocol=http\nhost=localhost.example.com\n", None);
        check("protocol=ssh\nhost=a\n", None);
        check("protocol=https\n", None);
        check("", None);
    }

    #[test]
    fn a_value_cannot_make_a_line_of_its_own() {
        let found = |username: &str, password: &str| HostCredential {
            username: username.into(),
            password: password.into(),
            expires: None,
        };
        let ends = HostCredential {
            expires: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(90_500)),
            ..found("ci", "p")
        };
        assert_eq!(format_response(&ends).unwrap().as_str(), "username=ci\npassword=p\npassword_expiry_utc=90\n");
        assert_eq!(format_response(&found("ci", "p=q")).unwrap().as_str(), "username=ci\npassword=p=q\n");
        for evil in ["a\nhost=evil", "a\rb", "a\0b"] {
            assert!(
                format_response(&found("ci", evil)).is_none() && format_response(&found(evil, "p")).is_none(),
                "{evil:?}"
            );
        }
    }
}
