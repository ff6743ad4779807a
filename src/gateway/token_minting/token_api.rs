//! Client of the platform's token API: create, list and delete.

use std::path::Path;
use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use keyward_http::client::sanitize::{parse_date_header, parse_retry_after, sanitize};
use keyward_http::client::{Client, ClientResponse, RequestBuilder, TransportError};
use keyward_machine::clock::Clock;
use keyward_machine::secret;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::time_format::format_rfc3339;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::owner::TokenOwner;
use super::plan::{ListedToken, MintFailure};
use crate::path_rules::check_path;
use crate::platform_token::PlatformToken;

/// Token API of one owner.
#[derive(Debug)]
pub(super) struct TokenApi {
    pub(super) client: Client,
    pub(super) owner: TokenOwner,
    pub(super) clock: Clock,
    /// Seconds that the platform's clock is ahead of ours, once a response has shown it.
    pub(super) clock_offset: Mutex<Option<i64>>,
}

/// A new token.
#[derive(Debug)]
pub(super) struct MintedToken {
    pub id: String,
    pub token: SecretString,
    /// By the platform's clock.
    pub(super) created: Option<SystemTime>,
    /// By the platform's clock; `None` if it never expires.
    pub(super) expires: Option<SystemTime>,
}

/// Error of a call. Contains no token.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenApiError {
    /// The platform was not reached, or its response was lost.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// An unexpected status.
    #[error("the platform at {server} answered {status}{}{message}", if message.is_empty() { "" } else { ": " })]
    Status {
        /// Name of the server.
        server: String,
        /// HTTP status.
        status: StatusCode,
        /// Sanitized message of the response.
        message: String,
        /// `Retry-After` of the response.
        retry_after: Option<Duration>,
    },
    /// The body has an unexpected format.
    #[error("unexpected response of the platform at {server}: no {missing}")]
    InvalidResponse {
        /// Name of the server.
        server: String,
        /// Missing part.
        missing: &'static str,
    },
}

impl TokenApiError {
    /// Classifies the error for the retry policy.
    pub(super) fn failure(&self) -> MintFailure {
        match self {
            Self::Transport(_) => MintFailure::Transient(None),
            Self::Status { status, retry_after, .. } if is_transient(*status) => MintFailure::Transient(*retry_after),
            Self::Status { .. } | Self::InvalidResponse { .. } => MintFailure::Rejected,
        }
    }

    /// Returns true if the platform may have executed the call all the same.
    pub(super) fn may_have_succeeded(&self) -> bool {
        match self {
            // Without a connection nothing was sent.
            Self::Transport(TransportError::Connect { .. }) => false,
            Self::Transport(_) | Self::InvalidResponse { .. } => true,
            Self::Status { status, .. } => status.is_server_error(),
        }
    }

    /// Suggests what to check, for errors that do not go away by themselves.
    pub(super) fn hint(&self, owner: &TokenOwner, parent: &Path) -> String {
        let parent = parent.display();
        match self {
            Self::Status { status: StatusCode::UNAUTHORIZED, .. } => {
                format!("; the parent token in {parent} is invalid or expired")
            }
            // The platform answers 404 for whatever the caller may not see.
            Self::Status { status: StatusCode::NOT_FOUND | StatusCode::FORBIDDEN, .. } => {
                format!("; {owner} does not exist, or the parent token in {parent} may not create its tokens")
            }
            _ => String::new(),
        }
    }
}

fn is_transient(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

/// Reads the parent token from its file. The error never contains it.
pub(super) fn read_parent_token(file: &Path, clock: &Clock) -> Result<PlatformToken, String> {
    let secret = secret::read_file(file).map_err(|error| format_chain(&error))?;
    PlatformToken::parse(secret, clock.now()).map_err(|error| format!("{}: {error}", file.display()))
}

impl TokenApi {
    /// Creates a token for `ttl`, with `description` if the owner may have several.
    pub(super) async fn create(
        &self,
        parent: &PlatformToken,
        description: &str,
        ttl: Duration,
    ) -> Result<MintedToken, TokenApiError> {
        let single = self.owner.is_single();
        let mut attributes = json!({});
        if !single {
            attributes["description"] = description.into();
        }
        if self.owner.has_expiry() {
            if self.clock_offset().is_none() {
                // The first call only synchronises clocks: an expiry by a wrong clock gives a dead or a long-lived
                // token.
                self.send(parent, self.client.request_to(Method::GET, ["api", "v2", "ping"])).await?;
            }
            attributes["expired-at"] = format_rfc3339(self.platform_time() + ttl).into();
        }
        let kind = if single { "authentication-token" } else { "authentication-tokens" };
        let body = json!({"data": {"type": kind, "attributes": attributes}});
        let request = self.client.request_to(Method::POST, self.owner.create_path()).json(&body);
        let response = self.send(parent, request).await?;
        if response.status != StatusCode::CREATED {
            return Err(self.to_error(parent, &response));
        }
        let invalid = |missing| TokenApiError::InvalidResponse { server: self.client.server().to_owned(), missing };
        let document: Document<TokenResource> =
            serde_json::from_slice(&response.body).map_err(|_| invalid("new token"))?;
        let TokenResource { id, attributes } = document.data;
        let token = attributes.token.filter(|token| !token.is_empty()).ok_or_else(|| invalid("token text"))?;
        let time = |text: Option<String>| text.and_then(|text| OffsetDateTime::parse(&text, &Rfc3339).ok());
        Ok(MintedToken {
            id,
            token: SecretString::from(token),
            created: time(attributes.created_at).map(Into::into),
            expires: time(attributes.expired_at).map(Into::into),
        })
    }

    /// Lists the owner's tokens, page by page; empty for owners with a single token.
    pub(super) async fn list(&self, parent: &PlatformToken) -> Result<Vec<ListedToken>, TokenApiError> {
        let mut listed = Vec::new();
        let Some(path) = self.owner.list_path() else { return Ok(listed) };
        let mut page = 1;
        while page <= MAX_PAGES {
            // 100 is the platform's largest page.
            let query = [("page[number]", page.to_string()), ("page[size]", "100".to_owned())];
            let request = self.client.request_to(Method::GET, path).query(&query);
            let response = self.send(parent, request).await?;
            if response.status != StatusCode::OK {
                return Err(self.to_error(parent, &response));
            }
            let invalid = |_| TokenApiError::InvalidResponse {
                server: self.client.server().to_owned(),
                missing: "list of tokens",
            };
            let list: TokenList = serde_json::from_slice(&response.body).map_err(invalid)?;
            let tokens = list
                .data
                .into_iter()
                .filter_map(|token| Some(ListedToken { id: token.id, description: token.attributes.description? }));
            listed.extend(tokens);
            // A list without pagination is complete; a next page that does not advance would loop.
            match list.meta.and_then(|meta| meta.pagination).and_then(|pagination| pagination.next_page) {
                Some(next) if next > page => page = next,
                _ => break,
            }
        }
        Ok(listed)
    }

    /// Deletes a token. A missing one counts as deleted.
    pub(super) async fn delete(&self, parent: &PlatformToken, id: &str) -> Result<(), TokenApiError> {
        let request = if self.owner.is_single() {
            // The path names the owner, not the token: another token may have replaced ours.
            let request = self.client.request_to(Method::GET, self.owner.create_path());
            let response = self.send(parent, request).await?;
            let current: Option<Document<TokenResource>> = serde_json::from_slice(&response.body).ok();
            if response.status != StatusCode::OK || current.is_none_or(|current| current.data.id != id) {
                return if response.status.is_success() || response.status == StatusCode::NOT_FOUND {
                    Ok(())
                } else {
                    Err(self.to_error(parent, &response))
                };
            }
            self.client.request_to(Method::DELETE, self.owner.create_path())
        } else {
            // The id comes from the platform's response.
            if id.is_empty() || check_path(id).is_err() {
                return Err(TokenApiError::InvalidResponse {
                    server: self.client.server().to_owned(),
                    missing: "valid token id",
                });
            }
            self.client.request_to(Method::DELETE, ["api", "v2", "authentication-tokens", id])
        };
        let response = self.send(parent, request).await?;
        // 404: deleted before, or expired.
        let is_gone = response.status.is_success() || response.status == StatusCode::NOT_FOUND;
        if is_gone { Ok(()) } else { Err(self.to_error(parent, &response)) }
    }

    async fn send(&self, parent: &PlatformToken, request: RequestBuilder) -> Result<ClientResponse, TokenApiError> {
        let content_type = HeaderValue::from_static("application/vnd.api+json");
        let headers = HeaderMap::from_iter([(AUTHORIZATION, parent.bearer()), (CONTENT_TYPE, content_type)]);
        let response = self.client.send(request.headers(headers)).await?;
        self.compare_clocks(&response);
        Ok(response)
    }

    fn clock_offset(&self) -> Option<i64> {
        *self.clock_offset.lock()
    }

    /// Returns the current time by the platform's clock.
    fn platform_time(&self) -> SystemTime {
        let now = self.clock.now().wall;
        let clock_offset = self.clock_offset().unwrap_or_default();
        let difference = Duration::from_secs(clock_offset.unsigned_abs());
        let time = if clock_offset < 0 { now.checked_sub(difference) } else { now.checked_add(difference) };
        time.unwrap_or(now)
    }

    /// Updates the clock offset from the `Date` of a response.
    fn compare_clocks(&self, response: &ClientResponse) {
        let Some(date) = parse_date_header(&response.headers) else { return };
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let clock_offset = match date.duration_since(self.clock.now().wall) {
            Ok(clock_offset) => seconds(clock_offset),
            Err(behind) => -seconds(behind.duration()),
        };
        let clock_offset = if clock_offset.unsigned_abs() <= CLOCK_TOLERANCE { 0 } else { clock_offset };
        let previous_offset = self.clock_offset.lock().replace(clock_offset).unwrap_or_default();
        if clock_offset.abs_diff(previous_offset) > CLOCK_TOLERANCE {
            tracing::warn!(
                event = "gateway.mint.clock_differs",
                ahead_seconds = clock_offset,
                "the platform's clock is ahead of this machine's; expiry times follow the platform's clock"
            );
        }
    }

    fn to_error(&self, parent: &PlatformToken, response: &ClientResponse) -> TokenApiError {
        let bearer = parent.bearer();
        let sent = bearer.to_str().unwrap_or_default().trim_start_matches("Bearer ");
        let error: Option<ErrorDocument> = serde_json::from_slice(&response.body).ok();
        let error = error.and_then(|errors| errors.errors.into_iter().next()).unwrap_or_default();
        let message: Vec<String> =
            [error.title, error.detail].into_iter().flatten().map(|text| sanitize(&text, sent)).collect();
        TokenApiError::Status {
            server: self.client.server().to_owned(),
            status: response.status,
            message: message.join(": "),
            retry_after: parse_retry_after(&response.headers, self.clock.now().wall),
        }
    }
}

/// Differences up to this many seconds are ignored: `Date` has whole seconds, and responses take a while.
const CLOCK_TOLERANCE: u64 = 5;

/// Pages of at most 100 tokens each.
const MAX_PAGES: usize = 200;

#[derive(Deserialize)]
struct Document<T> {
    data: T,
}

#[derive(Deserialize)]
struct TokenList {
    data: Vec<TokenResource>,
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
struct TokenResource {
    id: String,
    #[serde(default)]
    attributes: TokenAttributes,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", default)]
struct TokenAttributes {
    token: Option<String>,
    description: Option<String>,
    created_at: Option<String>,
    expired_at: Option<String>,
}

#[derive(Deserialize)]
struct ErrorDocument {
    errors: Vec<ErrorObject>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ErrorObject {
    title: Option<String>,
    detail: Option<String>,
}
