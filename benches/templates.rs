//! A thousand templates of which one changes: asserts one rendering per change, and measures the time from the change on the server to
//! the changed file. `templates [TEMPLATES] [CHANGES]` (1,000 and 50); against the emulated Vault in the same process.
//!
//! The secret that changes is read every 10 ms, which is part of the printed time. The time of a bare durable write of a file of that
//! size is printed for comparison.
#![allow(clippy::print_stdout, clippy::too_many_lines, clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyward_agent::output_watch::{OnMissing, OutputWatch};
use keyward_agent::secrets::{SecretRegistry, SecretRegistryDeps};
use keyward_agent::server_client::{self, ServerClient};
use keyward_agent::templates::{
    Encoding, Template, TemplateDeps, TemplateFile, TemplateOptions, TemplateSource, TemplateTask,
};
use keyward_agent::token::{ClientToken, Generation, Lease, Token, TokenKind};
use keyward_credentials::credential_watch::{Availability, RefreshSignal, credential_channel};
use keyward_emulators::secrets::{self, Role, Secrets};
use keyward_http::client;
use keyward_machine::atomic_file::{self, Attributes};
use keyward_machine::clock::Clock;
use keyward_machine::command::EnvVars;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const TEXT: &str = "{{ with secret \"secret/data/NAME\" -}}\n# from Vault\nuser = {{ .Data.data.user }}\n\
                    password = {{ .Data.data.password }}\n{{ range $i, $host := .Data.data.hosts }}host{{ $i }} = {{ $host }}\n\
                    {{ end }}{{ end }}";

/// The emulated Vault, and everything that the templates share.
struct Fixture {
    secrets: Secrets,
    upstream: ServerClient,
    token: SecretString,
    metrics: Metrics,
    health: Health,
    folder: tempfile::TempDir,
    running: JoinSet<()>,
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|it| it.parse().ok()).collect();
    let (templates, changes) =
        (numbers.first().copied().unwrap_or(1000).max(2), numbers.get(1).copied().unwrap_or(50).max(1));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run(templates, changes));
}

async fn run(templates: usize, changes: usize) {
    let mut tasks = TaskGroup::default();
    let options = secrets::SecretsOptions::for_anyone(Clock::System, "bench", Role::default());
    let secrets = Secrets::start(options, &mut tasks).unwrap();
    let upstream = ServerClient::build(&server_client::ServerClientOptions {
        name: "bench".to_owned(),
        kind: server_client::ServerKind::Vault,
        client: client::ClientOptions {
            address: client::ServerAddress::Url(secrets.url().parse().unwrap()),
            tls: client::TlsOptions::default(),
            proxy: client::ProxyMode::Direct,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
        },
        login_timeout: Duration::from_secs(10),
    })
    .unwrap();
    let token = secrets.token(&Role::default());
    let mut fixture = Fixture {
        secrets,
        upstream,
        token,
        metrics: Metrics::default(),
        health: Health::default(),
        folder: tempfile::tempdir_in("target").unwrap(),
        running: JoinSet::new(),
    };
    for index in 0..templates {
        fixture.write_secret(&format!("s{index}"), "first").await;
    }
    let start = Instant::now();
    let slow = fixture.start_registry(Duration::from_hours(1));
    let fast = fixture.start_registry(Duration::from_millis(10));
    fixture.start_template("s0", &fast);
    for index in 1..templates {
        fixture.start_template(&format!("s{index}"), &slow);
    }
    while !fixture.health.is_ready() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{templates} templates with a secret each: all read, rendered and written within {:.2?}", start.elapsed());

    let renders_before = fixture.count_renders();
    let mut times = Vec::new();
    for change in 0..changes {
        let value = format!("changed-{change}");
        fixture.write_secret("s0", &value).await;
        let start = Instant::now();
        while !std::fs::read_to_string(fixture.path("s0")).is_ok_and(|text| text.contains(&value)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        times.push(start.elapsed());
    }
    // Renderings that are still running would be counted too.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let renders = fixture.count_renders() - renders_before;
    times.sort();
    let bare_write = time_bare_writes(&fixture.path("bare"), changes);
    println!(
        "one of them changed {changes} times: {renders} renderings in all; from the change to the file median {:.2?}, maximum \
         {:.2?} (a bare durable write {bare_write:.2?})",
        times[times.len() / 2],
        times[times.len() - 1],
    );
    assert_eq!(renders, changes as u64, "a change is one rendering");
    fixture.running.shutdown().await;
}

/// Returns the median time of a durable write of a file of that size.
fn time_bare_writes(path: &Path, changes: usize) -> Duration {
    let attributes = Attributes { mode: 0o600, owner: None, group: None };
    let mut times: Vec<Duration> = (0..changes)
        .map(|change| {
            let start = Instant::now();
            atomic_file::replace(path, format!("{change:0150}").as_bytes(), &attributes).unwrap();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

impl Fixture {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn write_secret(&self, name: &str, password: &str) {
        let url = format!("{}/v1/secret/data/{name}", self.secrets.url());
        let body = json!({ "data": { "user": "app", "password": password, "hosts": ["a", "b", "c"] } });
        let request = reqwest::Client::new().post(url).header("x-vault-token", self.token.expose_secret());
        assert!(request.json(&body).send().await.unwrap().status().is_success());
    }

    /// Starts a registry that reads its secrets at an interval.
    fn start_registry(&mut self, interval: Duration) -> SecretRegistry {
        let (publisher, tokens) = credential_channel("starting");
        let now = Clock::System.now();
        let token = Token {
            secret: ClientToken::parse(self.token.clone()).unwrap(),
            accessor: None,
            lease: Lease { ttl: Duration::from_hours(1), renewable: true },
            kind: TokenKind::Service,
            policies: Vec::new(),
            obtained: now,
            expires: Some(now + Duration::from_hours(1)),
            generation: Generation::new(),
        };
        publisher.publish(Availability::Available(Arc::new(token)), Some(now));
        let (registry, worker) = SecretRegistry::new(SecretRegistryDeps {
            upstream: self.upstream.clone(),
            tokens,
            session: RefreshSignal::new(Clock::System),
            namespace: None,
            interval,
            rewrite_interval: None,
            clock: Clock::System,
            metrics: self.metrics.clone(),
            offline: None,
        })
        .unwrap();
        self.running.spawn(async move {
            worker.run(CancellationToken::new()).await;
            drop(publisher);
        });
        registry
    }

    fn start_template(&mut self, name: &str, registry: &SecretRegistry) {
        let source = TemplateSource {
            name: name.to_owned(),
            file: None,
            text: TEXT.replace("NAME", name),
            left: "{{".to_owned(),
            right: "}}".to_owned(),
            variables: EnvVars::default(),
            folders: Vec::new(),
            write_folders: Vec::new(),
            allows_missing_keys: false,
        };
        let template = Template::compile(source.clone()).unwrap();
        let file = TemplateFile {
            destination: self.path(name),
            mode: 0o600,
            owner: None,
            group: None,
            create_folders: false,
            command: None,
            command_debounce: Duration::ZERO,
            backup: false,
            on_missing: OnMissing::Restore,
            encoding: Encoding::default(),
        };
        let options = TemplateOptions {
            text: source,
            file: Some(file),
            debounce: Duration::ZERO,
            interval: Duration::from_hours(1),
            required: true,
        };
        let deps = TemplateDeps {
            publisher: credential_channel("starting").0,
            registry: registry.clone(),
            clock: Clock::System,
            health: self.health.register(format!("template/{name}"), true, "starting"),
            metrics: self.metrics.clone(),
            outputs: OutputWatch::disabled(),
            launcher: keyward_machine::command::Launcher::default(),
            commands: keyward_agent::output_command::SharedCommands::default(),
        };
        self.running.spawn(TemplateTask::new(options, template, deps).run(CancellationToken::new()));
    }

    fn count_renders(&self) -> u64 {
        let text = self.metrics.text();
        let lines = text.lines().filter(|line| line.starts_with("keyward_template_renders_total{"));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}
