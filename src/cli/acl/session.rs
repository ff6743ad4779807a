//! `keyward acl bootstrap`, `login`, `logout` and `whoami`.

use std::time::Duration;

use clap::Args;
use keyward_acl::client::{self, AclClientError, Namespace, NamespaceDefaults, QueryOptions};
use keyward_acl::model::id::Id;
use keyward_http::client::TransportError;
use keyward_machine::atomic_file;
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::time_format::format_span;
use serde_json::{Value, json};

use super::browser_login::BrowserFlags;
use super::connection::AclConnection;
use super::failure::CommandFailure;
use super::secret_input::SecretInput;
use super::secret_output::{self, SecretDisplay, SecretOutputFlags, secret_of};
use super::templated_policy_flags::assignment;
use super::{output, token_output};
use crate::cli::{print_line, print_note};

/// Create the first token of a new service.
#[derive(Debug, Args)]
pub(super) struct Bootstrap {
    /// File with the secret for the token, a UUID, or - for standard input [default: a random one]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<SecretInput>,
    #[command(flatten)]
    output_flags: SecretOutputFlags,
}

/// Log in by an auth method.
#[derive(Debug, Args)]
pub(super) struct Login {
    /// Auth method to log in by
    #[arg(long, value_name = "NAME")]
    method: String,
    /// File with the proof of identity, such as a JWT, or - for standard input; required without --oidc
    #[arg(long, value_name = "FILE", required_unless_present = "oidc", conflicts_with = "oidc")]
    bearer_token_file: Option<SecretInput>,
    #[command(flatten)]
    browser: BrowserFlags,
    /// Metadata for the token's description; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    meta: Vec<(String, String)>,
    #[command(flatten)]
    output_flags: SecretOutputFlags,
}

impl Bootstrap {
    /// The service makes this token once. A secret that is to go into a file is therefore chosen here and written first:
    /// no failure after the call can lose it.
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let file_secret = self.secret_file.as_ref().map(SecretInput::secret).transpose()?;
        let Some(path) = &self.output_flags.out else {
            let token = create_first(service, file_secret).await?;
            token_output::token(service, &token, &SecretDisplay::Plain(secret_of(&token)?), None);
            return Ok(());
        };
        let secret = file_secret.unwrap_or_else(|| SecretString::from(Id::random().to_string()));
        if path.exists() {
            let text = format!(
                "{} exists already and may contain a token of another server; pass another file with --out",
                path.display()
            );
            return Err(CommandFailure::new(crate::cli::Exit::Failed, text));
        }
        secret_output::write(path, &secret)?;
        match create_first(service, Some(secret)).await {
            Ok(token) => {
                token_output::token(service, &token, &SecretDisplay::InFile(path.clone()), None);
                Ok(())
            }
            Err(error) => {
                let is_in_doubt = error.is_in_doubt();
                let failure = CommandFailure::from(error);
                if is_in_doubt {
                    let path_text = path.display();
                    return Err(failure.and(&format!(
                        "the token may exist anyway: try `keyward acl whoami --token-file {path_text}`"
                    )));
                }
                match atomic_file::remove(path) {
                    Ok(_) => Err(failure),
                    Err(error) => {
                        Err(failure.and(&format!("{error}; the file contains a secret without a token: delete it")))
                    }
                }
            }
        }
    }
}

/// Makes the first token. A server on this machine that does not listen yet may just have been started, and is waited for.
async fn create_first(service: &AclConnection, secret: Option<SecretString>) -> Result<client::Token, AclClientError> {
    for attempt in 0..START_ATTEMPTS {
        match service.client.bootstrap(secret.clone()).await {
            Err(AclClientError::Transport(TransportError::Connect { cause, .. }))
                if service.is_local && NOT_LISTENING.iter().any(|text| cause.contains(text)) => {}
            outcome => return outcome,
        }
        if attempt == 0 {
            let seconds = (START_PAUSE * START_ATTEMPTS).as_secs();
            print_note(&format!("no server answers at {} yet; trying for {seconds} s", service.client.server()));
        }
        Clock::System.sleep(START_PAUSE).await;
    }
    service.client.bootstrap(secret).await
}

/// Number of calls to a server that starts, and the pause after each.
const START_ATTEMPTS: u32 = 25;
const START_PAUSE: Duration = Duration::from_millis(200);

/// Causes of an address without a server, and of a socket that does not exist: nothing was sent.
const NOT_LISTENING: [&str; 2] = ["Connection refused", "No such file or directory"];

impl Login {
    pub(super) async fn run(self, service: &AclConnection) -> Result<(), CommandFailure> {
        let meta = self.meta.into_iter().collect();
        let token = match &self.bearer_token_file {
            Some(file) => {
                let bearer_token = Some(file.secret()?);
                let login = client::LoginRequest { auth_method: self.method, bearer_token, meta };
                service.client.login(&login).await?
            }
            None => self.browser.log_in(&self.method, meta, service).await?,
        };
        let secret = secret_of(&token)?;
        let undo = async || service.client.with_token(secret).logout().await;
        let display = self.output_flags.deliver(&token, undo).await?;
        token_output::token(service, &token, &display, None);
        Ok(())
    }
}

/// The arguments of a command that has none of its own.
#[derive(Debug, Args)]
pub(super) struct NoArguments {}

/// Deletes the token that the command is run with.
pub(super) async fn logout(_: NoArguments, service: &AclConnection) -> Result<(), CommandFailure> {
    service.client.logout().await?;
    print_line("logged out: the token is deleted");
    Ok(())
}

/// Shows the token that the command is run with.
pub(super) async fn whoami(_: NoArguments, service: &AclConnection) -> Result<(), CommandFailure> {
    let read = service.client.read_self(&QueryOptions::default()).await?;
    let token = &read.value;
    let defaults = namespace_defaults(service, token).await?;
    let remaining = token.expiration_time.map(|end| end.since(token_output::now(read.date)));
    let mut json = token_output::as_json(token, &SecretDisplay::NotRequested);
    if let Value::Object(fields) = &mut json {
        fields.insert("Server".to_owned(), service.client.server().into());
        fields.insert("RemainingSeconds".to_owned(), json!(remaining.map(|remaining| remaining.as_secs())));
        fields.insert("NamespaceDefaults".to_owned(), json!(defaults.as_ref()));
    }
    service.show(&json, || {
        let mut fields = output::Fields::default();
        fields
            .add("Server", service.client.server())
            .add("AccessorID", token.accessor_id)
            .optional("Namespace", token.namespace.as_ref())
            .add("Description", &token.description)
            .optional("Auth method", token.auth_method.as_ref())
            .add(
                "Remaining life",
                remaining.map_or_else(|| "without end".to_owned(), |left| format_span(left.as_secs())),
            )
            .optional("Ends", token.expiration_time)
            .list_field("Roles", token.roles.iter().map(output::link))
            .links(&token.links);
        if let Some(defaults) = &defaults {
            fields
                .list_field("Default policies", defaults.policy_defaults.iter().map(output::link))
                .list_field("Default roles", defaults.role_defaults.iter().map(output::link));
        }
        fields.print();
    });
    let links_nothing = token.roles.is_empty() && token.links == client::AclLinks::default();
    match &defaults {
        None => print_note("the token may not read its namespace: default policies and roles are not shown"),
        Some(defaults) if links_nothing && defaults.is_empty() => {
            print_note("the token links no policy or role: it has the rights of an anonymous caller");
        }
        Some(_) if links_nothing => {
            print_note("the token itself links nothing: its rights come from the defaults of its namespace");
        }
        Some(_) => {}
    }
    Ok(())
}

/// The links that the token's namespace gives it; `None` where the token may not read the namespace.
async fn namespace_defaults(
    service: &AclConnection,
    token: &client::Token,
) -> Result<Option<NamespaceDefaults>, CommandFailure> {
    let namespace = token.namespace.as_deref().unwrap_or("default");
    match service.client.read::<Namespace>(namespace, &QueryOptions::default()).await {
        Ok(read) => Ok(Some(read.value.acls)),
        Err(AclClientError::PermissionDenied(_)) => Ok(None),
        // A server without namespaces has no defaults of theirs.
        Err(AclClientError::NotSupported { .. } | AclClientError::NotFound { .. }) => {
            Ok(Some(NamespaceDefaults::default()))
        }
        Err(error) => Err(error.into()),
    }
}
