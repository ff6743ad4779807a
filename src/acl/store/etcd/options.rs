//! Where the etcd cluster is, and as whom it is spoken to.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::http::client::{Identity, is_loopback};

/// How a store on etcd is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The cluster's members, such as `https://etcd-1.example:2379`; at least one.
    pub endpoints: Vec<Url>,
    /// What every key starts with, a slash at its end.
    pub prefix: String,
    /// PEM file of the authorities to trust; must be given where `https://` is spoken.
    pub ca_file: Option<PathBuf>,
    /// The client certificate, where the cluster asks for one.
    pub identity: Option<Identity>,
    /// The user, where the cluster has its authentication on.
    pub login: Option<Login>,
    /// Time to be connected, and again for the TLS handshake.
    pub connect_timeout: Duration,
    /// Time for a read or a write as a whole, whichever members are asked on the way.
    pub request_timeout: Duration,
}

/// A user of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// Its name.
    pub user: String,
    /// The file of its password, read anew at each login.
    pub password_file: PathBuf,
}

impl Options {
    /// What a store's keys start with, where nothing else is said.
    pub const PREFIX: &str = "keyward/";

    /// [`Options::connect_timeout`], where nothing else is said.
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

    /// [`Options::request_timeout`], where nothing else is said: an etcd cluster has a new leader within two seconds.
    pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

    /// Most bytes of [`Options::prefix`]: it stands in a batch up to 384 times.
    pub const MAX_PREFIX: usize = 128;

    /// What is wrong with them, in words, each with the option's name.
    pub fn mistakes(&self) -> Vec<(&'static str, &'static str)> {
        let secured = |url: &&Url| url.scheme() == "https";
        let https = self.endpoints.iter().filter(secured).count();
        let mut found = Vec::new();
        if self.endpoints.is_empty() {
            found.push(("endpoints", "there must be one"));
        } else if https != 0 && https != self.endpoints.len() {
            found.push(("endpoints", "all members of a cluster speak TLS, or none; write https:// or http:// for all"));
        } else if https == 0 && !self.endpoints.iter().all(is_loopback) {
            found.push(("endpoints", "records would go over the network in the clear; use https://"));
        }
        if self.endpoints.iter().any(|url| !is_address(url)) {
            found.push(("endpoints", "an endpoint is a scheme, a host and a port, such as \"https://etcd-1:2379\""));
        }
        if https != 0 && self.ca_file.is_none() {
            found.push(("ca_file", "it is missing: the PEM file of the authorities that the cluster is trusted by"));
        }
        if https == 0 && (self.ca_file.is_some() || self.identity.is_some()) {
            found.push(("endpoints", "certificates are given where no TLS is spoken; use https://"));
        }
        if !is_prefix(&self.prefix) {
            found.push(("prefix", PREFIX_FORM));
        }
        found
    }
}

/// The form of a prefix, in words.
pub const PREFIX_FORM: &str = "a prefix is 2 to 128 letters, digits and \"-_./\", and ends with one slash";

/// Whether a text may stand before every key.
pub fn is_prefix(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let ends = text.strip_suffix('/').is_some_and(|rest| !rest.is_empty() && !rest.ends_with('/'));
    ends && text.len() <= Options::MAX_PREFIX && text.bytes().all(allowed)
}

/// Whether a URL is an address and nothing more.
pub fn is_address(url: &Url) -> bool {
    let bare = url.username().is_empty() && url.password().is_none();
    let short = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    bare && short && url.has_host() && matches!(url.scheme(), "https" | "http")
}

/// Where it is, as an operator would look for it.
impl std::fmt::Display for Options {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "etcd at ")?;
        for (place, url) in self.endpoints.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(formatter, "{comma}{}", told(url))?;
        }
        write!(formatter, " under {}", self.prefix)
    }
}

/// An endpoint as it is written, without the slash that a URL ends with.
pub(super) fn told(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(endpoints: &[&str]) -> Options {
        Options {
            endpoints: endpoints.iter().map(|text| text.parse().unwrap()).collect(),
            prefix: Options::PREFIX.to_owned(),
            ca_file: None,
            identity: None,
            login: None,
            connect_timeout: Options::CONNECT_TIMEOUT,
            request_timeout: Options::REQUEST_TIMEOUT,
        }
    }

    #[test]
    fn every_mistake_is_found() {
        let wrong = |options: &Options| options.mistakes().iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let local = options(&["http://127.0.0.1:2379", "http://localhost:2380"]);
        let far = Options { ca_file: Some("/ca.pem".into()), ..options(&["https://a:2379", "https://b:2379"]) };
        assert_eq!((wrong(&local), wrong(&far)), (vec![], vec![]));
        assert_eq!(far.to_string(), "etcd at https://a:2379, https://b:2379 under keyward/");
        for (mistaken, names) in [
            (options(&[]), vec!["endpoints"]),
            (options(&["https://a:2379", "http://127.0.0.1:2379"]), vec!["endpoints", "ca_file"]),
            (options(&["http://a:2379"]), vec!["endpoints"]),
            (options(&["https://a:2379"]), vec!["ca_file"]),
            (options(&["http://u:p@127.0.0.1:2379"]), vec!["endpoints"]),
            (options(&["http://127.0.0.1:2379/v3"]), vec!["endpoints"]),
            (Options { ca_file: Some("/ca".into()), ..local.clone() }, vec!["endpoints"]),
            (Options { prefix: "keyward".into(), ..local.clone() }, vec!["prefix"]),
            (Options { prefix: String::new(), ..local.clone() }, vec!["prefix"]),
            (Options { prefix: "/".into(), ..local.clone() }, vec!["prefix"]),
            (Options { prefix: "a//".into(), ..local.clone() }, vec!["prefix"]),
            (Options { prefix: "a b/".into(), ..local.clone() }, vec!["prefix"]),
            (Options { prefix: "a".repeat(128) + "/", ..local.clone() }, vec!["prefix"]),
        ] {
            assert_eq!(wrong(&mistaken), names, "{mistaken}");
        }
    }
}
