//! The spawner: a process that starts programs, and opens the executables of others, for an agent that has given up its own
//! rights.
//!
//! A sandbox and dropped capabilities pass on to child processes and cannot be undone. So the agent starts this process
//! first, by executing its own file again: a fork of a running program could copy locks that another thread holds. The
//! programs are children of this process and keep the rights that the agent was started with. When the agent ends, the
//! stream ends, this process exits, and the kernel sends SIGTERM to the programs.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::executable_opener::{ExecutableOpener, serve_executables};
use super::spawner_messages::{
    ChildId, ConfiguredPrograms, Reply, Request, SystemError, Variables, encode, receive, write_frames,
};
use super::{ChildProcess, CommandSpec, EnvVars, is_reserved};
use crate::secret_string::SecretString;

/// The running spawner, as the agent holds it.
#[derive(Debug)]
pub struct SpawnerProcess(Child);

/// Ways to ask the spawner.
#[derive(Debug)]
pub struct SpawnerConnection {
    /// Starts programs.
    pub stream: StdUnixStream,
    /// Opens executables.
    pub executables: ExecutableOpener,
}

impl SpawnerProcess {
    /// Starts the spawner, which runs only these programs, and those that the configuration's `files` have later. `environment` are
    /// the variables of this process. Returns it with the ways to ask it.
    pub fn start(
        programs: &ConfiguredPrograms,
        files: &[PathBuf],
        environment: &BTreeMap<String, String>,
    ) -> io::Result<(Self, SpawnerConnection)> {
        use rustix::io::{FdFlags, fcntl_setfd};
        let (stream, spawner_stream) = StdUnixStream::pair()?;
        let (executables, spawner_socket) = ExecutableOpener::through_spawner()?;
        // No other thread exists that could start a program meanwhile and pass the descriptors on.
        fcntl_setfd(&spawner_stream, FdFlags::empty())?;
        fcntl_setfd(&spawner_socket, FdFlags::empty())?;
        // Programs get the variables of their own; the agent's hold its identity.
        let child = Command::new("/proc/self/exe")
            .arg0(PROGRAM_NAME)
            .args([spawner_stream.as_raw_fd().to_string(), spawner_socket.as_raw_fd().to_string()])
            .env_clear()
            .process_group(0)
            .spawn()?;
        // First, and while nothing from outside has reached this process.
        let passed = environment.iter().filter(|(name, _)| !is_reserved(name));
        let passed = Variables(passed.map(|(name, value)| (name.clone(), value.clone())).collect());
        (&stream).write_all(&encode(&(programs, files, passed))?)?;
        stream.set_nonblocking(true)?;
        Ok((Self(child), SpawnerConnection { stream, executables }))
    }

    /// Waits for the spawner's end, which follows that of the stream; kills it after a second.
    #[expect(clippy::disallowed_methods, reason = "the runtime, whose time tests can drive, has ended")]
    pub fn wait(mut self) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Name under which the program is the spawner.
const PROGRAM_NAME: &str = "keyward-spawner";

/// Descriptors that the agent passes to the spawner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnerDescriptors {
    stream: i32,
    executables: i32,
}

/// Returns the descriptors if the command line is that of the spawner.
pub fn parse_spawner_invocation(mut arguments: impl Iterator<Item = OsString>) -> Option<SpawnerDescriptors> {
    (arguments.next()? == PROGRAM_NAME).then_some(())?;
    let mut descriptor = || arguments.next()?.to_str()?.parse().ok().filter(|descriptor| *descriptor > 2);
    let descriptors = SpawnerDescriptors { stream: descriptor()?, executables: descriptor()? };
    (descriptors.stream != descriptors.executables && arguments.next().is_none()).then_some(descriptors)
}

/// Reads the programs that the files of a configuration have now.
pub(super) type ReadPrograms = fn(&[PathBuf]) -> ConfiguredPrograms;

/// Runs the spawner until the agent closes the stream. Never returns to the caller's stack: the programs get SIGTERM from the
/// kernel, as when the agent itself ends, and not the SIGKILL of a dropped child process.
#[expect(clippy::disallowed_methods, reason = "the destructors of children kill them")]
pub fn run_spawner(
    descriptors: SpawnerDescriptors,
    read_programs: ReadPrograms,
) -> io::Result<std::convert::Infallible> {
    // execve(2) has made the process dumpable again.
    crate::os::forbid_core_dumps()?;
    let stream = StdUnixStream::from(crate::os::take_passed_socket(descriptors.stream)?);
    stream.set_nonblocking(true)?;
    let executables = crate::os::take_passed_socket(descriptors.executables)?;
    std::thread::Builder::new().name("executables".to_owned()).spawn(move || serve_executables(&executables))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut tasks = JoinSet::new();
    let ended = runtime.block_on(async {
        // A service manager signals the whole group: the agent ends the programs in its order, so these are ignored. A
        // handler does not pass on to programs, as SIG_IGN would.
        let ignored = [
            SignalKind::hangup(),
            SignalKind::interrupt(),
            SignalKind::quit(),
            SignalKind::terminate(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ];
        let _ignored: Vec<_> = ignored.into_iter().map(signal).collect::<io::Result<_>>()?;
        serve(UnixStream::from_std(stream)?, read_programs, &mut tasks).await
    });
    std::process::exit(i32::from(ended.is_err()))
}

/// Error of a program that the configuration does not have.
const NOT_LISTED: &str =
    "no file of the configuration that keyward cannot write has this command with these variables; restart keyward";

/// Programs that may run.
#[derive(Debug)]
struct AllowedPrograms {
    /// Those of the configuration that the agent was started with, and those that were found in its files since.
    known: Mutex<ConfiguredPrograms>,
    /// Files of the configuration, which may have changed. The agent cannot write them.
    files: Vec<PathBuf>,
    /// Variables that the agent was started with. A linker or a shell runs what a variable names, so that no other value is passed.
    environment: Variables,
    read: ReadPrograms,
}

impl AllowedPrograms {
    async fn contains(self: Arc<Self>, spec: CommandSpec) -> bool {
        if self.has(&self.known.lock(), &spec) {
            return true;
        }
        // Off this thread: files may be slow.
        let reading = tokio::task::spawn_blocking(move || {
            let read = (self.read)(&self.files);
            let is_listed = self.has(&read, &spec);
            if is_listed {
                // The files may have errors when the program is started again; the agent keeps its configuration then.
                let mut known = self.known.lock();
                known.commands.insert(spec.command);
                known.variables.extend(read.variables);
            }
            is_listed
        });
        reading.await.unwrap_or(false)
    }

    fn has(&self, programs: &ConfiguredPrograms, spec: &CommandSpec) -> bool {
        let may_pass = |name: &str, value: &SecretString| {
            programs.variables.contains(name)
                || self.environment.0.get(name).is_some_and(|passed| passed == value.expose_secret())
        };
        programs.commands.contains(&spec.command) && spec.variables.0.iter().all(|(name, value)| may_pass(name, value))
    }
}

/// Order to a child process.
enum Order {
    Signal(Signal),
    Kill,
}

/// Serves requests until the stream ends. The caller keeps the tasks, each of which has a child.
async fn serve(stream: UnixStream, read: ReadPrograms, tasks: &mut JoinSet<()>) -> io::Result<()> {
    let (mut requests, replies) = stream.into_split();
    let Some((known, files, environment)) = receive(&mut requests).await? else { return Ok(()) };
    let allowed = Arc::new(AllowedPrograms { known: Mutex::new(known), files, environment, read });
    let (sender, frames) = mpsc::unbounded_channel();
    tasks.spawn(write_frames(replies, frames));
    let mut children: HashMap<ChildId, mpsc::UnboundedSender<Order>> = HashMap::new();
    while let Some(request) = receive::<Request>(&mut requests).await? {
        match request {
            Request::Start { id, command, variables, input } => {
                children.retain(|_, orders| !orders.is_closed());
                while tasks.try_join_next().is_some() {}
                let variables =
                    variables.0.iter().map(|(name, value)| (name.clone(), SecretString::from(value.as_str())));
                let spec = CommandSpec { command, variables: EnvVars(variables.collect()) };
                let (orders, received) = mpsc::unbounded_channel();
                children.insert(id, orders);
                let sender = sender.clone();
                let allowed = allowed.clone().contains(spec.clone());
                tasks.spawn(async move {
                    let started =
                        if allowed.await { spec.start(input, None).await } else { Err(io::Error::other(NOT_LISTED)) };
                    match started {
                        Ok(child) => {
                            reply(&sender, &Reply::Started { id, pid: child.id().unwrap_or_default() });
                            supervise(id, child, received, &sender).await;
                        }
                        Err(error) => reply(&sender, &Reply::Failed { id, error: (&error).into() }),
                    }
                });
            }
            Request::Signal { id, signal } => {
                if let (Some(orders), Some(signal)) = (children.get(&id), Signal::from_named_raw(signal)) {
                    let _ = orders.send(Order::Signal(signal));
                }
            }
            Request::Kill { id } => {
                if let Some(orders) = children.get(&id) {
                    let _ = orders.send(Order::Kill);
                }
            }
        }
    }
    Ok(())
}

async fn supervise(
    id: ChildId,
    mut child: ChildProcess,
    mut orders: mpsc::UnboundedReceiver<Order>,
    sender: &mpsc::UnboundedSender<Vec<u8>>,
) {
    use std::os::unix::process::ExitStatusExt;
    let ended = loop {
        tokio::select! {
            ended = child.wait() => break ended,
            Some(order) = orders.recv() => match order {
                Order::Signal(signal) => child.signal(signal),
                Order::Kill => child.kill(),
            },
        }
    };
    let status = ended.map(ExitStatusExt::into_raw).map_err(|error| SystemError::from(&error));
    reply(sender, &Reply::Ended { id, status });
}

/// Queues a reply. Replies are small: they always fit a frame.
fn reply(sender: &mpsc::UnboundedSender<Vec<u8>>, reply: &Reply) {
    if let Ok(frame) = encode(reply) {
        let _ = sender.send(frame);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[test]
    fn only_the_spawners_name_with_two_descriptors_is_its_command_line() {
        let check = |line: &str, expected| {
            let arguments = line.split(' ').map(OsString::from);
            assert_eq!(parse_spawner_invocation(arguments), expected, "{line}");
        };
        check("keyward-spawner 5 6", Some(SpawnerDescriptors { stream: 5, executables: 6 }));
        check("keyward-spawner 2 6", None);
        check("keyward-spawner 5 5", None);
        check("keyward-spawner 5", None);
        check("keyward-spawner 5 6 7", None);
        check("keyward-spawner", None);
        check("keyward-spawner x 6", None);
        check("keyward 5 6", None);
    }

    #[tokio::test]
    async fn only_programs_of_the_configuration_are_started_with_its_variables() {
        let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let variables = |pairs: &[(&str, &str)]| {
            Variables(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        let (agent, spawner) = UnixStream::pair().unwrap();
        // The files have errors after the first program that was found in them.
        let read: ReadPrograms = |files| {
            static READS: AtomicUsize = AtomicUsize::new(0);
            let is_sound = READS.fetch_add(1, Ordering::Relaxed) < 8;
            let commands = files.iter().filter(|_| is_sound).map(|file| vec![file.display().to_string()]).collect();
            ConfiguredPrograms { commands, variables: BTreeSet::from(["PASSWORD".to_owned()]) }
        };
        let mut serving = JoinSet::new();
        serving.spawn(async move { serve(spawner, read, &mut JoinSet::new()).await });
        let (mut replies, mut requests) = agent.into_split();
        let mut send = async |frame: Vec<u8>| requests.write_all(&frame).await.unwrap();
        let known = ConfiguredPrograms {
            commands: BTreeSet::from([command(&["/bin/true", "-x"])]),
            variables: BTreeSet::from(["PASSWORD".to_owned()]),
        };
        let environment = variables(&[("PATH", "/usr/bin:/bin")]);
        send(encode(&(known, [PathBuf::from("/bin/false")], environment)).unwrap()).await;
        let listed: &[&str] = &["/bin/true", "-x"];
        for (words, pairs) in [
            (&["/bin/true"][..], &[][..]),
            (&["/bin/true", "-y"], &[]),
            (&["/bin/true", "-x", "-y"], &[]),
            (&["/bin/sh", "-x"], &[]),
            (listed, &[("LD_PRELOAD", "/tmp/evil.so")]),
            (listed, &[("PATH", "/tmp")]),
            (&["/bin/false"], &[("LD_PRELOAD", "/tmp/evil.so")]),
        ] {
            send(encode(&start(1, command(words), variables(pairs))).unwrap()).await;
            let reply = receive::<Reply>(&mut replies).await.unwrap().unwrap();
            let Reply::Failed { id: 1, error } = reply else { panic!("{words:?}: {reply:?}") };
            assert_eq!(io::Error::from(error).to_string(), NOT_LISTED);
        }
        for words in [listed, &["/bin/false"], &["/bin/false"]] {
            let passed = variables(&[("PATH", "/usr/bin:/bin"), ("PASSWORD", "any")]);
            send(encode(&start(2, command(words), passed)).unwrap()).await;
            let reply = receive::<Reply>(&mut replies).await.unwrap().unwrap();
            let is_started = matches!(reply, Reply::Started { id: 2, .. });
            assert!(is_started, "{words:?}: {reply:?}");
            let reply = receive::<Reply>(&mut replies).await.unwrap().unwrap();
            assert!(matches!(reply, Reply::Ended { id: 2, .. }), "{words:?}: {reply:?}");
        }
        drop((requests, replies));
        serving.join_next().await.unwrap().unwrap().unwrap();
    }

    fn start(id: ChildId, command: Vec<String>, variables: Variables) -> Request {
        Request::Start { id, command, variables, input: false }
    }
}
