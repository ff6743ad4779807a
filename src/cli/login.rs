//! `keyward login`: one login, and what it gave. A token that is not shown is revoked, as nobody could use it.

use clap::Args;
use keyward_agent::login::LoginError;
use keyward_app::one_shot_login::{self, OneShotError};
use keyward_config::{Config, Log, Purpose, Session};
use keyward_telemetry::error_code::ErrorCode;
use keyward_telemetry::time_format::format_span;
use serde_json::json;

use super::output::Fields;
use super::run::start_log;
use super::{ConfigFiles, Exit, Format, LogChoice, command_config, print_error, print_error_with_code, print_line};

/// Log in once and print the token's properties, without its secret.
#[derive(Debug, Args)]
pub(super) struct LoginOnce {
    #[command(flatten)]
    files: ConfigFiles,
    /// Session to log in; required if there are several
    #[arg(short, long)]
    session: Option<String>,
    /// Print the token, and keep it; without this flag it is revoked
    #[arg(long)]
    reveal: bool,
    /// Output format
    #[arg(short = 'o', long, value_enum, default_value_t)]
    format: Format,
}

impl LoginOnce {
    pub(super) fn run(self, log: &LogChoice) -> anyhow::Result<Exit> {
        keyward_machine::os::forbid_core_dumps()?;
        let outcome = command_config::load(&self.files.config, Purpose::Run)?;
        let Some(config) = outcome.config else {
            for error in outcome.errors {
                print_error(&error.to_string());
            }
            return Ok(Exit::ConfigInvalid);
        };
        // The configured level is the agent's. Here warnings are enough, unless --log-level asks for more.
        let quiet = Log { level: tracing::Level::WARN.into(), targets: [].into(), format: config.log.format };
        let _logging = start_log(log, &quiet)?;
        let session = match choose(&config, self.session.as_deref()) {
            Ok(session) => session,
            Err(advice) => {
                print_error_with_code(ErrorCode::UnknownSession, &advice);
                return Ok(Exit::Failed);
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        match runtime.block_on(one_shot_login::login(session)) {
            Ok(logged_in) => {
                self.print(session, &logged_in);
                if !self.reveal {
                    // The token was not shown, so nobody can use it.
                    match runtime.block_on(logged_in.revoke()) {
                        Ok(message) if self.format == Format::Text => print_line(&format!("            {message}")),
                        Ok(_) => {}
                        Err(error) => {
                            print_error(&format!("cannot revoke the token; it stays valid until it expires: {error}"));
                        }
                    }
                }
                Ok(Exit::Ok)
            }
            Err(error) => {
                let exit = exit(&error);
                let code = error.code();
                let line = format!("session {}: {:#}", session.name, anyhow::Error::from(error));
                print_error(&ErrorCode::tag(code, &line));
                Ok(exit)
            }
        }
    }

    fn print(&self, session: &Session, logged_in: &one_shot_login::LoggedIn) {
        let token = &logged_in.token;
        let secret = self.reveal.then(|| token.secret.secret().expose_secret());
        let expires_in = (!token.lease.ttl.is_zero()).then(|| format_span(token.lease.ttl.as_secs()));
        match self.format {
            Format::Json => print_line(
                &json!({
                    "session": session.name,
                    "identity": logged_in.identity,
                    "accessor": token.accessor,
                    "policies": token.policies,
                    "renewable": token.lease.renewable,
                    "ttl_seconds": token.lease.ttl.as_secs(),
                    "token": secret,
                })
                .to_string(),
            ),
            Format::Text => {
                let policies = token.policies.join(", ");
                let mut fields = Fields::default();
                fields
                    .add("Session", &session.name)
                    .add("Identity", &logged_in.identity)
                    .add("Policies", if policies.is_empty() { "none" } else { &policies })
                    .add("Ends in", expires_in.as_deref().unwrap_or("never"))
                    .add("Renewable", if token.lease.renewable { "yes" } else { "no" })
                    .optional("Accessor", token.accessor.as_ref())
                    .add("Token", secret.unwrap_or("obtained; --reveal prints it, and keeps it alive"));
                fields.print();
            }
        }
    }
}

/// The session of that name, or the only one.
pub(super) fn choose<'a>(config: &'a Config, name: Option<&str>) -> Result<&'a Session, String> {
    let names: Vec<&str> = config.sessions.iter().map(|session| session.name.as_str()).collect();
    let session = match (name, config.sessions.as_slice()) {
        (Some(name), sessions) => sessions.iter().find(|session| session.name == name),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    session.ok_or_else(|| match name {
        _ if names.is_empty() => "the configuration has no [session.NAME]: there is nothing to log in".to_owned(),
        Some(name) => format!("--session {name}: there is no such session (there are: {})", names.join(", ")),
        None => format!("--session is needed: the configuration has {}", names.join(", ")),
    })
}

fn exit(error: &OneShotError) -> Exit {
    match error {
        OneShotError::Local(_) => Exit::Failed,
        OneShotError::Login(LoginError::Unavailable { .. } | LoginError::Clock { .. }) => Exit::TryLater,
        OneShotError::Login(_) => Exit::Remote,
    }
}
