//! Values of credentials: a session's token, a field of a secret, or a rendered template.

use keyward_credentials::credential_watch::{Availability, CredentialWatch, PublisherClosed};
use keyward_machine::clock::Clock;
use keyward_machine::command::ProvidedEnv;
use keyward_machine::secret_string::SecretString;

use crate::secrets::{SecretRegistry, SecretRequest, SecretResponse, Subscription};
use crate::token::TokenWatch;

/// Source of a credential's value.
#[derive(Debug)]
pub enum CredentialSource {
    /// A session's token, or a token that is derived from it.
    Token(TokenWatch),
    /// A field of a secret.
    Secret {
        /// Registry of the session's secrets, which templates share.
        registry: SecretRegistry,
        /// The secret.
        request: SecretRequest,
        /// The field.
        field: String,
    },
    /// A rendered template.
    Rendered(CredentialWatch<ProvidedEnv>),
}

impl CredentialSource {
    /// Subscribes to the secret, which is read and renewed from then on. Returns what watches the value, and the
    /// subscription to hold meanwhile.
    pub(super) fn open(self) -> (ValueWatch, Option<Subscription>) {
        match self {
            Self::Token(watch) => (ValueWatch::Token(watch), None),
            Self::Rendered(watch) => (ValueWatch::Rendered(watch), None),
            Self::Secret { registry, request, field } => {
                let subscription = registry.subscribe(&request);
                let watch = subscription.watch.clone();
                (ValueWatch::Secret { watch, path: request.path, field }, Some(subscription))
            }
        }
    }
}

/// Watch of a credential's value, whichever source it has.
#[derive(Debug, Clone)]
pub(super) enum ValueWatch {
    Token(TokenWatch),
    Secret { watch: CredentialWatch<SecretResponse>, path: String, field: String },
    Rendered(CredentialWatch<ProvidedEnv>),
}

impl ValueWatch {
    /// Returns the current value, and marks it as seen for [`ValueWatch::changed`].
    ///
    /// # Errors
    /// The reason why there is none, which holds no secret.
    pub(super) fn current(&mut self, clock: &Clock) -> Result<SecretString, String> {
        match self {
            Self::Token(watch) => {
                let token = available(watch)?;
                if token.expires.is_some_and(|end| clock.has_reached(end)) {
                    return Err("the token has expired".to_owned());
                }
                Ok(token.secret.secret().clone())
            }
            Self::Secret { watch, path, field } => {
                let text = available(watch)?.data.text(field);
                text.ok_or_else(|| format!("the secret {path} has no text in a field {field}"))
            }
            Self::Rendered(watch) => match &*available(watch)? {
                ProvidedEnv::Variable(_, text) if text.expose_secret().is_empty() => {
                    Err("the template renders an empty text".to_owned())
                }
                ProvidedEnv::Variable(_, text) => Ok(text.clone()),
                ProvidedEnv::Variables(_) | ProvidedEnv::File => Err("the template renders no credential".to_owned()),
            },
        }
    }

    /// Waits for a change.
    pub(super) async fn changed(&mut self) -> Result<(), PublisherClosed> {
        match self {
            Self::Token(watch) => watch.changed().await,
            Self::Secret { watch, .. } => watch.changed().await,
            Self::Rendered(watch) => watch.changed().await,
        }
    }

    /// Waits until there is a value.
    ///
    /// # Errors
    /// The reason why there is none, once nothing more will be published.
    pub(super) async fn wait(&mut self, clock: &Clock) -> Result<SecretString, String> {
        loop {
            match self.current(clock) {
                Ok(value) => return Ok(value),
                Err(reason) if self.changed().await.is_err() => return Err(reason),
                Err(_) => {}
            }
        }
    }
}

fn available<T>(watch: &mut CredentialWatch<T>) -> Result<std::sync::Arc<T>, String> {
    match watch.current().availability {
        Availability::Available(value) => Ok(value),
        Availability::Unavailable { reason, .. } => Err(reason.to_string()),
    }
}
