//! Kills the real binary under load: a service manager's socket and the sealed state make it a pause, not an outage.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use keyward_emulators::secrets::{LoginMethod, Operation, Role, Secrets, SecretsOptions};
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::harness::binary::wait_until_token_saved;

const JWT: &str = "eyJhbGciOiJub25lIn0.e30.c2ln";

/// Kills of a run of the whole suite; `KEYWARD_KILLS=100` is the published figure.
const KILLS: usize = 10;

/// Time between two requests: 200 in a second.
const PERIOD: Duration = Duration::from_millis(5);

/// A socket of a service manager, and the agent that gets it, as often as it is started.
struct Activated {
    folder: tempfile::TempDir,
    socket: OwnedFd,
    agent: Option<Child>,
}

impl Activated {
    fn new(server: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = OwnedFd::from(UnixListener::bind(folder.path().join("api.sock")).unwrap());
        // systemd's backlog: more than the standard library's 128.
        rustix::net::listen(&socket, 4096).unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        put("jwt", JWT);
        put("seal.key", "0123456789-0123456789-0123456789-0123456789");
        let text = format!(
            "[agent]\nstate_dir = \"FOLDER\"\n[server.main]\nkind = \"vault\"\naddress = \"{server}\"\n\
             [session.web]\nseal_key_file = \"FOLDER/seal.key\"\n\
             [session.web.jwt]\nrole = \"ci\"\nfile = \"FOLDER/jwt\"\n\
             [listener.api]\naddress = \"systemd:api\"\n"
        );
        put("keyward.toml", &text.replace("FOLDER", &folder.path().display().to_string()));
        Self { folder, socket, agent: None }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("api.sock")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts the agent with the socket as its descriptor 3.
    fn start(&mut self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let shell = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=api exec \"$@\"";
        let agent = Command::new("sh")
            .args(["-c", shell, "sh", env!("CARGO_BIN_EXE_keyward"), "run", "--config"])
            .arg(self.folder.path().join("keyward.toml"))
            .env_clear()
            .stdin(Stdio::from(self.socket.as_fd().try_clone_to_owned().unwrap()))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.agent = Some(agent);
    }

    fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Result of one request.
#[derive(Debug)]
enum Outcome {
    Token(String),
    /// The connection was accepted by a process that was killed before it had answered.
    Reset,
    /// Anything else.
    Wrong(String),
}

/// One request on a connection of its own.
async fn request(path: &Path) -> Outcome {
    match UnixStream::connect(path).await {
        Ok(stream) => exchange(stream).await,
        Err(error) => Outcome::Wrong(format!("connect: {error}")),
    }
}

/// Sends the request, which waits for a token for longer than a restart takes, and reads the response.
async fn exchange(mut stream: UnixStream) -> Outcome {
    let head = "GET /agent/v1/token?wait=30s HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\n\
                Connection: close\r\n\r\n";
    let mut response = Vec::new();
    let exchange = async {
        stream.write_all(head.as_bytes()).await?;
        stream.read_to_end(&mut response).await
    };
    match tokio::time::timeout(Duration::from_mins(1), exchange).await {
        Err(_) => return Outcome::Wrong("no answer in a minute".to_owned()),
        Ok(Err(_) | Ok(0)) => return Outcome::Reset,
        Ok(Ok(_)) => {}
    }
    let text = String::from_utf8_lossy(&response);
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    let Ok(body) = serde_json::from_str::<serde_json::Value>(body) else {
        return if text.starts_with("HTTP/1.1 200 ") { Outcome::Reset } else { Outcome::Wrong(text.into_owned()) };
    };
    match body["token"].as_str() {
        Some(token) if text.starts_with("HTTP/1.1 200 ") => Outcome::Token(token.to_owned()),
        _ => Outcome::Wrong(text.into_owned()),
    }
}

/// Number of kills to make.
fn kills() -> usize {
    let variable = std::env::vars_os().find(|(name, _)| name == "KEYWARD_KILLS");
    variable.and_then(|(_, value)| value.to_str()?.parse().ok()).unwrap_or(KILLS)
}

/// Begin, end and outcome of a request.
type Span = (Instant, Instant, Outcome);

/// Sends a request each [`PERIOD`] until the token is cancelled; the task returns all of them.
fn start_load(path: &Path) -> (CancellationToken, JoinSet<Vec<Span>>) {
    let (path, stop) = (path.to_owned(), CancellationToken::new());
    let stopped = stop.clone();
    let mut load = JoinSet::new();
    load.spawn(async move {
        let (mut requests, mut period) = (JoinSet::new(), tokio::time::interval(PERIOD));
        while stopped.run_until_cancelled(period.tick()).await.is_some() {
            let path = path.clone();
            requests.spawn(async move {
                let began = Instant::now();
                let outcome = request(&path).await;
                (began, Instant::now(), outcome)
            });
        }
        requests.join_all().await
    });
    (stop, load)
}

/// Counts requests that were served, and those that were reset at a kill; every other outcome fails the test.
#[track_caller]
fn judge(spans: &[Span], kills: &[Instant], token: &str) -> (usize, usize) {
    let (mut served, mut reset) = (0, 0);
    for (began, ended, outcome) in spans {
        match outcome {
            Outcome::Token(found) => {
                assert_eq!(found, token, "another token");
                served += 1;
            }
            Outcome::Reset => {
                let in_flight = kills.iter().any(|kill| began <= kill && kill <= ended);
                assert!(in_flight, "a request was reset that no kill has hit");
                reset += 1;
            }
            Outcome::Wrong(text) => panic!("a wrong answer: {text}"),
        }
    }
    (served, reset)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_killed_again_and_again_refuses_no_caller_and_logs_in_once() {
    let mut tasks = TaskGroup::default();
    let roles = [("ci".to_owned(), Role { policies: vec!["ops".to_owned()], ..Role::default() })];
    let method = LoginMethod::jwt(vec![SecretString::from(JWT)], roles.into());
    let options = SecretsOptions {
        methods: [("jwt".to_owned(), method)].into(),
        ..SecretsOptions::for_anyone(keyward_machine::clock::Clock::System, "dev", Role::default())
    };
    let secrets = Secrets::start(options, &mut tasks).unwrap();
    let mut systemd = Activated::new(secrets.url());
    let path = systemd.path();
    systemd.start();
    let Outcome::Token(token) = request(&path).await else { panic!("no token: {}", systemd.log()) };
    let state = systemd.folder.path().join("web.state");
    tokio::task::block_in_place(|| wait_until_token_saved(&state));

    let kills = kills();
    let mut kill_times = Vec::new();
    let (stop, mut load) = start_load(&path);
    let (mut longest, mut accepted) = (Duration::ZERO, 0);
    for round in 0..kills {
        tokio::time::sleep(PERIOD * 20).await;
        kill_times.push(Instant::now());
        tokio::task::block_in_place(|| systemd.kill());
        let killed = Instant::now();
        // A caller that connects while nothing runs waits for the next process.
        let caller = UnixStream::connect(&path).await.expect("a caller is refused while no agent runs");
        systemd.start();
        match exchange(caller).await {
            Outcome::Token(found) if found == token => accepted += 1,
            other => panic!("after kill {round}: {other:?}\n{}", systemd.log()),
        }
        longest = longest.max(killed.elapsed());
    }
    stop.cancel();
    let spans = load.join_next().await.unwrap().unwrap();
    let (served, reset) = judge(&spans, &kill_times, &token);
    let summary = format!(
        "{kills} kills, {accepted} callers accepted after them: {} requests, {served} served, {reset} reset in flight, none refused; the longest pause {longest:?}",
        spans.len()
    );
    println!("{summary}");
    // How many are in flight at a kill depends on the machine's load; each reset one was.
    assert!(served > reset, "{summary}");
    assert_eq!(secrets.faults().counts().get(Operation::Login), 1, "{summary}\n{}", systemd.log());
}
