//! Answers, before and after they are HTTP.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, Full};
use serde::Serialize;

use super::json::rendered;
use super::query::Mode;
use crate::acl::model::authorize::DefaultPolicy;
use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::timestamp::Timestamp;
use crate::acl::service::lists::LeftOut;
use crate::acl::store::Revision;

/// What answers are made of: whole, or as they are read from the store.
pub type Body = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Broken>>;

/// A list broke off in the middle, because the store failed.
#[derive(Debug, thiserror::Error)]
#[error("the store failed in the middle of a list")]
pub struct Broken;

/// An answer without the headers that all have.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) kind: Option<HeaderValue>,
    pub(super) body: Body,
    /// What was left out of a list.
    pub(super) left_out: LeftOut,
}

/// What a read saw.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) reply: Reply,
    /// The last change of any record of the kinds that it shows, taken before the read: what changed in between is seen the next time.
    pub(super) index: Revision,
    /// The keys, or the starts of keys, whose changes may change the answer.
    pub(super) watch: Vec<String>,
    /// When the answer is another although nothing was written: the end of the token that it shows, or of the one that asks.
    pub(super) until: Option<Timestamp>,
}

/// What an operation that may write did.
#[derive(Debug)]
pub(super) enum Done {
    /// It wrote.
    Changed(Changed),
    /// There was nothing to write.
    Nothing(Reply),
}

/// What was changed, by whom.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) reply: Reply,
    /// The accessor of the caller; `None` for one without a token.
    pub(super) by: Option<Id>,
    pub(super) namespace: NamespaceName,
    /// Id or name of what was changed.
    pub(super) what: String,
}

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

impl Reply {
    /// 200 with JSON.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub(super) fn json(value: &impl Serialize, pretty: bool) -> Result<Self, serde_json::Error> {
        let body = rendered(value, pretty)?;
        Ok(Self { status: StatusCode::OK, kind: Some(JSON), body: whole(body), left_out: LeftOut::default() })
    }

    /// A status and one line of plain text.
    pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Self {
        Self { status, kind: Some(TEXT), body: whole(text.into()), left_out: LeftOut::default() }
    }

    /// A status and nothing else.
    pub(super) fn empty(status: StatusCode) -> Self {
        Self { status, kind: None, body: whole(Bytes::new()), left_out: LeftOut::default() }
    }

    /// 200 with JSON that comes as it is read.
    pub(super) fn stream(body: UnsyncBoxBody<Bytes, Broken>) -> Self {
        Self { status: StatusCode::OK, kind: Some(JSON), body: Either::Right(body), left_out: LeftOut::default() }
    }

    /// As HTTP, with the headers that all answers have. Nothing of it is to be kept by anyone on the way: it holds
    /// secrets, or depends on one.
    pub(super) fn answer(self) -> Response<Body> {
        let mut answer = Response::new(self.body);
        *answer.status_mut() = self.status;
        // Room for all that an answer may be given: it would grow three times else.
        *answer.headers_mut() = HeaderMap::with_capacity(24);
        let headers = answer.headers_mut();
        if let Some(kind) = self.kind {
            headers.insert(header::CONTENT_TYPE, kind);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.left_out.unseen {
            put_both(headers, &FILTERED, HeaderValue::from_static("true"));
        }
        if self.left_out.unreadable {
            put_both(headers, &UNREADABLE, HeaderValue::from_static("true"));
        }
        answer
    }
}

pub(super) fn whole(body: Bytes) -> Body {
    Either::Left(Full::new(body))
}

/// A header under both of its names.
type Both = [HeaderName; 2];

macro_rules! both {
    ($name:literal) => {
        [HeaderName::from_static(concat!("x-service-", $name)), HeaderName::from_static(concat!("x-consul-", $name))]
    };
}

static FILTERED: Both = both!("results-filtered-by-acls");
static UNREADABLE: Both = both!("results-unreadable");
static DEFAULT_POLICY: Both = both!("default-acl-policy");
static INDEX: Both = both!("index");
static KNOWN_LEADER: Both = both!("knownleader");
static LAST_CONTACT: Both = both!("lastcontact");
static CONSISTENCY: Both = both!("effective-consistency");
static BACKEND: Both = both!("query-backend");

fn put_both(headers: &mut HeaderMap, names: &Both, value: HeaderValue) {
    let [first, second] = names;
    headers.insert(first, value.clone());
    headers.insert(second, value);
}

/// What every answer of the access-control API says.
pub(super) fn say_default_policy(headers: &mut HeaderMap, policy: DefaultPolicy) {
    put_both(headers, &DEFAULT_POLICY, HeaderValue::from_static(policy.word()));
}

/// What a read says of where its answer stands. The embedded store has no leader to lose; on etcd a read that needs one and
/// finds none is refused, and a stale one does not ask whether there is one.
pub(super) fn say_index(headers: &mut HeaderMap, index: Revision, mode: Mode) {
    // Clients take 0 for "no index" and would ask again at once.
    put_both(headers, &INDEX, HeaderValue::from(index.0.max(1)));
    put_both(headers, &KNOWN_LEADER, HeaderValue::from_static("true"));
    put_both(headers, &LAST_CONTACT, HeaderValue::from_static("0"));
    put_both(headers, &CONSISTENCY, HeaderValue::from_static(mode.word()));
    put_both(headers, &BACKEND, HeaderValue::from_static("blocking-query"));
}
