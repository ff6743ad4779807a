//! `keyward run`: the agent, until it is told to stop.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use keyward_app::logging::{self, LogLevel, Logging};
use keyward_app::sandbox::{self, AllowedAccess, SandboxPlan, SandboxReport};
use keyward_app::{App, ProcessSetup, ReloadRejected, Signals};
use keyward_config::{self as config, Config, Diagnostic, Environment, Purpose, SandboxMode};
use keyward_http::server::ActivatedSockets;
use keyward_machine::command::{
    self, ConfiguredPrograms, SpawnerConnection, SpawnerDescriptors, SpawnerProcess, reap_orphans,
};
use keyward_telemetry::error_code::ErrorCode;
use rustix::process::Signal;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{ConfigFiles, Exit, LogChoice, once, print_error};

/// Run the agent until it is told to stop.
#[derive(Debug, Clone, Args)]
pub(super) struct Run {
    #[command(flatten)]
    files: ConfigFiles,
    /// Exit once each session has its token and each required sink and template is written, or a login has failed. Opens no
    /// listener and runs no program
    #[arg(long)]
    exit_after_auth: bool,
    /// Maximum time to wait with --exit-after-auth, such as 30s. Failed logins are then retried until its end
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, requires = "exit_after_auth")]
    timeout: Option<Duration>,
    /// Create a new store for `[acl]` although a key file of a lost one exists
    #[cfg(feature = "acl")]
    #[arg(long)]
    new_store: bool,
}

impl Run {
    /// The run of one configuration file.
    pub(super) fn of_file(file: PathBuf, exit_after_auth: bool, timeout: Option<Duration>) -> Self {
        Self {
            files: ConfigFiles { config: vec![file] },
            exit_after_auth,
            timeout,
            #[cfg(feature = "acl")]
            new_store: false,
        }
    }
}

pub(super) fn run(run: &Run, choice: &LogChoice) -> anyhow::Result<Exit> {
    keyward_machine::os::forbid_core_dumps()?;
    let environment = Environment::current();
    let loaded = load(run, &environment, None);
    let LoadedRun { config, warnings, plan } = match loaded {
        Ok(loaded) => loaded,
        Err(rejected) => {
            for error in rejected.errors {
                print_error(&error);
            }
            return Ok(Exit::Config);
        }
    };
    // Before the first other thread: the sandbox holds for this thread and those that it starts.
    let (spawner, sandbox, allowed) = enter_sandbox(&config, &plan, &run.files.config, &environment)?;
    let (spawner, connection) = spawner.unzip();
    let (logging, log) = start_log(choice, &config.log)?;
    log_warnings(&warnings);
    sandbox.log();
    let runtime = runtime(&config)?;
    let inherited = take_activated_sockets(&environment)?;
    let ended = runtime.block_on(async {
        #[cfg(feature = "acl")]
        if run.new_store {
            begin_store(&config).await?;
        }
        let (signals, relay) = listen_for_signals(run.clone(), environment, allowed)?;
        let stop = signals.stop.clone();
        tokio::pin!(relay);
        let app = tokio::select! {
            built = App::build(config, ProcessSetup { log, inherited, spawner: connection, sandbox }) => built?,
            () = stop.cancelled() => {
                return Ok(RunEnd { missing: Some("nothing was started yet".to_owned()), ..RunEnd::default() });
            }
            never = &mut relay => return never.map(|()| RunEnd::default()),
        };
        let mut readiness = once::ReadinessWatch::new(&app, run.timeout);
        let mut ended = RunEnd::default();
        let running = app.run(signals);
        tokio::pin!(running);
        ended.code = loop {
            let is_open = ended.outcome.is_none() && ended.missing.is_none();
            tokio::select! {
                // In this order: the missing components are listed before the stop removes them.
                biased;
                () = stop.cancelled(), if is_open => ended.missing = Some(readiness.missing()),
                code = &mut running => break code?,
                never = &mut relay => break never.map(|()| 0)?,
                outcome = readiness.outcome(), if run.exit_after_auth && is_open => {
                    ended.outcome = Some(outcome);
                    stop.cancel();
                }
            }
        };
        anyhow::Ok(ended)
    });
    // Do not wait for a hanging lookup or write at the end.
    runtime.shutdown_timeout(Duration::from_secs(1));
    if let Some(spawner) = spawner {
        spawner.wait();
    }
    let ended = ended?;
    // Its queue is written first, so that an error is the last line.
    drop(logging);
    Ok(ended.exit(run.exit_after_auth))
}

/// End of a run.
#[derive(Default)]
struct RunEnd {
    /// Exit code of the child process, or 0.
    code: u8,
    /// With `--exit-after-auth`: all is written, or the reason why not.
    outcome: Option<Result<(), once::OnceError>>,
    /// Components that were not ready at the stop.
    missing: Option<String>,
}

impl RunEnd {
    fn exit(self, exit_after_auth: bool) -> Exit {
        match self.outcome {
            Some(Err(once::OnceError::Login(error))) => {
                print_error(&error);
                Exit::Remote
            }
            Some(Err(once::OnceError::TimedOut(error))) => {
                print_error(&error);
                Exit::TimedOut
            }
            None if exit_after_auth => {
                print_error(&format!("stopped before everything was written: {}", self.missing.unwrap_or_default()));
                Exit::NotReady
            }
            _ if self.code == 0 => Exit::Ok,
            _ => Exit::OfProgram(self.code),
        }
    }
}

/// Begins a new store for `[acl]`.
///
/// # Errors
/// The configuration has no such section, or a store exists.
#[cfg(feature = "acl")]
pub(super) async fn begin_store(config: &Config) -> anyhow::Result<()> {
    let server = config.acl.as_ref().context("--new-store is given, and the configuration has no [acl]")?;
    Ok(keyward_acl::begin_store(&server.service).await?)
}

/// The sockets that the service manager passed.
pub(super) fn take_activated_sockets(environment: &Environment) -> std::io::Result<ActivatedSockets> {
    let variable = |name: &str| environment.variables.get(name).map(String::as_str);
    ActivatedSockets::take(variable("LISTEN_PID"), variable("LISTEN_FDS"), variable("LISTEN_FDNAMES"))
}

/// One thread suits an agent; the ACL server also signs and stores, which takes more.
#[cfg_attr(not(feature = "acl"), expect(unused_variables, reason = "only the ACL server makes a difference"))]
pub(super) fn runtime(config: &Config) -> std::io::Result<tokio::runtime::Runtime> {
    #[cfg(feature = "acl")]
    if config.acl.is_some() {
        return Builder::new_multi_thread().max_blocking_threads(MAX_BLOCKING_THREADS).enable_all().build();
    }
    Builder::new_current_thread().max_blocking_threads(MAX_BLOCKING_THREADS).enable_all().build()
}

/// Threads for work that blocks: files, and lookups of names, which take half of them at most. A thousand sessions that write their
/// tokens at once would start hundreds, each with memory of its own, for work that the disk does one by one.
const MAX_BLOCKING_THREADS: usize = 12;

/// Starts the log with the settings of the command line, or those of the configuration. Returns a handle that changes
/// the level on reload, unless the command line sets it.
pub(super) fn start_log(choice: &LogChoice, log: &config::Log) -> anyhow::Result<(Logging, Option<LogLevel>)> {
    let targets = logging::targets(choice.level.as_ref().unwrap_or(log));
    let logging = logging::start(targets, choice.format.unwrap_or(log.format)).context("cannot start the log")?;
    let level = choice.level.is_none().then(|| logging.level.clone());
    Ok((logging, level))
}

/// The spawner with the ways to ask it, the sandbox, and what it allows.
pub(super) type EnteredSandbox = (Option<(SpawnerProcess, SpawnerConnection)>, SandboxReport, AllowedAccess);

/// Starts the spawner if the configuration of these files needs it, and then gives up all rights that it does not need.
pub(super) fn enter_sandbox(
    config: &Config,
    plan: &SandboxPlan,
    files: &[PathBuf],
    environment: &Environment,
) -> anyhow::Result<EnteredSandbox> {
    let mode = config.agent.sandbox;
    let has_spawner = mode != SandboxMode::Off && plan.needs_spawner();
    // Files that the agent can write are no proof of a program, so that those of a later configuration need a restart.
    let is_proof = mode != SandboxMode::Enforce || !plan.may_write(files);
    let files = if is_proof { files } else { &[] };
    let start = || SpawnerProcess::start(&plan.programs, files, &environment.variables);
    let spawner = has_spawner.then(start).transpose();
    let spawner = spawner.context("cannot start the helper process keyward-spawner")?;
    if mode != SandboxMode::Off {
        keyward_http::peer::check_tcp_owners();
    }
    let (allowed, report) = sandbox::apply(plan, mode, has_spawner)?;
    Ok((spawner, report, allowed))
}

/// Runs as the spawner of the agent that started this process, until that agent ends.
pub(super) fn run_spawner(descriptors: SpawnerDescriptors) -> Exit {
    let Err(error) = command::run_spawner(descriptors, read_programs);
    print_error(&format!("the helper process keyward-spawner cannot serve the agent: {error}"));
    Exit::Failed
}

/// Reads the programs of a configuration, as the spawner does: without the agent's variables, to which no command line refers. None are
/// in a configuration with errors, or in one that others can write.
fn read_programs(files: &[PathBuf]) -> ConfiguredPrograms {
    if files.is_empty() {
        return ConfiguredPrograms::default();
    }
    let environment = Environment::current();
    let outcome = config::load(files, &environment, Purpose::Check);
    let is_unsafe = |note: &Diagnostic| note.code == ErrorCode::UnsafePermissions && note.key.is_empty();
    if !outcome.errors.is_empty() || outcome.notes.iter().any(is_unsafe) {
        ConfiguredPrograms::default()
    } else {
        SandboxPlan::new(&outcome, files, &environment).programs
    }
}

/// A configuration that was read to run.
struct LoadedRun {
    config: Config,
    warnings: Vec<Diagnostic>,
    plan: SandboxPlan,
}

/// Reads the configuration, its warnings and the accesses that it needs. `allowed` has those of a running process.
fn load(run: &Run, environment: &Environment, allowed: Option<&AllowedAccess>) -> Result<LoadedRun, ReloadRejected> {
    let outcome = config::load(&run.files.config, environment, Purpose::Run);
    let plan = SandboxPlan::new(&outcome, &run.files.config, environment);
    let mut errors: Vec<String> = outcome.errors.iter().map(ToString::to_string).collect();
    let missing = allowed.map(|allowed| allowed.missing_here(&plan)).unwrap_or_default();
    if !missing.is_empty() {
        let needs = missing.join(", ");
        let advice = "run `systemctl restart keyward`";
        errors.insert(0, format!("the new configuration needs more than the sandbox allows: it {needs}; {advice}"));
        return Err(ReloadRejected { errors, needs_restart: true });
    }
    let mut config = outcome.config.ok_or(errors)?;
    if run.exit_after_auth {
        config = once::retain_outputs(config).map_err(|error| vec![error])?;
    }
    Ok(LoadedRun { config, warnings: outcome.warnings, plan })
}

fn log_warnings(warnings: &[Diagnostic]) {
    for warning in warnings {
        let code = warning.code.as_str();
        tracing::warn!(event = "config.warning", code, "{warning}");
    }
}

/// Turns SIGTERM and SIGINT into a stop, SIGHUP into a reload; SIGUSR1, SIGUSR2 and SIGWINCH are for the child.
fn listen_for_signals(
    run: Run,
    environment: Environment,
    allowed: AllowedAccess,
) -> anyhow::Result<(Signals, impl Future<Output = anyhow::Result<()>>)> {
    let mut hangup = signal(SignalKind::hangup())?;
    let (reload, reloads) = mpsc::channel(1);
    let stop = CancellationToken::new();
    let (pass, passed) = mpsc::channel(16);
    let signals = Signals { stop: stop.clone(), reloads, for_child: passed };
    let mut first = signal(SignalKind::user_defined1())?;
    let mut second = signal(SignalKind::user_defined2())?;
    let mut window = signal(SignalKind::window_change())?;
    let stopped = stop_signals(stop)?;
    let relay = async move {
        tokio::pin!(stopped);
        loop {
            // While the child takes no signal, the queue may fill; further signals are lost, as pending ones are.
            let to_child = tokio::select! {
                Some(()) = hangup.recv() => None,
                Some(()) = first.recv() => Some(Signal::USR1),
                Some(()) = second.recv() => Some(Signal::USR2),
                Some(()) = window.recv() => Some(Signal::WINCH),
                ended = &mut stopped => return ended,
            };
            if let Some(signal) = to_child {
                let _ = pass.try_send(signal);
                continue;
            }
            // The channel holds one: a storm of signals becomes one reload after the other.
            // Off this thread: user databases and files may be slow.
            let run = run.clone();
            let environment = environment.clone();
            let allowed = allowed.clone();
            let loading = tokio::task::spawn_blocking(move || load(&run, &environment, Some(&allowed)));
            let reloading = async {
                let loaded = loading.await.unwrap_or_else(|error| Err(vec![error.to_string()].into()));
                let loaded = loaded.map(|LoadedRun { config, warnings, .. }| {
                    log_warnings(&warnings);
                    config
                });
                let _ = reload.send(loaded).await;
            };
            tokio::select! {
                () = reloading => {}
                ended = &mut stopped => return ended,
            }
        }
    };
    Ok((signals, relay))
}

/// Handles SIGTERM and SIGINT from now on; as process 1, the future also reaps orphans. It cancels `stop` on the first signal. Signals of the next second
/// are the same stop: a service manager and a shell may both send one.
///
/// # Errors
/// The handlers cannot be installed. The future ends with an error on a later signal: the sender wants the end at once.
pub(super) fn stop_signals(
    stop: CancellationToken,
) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + use<>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let mut first: Option<Instant> = None;
        let reaping = reap_orphans();
        tokio::pin!(reaping);
        loop {
            tokio::select! {
                Some(()) = term.recv() => {}
                Some(()) = interrupt.recv() => {}
                never = &mut reaping => match never? {},
            }
            match first {
                None => first = Some(Instant::now()),
                Some(first) if first.elapsed() < SIGNAL_COALESCE_TIME => {}
                Some(_) => anyhow::bail!("a second signal stopped keyward immediately"),
            }
            stop.cancel();
        }
    })
}

/// Signals that come within this time are one.
const SIGNAL_COALESCE_TIME: Duration = Duration::from_secs(1);
