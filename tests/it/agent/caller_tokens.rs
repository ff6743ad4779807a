//! Tokens of callers' own on a running agent, with processes of other users as callers.

mod process;
mod reloads;
mod shared;
mod waiting;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use keyward_emulators::secrets::{LoginMethod, Operation, Role, Secrets, SecretsOptions, TokenRole};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::agent::derived_tokens::{call, start_with};
use crate::harness::binary::{Binary, ask, eventually};

const JWT: &str = "eyJhbGciOiJub25lIn0.e30.c2ln";
const TOKEN: &str = "/agent/v1/token";

/// An agent with listeners that every user may open, and its server.
struct Scene {
    secrets: Secrets,
    agent: Binary,
    folder: tempfile::TempDir,
    _tasks: TaskGroup,
}

impl Scene {
    /// Starts both. `callers` follows the listeners in the configuration; root may do everything.
    fn start(callers: &str) -> Self {
        Self::start_with(callers, "revoke_on_exit = true\n")
    }

    fn start_with(callers: &str, session: &str) -> Self {
        Self::start_as(callers, session, Role::default())
    }

    /// Starts both; the session's token has the lifetime of this role.
    fn start_as(callers: &str, session: &str, role: Role) -> Self {
        let (mut tasks, folder) = (TaskGroup::default(), tempfile::tempdir().unwrap());
        let secrets = server(&mut tasks, role);
        let config = format!(
            "[listener.api]\naddress = \"unix://FOLDER/api.sock\"\nmode = \"0666\"\n\
             [listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/proxy.sock\"\nmode = \"0666\"\n\
             [listener.proxy.cache]\nmax_age = \"1m\"\n\
             [audit.main]\nkey_file = \"FOLDER/audit.key\"\npath = \"FOLDER/audit/audit.jsonl\"\n\
             {callers}[caller.ops]\nuid = \"0\"\n\
             routes = [\"token\", \"refresh\", \"proxy\", \"status\", \"health\"]\n"
        );
        std::fs::write(folder.path().join("audit.key"), "audit-key-0123456789-0123456789-01234").unwrap();
        std::fs::create_dir(folder.path().join("audit")).unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
        let agent = start_with(&secrets, folder.path(), session, &config);
        let scene = Self { secrets, agent, folder, _tasks: tasks };
        tokio::task::block_in_place(|| {
            eventually(Duration::from_secs(40), || match ask(&scene.socket("api"), "GET", "/readyz") {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}: {}", scene.agent.output())),
            });
        });
        scene
    }

    fn socket(&self, listener: &str) -> PathBuf {
        self.folder.path().join(format!("{listener}.sock"))
    }

    /// A request of a process of this user, which ends after it.
    fn ask_as(&self, uid: u32, listener: &str, path: &str) -> (u16, Value) {
        let (status, _, body) = Process::start(uid).ask(&self.socket(listener), path);
        (status, body)
    }

    /// The agent's status, as root sees it.
    fn status(&self) -> Value {
        let (status, body) = ask(&self.socket("api"), "GET", "/agent/v1/status").unwrap();
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn metric(&self, name: &str) -> u64 {
        let (_, text) = ask(&self.socket("api"), "GET", "/metrics").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(ToOwned::to_owned));
        line.map_or(0, |value| value.parse().unwrap())
    }

    fn count(&self, operation: Operation) -> u64 {
        self.secrets.faults().counts().get(operation)
    }

    fn is_alive(&self, token: &str) -> bool {
        self.secrets.remaining(token).is_some()
    }

    /// Changes the configuration and reloads it.
    fn reload(&self, edit: impl FnOnce(String) -> String) {
        let file = self.folder.path().join("keyward.toml");
        let text = edit(std::fs::read_to_string(&file).unwrap());
        std::fs::write(&file, text).unwrap();
        let name = "keyward_config_reloads_total{outcome=\"ok\"}";
        let before = self.metric(name);
        self.agent.signal(Signal::HUP);
        eventually(Duration::from_secs(30), || match self.metric(name) {
            after if after > before => Ok(()),
            after => Err(format!("{name} {after}: {}", self.agent.output())),
        });
    }
}

/// A server whose session has three policies: `a` and `b` allow one secret each, and `ops` everything.
fn server(tasks: &mut TaskGroup, role: Role) -> Secrets {
    let policies = ["a", "b", "ops"].map(str::to_owned).to_vec();
    let roles = BTreeMap::from([("ci".to_owned(), Role { policies, ..role })]);
    let method = LoginMethod::jwt(vec![SecretString::from(JWT)], roles);
    let allowed = |name: &str| (name.to_owned(), vec![format!("secret/data/{name}")]);
    let bound = |cidr: &str| TokenRole {
        allowed_policies: vec!["a".to_owned()],
        bound_cidrs: vec![cidr.to_owned()],
        ..TokenRole::default()
    };
    let token_roles = BTreeMap::from([
        ("here".to_owned(), bound("127.0.0.0/8")),
        ("elsewhere".to_owned(), bound("192.0.2.0/24")),
        ("batch".to_owned(), TokenRole { batch: true, ..TokenRole::default() }),
    ]);
    let options = SecretsOptions {
        methods: BTreeMap::from([("jwt".to_owned(), method)]),
        policies: BTreeMap::from([allowed("a"), allowed("b")]),
        token_roles,
        ..SecretsOptions::for_anyone(Clock::System, "dev", Role::default())
    };
    let secrets = Secrets::start(options, tasks).unwrap();
    secrets.faults().respond_as_openbao(false);
    secrets
}

/// Writes the secrets of both callers.
async fn put_secrets(scene: &Scene) {
    let raw = scene.secrets.token(&Role::default());
    for name in ["a", "b"] {
        let body = json!({ "data": { "password": format!("secret-of-{name}") } });
        let path = format!("secret/data/{name}");
        let (status, response) = call(&scene.secrets, raw.expose_secret(), &path, Some(body)).await;
        assert_eq!(status, 200, "{response}");
    }
}

/// A process of a user that sends requests, each on a connection of its own, until it is dropped.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

const PROCESS: &str = r#"
    use POSIX; use IO::Socket::UNIX; $| = 1;
    my ($id) = @ARGV;
    if ($id) { $) = "$id $id"; POSIX::setgid($id); POSIX::setuid($id); die 'uid' if $< != $id; }
    while (defined(my $line = <STDIN>)) {
        chomp $line; my ($path, $target) = split / /, $line;
        my $s = IO::Socket::UNIX->new(Peer => $path) or do { print "0 0 no connection\n"; next };
        print $s "GET $target HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\n\r\n";
        my $answer = do { local $/; <$s> } // '';
        my ($head, $body) = split /\r\n\r\n/, $answer, 2;
        my ($status) = $head =~ m{^HTTP/1.1 (\d+)}; my ($retry) = $head =~ m{retry-after: (\d+)}i;
        $body =~ s/\s+/ /g;
        print(($status // 0), ' ', ($retry // 0), " $body\n");
    }
"#;

impl Process {
    fn start(uid: u32) -> Self {
        let mut command = Command::new("perl");
        command.args(["-e", PROCESS, &uid.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Sends a request: status, `Retry-After` in seconds, and body.
    fn ask(&mut self, socket: &Path, path: &str) -> (u16, u64, Value) {
        self.send(socket, path);
        self.answer()
    }

    fn send(&mut self, socket: &Path, path: &str) {
        writeln!(self.input.as_mut().unwrap(), "{} {path}", socket.display()).unwrap();
    }

    fn answer(&mut self) -> (u16, u64, Value) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let mut parts = line.trim_end().splitn(3, ' ');
        let mut next = || parts.next().unwrap_or_default().to_owned();
        let (status, retry, body) = (next(), next(), next());
        (status.parse().unwrap(), retry.parse().unwrap(), serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    /// Reads its token.
    fn token(&mut self, scene: &Scene) -> String {
        let (status, _, body) = self.ask(&scene.socket("api"), TOKEN);
        assert_eq!(status, 200, "{body} {}", scene.agent.output());
        body["token"].as_str().unwrap().to_owned()
    }

    /// Ends it, and waits for that.
    fn end(&mut self) {
        drop(self.input.take());
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
