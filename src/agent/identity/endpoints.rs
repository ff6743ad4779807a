//! Where the cloud's services are.

use std::path::PathBuf;

use url::Url;

/// Where the cloud's services are. Fixed by the provider; only the emulated cloud and tests set others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// The instance metadata service.
    pub metadata: Url,
    /// Where an Arc machine's agent listens when no variable says so.
    pub arc: Url,
    /// Folder that an Arc challenge file must stand in.
    pub arc_tokens: PathBuf,
    /// The program whose presence tells an Arc machine.
    pub arc_agent: PathBuf,
    /// PEM file to trust for the token endpoint in place of the system's certificates.
    pub authority_ca: Option<PathBuf>,
    /// Whether the token endpoint stands on this machine, so that no proxy leads to it.
    pub authority_is_here: bool,
}

impl Endpoints {
    /// The provider's own.
    pub fn provider() -> Self {
        Self {
            metadata: METADATA_SERVICE.clone(),
            arc: ARC_AGENT.clone(),
            arc_tokens: "/var/opt/azcmagent/tokens".into(),
            arc_agent: "/opt/azcmagent/bin/himds".into(),
            authority_ca: None,
            authority_is_here: false,
        }
    }
}

/// `http://169.254.169.254/`, link-local on every virtual machine (learn.microsoft.com, "Azure Instance Metadata Service").
#[expect(clippy::expect_used, reason = "a constant that parses")]
static METADATA_SERVICE: std::sync::LazyLock<Url> =
    std::sync::LazyLock::new(|| Url::parse("http://169.254.169.254/").expect("a constant that parses"));

/// The agent's own port (learn.microsoft.com, "Authenticate against Azure resources with Azure Arc-enabled servers").
#[expect(clippy::expect_used, reason = "a constant that parses")]
static ARC_AGENT: std::sync::LazyLock<Url> =
    std::sync::LazyLock::new(|| Url::parse("http://localhost:40342/").expect("a constant that parses"));
