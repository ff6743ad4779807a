//! Options of a store on etcd.

use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use keyward_http::client::{ClientCertificate, is_loopback};

/// Options of a store on etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdOptions {
    /// Cluster members, such as `https://etcd-1.example:2379`; at least one.
    pub endpoints: Vec<Url>,
    /// Prefix of all keys; ends with a slash.
    pub prefix: String,
    /// CA file in PEM; required for `https://`.
    pub ca_file: Option<PathBuf>,
    /// Client certificate, if the cluster requires one.
    pub identity: Option<ClientCertificate>,
    /// User, if the cluster has authentication enabled.
    pub login: Option<EtcdLogin>,
    /// Timeout for the connection, and again for the TLS handshake.
    pub connect_timeout: Duration,
    /// Timeout for a read or write, including retries on other members.
    pub request_timeout: Duration,
}

/// User of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdLogin {
    /// User name.
    pub user: String,
    /// Password file, read at each login.
    pub password_file: PathBuf,
}

impl EtcdOptions {
    /// Default of [`EtcdOptions::prefix`].
    pub const PREFIX: &str = "keyward/";

    /// Default of [`EtcdOptions::connect_timeout`].
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

    /// Default of [`EtcdOptions::request_timeout`]: an etcd cluster elects a new leader within two seconds.
    pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

    /// Longest [`EtcdOptions::prefix`] in bytes: a batch contains it up to 384 times.
    pub(crate) const MAX_PREFIX: usize = 128;

    /// Validates the options; returns pairs of option name and error text.
    pub(crate) fn validation_errors(&self) -> Vec<(&'static str, &'static str)> {
        let secured = |url: &&Url| url.scheme() == "https";
        let https = self.endpoints.iter().filter(secured).count();
        let mut errors = Vec::new();
        if self.endpoints.is_empty() {
            errors.push(("endpoints", "there must be one"));
        } else if https != 0 && https != self.endpoints.len() {
            errors.push(("endpoints", "use https:// for all members of the cluster, or http:// for all"));
        } else if https == 0 && !self.endpoints.iter().all(is_loopback) {
            errors.push(("endpoints", "records would be sent unencrypted; use https://"));
        }
        if self.endpoints.iter().any(|url| !is_address(url)) {
            errors.push(("endpoints", "an endpoint is a scheme, a host and a port, such as \"https://etcd-1:2379\""));
        }
        if https != 0 && self.ca_file.is_none() {
            errors.push(("ca_file", "missing: set it to a PEM file with the cluster's CA certificates"));
        }
        if https == 0 && (self.ca_file.is_some() || self.identity.is_some()) {
            errors.push(("endpoints", "certificates require TLS; use https://"));
        }
        if !is_prefix(&self.prefix) {
            errors.push(("prefix", PREFIX_FORM));
        }
        errors
    }
}

/// Description of a valid prefix, for errors.
pub(crate) const PREFIX_FORM: &str = "a prefix is 2 to 128 letters, digits and \"-_./\", and ends with one slash";

/// Returns whether a string is a valid prefix.
pub fn is_prefix(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let ends = text.strip_suffix('/').is_some_and(|rest| !rest.is_empty() && !rest.ends_with('/'));
    ends && text.len() <= EtcdOptions::MAX_PREFIX && text.bytes().all(allowed)
}

/// Returns whether a URL consists of scheme, host and port only.
pub fn is_address(url: &Url) -> bool {
    let bare = url.username().is_empty() && url.password().is_none();
    let short = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    bare && short && url.has_host() && matches!(url.scheme(), "https" | "http")
}

/// Formats endpoints and prefix for operators.
impl std::fmt::Display for EtcdOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "etcd at ")?;
        for (index, url) in self.endpoints.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(formatter, "{comma}{}", display_url(url))?;
        }
        write!(formatter, " under {}", self.prefix)
    }
}

/// Formats an endpoint without the trailing slash of a URL.
pub(super) fn display_url(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(endpoints: &[&str]) -> EtcdOptions {
        EtcdOptions {
            endpoints: endpoints.iter().map(|text| text.parse().unwrap()).collect(),
            prefix: EtcdOptions::PREFIX.to_owned(),
            ca_file: None,
            identity: None,
            login: None,
            connect_timeout: EtcdOptions::CONNECT_TIMEOUT,
            request_timeout: EtcdOptions::REQUEST_TIMEOUT,
        }
    }

    #[test]
    fn every_invalid_option_is_reported() {
        let invalid_names =
            |options: &EtcdOptions| options.validation_errors().iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let local = options(&["http://127.0.0.1:2379", "http://localhost:2380"]);
        let far = EtcdOptions { ca_file: Some("/ca.pem".into()), ..options(&["https://a:2379", "https://b:2379"]) };
        assert_eq!((invalid_names(&local), invalid_names(&far)), (vec![], vec![]));
        assert_eq!(far.to_string(), "etcd at https://a:2379, https://b:2379 under keyward/");
        for (mistaken, names) in [
            (options(&[]), vec!["endpoints"]),
            (options(&["https://a:2379", "http://127.0.0.1:2379"]), vec!["endpoints", "ca_file"]),
            (options(&["http://a:2379"]), vec!["endpoints"]),
            (options(&["https://a:2379"]), vec!["ca_file"]),
            (options(&["http://u:p@127.0.0.1:2379"]), vec!["endpoints"]),
            (options(&["http://127.0.0.1:2379/v3"]), vec!["endpoints"]),
            (EtcdOptions { ca_file: Some("/ca".into()), ..local.clone() }, vec!["endpoints"]),
            (EtcdOptions { prefix: "keyward".into(), ..local.clone() }, vec!["prefix"]),
            (EtcdOptions { prefix: String::new(), ..local.clone() }, vec!["prefix"]),
            (EtcdOptions { prefix: "/".into(), ..local.clone() }, vec!["prefix"]),
            (EtcdOptions { prefix: "a//".into(), ..local.clone() }, vec!["prefix"]),
            (EtcdOptions { prefix: "a b/".into(), ..local.clone() }, vec!["prefix"]),
            (EtcdOptions { prefix: "a".repeat(128) + "/", ..local.clone() }, vec!["prefix"]),
        ] {
            assert_eq!(invalid_names(&mistaken), names, "{mistaken}");
        }
    }
}
