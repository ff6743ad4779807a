//! Who this machine is, as its cloud says: sources of a signed identity token.

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;
use secrecy::SecretString;
use url::Url;

/// The parameters of the `cloud` method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The resource that the identity token is asked for, as written.
    pub resource: String,
    /// The scope that environment sources ask for; `None` means the resource followed by `/.default`.
    pub scope: Option<String>,
    /// Where the identity comes from.
    pub from: From,
    /// Login fields that the configuration sets, in place of what the token or the machine says.
    pub overrides: LoginFields,
    /// The provider's variables, read from the environment once.
    pub variables: Variables,
    /// Where the cloud's services are.
    pub endpoints: Endpoints,
}

/// Where the identity comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// The machine itself: metadata service, App Service, Arc.
    Instance(ManagedIdentity),
    /// The provider's environment variables, in the provider's order.
    Environment,
}

/// Which of the machine's identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagedIdentity {
    /// The machine's own, or its only one.
    System,
    /// The user-assigned one with this object id.
    ObjectId(String),
    /// The user-assigned one with this client id.
    ClientId(String),
}

/// Fields that a login may carry beside the proof. None of them is secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginFields {
    /// Subscription of the machine.
    pub subscription_id: Option<String>,
    /// Its resource group.
    pub resource_group_name: Option<String>,
    /// Name of the virtual machine.
    pub vm_name: Option<String>,
    /// Name of the scale set.
    pub vmss_name: Option<String>,
    /// Full id of another kind of resource that has the identity.
    pub resource_id: Option<String>,
}

/// The variables that the sources read, as they stood when the configuration was read; never the process's own later.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Keeps the provider's variables (`AZURE_*`, `IDENTITY_*`, `IMDS_*`, `MSI_*`) out of `all`. An empty one counts as absent.
    pub fn of(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let ours = |name: &str| ["AZURE_", "IDENTITY_", "IMDS_", "MSI_"].iter().any(|prefix| name.starts_with(prefix));
        Self(all.into_iter().filter(|(name, value)| ours(name) && !value.is_empty()).collect())
    }

    /// A variable's value, if it is there.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl std::fmt::Debug for Variables {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Where the cloud's services are. Fixed by the provider; only the emulated cloud and tests set others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// The instance metadata service.
    pub metadata: Url,
    /// Folder that an Arc challenge file must stand in.
    pub arc_tokens: PathBuf,
    /// The program whose presence tells an Arc machine.
    pub arc_agent: PathBuf,
    /// PEM file to trust for the token endpoint in place of the system's certificates.
    pub authority_ca: Option<PathBuf>,
}

impl Endpoints {
    /// The provider's own.
    pub fn provider() -> Self {
        Self {
            metadata: METADATA_SERVICE.clone(),
            arc_tokens: "/var/opt/azcmagent/tokens".into(),
            arc_agent: "/opt/azcmagent/bin/himds".into(),
            authority_ca: None,
        }
    }
}

/// `http://169.254.169.254/`, link-local on every virtual machine (learn.microsoft.com, "Azure Instance Metadata Service").
#[expect(clippy::expect_used, reason = "a constant that parses")]
static METADATA_SERVICE: std::sync::LazyLock<Url> =
    std::sync::LazyLock::new(|| Url::parse("http://169.254.169.254/").expect("a constant that parses"));

/// A source of identity tokens.
#[async_trait]
pub trait IdentitySource: std::fmt::Debug + Send + Sync {
    /// Gets a fresh proof of who this machine is. Retries what is worth retrying at once; gives up within about 90 s.
    /// Dropping the future cancels it.
    ///
    /// # Errors
    /// Says what kind of trouble it is, with its cause and often with advice.
    async fn prove(&self) -> Result<IdentityProof, IdentityError>;

    /// The source in a few words for logs and status, such as `metadata service (client_id 1234...)`.
    fn describe(&self) -> String;
}

/// A signed statement of who this machine is, and what else a login may want to say.
#[derive(Debug)]
pub struct IdentityProof {
    /// The signed token; it is a credential.
    pub jwt: SecretString,
    /// What the login sends beside it.
    pub fields: LoginFields,
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
#[error("{source_name}: {message}{}", hint.map(|hint| format!(" ({hint})")).unwrap_or_default())]
pub struct IdentityError {
    /// What to expect of trying again.
    pub class: Class,
    /// Which source was asked, such as `metadata service`.
    pub source_name: &'static str,
    /// What went wrong, the whole chain in one line, without any secret.
    pub message: String,
    /// What may mend it.
    pub hint: Option<&'static str>,
    /// How long the source asked us to wait.
    pub retry_after: Option<std::time::Duration>,
}

/// What to expect of trying again for a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nothing until someone changes a setting.
    Config,
    /// Nothing soon: the identity is not there, or not allowed (it may be on its way).
    Denied,
    /// The source is starting, or cannot be reached.
    NotReady,
    /// The source asked us to slow down.
    Throttled,
    /// A failure that may pass.
    Transient,
}
