//! The platform's API of tokens: making, listing and ending one.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, StatusCode};
use reqwest::RequestBuilder;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::owner::Owner;
use super::plan::{Failure, Listed};
use crate::clock::Clock;
use crate::error_chain::format_chain;
use crate::gateway::path_rules::check_path;
use crate::gateway::platform_token::PlatformToken;
use crate::http::client::sanitize::{parse_date_header, parse_retry_after, sanitize};
use crate::http::client::{Client, ClientResponse, TransportError};
use crate::secret;
use crate::time_format::format_rfc3339;

/// Calls the platform for one owner.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) client: Client,
    pub(super) owner: Owner,
    pub(super) clock: Clock,
    /// How many seconds the platform's clock is ahead of this machine's, once an answer has told.
    pub(super) ahead: Mutex<Option<i64>>,
}

/// A new token.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) id: String,
    pub(super) token: SecretString,
    /// By the platform's clock.
    pub(super) created: Option<SystemTime>,
    /// By the same; `None` where the platform does not end it.
    pub(super) expires: Option<SystemTime>,
}

/// Why a call came to nothing. Holds no token.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The platform was not reached, or its answer was lost.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// It answered something else than what was asked for.
    #[error("the platform at {server} answered {status}{}{told}", if told.is_empty() { "" } else { ": " })]
    Status {
        /// The platform in words.
        server: String,
        /// Its answer.
        status: StatusCode,
        /// What it says of it, made fit for people.
        told: String,
        /// When it asks to be asked again.
        retry_after: Option<Duration>,
    },
    /// Its answer is not of the form that its API has.
    #[error("the platform at {server} answered in a form that is not known: {what}")]
    Form {
        /// The platform in words.
        server: String,
        /// What was not there.
        what: &'static str,
    },
}

impl CallError {
    /// What it means for the next attempt.
    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Transport(_) => Failure::Passing(None),
            Self::Status { status, retry_after, .. } if passes(*status) => Failure::Passing(*retry_after),
            Self::Status { .. } | Self::Form { .. } => Failure::Refused,
        }
    }

    /// Whether the call may have been done all the same.
    pub(super) fn in_doubt(&self) -> bool {
        match self {
            Self::Transport(TransportError::Connect { .. }) => false,
            Self::Transport(_) | Self::Form { .. } => true,
            Self::Status { status, .. } => status.is_server_error(),
        }
    }

    /// What someone has to look at, where it does not pass by itself.
    pub(super) fn advice(&self, owner: &Owner, parent: &Path) -> String {
        let parent = parent.display();
        match self {
            Self::Status { status: StatusCode::UNAUTHORIZED, .. } => {
                format!("; the parent token of {parent} is not good (any more)")
            }
            // The platform says 404 of what the caller may not do.
            Self::Status { status: StatusCode::NOT_FOUND | StatusCode::FORBIDDEN, .. } => {
                format!("; there is no {owner}, or the parent token of {parent} may not make its tokens")
            }
            _ => String::new(),
        }
    }
}

fn passes(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

/// The parent token, as its file has it now; or why there is none, in words that hold nothing of it.
pub(super) fn parent(file: &Path, clock: &Clock) -> Result<PlatformToken, String> {
    let secret = secret::read_file(file).map_err(|error| format_chain(&error))?;
    PlatformToken::parse(secret, clock.now()).map_err(|error| format!("{}: {error}", file.display()))
}

impl Calls {
    /// Makes a token that is to live for `ttl`, told apart by `description` where there are many.
    pub(super) async fn make(
        &self,
        parent: &PlatformToken,
        description: &str,
        ttl: Duration,
    ) -> Result<Made, CallError> {
        let single = self.owner.is_single();
        let mut attributes = json!({});
        if !single {
            attributes["description"] = description.into();
        }
        if self.owner.tells_an_end() {
            if self.ahead().is_none() {
                // The first call of all asks for the time alone: an end by the wrong clock gives a dead token, or a long-lived one.
                self.send(parent, self.client.request_to(Method::GET, ["api", "v2", "ping"])).await?;
            }
            attributes["expired-at"] = format_rfc3339(self.platform_time() + ttl).into();
        }
        let kind = if single { "authentication-token" } else { "authentication-tokens" };
        let body = json!({"data": {"type": kind, "attributes": attributes}}).to_string();
        let request = self.client.request_to(Method::POST, self.owner.made_at()).body(body);
        let answer = self.send(parent, request).await?;
        if answer.status != StatusCode::CREATED {
            return Err(self.refused(parent, &answer));
        }
        let form = |what| CallError::Form { server: self.client.server().to_owned(), what };
        let made: Document<Token> = serde_json::from_slice(&answer.body).map_err(|_| form("a new token"))?;
        let Token { id, attributes } = made.data;
        let token = attributes.token.filter(|token| !token.is_empty()).ok_or_else(|| form("the token itself"))?;
        let time = |text: Option<String>| text.and_then(|text| OffsetDateTime::parse(&text, &Rfc3339).ok());
        Ok(Made {
            id,
            token: SecretString::from(token),
            created: time(attributes.created_at).map(Into::into),
            expires: time(attributes.expired_at).map(Into::into),
        })
    }

    /// The owner's tokens, page by page; none where there is but one.
    pub(super) async fn list(&self, parent: &PlatformToken) -> Result<Vec<Listed>, CallError> {
        let mut listed = Vec::new();
        let Some(path) = self.owner.listed_at() else { return Ok(listed) };
        let mut page = 1;
        while page <= MOST_PAGES {
            let query = [("page[number]", page.to_string()), ("page[size]", "100".to_owned())];
            let request = self.client.request_to(Method::GET, path).query(&query);
            let answer = self.send(parent, request).await?;
            if answer.status != StatusCode::OK {
                return Err(self.refused(parent, &answer));
            }
            let form = |_| CallError::Form { server: self.client.server().to_owned(), what: "a list of tokens" };
            let list: List = serde_json::from_slice(&answer.body).map_err(form)?;
            let theirs = list
                .data
                .into_iter()
                .filter_map(|token| Some(Listed { id: token.id, description: token.attributes.description? }));
            listed.extend(theirs);
            // A list without pages is whole; a next page that is not further on would never end.
            match list.meta.and_then(|meta| meta.pagination).and_then(|pagination| pagination.next_page) {
                Some(next) if next > page => page = next,
                _ => break,
            }
        }
        Ok(listed)
    }

    /// Ends a token. One that is gone counts as ended.
    pub(super) async fn end(&self, parent: &PlatformToken, id: &str) -> Result<(), CallError> {
        let request = if self.owner.is_single() {
            // The path names the place and not the token: what stands there may be someone else's by now.
            let request = self.client.request_to(Method::GET, self.owner.made_at());
            let answer = self.send(parent, request).await?;
            let shown: Option<Document<Token>> = serde_json::from_slice(&answer.body).ok();
            if answer.status != StatusCode::OK || shown.is_none_or(|shown| shown.data.id != id) {
                return if answer.status.is_success() || answer.status == StatusCode::NOT_FOUND {
                    Ok(())
                } else {
                    Err(self.refused(parent, &answer))
                };
            }
            self.client.request_to(Method::DELETE, self.owner.made_at())
        } else {
            // The id comes from a document of the platform.
            if id.is_empty() || check_path(id).is_err() {
                return Err(CallError::Form { server: self.client.server().to_owned(), what: "the id of a token" });
            }
            self.client.request_to(Method::DELETE, ["api", "v2", "authentication-tokens", id])
        };
        let answer = self.send(parent, request).await?;
        let gone = answer.status.is_success() || answer.status == StatusCode::NOT_FOUND;
        if gone { Ok(()) } else { Err(self.refused(parent, &answer)) }
    }

    async fn send(&self, parent: &PlatformToken, request: RequestBuilder) -> Result<ClientResponse, CallError> {
        let request = request.header(AUTHORIZATION, parent.bearer()).header(CONTENT_TYPE, "application/vnd.api+json");
        let answer = self.client.send(request).await?;
        self.compare_clocks(&answer);
        Ok(answer)
    }

    fn ahead(&self) -> Option<i64> {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Now, by the platform's clock.
    fn platform_time(&self) -> SystemTime {
        let (now, ahead) = (self.clock.now().wall, self.ahead().unwrap_or_default());
        let difference = Duration::from_secs(ahead.unsigned_abs());
        let time = if ahead < 0 { now.checked_sub(difference) } else { now.checked_add(difference) };
        time.unwrap_or(now)
    }

    /// Learns from an answer's `Date` how far both clocks are apart.
    fn compare_clocks(&self, answer: &ClientResponse) {
        let Some(date) = parse_date_header(&answer.headers) else { return };
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let ahead = match date.duration_since(self.clock.now().wall) {
            Ok(ahead) => seconds(ahead),
            Err(behind) => -seconds(behind.duration()),
        };
        let ahead = if ahead.unsigned_abs() <= SAME_TIME { 0 } else { ahead };
        let before = self.ahead.lock().unwrap_or_else(PoisonError::into_inner).replace(ahead).unwrap_or_default();
        if ahead.abs_diff(before) > SAME_TIME {
            tracing::warn!(
                event = "gateway.mint.clock_differs",
                ahead,
                "the platform's clock is so many seconds ahead of this machine's; ends of tokens are told by the platform's"
            );
        }
    }

    fn refused(&self, parent: &PlatformToken, answer: &ClientResponse) -> CallError {
        let bearer = parent.bearer();
        let sent = bearer.to_str().unwrap_or_default().trim_start_matches("Bearer ");
        let error: Option<Errors> = serde_json::from_slice(&answer.body).ok();
        let error = error.and_then(|errors| errors.errors.into_iter().next()).unwrap_or_default();
        let told: Vec<String> =
            [error.title, error.detail].into_iter().flatten().map(|text| sanitize(&text, sent)).collect();
        CallError::Status {
            server: self.client.server().to_owned(),
            status: answer.status,
            told: told.join(": "),
            retry_after: parse_retry_after(&answer.headers, self.clock.now().wall),
        }
    }
}

/// A difference of so many seconds is none: `Date` has whole seconds, and answers take a while.
const SAME_TIME: u64 = 5;

/// Of at most a hundred tokens each.
const MOST_PAGES: usize = 200;

#[derive(Deserialize)]
struct Document<T> {
    data: T,
}

#[derive(Deserialize)]
struct List {
    data: Vec<Token>,
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    pagination: Option<Pagination>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Pagination {
    next_page: Option<usize>,
}

#[derive(Deserialize)]
struct Token {
    id: String,
    #[serde(default)]
    attributes: Attributes,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct Attributes {
    token: Option<String>,
    description: Option<String>,
    created_at: Option<String>,
    expired_at: Option<String>,
}

#[derive(Deserialize)]
struct Errors {
    errors: Vec<Told>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Told {
    title: Option<String>,
    detail: Option<String>,
}
