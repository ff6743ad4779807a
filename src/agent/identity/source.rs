//! Proving who this machine is: choose the source, ask it with patience, read what the token says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use secrecy::{ExposeSecret as _, SecretString};

use super::failure::Failure;
use super::login_fields::{self, Instance};
use super::managed_identity_host::Host;
use super::retry::{Asked, Patience, told};
use super::source_selection::{Choice, Selected, choose};
use super::transport::Transport;
use super::{Endpoints, IdentityError, IdentityProof, IdentitySource, Options, SignedToken, app_service, arc};
use super::{azure_sdk, client_certificate, client_secret, metadata, workload};
use crate::backoff::random_unit;
use crate::clock::Clock;
use crate::jwt::UnverifiedClaims;

impl Options {
    /// A source of proofs. Nothing is asked yet; the variables are looked at.
    ///
    /// # Errors
    /// The variables name no source, or only part of one; or the host cannot give the identity that is named.
    pub fn build(&self, clock: Clock) -> Result<Box<dyn IdentitySource>, IdentityError> {
        choose(self)?;
        Ok(Box::new(Cloud {
            options: self.clone(),
            clock,
            machine: OnceLock::new(),
            authority: OnceLock::new(),
            announced: Mutex::new(None),
            failing: AtomicBool::new(false),
            instance: Mutex::new(None),
            proxy_ca: Mutex::new(None),
        }))
    }

    /// What environment sources ask for: the scope as set, else the resource with `/.default` after it. Two slashes in
    /// a row are right: the first belongs to the audience.
    pub fn environment_scope(&self) -> String {
        self.scope.clone().unwrap_or_else(|| format!("{}{DEFAULT}", self.resource))
    }

    /// What a managed identity is asked for: the resource as written, or in environment mode what the scope means.
    fn managed_resource(&self) -> String {
        match self.from {
            super::From::Instance(_) => self.resource.clone(),
            super::From::Environment => {
                let scope = self.environment_scope();
                scope.strip_suffix(DEFAULT).unwrap_or(&scope).to_owned()
            }
        }
    }
}

/// The suffix of a scope that means all of a resource.
const DEFAULT: &str = "/.default";

/// The cloud's identity of this machine or pod.
#[derive(Debug)]
struct Cloud {
    options: Options,
    clock: Clock,
    machine: OnceLock<Transport>,
    authority: OnceLock<Transport>,
    /// The source that was told last in the log.
    announced: Mutex<Option<String>>,
    /// Whether the last proof was in vain. Then one attempt is made at a time: the caller's backoff is the patience.
    failing: AtomicBool,
    /// The machine's document, once it came.
    instance: Mutex<Option<Instance>>,
    /// The last content of the token proxy's file of authorities.
    proxy_ca: Mutex<Option<Vec<u8>>>,
}

#[async_trait]
impl IdentitySource for Cloud {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let proof = self.attempt_all().await;
        self.failing.store(proof.is_err(), Ordering::Relaxed);
        proof
    }

    fn describe(&self) -> String {
        choose(&self.options).map_or_else(|error| error.source_name.to_owned(), |choice| choice.selected.describe())
    }
}

impl Cloud {
    async fn attempt_all(&self) -> Result<IdentityProof, IdentityError> {
        let choice = choose(&self.options)?;
        self.announce(&choice);
        let selected = &choice.selected;
        let asked = match selected {
            Selected::Managed(Host::Metadata, _) => Asked::Metadata,
            Selected::Managed(..) => Asked::Host,
            _ => Asked::Authority,
        };
        let (jwt, claims) = self.token(selected, asked).await?;
        let instance = match (asked, &claims) {
            (Asked::Metadata, claims) if !claims.as_ref().is_some_and(login_fields::named_by) => self.instance().await,
            _ => None,
        };
        let fields = login_fields::of(claims.as_ref(), instance.as_ref(), &self.options.overrides);
        let audience = match asked {
            Asked::Authority => {
                let scope = self.options.environment_scope();
                scope.strip_suffix(DEFAULT).unwrap_or(&scope).to_owned()
            }
            _ => self.options.managed_resource(),
        };
        Ok(IdentityProof::Signed(Box::new(SignedToken { jwt, fields, claims, audience: Some(audience) })))
    }

    /// Tells the choice once, and again when it has changed.
    fn announce(&self, choice: &Choice) {
        let source = choice.selected.describe();
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        if announced.as_ref() == Some(&source) {
            return;
        }
        for (name, reason) in &choice.passed_over {
            tracing::info!(event = "identity.source.passed_over", source = name, reason, "a source was passed over");
        }
        tracing::info!(event = "identity.source.chosen", source, "this source gives the identity");
        *announced = Some(source);
    }

    /// A token that lives for another minute, after as many attempts as it is worth.
    async fn token(
        &self,
        selected: &Selected,
        asked: Asked,
    ) -> Result<(SecretString, Option<UnverifiedClaims>), IdentityError> {
        let start = self.clock.now();
        let mut patience = Patience::default();
        loop {
            let (failure, last) = match self.ask(selected).await {
                Ok(jwt) => {
                    let claims = UnverifiedClaims::decode(jwt.expose_secret()).ok();
                    match self.remaining(claims.as_ref()) {
                        Some(left) if left <= LEAST => (Failure::Stale, Some((jwt, claims, left))),
                        _ => return Ok((jwt, claims)),
                    }
                }
                Err(failure) => (failure, None),
            };
            let now = self.clock.now();
            let wait = patience.next(&failure, asked, now.since(start), random_unit());
            // Reading a file again costs nobody anything.
            let patient = !self.failing.load(Ordering::Relaxed) || wait == Some(Duration::ZERO);
            match (wait.filter(|_| patient), last) {
                (Some(wait), _) => {
                    tracing::info!(
                        event = "identity.token.retry", source = selected.name(), cause = %failure,
                        wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX), "no identity token yet"
                    );
                    self.clock.sleep(wait).await;
                }
                // It is short of life, but alive.
                (None, Some((jwt, claims, left))) if !left.is_zero() => return Ok((jwt, claims)),
                (None, _) => return Err(told(&failure, asked, selected.name())),
            }
        }
    }

    fn remaining(&self, claims: Option<&UnverifiedClaims>) -> Option<Duration> {
        Some(claims?.exp?.duration_since(self.clock.now().wall).unwrap_or(Duration::ZERO))
    }

    async fn ask(&self, selected: &Selected) -> Result<SecretString, Failure> {
        let now = self.clock.now().wall;
        let (resource, scope) = (self.options.managed_resource(), self.options.environment_scope());
        match selected {
            Selected::Managed(Host::Metadata, which) => {
                metadata::token(self.machine()?, &self.options.endpoints.metadata, which, &resource).await
            }
            Selected::Managed(Host::AppService { endpoint, header, form }, which) => {
                app_service::token(self.machine()?, (endpoint, header, *form), which, &resource).await
            }
            Selected::Managed(Host::Arc { endpoint }, _) => {
                arc::token(self.machine()?, endpoint, &self.options.endpoints.arc_tokens, &resource).await
            }
            Selected::ClientSecret(who, secret) => client_secret::token(self.authority()?, who, secret, &scope).await,
            Selected::ClientCertificate(who, certificate) => {
                client_certificate::token(self.authority()?, who, certificate, &scope, now).await
            }
            Selected::Workload(who, file, None) => {
                let client = azure_sdk::Client::new(self.authority()?.clone());
                workload::token(client, who, file, &scope, now).await
            }
            Selected::Workload(who, file, Some(proxy)) => {
                // Made anew each time: the authorities to trust may have changed.
                let client = azure_sdk::Client::through(proxy.transport(&self.proxy_ca)?, proxy.clone());
                workload::token(client, who, file, &scope, now).await
            }
        }
    }

    /// The machine's document, kept once it came; `None` is no trouble.
    async fn instance(&self) -> Option<Instance> {
        let kept = self.instance.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if kept.is_some() {
            return kept;
        }
        match metadata::instance(self.machine().ok()?, &self.options.endpoints.metadata).await {
            Ok(found) => {
                *self.instance.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
                Some(found)
            }
            Err(failure) => {
                tracing::debug!(event = "identity.instance.missing", cause = %failure, "no instance document");
                None
            }
        }
    }

    fn machine(&self) -> Result<&Transport, Failure> {
        kept(&self.machine, Transport::machine)
    }

    fn authority(&self) -> Result<&Transport, Failure> {
        let Endpoints { authority_ca, authority_is_here, .. } = &self.options.endpoints;
        kept(&self.authority, || Transport::authority(authority_ca.as_deref(), *authority_is_here))
    }
}

fn kept(cell: &OnceLock<Transport>, make: impl FnOnce() -> Result<Transport, Failure>) -> Result<&Transport, Failure> {
    if let Some(transport) = cell.get() {
        return Ok(transport);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

/// The life that a token must have left to be worth a login.
const LEAST: Duration = Duration::from_mins(1);
