//! Endpoints as the changelog writes them: `GET/POST /organizations/:organization_name/varsets?include=a,b`.

use std::fmt;
use std::str::FromStr;

use http::Method;
use serde::{Deserialize, Serialize, Serializer};

/// An endpoint. One that is not a path of the platform, such as a callback URL, has no route.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Endpoint {
    text: String,
    route: Option<Route>,
}

/// Matcher for the calls of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    /// Empty: any method.
    methods: Vec<Method>,
    /// Path template.
    pub path: PathTemplate,
    /// Required query parameter, and the values of which it must have one (empty: any).
    query: Option<(String, Vec<String>)>,
}

/// A path with parameters, below the API's base path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PathTemplate {
    segments: Vec<Segment>,
    /// Text before the first parameter.
    literal_prefix: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Parameter(String),
}

/// The text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an endpoint; write it as METHOD /path/:name")]
pub struct InvalidEndpoint(String);

impl Endpoint {
    /// Returns the original text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the matcher, if it is a path of the platform.
    pub(crate) fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }
}

impl Route {
    /// Returns the first method, if one is named.
    pub(crate) fn method(&self) -> Option<&Method> {
        self.methods.first()
    }

    /// Returns true if the endpoint needs a query parameter.
    pub(crate) const fn has_query(&self) -> bool {
        self.query.is_some()
    }

    /// Returns true if the given parts of a call match. `path` is below the API's base path and raw, or a template.
    pub(crate) fn could_match(&self, method: Option<&Method>, path: Option<&str>, query: Option<&str>) -> bool {
        method.is_none_or(|method| self.methods.is_empty() || self.methods.contains(method))
            && path.is_none_or(|path| self.path.matches(path))
            && query.is_none_or(|query| self.matches_query(query))
    }

    /// Returns true if a call matches. `path` is below the API's base path; path and query are raw.
    pub(crate) fn matches(&self, method: &Method, path: &str, query: &str) -> bool {
        self.could_match(Some(method), Some(path), Some(query))
    }

    fn matches_query(&self, query: &str) -> bool {
        let Some((name, values)) = &self.query else { return true };
        url::form_urlencoded::parse(query.as_bytes()).any(|(key, value)| {
            key == name.as_str()
                && (values.is_empty() || value.split(',').any(|part| values.iter().any(|value| value == part)))
        })
    }
}

impl PathTemplate {
    /// Returns true if a raw path has these segments. Empty and dot segments match no parameter.
    pub(crate) fn matches(&self, path: &str) -> bool {
        // Fast path: most templates end here.
        if !path.starts_with(&self.literal_prefix) {
            return false;
        }
        let Some(path) = path.strip_prefix('/') else { return false };
        let mut segments = path.split('/');
        self.segments.iter().all(|part| segments.next().is_some_and(|segment| part.matches(segment)))
            && segments.next().is_none()
    }

    /// Returns the raw segments at the parameters, in order, if the path matches.
    pub(crate) fn names<'a>(&'a self, path: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
        let segments = self.matches(path).then(|| path.split('/').skip(1))?;
        let parameters = self.segments.iter().zip(segments).filter_map(|(part, segment)| match part {
            Segment::Parameter(name) => Some((name.as_str(), segment)),
            Segment::Literal(_) => None,
        });
        Some(parameters.collect())
    }

    /// Builds the path with raw segments for the parameters; `None` if one is missing.
    pub(crate) fn fill<'a>(&self, segment: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
        let mut path = String::new();
        for part in &self.segments {
            path.push('/');
            path.push_str(match part {
                Segment::Literal(text) => text,
                Segment::Parameter(name) => segment(name)?,
            });
        }
        Some(path)
    }

    /// Returns the raw segment of a path at the parameter `name`, or at any parameter after the literal `collection`.
    pub(crate) fn segment<'a>(&self, path: &'a str, name: &str, collection: &str) -> Option<&'a str> {
        let mut segments = path.split('/').skip(1);
        let mut after = false;
        for part in &self.segments {
            let segment = segments.next()?;
            match part {
                Segment::Literal(text) => after = text == collection,
                Segment::Parameter(parameter) if after || parameter == name => return Some(segment),
                Segment::Parameter(_) => after = false,
            }
        }
        None
    }

    /// Returns for each segment whether it is a parameter. Of two templates that match a path, the one with later parameters
    /// is meant.
    pub(crate) fn parameter_positions(&self) -> Vec<bool> {
        self.segments.iter().map(|segment| matches!(segment, Segment::Parameter(_))).collect()
    }
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.segments.iter().try_for_each(|segment| match segment {
            Segment::Literal(text) => write!(f, "/{text}"),
            Segment::Parameter(name) => write!(f, "/:{name}"),
        })
    }
}

impl Segment {
    fn matches(&self, raw: &str) -> bool {
        match self {
            Self::Literal(text) => text == raw,
            Self::Parameter(_) => {
                let decoded = percent_encoding::percent_decode_str(raw);
                !raw.is_empty() && !decoded.clone().eq(b".".iter().copied()) && !decoded.eq(b"..".iter().copied())
            }
        }
    }
}

impl FromStr for PathTemplate {
    type Err = InvalidEndpoint;

    fn from_str(path: &str) -> Result<Self, InvalidEndpoint> {
        let rest = path.strip_prefix('/').ok_or_else(|| InvalidEndpoint(path.to_owned()))?;
        let segments = rest.split('/').map(|segment| match segment.strip_prefix(':') {
            Some(name) => Segment::Parameter(name.to_owned()),
            None => Segment::Literal(segment.to_owned()),
        });
        let literal_prefix = path.split(':').next().unwrap_or_default().to_owned();
        Ok(Self { segments: segments.collect(), literal_prefix })
    }
}

impl TryFrom<String> for Endpoint {
    type Error = InvalidEndpoint;

    fn try_from(text: String) -> Result<Self, InvalidEndpoint> {
        let refuse = || InvalidEndpoint(text.clone());
        let (methods, target) = text.split_once(' ').unwrap_or(("", &text));
        let methods = methods.split('/').filter(|method| !method.is_empty());
        let methods: Vec<Method> = methods
            .map(|method| Method::from_bytes(method.as_bytes()))
            .collect::<Result<_, _>>()
            .map_err(|_| refuse())?;
        if target.starts_with(':') {
            return Ok(Self { text, route: None });
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = (!query.is_empty()).then(|| {
            let (name, values) = query.split_once('=').unwrap_or((query, ""));
            (name.to_owned(), values.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect())
        });
        let route = Route { methods, path: path.parse().map_err(|_| refuse())?, query };
        Ok(Self { text, route: Some(route) })
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
