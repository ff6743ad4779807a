//! The spawner: a process that starts programs, and opens the executables of others, for an agent that has given up its own
//! rights.
//!
//! A sandbox and dropped capabilities pass on to child processes and cannot be undone. So the agent starts this process
//! first, by executing its own file again: a fork of a running program could copy locks that another thread holds. The
//! programs are children of this process and keep the rights that the agent was started with. When the agent ends, the
//! stream ends, this process exits, and the kernel sends SIGTERM to the programs.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::executable_opener::{ExecutableOpener, serve_executables};
use super::spawner_messages::{ChildId, Reply, Request, SystemError, encode, receive, write_frames};
use super::{ChildProcess, CommandSpec, EnvVars};
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
    /// Starts the spawner, which runs only these command lines, and those that the configuration's files have later. Returns it with
    /// the ways to ask it.
    pub fn start(commands: &BTreeSet<Vec<String>>, files: &[PathBuf]) -> io::Result<(Self, SpawnerConnection)> {
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
        (&stream).write_all(&encode(&(commands, files))?)?;
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

/// Reads the command lines that the files of a configuration have now.
pub(super) type ReadCommands = fn(&[PathBuf]) -> BTreeSet<Vec<String>>;

/// Runs the spawner until the agent closes the stream. Never returns to the caller's stack: the programs get SIGTERM from the
/// kernel, as when the agent itself ends, and not the SIGKILL of a dropped child process.
#[expect(clippy::disallowed_methods, reason = "the destructors of children kill them")]
pub fn run_spawner(
    descriptors: SpawnerDescriptors,
    read_commands: ReadCommands,
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
        serve(UnixStream::from_std(stream)?, read_commands, &mut tasks).await
    });
    std::process::exit(i32::from(ended.is_err()))
}

/// Error of a command line that the configuration does not have.
const NOT_LISTED: &str = "no file of the configuration has this command";

/// Command lines that may run.
#[derive(Debug)]
struct AllowedCommands {
    /// Those of the configuration that the agent was started with.
    first: BTreeSet<Vec<String>>,
    /// Files of the configuration, which may have changed. The agent cannot write them.
    files: Vec<PathBuf>,
    read: ReadCommands,
}

impl AllowedCommands {
    async fn contains(self: Arc<Self>, command: Vec<String>) -> bool {
        if self.first.contains(&command) {
            return true;
        }
        let reading = tokio::task::spawn_blocking(move || (self.read)(&self.files).contains(&command));
        reading.await.unwrap_or(false)
    }
}

/// Order to a child process.
enum Order {
    Signal(Signal),
    Kill,
}

/// Serves requests until the stream ends. The caller keeps the tasks, each of which has a child.
async fn serve(stream: UnixStream, read: ReadCommands, tasks: &mut JoinSet<()>) -> io::Result<()> {
    let (mut requests, replies) = stream.into_split();
    let Some((first, files)) = receive(&mut requests).await? else { return Ok(()) };
    let allowed = Arc::new(AllowedCommands { first, files, read });
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
                let allowed = allowed.clone().contains(spec.command.clone());
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
    use std::collections::BTreeMap;

    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::command::spawner_messages::Variables;

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
    async fn only_command_lines_of_the_configuration_are_started() {
        let command = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (agent, spawner) = UnixStream::pair().unwrap();
        let read: ReadCommands = |files| files.iter().map(|file| vec![file.display().to_string()]).collect();
        let mut serving = JoinSet::new();
        serving.spawn(async move { serve(spawner, read, &mut JoinSet::new()).await });
        let (mut replies, mut requests) = agent.into_split();
        let mut send = async |frame: Vec<u8>| requests.write_all(&frame).await.unwrap();
        let first = BTreeSet::from([command(&["/bin/true", "-x"])]);
        send(encode(&(first, [PathBuf::from("/bin/false")])).unwrap()).await;
        let start = |id, words: &[&str]| {
            let variables = Variables(BTreeMap::new());
            encode(&Request::Start { id, command: command(words), variables, input: false }).unwrap()
        };
        for words in [&["/bin/true"][..], &["/bin/true", "-y"], &["/bin/true", "-x", "-y"], &["/bin/sh", "-x"]] {
            send(start(1, words)).await;
            let reply = receive::<Reply>(&mut replies).await.unwrap().unwrap();
            let Reply::Failed { id: 1, error } = reply else { panic!("{words:?}: {reply:?}") };
            assert_eq!(io::Error::from(error).to_string(), NOT_LISTED);
        }
        for words in [&["/bin/true", "-x"][..], &["/bin/false"]] {
            send(start(2, words)).await;
            let reply = receive::<Reply>(&mut replies).await.unwrap().unwrap();
            assert!(matches!(reply, Reply::Started { id: 2, .. }), "{words:?}: {reply:?}");
            let reply = receive::<Reply>(&mut replies).await.unwrap().unwrap();
            assert!(matches!(reply, Reply::Ended { id: 2, .. }), "{words:?}: {reply:?}");
        }
        drop((requests, replies));
        serving.join_next().await.unwrap().unwrap().unwrap();
    }
}
