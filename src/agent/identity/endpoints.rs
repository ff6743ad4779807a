//! URLs and paths of Azure's services.

use std::path::PathBuf;

use url::Url;

/// URLs and paths of Azure's services. Fixed by Azure; only emulators and tests set others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudEndpoints {
    /// The instance metadata service.
    pub metadata: Url,
    /// Address of an Arc machine's agent, if no variable sets it.
    pub arc: Url,
    /// Folder that has to contain an Arc challenge's key file.
    pub arc_tokens: PathBuf,
    /// Program whose presence identifies an Arc machine.
    pub arc_agent: PathBuf,
    /// PEM file to trust for the token endpoint instead of the system's certificates.
    pub authority_ca: Option<PathBuf>,
    /// True if the token endpoint runs on this machine, so that no proxy is used.
    pub authority_is_local: bool,
}

impl CloudEndpoints {
    /// Returns Azure's own endpoints.
    pub fn provider() -> Self {
        Self {
            metadata: METADATA_SERVICE.clone(),
            arc: ARC_AGENT.clone(),
            arc_tokens: "/var/opt/azcmagent/tokens".into(),
            arc_agent: "/opt/azcmagent/bin/himds".into(),
            authority_ca: None,
            authority_is_local: false,
        }
    }
}

/// `http://169.254.169.254/`, link-local on every virtual machine (learn.microsoft.com, "Azure Instance Metadata Service").
#[expect(clippy::expect_used, reason = "a constant that parses")]
static METADATA_SERVICE: std::sync::LazyLock<Url> =
    std::sync::LazyLock::new(|| Url::parse("http://169.254.169.254/").expect("a constant that parses"));

/// Default port of the Arc agent (learn.microsoft.com, "Authenticate against Azure resources with Azure Arc-enabled servers").
#[expect(clippy::expect_used, reason = "a constant that parses")]
static ARC_AGENT: std::sync::LazyLock<Url> =
    std::sync::LazyLock::new(|| Url::parse("http://localhost:40342/").expect("a constant that parses"));
