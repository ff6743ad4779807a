//! URLs of Google Cloud's services.

use std::path::PathBuf;

use url::Url;

use crate::identity::ProviderVariables;

/// URLs of Google Cloud's services. Fixed by Google; only emulators and tests set others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcpEndpoints {
    /// The metadata server.
    pub metadata: Url,
    /// The service that signs tokens (IAM Service Account Credentials API).
    pub credentials: Url,
    /// PEM file to trust for that service instead of the system's certificates.
    pub credentials_ca: Option<PathBuf>,
    /// True if that service runs on this machine, so that no proxy is used.
    pub credentials_is_local: bool,
}

impl GcpEndpoints {
    /// Returns Google's own endpoints.
    pub fn provider() -> Self {
        Self {
            metadata: METADATA_SERVER.clone(),
            credentials: CREDENTIALS.clone(),
            credentials_ca: None,
            credentials_is_local: false,
        }
    }

    /// Returns the metadata server: that of `GCE_METADATA_HOST`, as for Google's libraries, or the usual one.
    ///
    /// # Errors
    /// The variable is no host, with a port or without.
    pub(super) fn metadata_url(&self, variables: &ProviderVariables) -> Result<Url, &'static str> {
        let Some(host) = variables.get("GCE_METADATA_HOST") else { return Ok(self.metadata.clone()) };
        let url = Url::parse(&format!("http://{host}/")).ok();
        let is_host = |url: &Url| url.path() == "/" && url.query().is_none() && url.username().is_empty();
        url.filter(is_host).ok_or("GCE_METADATA_HOST is not a host")
    }
}

/// Address of `metadata.google.internal`, which needs no name server.
#[expect(clippy::expect_used, reason = "a constant that parses")]
static METADATA_SERVER: std::sync::LazyLock<Url> =
    std::sync::LazyLock::new(|| Url::parse("http://169.254.169.254/").expect("a constant that parses"));

#[expect(clippy::expect_used, reason = "a constant that parses")]
static CREDENTIALS: std::sync::LazyLock<Url> =
    std::sync::LazyLock::new(|| Url::parse("https://iamcredentials.googleapis.com/").expect("a constant that parses"));
