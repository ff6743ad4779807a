//! Credentials that a listener serves to systemd, as the configuration has them.

use std::time::Duration;

use keyward_agent::secrets::{OfflineOptions, SecretRequest};
use keyward_agent::systemd_credentials::GrantRule;

use super::{Listener, Serves, Template};

/// Credentials of a listener for systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemdCredentials {
    /// Longest time that a unit waits for a credential.
    pub wait: Duration,
    /// The credentials, by name.
    pub grants: Vec<CredentialGrant>,
}

/// A credential, and the units that may load it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialGrant {
    /// Name of the section.
    pub name: String,
    /// Units, and the id that they ask for.
    pub rule: GrantRule,
    /// Name of the session whose token it is, or that reads its secrets.
    pub session: String,
    /// Source of its value.
    pub content: CredentialContent,
}

/// Source of a credential's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialContent {
    /// The session's token, or the listener's derived token of it.
    Token,
    /// A field of a secret.
    Secret {
        /// The read of the secret.
        request: SecretRequest,
        /// The field.
        field: String,
        /// Time between reads of a secret without a lease.
        interval: Duration,
        /// File that keeps the secrets of the session across restarts; `None` if they are not saved.
        offline: Option<OfflineOptions>,
    },
    /// A rendered text.
    Template(Box<Template>),
}

impl Listener {
    /// Returns its credentials for systemd; empty for another kind of listener.
    pub fn systemd_credentials(&self) -> &[CredentialGrant] {
        match &self.serves {
            Serves::SystemdCredentials(credentials) => &credentials.grants,
            _ => &[],
        }
    }

    /// Returns true if it serves the token of this session, one of its own.
    pub fn serves_token_of(&self, session: &str) -> bool {
        let is_token = |grant: &CredentialGrant| grant.session == session && grant.content == CredentialContent::Token;
        match &self.serves {
            Serves::SystemdCredentials(credentials) => credentials.grants.iter().any(is_token),
            _ => self.serves.uses_tokens(),
        }
    }

    /// Returns the templates of its credentials.
    pub fn credential_templates(&self) -> impl Iterator<Item = &Template> {
        self.systemd_credentials().iter().filter_map(|grant| match &grant.content {
            CredentialContent::Template(template) => Some(&**template),
            CredentialContent::Token | CredentialContent::Secret { .. } => None,
        })
    }

    /// Returns the settings by which its credentials' secrets are read: the session, the interval, and the file across
    /// restarts.
    pub fn credential_secrets(&self) -> impl Iterator<Item = (&String, Duration, Option<&OfflineOptions>)> {
        self.systemd_credentials().iter().filter_map(|grant| match &grant.content {
            CredentialContent::Secret { interval, offline, .. } => Some((&grant.session, *interval, offline.as_ref())),
            CredentialContent::Token | CredentialContent::Template(_) => None,
        })
    }
}

impl SystemdCredentials {
    /// Sets whether readiness depends on them.
    pub(super) fn require(&mut self, required: bool) {
        for grant in &mut self.grants {
            if let CredentialContent::Template(template) = &mut grant.content {
                template.options.required = required;
            }
        }
    }
}
