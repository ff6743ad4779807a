//! A running agent in a small world: requests, signals and files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::binary::{Binary, ask, eventually};
use super::world::World;

/// An agent with the sink `token` and the listener `local`, in a temporary folder.
pub(crate) struct Agent {
    pub(crate) binary: Binary,
    pub(crate) config: PathBuf,
    folder: tempfile::TempDir,
}

impl Agent {
    /// Starts it with the world's configuration, changed by `edit`.
    pub(crate) fn start(world: &World, variables: &[(&str, &str)], edit: impl FnOnce(String) -> String) -> Self {
        Self::start_with(world, edit, |args, folder| Binary::start(args, variables, folder))
    }

    fn start_with(
        world: &World,
        edit: impl FnOnce(String) -> String,
        start: impl FnOnce(&[&str], &Path) -> Binary,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = world.config(folder.path(), "");
        let text =
            edit(std::fs::read_to_string(&config).unwrap()).replace("FOLDER", &folder.path().display().to_string());
        std::fs::write(&config, text).unwrap();
        std::fs::write(folder.path().join("seal.key"), "0123456789abcdef0123456789abcdef").unwrap();
        let binary = start(&["run", "--config", &config], folder.path());
        Self { binary, config: config.into(), folder }
    }

    /// The same, and waits until it is ready.
    pub(crate) fn ready(world: &World, variables: &[(&str, &str)], edit: impl FnOnce(String) -> String) -> Self {
        Self::start(world, variables, edit).until_ready()
    }

    /// Starts it after a shell has run `setup`, or in its place where that does not return.
    pub(crate) fn start_after(world: &World, setup: &str, edit: impl FnOnce(String) -> String) -> Self {
        Self::start_with(world, edit, |args, folder| {
            Binary::start_after(setup, args, &[("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")], folder)
        })
    }

    /// The same, and waits until it is ready.
    pub(crate) fn ready_after(world: &World, setup: &str, edit: impl FnOnce(String) -> String) -> Self {
        Self::start_after(world, setup, edit).until_ready()
    }

    fn until_ready(self) -> Self {
        let agent = self;
        eventually(Duration::from_secs(30), || match ask(&agent.socket(), "GET", "/readyz") {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}: {}", agent.binary.output())),
        });
        agent
    }

    /// Starts another process with the same files.
    pub(crate) fn restart(&mut self, variables: &[(&str, &str)]) {
        let config = self.config.display().to_string();
        self.binary = Binary::start(&["run", "--config", &config], variables, self.folder.path());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("api.sock")
    }

    /// Content of the sink's file, once it is not empty.
    pub(crate) fn sink(&self, name: &str) -> String {
        let path = self.path(name);
        eventually(Duration::from_secs(30), || match std::fs::read_to_string(&path) {
            Ok(text) if !text.is_empty() => Ok(text),
            other => Err(format!("{}: {other:?}; {}", path.display(), self.binary.output())),
        })
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = ask(&self.socket(), "GET", path).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The components of `/readyz`, ready or not.
    pub(crate) fn components(&self) -> Value {
        let (_, body) = ask(&self.socket(), "GET", "/readyz").unwrap();
        serde_json::from_str::<Value>(&body).unwrap()["components"].take()
    }

    /// The value of a metric, named with its labels; 0 if it is not there.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let (_, text) = ask(&self.socket(), "GET", "/metrics").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(ToOwned::to_owned));
        line.map_or(0, |value| value.parse().unwrap())
    }

    /// Changes the configuration file.
    pub(crate) fn edit(&self, edit: impl FnOnce(String) -> String) {
        let text = edit(std::fs::read_to_string(&self.config).unwrap());
        std::fs::write(&self.config, text.replace("FOLDER", &self.folder.path().display().to_string())).unwrap();
    }

    /// Sends SIGHUP and waits for a reload with this outcome.
    #[track_caller]
    pub(crate) fn reload(&self, outcome: &str) {
        let name = format!("keyward_config_reloads_total{{outcome=\"{outcome}\"}}");
        let before = self.metric(&name);
        self.binary.signal(Signal::HUP);
        eventually(Duration::from_secs(30), || match self.metric(&name) {
            after if after > before => Ok(()),
            after => Err(format!("{name} {after}: {}", self.binary.output())),
        });
    }

    /// Waits for something in its log.
    #[track_caller]
    pub(crate) fn logs(&self, text: &str) {
        self.binary.logs(text);
    }
}

/// Callers that request the token continuously, with a new connection each time.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    callers: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    pub(crate) fn start(socket: &Path, callers: usize) -> Self {
        let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let caller = |_| {
            let (socket, stop, calls) = (socket.to_owned(), Arc::clone(&stop), Arc::clone(&calls));
            std::thread::spawn(move || {
                let mut failed = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match ask(&socket, "GET", "/agent/v1/token") {
                        Ok((200, _)) => {}
                        other => failed.push(format!("{other:?}")),
                    }
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                failed
            })
        };
        let callers = (0..callers).map(caller).collect();
        Self { stop, calls, callers }
    }

    /// Stops them; returns the number of calls, and the failures.
    pub(crate) fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let failed = self.callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
        (self.calls.load(Ordering::Relaxed), failed)
    }
}
