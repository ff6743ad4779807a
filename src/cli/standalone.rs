//! Serves one part of the program with settings from the command line only.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use keyward_app::sandbox::SandboxPlan;
use keyward_app::{App, ProcessSetup, Signals};
use keyward_config::{self as config, Config, Diagnostic, Environment, SandboxMode};
use keyward_telemetry::error_code::ErrorCode;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::run::{enter_sandbox, runtime, start_log, stop_signals, take_activated_sockets};
use super::{Exit, LogChoice, print_error, print_line, print_warning};

/// Flag of the sandbox, for commands that read no configuration file.
#[derive(Debug, Args)]
pub(super) struct SandboxFlag {
    /// Rights that the process gives up after its start: `enforce` (all, or it does not start), `best_effort` (all that the
    /// kernel can), `off`
    #[arg(long, value_name = "MODE", default_value = SandboxMode::BestEffort.name(), value_parser = parse_sandbox_mode)]
    sandbox: SandboxMode,
}

fn parse_sandbox_mode(text: &str) -> Result<SandboxMode, String> {
    let mode = SandboxMode::ALL.into_iter().find(|mode| mode.name() == text);
    mode.ok_or_else(|| format!("expected {}", SandboxMode::ALL.map(SandboxMode::name).join(", ")))
}

/// Configuration of one part of the program, and the accesses that it needs.
pub(super) struct Standalone {
    pub(super) config: Config,
    plan: SandboxPlan,
}

/// Loads a configuration from the settings of one section; prints the errors if there are any.
pub(super) fn load(
    section: &str,
    settings: &[(&str, Vec<String>)],
    sandbox: &SandboxFlag,
    environment: &Environment,
) -> Result<Standalone, Exit> {
    let outcome = config::load_section(section, settings, environment);
    for error in &outcome.errors {
        print_error(&describe_diagnostic(error, section));
    }
    for warning in &outcome.warnings {
        print_warning(&describe_diagnostic(warning, section));
    }
    let plan = SandboxPlan::new(&outcome, &[], environment);
    let mut config = outcome.config.ok_or(Exit::Failed)?;
    config.agent.sandbox = sandbox.sandbox;
    Ok(Standalone { config, plan })
}

/// Flags whose names are not those of their settings.
const FLAGS: [(&str, &str); 4] = [
    ("tls_cert", "--tls-cert-file"),
    ("tls_key", "--tls-key-file"),
    ("data_dir", "--dir"),
    ("local_token_file", "--dir"),
];

/// Formats an error or a warning with the flags in place of the settings that they became.
fn describe_diagnostic(diagnostic: &Diagnostic, section: &str) -> String {
    let Some(setting) = diagnostic.key.strip_prefix(section).and_then(|key| key.strip_prefix('.')) else {
        return diagnostic.to_string();
    };
    let flag = FLAGS.iter().find(|(name, _)| *name == setting).map(|(_, flag)| (*flag).to_owned());
    let flag = flag.unwrap_or_else(|| format!("--{}", setting.replace('_', "-")));
    let mut text = format!("{flag}: {}", diagnostic.message);
    if !diagnostic.advice.is_empty() {
        let advice = FLAGS.iter().fold(diagnostic.advice.clone(), |advice, (name, flag)| advice.replace(name, flag));
        text = format!("{text}; {advice}");
    }
    ErrorCode::tag(Some(diagnostic.code), &text)
}

/// Enters the sandbox and serves until stopped. The process has no other thread when this is called. Prints `introduction` once the sockets are bound.
pub(super) fn serve(
    Standalone { config, plan }: Standalone,
    environment: &Environment,
    log: &LogChoice,
    introduction: impl FnOnce(&App) -> Vec<String>,
) -> anyhow::Result<Exit> {
    // It starts no program.
    let (_, sandbox, _) = enter_sandbox(&config, &plan, &[], environment)?;
    let (_logging, level) = start_log(log, &config.log)?;
    sandbox.log();
    let runtime = runtime(&config)?;
    let inherited = take_activated_sockets(environment)?;
    let ended = runtime.block_on(async {
        let stop = CancellationToken::new();
        let signals = stop_signals(stop.clone())?;
        tokio::pin!(signals);
        let app = tokio::select! {
            built = App::build(config, ProcessSetup { log: level, inherited, sandbox, spawner: None }) => built?,
            () = stop.cancelled() => return Ok(()),
            twice = &mut signals => return twice,
        };
        for line in introduction(&app) {
            print_line(&line);
        }
        let (_kept, reloads) = mpsc::channel(1);
        tokio::select! {
            ended = app.run(Signals::new(stop, reloads)) => ended.map(drop),
            twice = signals => twice,
        }
    });
    // A name look-up or a write that hangs in the system must not hold the end up.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended.map(|()| Exit::Ok)
}

/// An address to listen on as a setting: without a scheme a path is a socket, and anything else is TCP.
pub(super) fn listen_address(text: &str) -> String {
    if text.starts_with('/') {
        return format!("unix://{text}");
    }
    let plain = !text.contains("://") && !text.starts_with("systemd:");
    if plain { format!("tcp://{text}") } else { text.to_owned() }
}

/// A path, as a setting.
pub(super) fn path(path: &Path) -> anyhow::Result<String> {
    let text = std::path::absolute(path)?.into_os_string().into_string().ok();
    text.with_context(|| format!("{} is not UTF-8", path.display()))
}
