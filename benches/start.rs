//! The agent as a process: time from its start to the first served token, with TLS to the server; memory and wake-ups when idle;
//! growth with the number of sessions that each write a token file.
//! `start PROGRAM [ROUNDS] [IDLE SECONDS] [SESSIONS]...`; PROGRAM is the binary that packages carry (`cargo build --profile dist`).
//!
//! Runs itself again in a network namespace, where the emulated Azure has the real address of the metadata service.
//! Each time is printed with the time of the same two requests to the emulated servers without an agent.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    missing_docs
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use keyward_emulators::cloud::{self, Cloud};
use keyward_emulators::secrets::{self, Bounds, Role, Secrets, Verification};
use keyward_http::tls::ServerCertificate;
use keyward_machine::clock::Clock;
use keyward_machine::tasks::TaskGroup;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_util::sync::CancellationToken;

const RESOURCE: &str = "https://management.azure.com/";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let Some(program) = arguments.first() else {
        return println!("start PROGRAM [ROUNDS] [IDLE SECONDS] [SESSIONS]...");
    };
    let number = |index: usize, default| arguments.get(index).map_or(default, |text| text.parse().unwrap());
    if std::env::vars_os().any(|(name, _)| name == "KEYWARD_BENCH_INSIDE") {
        let sessions = arguments.get(3..).unwrap_or_default().iter().map(|text| text.parse().unwrap()).collect();
        return measure(program, number(1, 21), number(2, 30), sessions);
    }
    let executable = std::env::current_exe().unwrap();
    let status =
        Command::new("unshare").arg("--net").arg(executable).args(&arguments).env("KEYWARD_BENCH_INSIDE", "1").status();
    assert!(status.unwrap().success());
}

/// Number of templates, besides the proxy and its cache.
const TEMPLATES: usize = 10;

/// Maximum resident memory of an idle agent with proxy, cache and templates.
const MAX_IDLE_KIB: u64 = 20 * 1024;

/// Measures an idle agent once `is_ready` returns true; returns its resident KiB and its wake-ups per second.
fn measure_idle(program: &str, config: &str, seconds: u64, is_ready: impl Fn() -> bool) -> (u64, f64) {
    let child = Agent::start(program, config);
    let start = Instant::now();
    while !is_ready() {
        assert!(start.elapsed() < Duration::from_mins(1), "the agent is not ready after a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_secs(2));
    let before = child.context_switches();
    std::thread::sleep(Duration::from_secs(seconds));
    let wakes = wake_ups(&before, &child.context_switches());
    (child.field("VmRSS:"), wakes as f64 / seconds as f64)
}

fn wake_ups(before: &BTreeMap<PathBuf, u64>, after: &BTreeMap<PathBuf, u64>) -> u64 {
    after.iter().map(|(thread, count)| count - before.get(thread).unwrap_or(&0)).sum()
}

fn measure(program: &str, rounds: u64, idle: u64, sessions: Vec<usize>) {
    for command in ["link set lo up", "addr add 169.254.169.254/32 dev lo"] {
        assert!(Command::new("ip").args(command.split(' ')).status().unwrap().success());
    }
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut tasks = TaskGroup::new(CancellationToken::new());
    let url = runtime.block_on(async { start_servers(folder.path(), &mut tasks) });
    let config = write_config(folder.path(), &url);
    let socket = folder.path().join("api.sock");

    for count in sessions {
        measure_growth(program, folder.path(), &url, count, idle);
    }
    let (mut agent_times, mut server_times) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        server_times.push(runtime.block_on(time_servers(folder.path(), &url)));
        // The state of earlier starts would delay this one: the agent slows down loops of restarts.
        std::fs::remove_dir_all(folder.path().join("state")).unwrap();
        std::fs::create_dir(folder.path().join("state")).unwrap();
        let start = Instant::now();
        let child = Agent::start(program, &config);
        while !serves_token(&socket) {
            assert!(start.elapsed() < Duration::from_secs(20), "no token after 20 s");
            std::thread::sleep(Duration::from_micros(200));
        }
        agent_times.push(start.elapsed());
        drop(child);
    }
    let (agent, servers) = (median(agent_times), median(server_times));
    println!(
        "start_to_token_ms={:.1} servers_ms={:.1} above_ms={:.1}",
        millis(agent),
        millis(servers),
        millis(agent.saturating_sub(servers))
    );
    let (resident_kib, wakes) = measure_idle(program, &config, idle, || serves_token(&socket));
    let size = std::fs::metadata(program).unwrap().len();
    println!("idle_rss_kib={resident_kib} idle_wakeups_per_second={wakes:.2} binary_bytes={size}");
    let config = write_full_config(folder.path());
    let all_rendered = || (1..=TEMPLATES).all(|at| folder.path().join(format!("rendered-{at}")).exists());
    let cache_hit = || has_cache_hit(&folder.path().join("vault.sock"));
    let is_ready = || serves_token(&socket) && all_rendered() && cache_hit();
    let (resident_kib, wakes) = measure_idle(program, &config, idle, is_ready);
    println!(
        "idle_rss_with_proxy_cache_and_templates_kib={resident_kib} idle_wakeups_per_second={wakes:.2} templates={TEMPLATES}"
    );
    assert!(resident_kib < MAX_IDLE_KIB, "{resident_kib} KiB of an idle agent, maximum {MAX_IDLE_KIB}");
}

/// Measures an agent with `count` sessions, each with a token file: the time until all are written, and what it takes then. Tokens are
/// not looked up, so that nothing is due while it is idle.
fn measure_growth(program: &str, folder: &Path, url: &str, count: usize, seconds: u64) {
    let folder = tempfile::tempdir_in(folder).unwrap();
    let sinks = folder.path().join("sinks");
    std::fs::create_dir(&sinks).unwrap();
    let path = folder.path().join("keyward.toml");
    let ca = folder.path().with_file_name("ca.pem");
    let mut text = format!("[server.main]\nkind = \"vault\"\naddress = \"{url}\"\nca_file = \"{}\"\n", ca.display());
    for at in 0..count {
        write!(
            text,
            "[session.s{at}]\ncheck_interval = \"off\"\n[session.s{at}.cloud]\nrole = \"web\"\nresource = \"{RESOURCE}\"\n\
             [sink.s{at}]\nsession = \"s{at}\"\npath = \"{}/{at}\"\n",
            sinks.display()
        )
        .unwrap();
    }
    std::fs::write(&path, text).unwrap();
    let start = Instant::now();
    let child = Agent::start(program, &path.display().to_string());
    let mut threads = 0;
    let is_token = |name: &std::ffi::OsStr| !name.as_encoded_bytes().starts_with(b".");
    let written =
        || std::fs::read_dir(&sinks).unwrap().filter(|file| is_token(&file.as_ref().unwrap().file_name())).count();
    while written() < count {
        assert!(start.elapsed() < Duration::from_mins(2), "{} sinks are written after two minutes", written());
        threads = threads.max(child.field("Threads:"));
        std::thread::sleep(Duration::from_millis(1 + count as u64 / 50));
    }
    let (time, busy) = (start.elapsed(), child.cpu_ticks());
    // Threads without work end after 10 s, and the pages of code that ran once are released after 4 s.
    std::thread::sleep(Duration::from_secs(12));
    let (ticks, before) = (child.cpu_ticks(), child.context_switches());
    std::thread::sleep(Duration::from_secs(seconds));
    let idle_ticks = child.cpu_ticks() - ticks;
    println!(
        "sessions={count} written_ms={:.0} cpu_ms={} most_threads={threads} threads={} descriptors={} rss_kib={} \
         idle_cpu_ms_per_second={:.1} idle_wakeups_per_second={:.2}",
        millis(time),
        busy * 10,
        child.field("Threads:"),
        std::fs::read_dir(format!("/proc/{}/fd", child.0.id())).unwrap().count(),
        child.field("VmRSS:"),
        idle_ticks as f64 * 10.0 / seconds as f64,
        wake_ups(&before, &child.context_switches()) as f64 / seconds as f64
    );
}

/// Starts the emulated Azure and Vault; returns the URL of Vault.
fn start_servers(folder: &Path, tasks: &mut TaskGroup) -> String {
    let mut options = cloud::CloudOptions::in_folder(folder.join("cloud"));
    options.metadata = "169.254.169.254:80".parse().unwrap();
    let cloud = Cloud::start(options, tasks).unwrap();
    let bounds =
        Bounds { service_principal_ids: vec![cloud.identities().system.object_id.clone()], ..Bounds::default() };
    let mut options = secrets::SecretsOptions::for_anyone(Clock::System, "web", Role { bounds, ..Role::default() });
    options.verification = Verification::Cloud {
        discovery: format!("{}.well-known/openid-configuration", cloud.issuer()).parse().unwrap(),
        ca_file: cloud.ca_file(),
        audience: RESOURCE.to_owned(),
    };
    options.tls = Some(write_certificate(folder).server().unwrap());
    Secrets::start(options, tasks).unwrap().url().to_owned()
}

/// Writes a CA, and a server certificate of it.
fn write_certificate(folder: &Path) -> ServerCertificate {
    let key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_certificate = ca.self_signed(&key).unwrap();
    std::fs::write(folder.join("ca.pem"), ca_certificate.pem()).unwrap();
    let issuer = Issuer::new(ca, key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let files = ServerCertificate {
        certificate: folder.join("server.pem"),
        key: folder.join("server.key"),
        is_awaited: false,
        client_ca: None,
    };
    std::fs::write(&files.certificate, leaf.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    files
}

fn write_config(folder: &Path, url: &str) -> String {
    let (path, state) = (folder.join("keyward.toml"), folder.join("state"));
    std::fs::create_dir(&state).unwrap();
    let folder = folder.display();
    let text = format!(
        "[server.main]\nkind = \"vault\"\naddress = \"{url}\"\nca_file = \"{folder}/ca.pem\"\n\
         [session.web.cloud]\nrole = \"web\"\nresource = \"{RESOURCE}\"\n\
         [listener.local]\naddress = \"unix://{folder}/api.sock\"\n[agent]\nstate_dir = \"{}\"\n",
        state.display()
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Adds an API proxy, its cache, and templates that each read a secret; returns the path of the new file.
fn write_full_config(folder: &Path) -> String {
    let path = folder.join("whole.toml");
    let mut text = std::fs::read_to_string(folder.join("keyward.toml")).unwrap();
    let folder = folder.display();
    let proxy = "[listener.vault]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/vault.sock\"\n[listener.vault.cache]\n\
                 max_age = \"1h\"\n";
    text.push_str(&proxy.replace("FOLDER", &folder.to_string()));
    for at in 1..=TEMPLATES {
        let contents = "{{ with secret \"secret/data/example\" }}{{ range $k, $v := .Data.data }}{{ $k }}={{ $v }};{{ end }}{{ end }}";
        let section = format!("[template.t{at}]\ndestination = \"{folder}/rendered-{at}\"\ncontents = '{contents}'\n");
        text.push_str(&section);
    }
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Measures how long the servers take for a new client's identity request and login.
async fn time_servers(folder: &Path, url: &str) -> Duration {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(folder.join("ca.pem")).unwrap()).unwrap();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).build().unwrap();
    let start = Instant::now();
    let metadata = format!(
        "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource={}",
        url::form_urlencoded::byte_serialize(RESOURCE.as_bytes()).collect::<String>()
    );
    let response: serde_json::Value =
        client.get(metadata).header("metadata", "true").send().await.unwrap().json().await.unwrap();
    let body = serde_json::json!({ "role": "web", "jwt": response["access_token"] });
    let login = client.post(format!("{url}/v1/auth/azure/login")).json(&body).send().await.unwrap();
    assert!(login.status().is_success(), "{}", login.text().await.unwrap());
    start.elapsed()
}

/// Returns true once the local API serves a token.
fn serves_token(socket: &Path) -> bool {
    get(socket, "/agent/v1/token?wait=10s").starts_with("HTTP/1.1 200")
}

/// Returns true once the proxy's cache serves a value.
fn has_cache_hit(socket: &Path) -> bool {
    let response = get(socket, "/v1/secret/data/example");
    response.starts_with("HTTP/1.1 200") && response.to_ascii_lowercase().contains("x-cache: hit")
}

/// Sends a `GET` and returns the response; empty if there is none.
fn get(socket: &Path, path: &str) -> String {
    let exchange = |mut stream: UnixStream| {
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Vault-Request: true\r\nConnection: close\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok::<_, std::io::Error>(response)
    };
    UnixStream::connect(socket).and_then(exchange).unwrap_or_default()
}

/// A running agent. Dropping it stops the process and waits for its end.
struct Agent(Child);

impl Agent {
    fn start(program: &str, config: &str) -> Self {
        let mut command = Command::new(program);
        command.args(["--log-level", "error", "run", "--config", config]).env_clear().stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Returns the voluntary context switches of each thread, each of which ends with a wake-up.
    fn context_switches(&self) -> BTreeMap<PathBuf, u64> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        let threads = threads.map(|thread| thread.unwrap().path());
        let status = |thread: &PathBuf| std::fs::read_to_string(thread.join("status")).unwrap();
        threads.map(|thread| (thread.clone(), parse_field(&status(&thread), "voluntary_ctxt_switches:"))).collect()
    }

    /// Returns a number of the process's status, such as `VmRSS:` in KiB.
    fn field(&self, name: &str) -> u64 {
        parse_field(&std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap(), name)
    }

    /// Returns the CPU time of user and system, in hundredths of a second.
    fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
        fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_raw(self.0.id().cast_signed()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }
}

/// Returns the number after a name in a `/proc` status file.
fn parse_field(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
