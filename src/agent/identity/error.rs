//! Why there is no proof of identity.

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

/// A mistake in the environment's variables.
pub(super) fn mistake(message: String, hint: Option<&'static str>) -> IdentityError {
    IdentityError { class: Class::Config, source_name: "environment", message, hint, retry_after: None }
}
