//! `keyward template`: trying a template before it is configured.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use keyward_agent::templates::{TemplateSource, WrittenFile};
use keyward_app::one_shot_login;
use keyward_app::one_shot_render::{OneShotReader, OneShotText, RenderError};
use keyward_config::{Environment, Purpose, Session};
use keyward_machine::command::EnvVars;
use keyward_machine::secret;
use keyward_telemetry::error_code::ErrorCode;

use super::agent_listener::ProxyEndpoint;
use super::{ConfigFiles, Exit, command_config, print, print_error, print_error_with_code, print_note};

/// Test templates.
#[derive(Debug, Subcommand)]
pub(super) enum Template {
    /// Render a template file to standard output, with its secrets. Reads them through the running agent's API proxy (a
    /// `[listener.NAME]` with `kind = "api_proxy"`), or with --login by a login of its own
    #[command(
        name = "try",
        after_help = "Example:\n  keyward template try app.conf.tmpl -c /etc/keyward/keyward.toml -s web"
    )]
    Try(Try),
}

/// Arguments of `keyward template try`.
#[derive(Debug, Args)]
pub(super) struct Try {
    /// File with the template
    file: PathBuf,
    #[command(flatten)]
    files: ConfigFiles,
    /// Session that reads the secrets; required if there are several
    #[arg(short, long)]
    session: Option<String>,
    /// Log in to read the secrets, and revoke the token at the end, with its leases
    #[arg(long)]
    login: bool,
    /// Variable that `env` may read besides PATH, HOME and the like; may end in `*`; repeatable
    #[arg(long, value_name = "NAME")]
    pass_env: Vec<String>,
    /// Folder below which `file` may read; repeatable
    #[arg(long, value_name = "FOLDER")]
    read_folder: Vec<PathBuf>,
    /// Print a missing key as `<no value>`, as `error_on_missing_key = false` does
    #[arg(long)]
    allow_missing_keys: bool,
    /// Delimiter at the start of an action
    #[arg(long, value_name = "TEXT", default_value = "{{", value_parser = NonEmptyStringValueParser::new())]
    left_delimiter: String,
    /// Delimiter at the end of an action
    #[arg(long, value_name = "TEXT", default_value = "}}", value_parser = NonEmptyStringValueParser::new())]
    right_delimiter: String,
}

impl Template {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Try(one) => one.run(),
        }
    }
}

impl Try {
    fn run(self) -> anyhow::Result<Exit> {
        keyward_machine::os::forbid_core_dumps()?;
        let environment = Environment::current();
        let purpose = if self.login { Purpose::Run } else { Purpose::Check };
        let outcome = command_config::load(&self.files.config, purpose)?;
        let Some(config) = &outcome.config else {
            for error in &outcome.errors {
                print_error(&error.to_string());
            }
            return Ok(Exit::ConfigInvalid);
        };
        let session = match super::login::choose(config, self.session.as_deref()) {
            Ok(session) => session,
            Err(advice) => {
                print_error_with_code(ErrorCode::UnknownSession, &advice);
                return Ok(Exit::Failed);
            }
        };
        let text = TemplateSource {
            name: self.file.display().to_string(),
            text: secret::read_text(&self.file)
                .map_err(|error| {
                    anyhow::anyhow!(
                        keyward_telemetry::error_chain::format_chain(&error).replace("a secret", "a template")
                    )
                })?
                .expose_secret()
                .to_owned(),
            file: Some(self.file.clone()),
            left: self.left_delimiter.clone(),
            right: self.right_delimiter.clone(),
            variables: EnvVars::select(&environment.variables, &self.pass_env),
            folders: self.read_folder.clone(),
            // A trial writes nothing, and says what it would write.
            write_folders: vec![PathBuf::from("/")],
            allows_missing_keys: self.allow_missing_keys,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let rendered = if self.login {
            runtime.block_on(logged_in(session, text))
        } else {
            let proxy = match ProxyEndpoint::find(&outcome, &session.name) {
                Ok(proxy) => proxy,
                Err(exit) => return Ok(exit),
            };
            runtime.block_on(async {
                Ok(OneShotReader::via_api_proxy(session, proxy.address, proxy.key)?.render(text).await)
            })
        };
        match rendered? {
            Ok(OneShotText { text, files }) => {
                print(text.as_bytes());
                for (path, file) in &files {
                    let WrittenFile { mode, content, .. } = file;
                    print_note(&format!(
                        "writeToFile would write {}, mode {mode:04o}, {} bytes",
                        path.display(),
                        content.len()
                    ));
                }
                Ok(Exit::Ok)
            }
            Err(error) => Ok(print_render_error(&self.file.display().to_string(), &error)),
        }
    }
}

type RenderOutcome = Result<OneShotText, RenderError>;

async fn logged_in(session: &Session, text: TemplateSource) -> anyhow::Result<RenderOutcome> {
    let logged_in = one_shot_login::login(session).await?;
    let rendered = OneShotReader::with_login(session, &logged_in).render(text).await;
    if let Err(error) = logged_in.revoke().await {
        print_error(&format!("cannot revoke the token; it stays valid until it expires: {error}"));
    }
    Ok(rendered)
}

/// Says why something was not rendered.
pub(super) fn print_render_error(what: &str, error: &RenderError) -> Exit {
    match error {
        RenderError::Template(errors) => {
            for error in errors {
                let position =
                    if error.line == 0 { String::new() } else { format!(":{}:{}", error.line, error.column) };
                print_error_with_code(ErrorCode::TemplateFailed, &format!("{what}{position}: {}", error.message));
            }
            Exit::Failed
        }
        RenderError::Unreachable(error) => {
            print_error(&format!("{what}: no agent or server answers: {error}"));
            Exit::NotRunning
        }
        RenderError::Unavailable { .. } => {
            print_error(&format!("{what}: {}", keyward_telemetry::error_chain::format_chain(error)));
            Exit::TryLater
        }
    }
}
