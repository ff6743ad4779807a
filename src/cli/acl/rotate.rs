//! `keyward acl token rotate`: replaces a token without a moment in which neither works.

use std::time::Duration;

use clap::Args;
use keyward_acl::client::{AclClient, AclClientError, NewToken, QueryOptions, Token};
use keyward_acl::model::id::Id;
use keyward_machine::clock::Clock;
use keyward_telemetry::time_format::format_span;
use tokio_util::sync::CancellationToken;

use super::connection::AclConnection;
use super::failure::CommandFailure;
use super::secret_output::{self, SecretDisplay, SecretOutputFlags, secret_of};
use super::{resolve, token_output};
use crate::cli::run::stop_signals;
use crate::cli::{Exit, print_note};

/// Replace a token by a new one.
#[derive(Debug, Args)]
pub(super) struct Rotate {
    /// Accessor of the old token, or a prefix of it
    #[arg(required_unless_present = "self")]
    accessor: Option<String>,
    /// Rotate the token of --token-file; the new token deletes it
    #[arg(long = "self", id = "self", conflicts_with = "accessor")]
    own: bool,
    /// Description of the new token [default: the old one's]
    #[arg(long)]
    description: Option<String>,
    /// Lifetime of the new token, 1m to 24h [default: the end of the old one]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    ttl: Option<Duration>,
    #[command(flatten)]
    output_flags: SecretOutputFlags,
    /// Time to wait, in the foreground, before the old token is deleted; 0s deletes it at once
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, required_unless_present = "leave_old")]
    grace: Option<Duration>,
    /// Keep the old token valid, and print the command that deletes it
    #[arg(long, conflicts_with = "grace")]
    leave_old: bool,
}

/// Both tokens of a rotation, after the new one was created.
struct RotationTokens<'a> {
    service: &'a AclConnection,
    old: &'a Token,
    new: Token,
}

impl Rotate {
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let stop = CancellationToken::new();
        let signals = stop_signals(stop.clone())?;
        tokio::select! {
            ended = self.rotate(service, &stop) => ended,
            signalled = signals => signalled.map_err(|error| {
                CommandFailure::from(error).and("see with `keyward acl token list` which tokens there are")
            }),
        }
    }

    async fn rotate(self, service: &AclConnection, stop: &CancellationToken) -> Result<(), CommandFailure> {
        let client = &service.client;
        let old = self.read_old(service).await?;
        let is_own = match client.read_self(&QueryOptions::default()).await {
            Ok(caller) => caller.value.accessor_id == old.accessor_id,
            // A server with the default policy `allow` also answers callers without a token.
            Err(_) if !client.has_token() => false,
            Err(error) => return Err(error.into()),
        };
        if stop.is_cancelled() {
            return Err(CommandFailure::new(Exit::Failed, "interrupted: nothing was changed"));
        }
        let new = self.successor(client, &old).await.map_err(|error| {
            let state = if error.is_in_doubt() {
                "the new token may have been created: check `keyward acl token list`; the old token still works"
            } else {
                "nothing was changed"
            };
            CommandFailure::from(error).and(state)
        })?;
        let pair = RotationTokens { service, old: &old, new };
        let display = pair.deliver_new_token(&self.output_flags).await?;
        token_output::token(service, &pair.new, &display, None);
        if self.leave_old {
            print_note(&format!("the old token still works; delete it by: {}", pair.deletion()));
            return Ok(());
        }
        pair.wait(self.grace.unwrap_or_default(), stop).await?;
        pair.delete_old(is_own).await
    }

    /// The old token, if it is one that can be rotated.
    async fn read_old(&self, service: &AclConnection) -> Result<Token, CommandFailure> {
        let client = &service.client;
        let read = match &self.accessor {
            Some(text) => {
                client.read::<Token>(&resolve::id::<Token>(service, text).await?, &QueryOptions::default()).await?
            }
            None => client.read_self(&QueryOptions::default()).await?,
        };
        let old = read.value;
        if let (Some(method), None) = (&old.auth_method, self.ttl) {
            let text = format!(
                "token {} was made by a login of auth method {method:?}, and such tokens cannot be cloned: log in \
                 again for a new one",
                old.accessor_id
            );
            return Err(CommandFailure::new(Exit::Remote, text));
        }
        if let (Some(end), None) = (old.expiration_time, self.ttl) {
            let remaining = end.since(token_output::now(read.date));
            print_note(&format!(
                "the new token expires with the old one, in {}; pass --ttl for another lifetime",
                format_span(remaining.as_secs())
            ));
        }
        Ok(old)
    }

    async fn successor(&self, client: &AclClient, old: &Token) -> Result<Token, AclClientError> {
        let Some(ttl) = self.ttl else {
            return client.clone_token(&old.accessor_id, self.description.as_deref()).await;
        };
        let Token { description, roles, links, local, .. } = old.clone();
        let new = NewToken {
            description: self.description.clone().unwrap_or(description),
            roles,
            links,
            local,
            expiration_ttl: Some(ttl),
            ..NewToken::default()
        };
        client.create(&new).await
    }
}

impl RotationTokens<'_> {
    fn ids(&self) -> (Id, Id) {
        (self.old.accessor_id, self.new.accessor_id)
    }

    /// Returns the command that deletes the old token.
    fn deletion(&self) -> String {
        self.service.command(&format!("token delete {}", self.old.accessor_id))
    }

    /// Verifies the new token and writes its secret. If either fails, deletes the new token and leaves the old one.
    async fn deliver_new_token(&self, to: &SecretOutputFlags) -> Result<SecretDisplay, CommandFailure> {
        let works = self.service.client.with_token(secret_of(&self.new)?);
        if let Err(error) = works.read_self(&QueryOptions::default()).await {
            let failure = CommandFailure::from(error).and("the new token could not be tried");
            return Err(match secret_output::delete(self.service, &self.new).await {
                Ok(_) => failure.and("the new token was deleted; the old one still works"),
                Err(error) => {
                    let (old, new) = self.ids();
                    failure.and(&format!("both tokens exist, the old one {old} and the new one {new}: {error}"))
                }
            });
        }
        let undo = async || secret_output::delete(self.service, &self.new).await;
        let delivered = to.deliver(&self.new, undo).await;
        delivered.map_err(|failure| failure.and("the old token still works"))
    }

    /// Waits for the grace period of the old token.
    async fn wait(&self, grace: Duration, stop: &CancellationToken) -> Result<(), CommandFailure> {
        if grace.is_zero() && !stop.is_cancelled() {
            return Ok(());
        }
        let (old, new) = self.ids();
        print_note(&format!("the old token {old} is deleted in {}", format_span(grace.as_secs())));
        let stopped = || {
            let text = format!(
                "interrupted: the new token {new} was delivered, and the old token {old} still works; delete it with: \
                 {}",
                self.deletion()
            );
            CommandFailure::new(Exit::Failed, text)
        };
        let clock = Clock::System;
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(stopped()),
            () = clock.sleep(grace) => Ok(()),
        }
    }

    /// Deletes the old token; by the new one, if the old one would have to delete itself, which no server lets it.
    async fn delete_old(&self, is_own: bool) -> Result<(), CommandFailure> {
        let client = if is_own { &self.service.client.with_token(secret_of(&self.new)?) } else { &self.service.client };
        let (old, new) = self.ids();
        match client.delete::<Token>(&old).await {
            Ok(true) => {
                print_note(&format!("the old token {old} is deleted"));
                Ok(())
            }
            Ok(false) => {
                print_note(&format!("the old token {old} no longer existed"));
                Ok(())
            }
            Err(error) => Err(CommandFailure::from(error).and(&format!(
                "the new token {new} works, but the old token {old} could not be deleted; delete it with: {}",
                self.deletion()
            ))),
        }
    }
}
