//! The token proxy of AKS identity bindings, which exchanges a pod's federated token instead of the authority.
//!
//! The variables and their rules are those of Azure's SDKs (azidentity for Go, "identity binding").

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use url::Url;

use super::ProviderVariables;
use super::error::AttemptError;
use super::error::{IdentityError, config_error};
use super::transport::{PROXY_VARIABLE, Transport};

/// URL of the token proxy, and the CA certificates to trust there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenProxy {
    url: Url,
    /// Name to send as SNI and to verify, instead of the URL's host.
    server_name: Option<String>,
    trusted: TrustedCas,
}

/// CA certificates that the proxy's certificate is verified with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TrustedCas {
    /// The system's CA certificates.
    System,
    /// Only the CA certificates in this PEM file, read at each exchange.
    File(PathBuf),
    /// Only the CA certificates in this PEM text.
    Pem(String),
}

const URL: &str = PROXY_VARIABLE;
const SERVER_NAME: &str = "AZURE_KUBERNETES_SNI_NAME";
const CA_FILE: &str = "AZURE_KUBERNETES_CA_FILE";
const CA_DATA: &str = "AZURE_KUBERNETES_CA_DATA";

impl TokenProxy {
    /// Returns the proxy of the variables, if they name one.
    pub(super) fn from_variables(variables: &ProviderVariables) -> Result<Option<Self>, IdentityError> {
        let Some(text) = variables.get(URL) else {
            return match [SERVER_NAME, CA_FILE, CA_DATA].into_iter().find(|name| variables.get(name).is_some()) {
                Some(name) => {
                    Err(config_error(format!("{name} is set, but {URL} is missing"), Some("set both, or none")))
                }
                None => Ok(None),
            };
        };
        let bare = |url: &Url| {
            url.scheme() == "https"
                && url.host().is_some()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        };
        let Some(url) = Url::parse(text).ok().filter(bare) else {
            let hint = "it has no user, query or fragment, such as https://10.0.0.1:6443/token";
            return Err(config_error(format!("{URL} is not an https URL of only host, port and path"), Some(hint)));
        };
        let server_name = variables.get(SERVER_NAME).map(str::to_owned);
        if server_name.as_deref().is_some_and(|name| url.clone().set_host(Some(name)).is_err()) {
            return Err(config_error(format!("{SERVER_NAME} is not a host name"), None));
        }
        let trusted = match (variables.get(CA_FILE), variables.get(CA_DATA)) {
            (Some(_), Some(_)) => {
                return Err(config_error(format!("{CA_FILE} and {CA_DATA} are both set"), Some("set one")));
            }
            (Some(file), None) => TrustedCas::File(file.into()),
            (None, Some(pem)) => TrustedCas::Pem(pem.to_owned()),
            (None, None) => TrustedCas::System,
        };
        Ok(Some(Self { url, server_name, trusted }))
    }

    /// Returns the proxy's host and port, for messages.
    pub(super) fn address(&self) -> String {
        let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}{port}", self.url.host_str().unwrap_or_default())
    }

    /// Returns the file of the trusted CA certificates, which each exchange reads.
    pub(super) fn ca_file(&self) -> Option<&Path> {
        match &self.trusted {
            TrustedCas::File(file) => Some(file),
            TrustedCas::System | TrustedCas::Pem(_) => None,
        }
    }

    /// Returns the URL of an authority's path, below the proxy's own path.
    pub(super) fn url_for(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        if let Some(name) = &self.server_name {
            // `from_variables` has checked the name.
            let _ = url.set_host(Some(name));
        }
        // The proxy serves the authority's paths below a path of its own.
        let below = format!("{}{path}", url.path().trim_end_matches('/'));
        url.set_path(&below);
        url
    }

    /// Builds a client for one exchange.
    ///
    /// `last` holds the last content of the CA file, which is used while the file is missing or empty because it is being
    /// replaced.
    pub(super) fn transport(&self, last: &Mutex<Option<Vec<u8>>>) -> Result<Transport, AttemptError> {
        let pem = match &self.trusted {
            TrustedCas::System => None,
            TrustedCas::Pem(pem) => Some((pem.clone().into_bytes(), CA_DATA.to_owned())),
            TrustedCas::File(file) => {
                let name = file.display();
                let (read, problem) = match std::fs::read(file) {
                    Ok(read) => (read, "is empty"),
                    Err(error) if error.kind() == ErrorKind::NotFound => (Vec::new(), "does not exist"),
                    Err(error) => {
                        return Err(AttemptError::setting(format!("cannot read {name} ({CA_FILE}): {error}")));
                    }
                };
                let mut last = last.lock();
                if !read.is_empty() {
                    *last = Some(read);
                }
                let Some(pem) = last.clone() else {
                    return Err(AttemptError::NoAuthorities(format!("{name} ({CA_FILE}) {problem}")));
                };
                Some((pem, format!("{name} ({CA_FILE})")))
            }
        };
        let connect_to = self.server_name.as_ref().and_then(|_| self.url.host());
        Transport::token_proxy(self.address(), pem.as_ref().map(|(pem, name)| (&**pem, &**name)), connect_to.as_ref())
    }
}
