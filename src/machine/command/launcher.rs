//! Starts programs: as children of this process, or through its spawner.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::spawner_messages::{ChildId, Reply, Request, Variables, encode, receive, write_frames};
use super::{ChildProcess, CommandError, CommandSpec, describe_exit};
use crate::clock::Clock;

/// Starts programs. The default one starts them as children of this process; clones share a spawner.
#[derive(Debug, Clone)]
pub struct Launcher {
    spawner: Option<Connection>,
    /// Permits for programs that have not started yet.
    starting: Arc<Semaphore>,
}

/// Maximum of programs that have not started yet. Each has a thread and a process, which no signal ends while the file system
/// does not answer. Others wait.
const MAX_STARTING: usize = 16;

/// Behaviour of an emulated program.
#[cfg(any(test, feature = "test-support"))]
#[derive(Debug, Clone, Copy)]
pub enum EmulatedProgram {
    /// Nothing ends it.
    Unending,
    /// The first signal ends it.
    Obedient,
    /// It ends by itself.
    Ends {
        /// Its life.
        after: Duration,
        /// Its wait status (wait(2)).
        status: i32,
    },
}

/// Connection to a spawner. It ends with the last clone.
#[derive(Debug, Clone)]
struct Connection {
    client: SpawnerClient,
    _tasks: Arc<JoinSet<()>>,
}

impl Default for Launcher {
    fn default() -> Self {
        Self { spawner: None, starting: Arc::new(Semaphore::new(MAX_STARTING)) }
    }
}

impl Launcher {
    /// Connects to a spawner.
    pub fn connect(stream: StdUnixStream) -> io::Result<Self> {
        let (replies, requests) = UnixStream::from_std(stream)?.into_split();
        let (sender, frames) = mpsc::unbounded_channel();
        let client = SpawnerClient { sender, table: Arc::default(), ended: CancellationToken::new() };
        let mut tasks = JoinSet::new();
        tasks.spawn(write_frames(requests, frames));
        tasks.spawn(client.clone().dispatch(replies));
        let spawner = Some(Connection { client, _tasks: Arc::new(tasks) });
        Ok(Self { spawner, ..Self::default() })
    }

    /// Connects to a spawner whose programs start and never end, as those that the kernel cannot end.
    #[cfg(any(test, feature = "test-support"))]
    pub fn unending() -> Self {
        Self::emulated(|_| EmulatedProgram::Unending)
    }

    /// Connects to a spawner whose programs behave as `program` says of their command. One at a time starts or ends.
    #[cfg(any(test, feature = "test-support"))]
    #[expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "for tests; the task ends with the connection")]
    pub fn emulated(mut program: impl FnMut(&[String]) -> EmulatedProgram + Send + 'static) -> Self {
        use tokio::io::AsyncWriteExt as _;
        let (stream, spawner) = StdUnixStream::pair().unwrap();
        for end in [&stream, &spawner] {
            end.set_nonblocking(true).unwrap();
        }
        let mut spawner = UnixStream::from_std(spawner).unwrap();
        tokio::spawn(async move {
            let mut obedient = Vec::new();
            while let Ok(Some(request)) = receive::<Request>(&mut spawner).await {
                let end = match request {
                    Request::Start { id, command, .. } => {
                        spawner.write_all(&encode(&Reply::Started { id, pid: 4_000_000 }).unwrap()).await.unwrap();
                        match program(&command) {
                            EmulatedProgram::Unending => continue,
                            EmulatedProgram::Obedient => {
                                obedient.push(id);
                                continue;
                            }
                            EmulatedProgram::Ends { after, status } => {
                                tokio::time::sleep(after).await;
                                Reply::Ended { id, status: Ok(status) }
                            }
                        }
                    }
                    Request::Signal { id, signal } if obedient.contains(&id) => Reply::Ended { id, status: Ok(signal) },
                    Request::Signal { .. } | Request::Kill { .. } => continue,
                };
                spawner.write_all(&encode(&end).unwrap()).await.unwrap();
            }
        });
        Self::connect(stream).unwrap()
    }

    /// Waits until the spawner has ended; forever without one.
    pub async fn spawner_ended(&self) {
        match &self.spawner {
            Some(connection) => connection.client.ended.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Returns true if programs are started through a spawner.
    pub const fn has_spawner(&self) -> bool {
        self.spawner.is_some()
    }

    /// Starts a command as a child process. It shares this process's standard output and error, and its standard input if
    /// `input` is set. A file system that does not answer is waited for without a limit.
    pub async fn start(&self, spec: &CommandSpec, input: bool) -> io::Result<ChildProcess> {
        let permit = Arc::clone(&self.starting).acquire_owned().await.map_err(io::Error::other)?;
        match &self.spawner {
            Some(connection) => connection.client.start(spec, input, permit).await,
            None => spec.start(input, Some(permit)).await,
        }
    }

    /// Runs a command to its end, at most for `limit`; then it and its descendants are killed.
    pub async fn run(&self, spec: &CommandSpec, limit: Duration, clock: &Clock) -> Result<(), CommandError> {
        let mut timeout = pin!(clock.sleep(limit));
        let started = tokio::select! {
            started = self.start(spec, false) => started,
            () = &mut timeout => return Err(CommandError::StartTimedOut { after: limit }),
        };
        let mut child = started.map_err(CommandError::Start)?;
        let ended = tokio::select! {
            ended = child.wait() => ended,
            () = &mut timeout => return Err(CommandError::TimedOut { after: limit }),
        };
        match ended.map_err(CommandError::Start)? {
            status if status.success() => Ok(()),
            status => Err(CommandError::Failed(describe_exit(status))),
        }
    }
}

/// Stream to the spawner, and the children that were started through it.
#[derive(Debug, Clone)]
struct SpawnerClient {
    sender: mpsc::UnboundedSender<Vec<u8>>,
    table: Arc<Mutex<ChildTable>>,
    /// Cancelled when the spawner has ended.
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct ChildTable {
    last_id: ChildId,
    starting: HashMap<ChildId, StartingChild>,
    running: HashMap<ChildId, oneshot::Sender<io::Result<ExitStatus>>>,
}

/// A request to the spawner that has no reply yet.
#[derive(Debug)]
struct StartingChild {
    reply: oneshot::Sender<io::Result<SpawnedChild>>,
    _permit: OwnedSemaphorePermit,
}

/// A child process of the spawner.
#[derive(Debug)]
pub struct SpawnedChild {
    client: SpawnerClient,
    id: ChildId,
    pid: u32,
    ended: oneshot::Receiver<io::Result<ExitStatus>>,
    /// The process was waited for.
    has_ended: bool,
}

impl SpawnerClient {
    async fn start(&self, spec: &CommandSpec, input: bool, permit: OwnedSemaphorePermit) -> io::Result<ChildProcess> {
        let variables = spec.variables.0.iter();
        let variables = variables.map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect();
        let (reply, started) = oneshot::channel();
        let id = {
            let mut table = self.table.lock();
            // Under the lock: `dispatch` clears the table once, and a later entry would wait forever.
            if self.ended.is_cancelled() {
                return Err(spawner_ended());
            }
            table.last_id += 1;
            let id = table.last_id;
            table.starting.insert(id, StartingChild { reply, _permit: permit });
            id
        };
        let request = Request::Start { id, command: spec.command.clone(), variables: Variables(variables), input };
        if let Err(error) = self.send(&request) {
            self.table.lock().starting.remove(&id);
            return Err(error);
        }
        let child = started.await.unwrap_or_else(|_| Err(spawner_ended()))?;
        Ok(ChildProcess::Spawned(child))
    }

    fn send(&self, request: &Request) -> io::Result<()> {
        self.sender.send(encode(request)?).map_err(|_| spawner_ended())
    }

    /// Hands replies to those that wait for them, until the spawner ends.
    async fn dispatch(self, mut replies: OwnedReadHalf) {
        while let Ok(Some(reply)) = receive::<Reply>(&mut replies).await {
            match reply {
                Reply::Started { id, pid } => self.register(id, pid),
                Reply::Failed { id, error } => {
                    if let Some(starting) = self.table.lock().starting.remove(&id) {
                        let _ = starting.reply.send(Err(error.into()));
                    }
                }
                Reply::Ended { id, status } => {
                    if let Some(waiting) = self.table.lock().running.remove(&id) {
                        let _ = waiting.send(status.map(ExitStatus::from_raw).map_err(io::Error::from));
                    }
                }
            }
        }
        let mut table = self.table.lock();
        self.ended.cancel();
        table.starting.clear();
        table.running.clear();
    }

    fn register(&self, id: ChildId, pid: u32) {
        let (sender, ended) = oneshot::channel();
        let starting = {
            let mut table = self.table.lock();
            // Before the caller learns of it: the program may end at once, and its end must find the entry.
            table.running.insert(id, sender);
            table.starting.remove(&id)
        };
        let child = SpawnedChild { client: self.clone(), id, pid, ended, has_ended: false };
        // If nobody waits any more, dropping the child kills it.
        drop(starting.map(|starting| starting.reply.send(Ok(child))));
    }
}

impl SpawnedChild {
    pub(super) fn pid(&self) -> Option<u32> {
        (!self.has_ended).then_some(self.pid)
    }

    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let ended = (&mut self.ended).await.unwrap_or_else(|_| Err(spawner_ended()));
        self.has_ended = true;
        ended
    }

    pub(super) fn signal(&self, signal: Signal) {
        if !self.has_ended {
            let _ = self.client.send(&Request::Signal { id: self.id, signal: signal.as_raw() });
        }
    }

    pub(super) fn kill(&self) {
        if !self.has_ended {
            let _ = self.client.send(&Request::Kill { id: self.id });
        }
    }
}

impl Drop for SpawnedChild {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawner_ended() -> io::Error {
    io::Error::other("the helper process keyward-spawner has ended; restart keyward")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::EnvVars;

    #[tokio::test]
    async fn a_program_waits_for_a_permit_while_others_are_being_started() {
        let launcher = Launcher::default();
        let spec = CommandSpec { command: CommandSpec::shell_argv("exit 0"), variables: EnvVars::default() };
        let run = async |limit| launcher.run(&spec, limit, &Clock::System).await.map_err(|error| error.to_string());
        let permits = launcher.starting.acquire_many(u32::try_from(MAX_STARTING).unwrap()).await.unwrap();
        let error = run(Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(error, "it did not start within 0.05 s; its file system may be unresponsive");
        drop(permits);
        assert_eq!(run(Duration::from_secs(30)).await, Ok(()));
        assert_eq!(launcher.starting.available_permits(), MAX_STARTING, "each permit is given back");
    }
}
