//! Login of a person with a browser: `keyward acl login --oidc`.

// 0: parts that do not know each other
mod redirect_uri;
mod answer;
mod page;
mod browser;
mod browser_users;

// 1: the listener for the browser's return
mod listener;

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use http::HeaderValue;
use keyward_acl::client::{OidcBegin, OidcFinish, Token};
use keyward_acl::model::id::Id;
use keyward_config::Environment;
use keyward_http::client::is_loopback;
use keyward_http::client::sanitize::sanitize;
use keyward_machine::secret_string::SecretString;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use url::Url;

use self::browser_users::BrowserUsers;
use self::listener::{Arrival, CallbackListener, ExpectedAnswer, ServedLogin};
use self::page::Page;
use self::redirect_uri::RedirectUri;
use super::connection::AclConnection;
use super::failure::CommandFailure;
use crate::cli::{Exit, print_note};

/// Flags of a login with a browser.
#[derive(Debug, Args)]
pub(super) struct BrowserFlags {
    /// Log in as a person with a browser, by an auth method of the type oidc
    #[arg(long)]
    pub(super) oidc: bool,
    /// Address at which this command waits for the browser; the auth method and the provider must list it
    #[arg(long, value_name = "URI", conflicts_with = "bearer_token_file", default_value = RedirectUri::DEFAULT)]
    redirect_uri: RedirectUri,
    /// Print the address of the login without opening a browser
    #[arg(long, conflicts_with = "bearer_token_file")]
    no_browser: bool,
}

/// Time for a person to log in; the server gives as much.
const TIME_LIMIT: Duration = Duration::from_mins(5);

impl BrowserFlags {
    /// Logs in with a browser. The address is bound before the server is asked, so that nobody else gets its answer.
    pub(super) async fn log_in(
        self,
        method: &str,
        meta: BTreeMap<String, String>,
        service: &AclConnection,
    ) -> Result<Token, CommandFailure> {
        let listener = CallbackListener::bind(&self.redirect_uri)?;
        let client_nonce = SecretString::from(format!("{}-{}", Id::random(), Id::random()));
        let begin = OidcBegin {
            auth_method: method.to_owned(),
            redirect_uri: self.redirect_uri.as_str().to_owned(),
            client_nonce: client_nonce.clone(),
            meta,
        };
        let begun = service.client.begin_oidc(&begin).await?;
        let (url, state) = parse_auth_url(&begun.auth_url)?;
        let environment = Environment::current();
        // Arguments of a browser are for all users of this machine to read, so that it gets an address of this command's. That
        // one leads to the provider, for this user alone.
        let start = self.redirect_uri.neighbour(&format!("/start/{}", Id::random()));
        let served = ServedLogin {
            path: self.redirect_uri.path(),
            start_path: start.path().to_owned(),
            provider_page: HeaderValue::from_str(url.as_str()).map_err(|_| unusable(url.as_str(), "is not ASCII"))?,
            expected: ExpectedAnswer {
                state: state.clone(),
                issuer: begun.issuer.filter(|issuer| !issuer.is_empty()),
                issuer_required: begun.issuer_required,
            },
            users: BrowserUsers::of(&environment, keyward_http::peer::reports_tcp_owners()),
        };
        let (sender, mut arrivals) = mpsc::channel(1);
        let stop = CancellationToken::new();
        let serving = listener.serve(served, sender, stop.clone());
        let login = async {
            // Whatever way it ends, the listener does.
            let _stop = stop.drop_guard();
            print_note(&format!("log in with your browser, within 5 minutes, at\n{url}"));
            if !self.no_browser {
                browser::open(&start, &environment.variables);
            }
            let arrival = receive(&mut arrivals, TIME_LIMIT).await?;
            let finished = match arrival.answer {
                Ok(code) => {
                    let finish = OidcFinish { auth_method: method.to_owned(), state, code, client_nonce };
                    service.client.finish_oidc(&finish).await.map_err(CommandFailure::from)
                }
                Err(text) => Err(CommandFailure::new(Exit::Denied, text)),
            };
            let page = match &finished {
                Ok(_) => Page::LoggedIn,
                Err(failure) => Page::Failed(failure.text.clone()),
            };
            // The browser may be gone.
            let _ = arrival.page.send(page);
            finished
        };
        let (finished, ()) = tokio::join!(login, serving);
        finished
    }
}

/// Waits for the answer of the provider.
async fn receive(arrivals: &mut mpsc::Receiver<Arrival>, limit: Duration) -> Result<Arrival, CommandFailure> {
    let arrival = tokio::time::timeout(limit, arrivals.recv()).await.ok().flatten();
    arrival.ok_or_else(|| {
        let text = "nobody logged in with the browser within 5 minutes; start the login again";
        CommandFailure::new(Exit::TimedOut, text)
    })
}

/// Parses the address of the login, which goes to a browser, and its `state`.
fn parse_auth_url(text: &str) -> Result<(Url, SecretString), CommandFailure> {
    let fail = |reason: &str| unusable(text, reason);
    let url = Url::parse(text).map_err(|_| fail("is not a URL"))?;
    if url.scheme() != "https" && !(url.scheme() == "http" && is_loopback(&url)) {
        return Err(fail("is neither https nor on loopback"));
    }
    let mut states = url.query_pairs().filter(|(name, _)| name == "state").map(|(_, value)| value);
    match (states.next(), states.next()) {
        (Some(state), None) if !state.is_empty() => {
            let state = SecretString::from(state.as_ref());
            Ok((url, state))
        }
        _ => Err(fail("has no state")),
    }
}

fn unusable(text: &str, reason: &str) -> CommandFailure {
    let text = sanitize(text, "");
    CommandFailure::new(
        Exit::Remote,
        format!("the server returned {text:?} as the address of the login, which {reason}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_secure_address_with_one_state_goes_to_the_browser() {
        let (url, state) = parse_auth_url("https://login.example/a?state=s%2F1&nonce=n").unwrap();
        assert_eq!((url.host_str(), state.expose_secret()), (Some("login.example"), "s/1"));
        assert!(parse_auth_url("http://localhost:1/a?state=s").is_ok());
        for (text, reason) in [
            ("--help", "is not a URL"),
            ("/etc/passwd?state=s", "is not a URL"),
            ("file:///etc/passwd?state=s", "is neither https nor on loopback"),
            ("javascript:alert(1)//?state=s", "is neither https nor on loopback"),
            ("http://login.example/?state=s", "is neither https nor on loopback"),
            ("https://login.example/?state=", "has no state"),
            ("https://login.example/?state=a&state=b", "has no state"),
            ("https://login.example/\u{1b}[2J", "has no state"),
        ] {
            let failure = parse_auth_url(text).unwrap_err();
            assert!(failure.text.ends_with(reason) && !failure.text.contains('\u{1b}'), "{}", failure.text);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_the_browser_ends() {
        let (_sender, mut arrivals) = mpsc::channel(1);
        let start = tokio::time::Instant::now();
        let failure = receive(&mut arrivals, TIME_LIMIT).await.map(drop).unwrap_err();
        assert_eq!((start.elapsed(), failure.exit), (TIME_LIMIT, Exit::TimedOut), "{}", failure.text);
    }
}
