//! A request, as far as it is the same for every operation: who asks, in which namespace, with which body.

use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use hyper::body::Incoming;
use zeroize::Zeroizing;

use super::body::{self, MAX_BODY};
use super::error::ApiError;
use super::json::Fields;
use super::operation::Operation;
use super::query::{Mode, Query};
use super::response_cache::Question;
use super::state::Rooms;
use crate::acl::model::id::Id;
use crate::acl::model::names::NamespaceName;
use crate::acl::model::secret::{PlainSecret, SecretHash};
use crate::acl::service::acl_service::Directory;
use crate::acl::service::caller::Caller;
use crate::acl::store::Freshness;

/// A request to one operation.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) operation: Operation,
    /// The variable part of the path.
    pub(super) subject: String,
    pub(super) query: Query,
    /// The secret that it carries.
    pub(super) secret: Option<PlainSecret>,
    /// What that is known as, once someone wanted to know.
    known: OnceLock<SecretHash>,
    /// The namespace that the query or a header names.
    named: Option<String>,
    body: Option<Incoming>,
}

static NAMESPACE: [HeaderName; 2] =
    [HeaderName::from_static("x-service-namespace"), HeaderName::from_static("x-consul-namespace")];
static PARTITION: [HeaderName; 2] =
    [HeaderName::from_static("x-service-partition"), HeaderName::from_static("x-consul-partition")];
static TOKEN: [HeaderName; 3] = [
    HeaderName::from_static("x-service-token"),
    HeaderName::from_static("x-consul-token"),
    // A token that was got at Vault's door may be brought as one.
    HeaderName::from_static("x-vault-token"),
];

/// Which namespaces a list is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    One(NamespaceName),
    All,
}

impl Scope {
    /// The one that it is about; `None` for all.
    pub(super) const fn named(&self) -> Option<&NamespaceName> {
        match self {
            Self::One(name) => Some(name),
            Self::All => None,
        }
    }
}

impl Ask {
    /// Looks at the head of a request.
    ///
    /// # Errors
    /// It says two different things in one place, or names a partition that is not there.
    pub(super) fn read(
        operation: Operation,
        subject: String,
        query: Option<&str>,
        headers: &HeaderMap,
        body: Incoming,
        token_in_query: bool,
    ) -> Result<Self, ApiError> {
        let query = Query::read(query)?;
        let secret = presented(headers, &query, token_in_query)?;
        let named = match query.get("ns")? {
            Some(name) => Some(name.to_owned()),
            None => only(headers, &NAMESPACE)?,
        };
        let partition = match query.get("partition")? {
            Some(name) => Some(name.to_owned()),
            None => only(headers, &PARTITION)?,
        };
        if let Some(name) = partition.filter(|name| !name.eq_ignore_ascii_case(DEFAULT_PARTITION)) {
            return Err(ApiError::NoPartition(name.chars().take(128).collect()));
        }
        Ok(Self { operation, subject, query, secret, known: OnceLock::new(), named, body: Some(body) })
    }

    fn known(&self, directory: &Directory) -> Option<&SecretHash> {
        let secret = self.secret.as_ref()?;
        Some(self.known.get_or_init(|| directory.known_as(secret)))
    }

    /// What it asks, and who asks.
    pub(super) fn question(&self, directory: &Directory, mode: Mode) -> Question {
        let (subject, query, namespace) = (self.subject.clone(), self.query.asked(), self.named.clone());
        Question { who: self.known(directory).cloned(), operation: self.operation, subject, query, namespace, mode }
    }

    /// Whether JSON is to be laid out for people.
    pub(super) fn pretty(&self) -> bool {
        self.query.has("pretty")
    }

    /// The id that the path names; `kind` is of what, such as `role`.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn id(&self, kind: &str) -> Result<Id, ApiError> {
        self.id_called(kind, "ID")
    }

    /// As [`Ask::id`], where the kind calls its id otherwise.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn id_called(&self, kind: &str, name: &str) -> Result<Id, ApiError> {
        if self.subject.is_empty() {
            return Err(ApiError::Invalid(format!("Missing {kind} {name}")));
        }
        self.subject.parse().map_err(|_| {
            let reason = if self.subject.len() == 36 { "Invalid UUID" } else { "UUID must be 36 characters" };
            ApiError::Invalid(format!("failed acl {kind} lookup: index error: {reason}"))
        })
    }

    /// The id that the path names, which the body may repeat (`stated`).
    ///
    /// # Errors
    /// It is none, or the body says another.
    pub(super) fn id_of(&self, kind: Kind, stated: Option<&str>) -> Result<Id, ApiError> {
        let id = self.id(kind.0)?;
        if stated.is_some_and(|stated| stated.parse() != Ok(id)) { Err(kind.mismatch()) } else { Ok(id) }
    }

    /// Reads the body as the fields of an object; `kind` is of what, such as `Token`.
    ///
    /// # Errors
    /// It is too large or too slow, or no such object.
    pub(super) async fn fields(&mut self, kind: &'static str) -> Result<Fields, ApiError> {
        Ok(Fields::read(&self.bytes().await?, kind)?)
    }

    /// Reads the body, which is empty after that.
    ///
    /// # Errors
    /// It is too large or too slow.
    pub(super) async fn bytes(&mut self) -> Result<Zeroizing<Vec<u8>>, ApiError> {
        match self.body.take() {
            Some(body) => Ok(body::bytes(body, MAX_BODY).await?),
            None => Ok(Zeroizing::default()),
        }
    }

    /// The body as it comes.
    pub(super) fn body(&mut self) -> Option<Incoming> {
        self.body.take()
    }

    /// Who asks.
    ///
    /// # Errors
    /// The secret opens nothing.
    pub(super) async fn caller(&self, rooms: &Rooms, freshness: Freshness) -> Result<Arc<Caller>, ApiError> {
        let (directory, secret) = (&rooms.directory, self.secret.as_ref());
        Ok(directory.caller_known_as(self.known(directory), secret, freshness).await?)
    }

    /// The namespace that is meant: the body's (`stated`), the query's, the header's, that of the caller's token. A token
    /// has always one, and the anonymous one is of `default`.
    ///
    /// # Errors
    /// What is named is no name.
    pub(super) fn namespace(&self, caller: &Caller, stated: Option<&str>) -> Result<NamespaceName, ApiError> {
        match self.scope(caller, stated)? {
            Scope::One(name) => Ok(name),
            Scope::All => Err(ApiError::Invalid("Invalid namespace \"*\": only lists span all namespaces".to_owned())),
        }
    }

    /// The namespace that an auth method is looked for in by one who has no token yet: the one that `authmethod-ns` names,
    /// else the body's (`stated`), the query's, the header's, `default`.
    ///
    /// # Errors
    /// What is named is no name.
    pub(super) fn method_namespace(&self, stated: Option<&str>) -> Result<NamespaceName, ApiError> {
        match self.query.get("authmethod-ns")?.or(stated).or(self.named.as_deref()) {
            None => Ok(NamespaceName::default_one()),
            Some(name) => Self::named(name),
        }
    }

    /// Tells if the query or a header names a namespace.
    pub(super) fn names_namespace(&self) -> bool {
        self.named.is_some()
    }

    /// As [`Ask::namespace`]; `*` names all.
    ///
    /// # Errors
    /// What is named is no name.
    pub(super) fn scope(&self, caller: &Caller, stated: Option<&str>) -> Result<Scope, ApiError> {
        let stated = stated.filter(|name| !name.is_empty());
        match stated.or(self.named.as_deref()) {
            None => Ok(Scope::One(caller.namespace().clone())),
            Some("*") => Ok(Scope::All),
            Some(name) => Self::named(name).map(Scope::One),
        }
    }

    /// The namespace of that name.
    ///
    /// # Errors
    /// It is no name.
    pub(super) fn named(name: &str) -> Result<NamespaceName, ApiError> {
        name.parse().map_err(|reason| {
            let name: String = name.chars().take(128).collect();
            ApiError::Invalid(format!("Invalid namespace {name:?}: {reason}"))
        })
    }
}

/// What a record is called within a sentence, and where one begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind(pub(super) &'static str, pub(super) &'static str);

impl Kind {
    /// A new record's id is made here: the body states none.
    ///
    /// # Errors
    /// It does.
    pub(super) fn no_id(self, stated: Option<&str>) -> Result<(), ApiError> {
        stated.map_or(Ok(()), |_| Err(self.mismatch()))
    }

    fn mismatch(self) -> ApiError {
        ApiError::Invalid(format!("{} ID in URL and payload do not match", self.1))
    }
}

/// The only partition: there is no call that makes another.
pub(super) const DEFAULT_PARTITION: &str = "default";

/// Takes `Namespace` and `Partition` of a body.
///
/// # Errors
/// They are no texts, or the partition is another than the only one.
pub(super) fn stated(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    partition(fields)?;
    Ok(fields.text("Namespace")?.filter(|name| !name.is_empty()))
}

/// Takes `Partition` of a body.
///
/// # Errors
/// It is no text, or another than the only one.
pub(super) fn partition(fields: &mut Fields) -> Result<(), ApiError> {
    match fields.text("Partition")?.filter(|name| !name.is_empty()) {
        Some(name) if !name.eq_ignore_ascii_case(DEFAULT_PARTITION) => {
            let name: String = name.chars().take(128).collect();
            Err(ApiError::Invalid(format!("Partition {name:?} does not exist")))
        }
        _ => Ok(()),
    }
}

/// The secret that a request carries: in the query's `token`, else in a token header, else as a bearer. Empty ones count as
/// absent.
fn presented(headers: &HeaderMap, query: &Query, in_query: bool) -> Result<Option<PlainSecret>, ApiError> {
    if in_query && let Some(secret) = query.get("token")? {
        return Ok(Some(PlainSecret::presented(secret)));
    }
    if let Some(secret) = only(headers, &TOKEN)? {
        return Ok(Some(PlainSecret::presented(&secret)));
    }
    bearer(headers)
}

/// The first word after `Bearer`.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<PlainSecret>, ApiError> {
    let mut found: Option<&str> = None;
    for value in headers.get_all(header::AUTHORIZATION) {
        let Some((scheme, rest)) = text(value)?.split_once(' ') else { continue };
        let Some(secret) = rest.split_whitespace().next() else { continue };
        if scheme.eq_ignore_ascii_case("bearer") && found.replace(secret).is_some_and(|other| other != secret) {
            return Err(ApiError::TwoHeaders("authorization"));
        }
    }
    Ok(found.map(PlainSecret::presented))
}

/// The value of a header that may come under several names; `None` if it is not there or empty.
///
/// # Errors
/// There are two different values, or one that is no text.
pub(super) fn only(headers: &HeaderMap, names: &'static [HeaderName]) -> Result<Option<String>, ApiError> {
    let mut found: Option<&str> = None;
    for value in names.iter().flat_map(|name| headers.get_all(name)) {
        let value = text(value)?;
        if !value.is_empty() && found.replace(value).is_some_and(|other| other != value) {
            return Err(ApiError::TwoHeaders(names.first().map_or("", |name| name.as_str())));
        }
    }
    Ok(found.map(str::to_owned))
}

fn text(value: &HeaderValue) -> Result<&str, ApiError> {
    value.to_str().map_err(|_| ApiError::Invalid("a header is no text".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_taken_from_one_place() {
        let check = |query: &str, given: &[(&str, &str)], wanted: Result<Option<&str>, ()>| {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            let found = presented(&headers, &Query::read(Some(query)).unwrap(), true).map_err(|_| ());
            let found = found.map(|secret| secret.map(|secret| secret.reveal().to_owned()));
            assert_eq!(found, wanted.map(|secret| secret.map(str::to_owned)), "{query} {given:?}");
        };
        check("", &[], Ok(None));
        check("", &[("X-Service-Token", "a")], Ok(Some("a")));
        check("", &[("X-Consul-Token", "a")], Ok(Some("a")));
        check("", &[("X-Service-Token", ""), ("X-Consul-Token", "a")], Ok(Some("a")));
        check("", &[("X-Service-Token", "a"), ("X-Consul-Token", "a")], Ok(Some("a")));
        check("", &[("X-Service-Token", "a"), ("X-Consul-Token", "b")], Err(()));
        check("", &[("X-Service-Token", "a"), ("X-Service-Token", "b")], Err(()));
        check("", &[("Authorization", "bearer a")], Ok(Some("a")));
        check("", &[("Authorization", "Bearer  a b")], Ok(Some("a")));
        check("", &[("Authorization", "Basic a")], Ok(None));
        check("", &[("Authorization", "Bearer b"), ("X-Service-Token", "a")], Ok(Some("a")));
        check("token=q", &[("X-Service-Token", "a")], Ok(Some("q")));
        check("token=", &[("X-Service-Token", "a")], Ok(Some("a")));
        check("token=q&token=r", &[], Err(()));
        let mut headers = HeaderMap::new();
        headers.append("x-service-token", "a".parse().unwrap());
        let query = Query::read(Some("token=q")).unwrap();
        assert_eq!(presented(&headers, &query, false).unwrap().unwrap().reveal(), "a");
    }
}
