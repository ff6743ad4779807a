//! A thousand templates of which one changes: one rendering, and how long it takes from the change on the server to the bytes in
//! the file. `templates [TEMPLATES] [CHANGES]` (1,000 and 50); against the emulated Vault in the same process.
//!
//! The one that changes is looked at every 10 ms, which is in the time that is told; beside it stands the time of a bare write
//! of a file of that size, durable as the agent's is.
#![allow(clippy::print_stdout, clippy::too_many_lines, clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyward::agent::output_watch::{OnMissing, OutputWatch};
use keyward::agent::secrets::{SecretRegistry, SecretRegistryDeps};
use keyward::agent::server_client::{self, ServerClient};
use keyward::agent::templates::{Template, TemplateDeps, TemplateFile, TemplateOptions, TemplateSource, TemplateTask};
use keyward::agent::token::{ClientToken, Generation, Lease, Token, TokenKind};
use keyward::atomic_file::{self, Attributes};
use keyward::clock::Clock;
use keyward::command::EnvVars;
use keyward::credential_watch::{Availability, RefreshSignal, credential_channel};
use keyward::emulators::secrets::{self, Role, Secrets};
use keyward::health::Health;
use keyward::http::client;
use keyward::metrics::Metrics;
use keyward::secret_string::SecretString;
use keyward::tasks::TaskGroup;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const TEXT: &str = "{{ with secret \"secret/data/NAME\" -}}\n# from Vault\nuser = {{ .Data.data.user }}\n\
                    password = {{ .Data.data.password }}\n{{ range $i, $host := .Data.data.hosts }}host{{ $i }} = {{ $host }}\n\
                    {{ end }}{{ end }}";

struct World {
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
    let mut world = World {
        secrets,
        upstream,
        token,
        metrics: Metrics::default(),
        health: Health::default(),
        folder: tempfile::tempdir_in("target").unwrap(),
        running: JoinSet::new(),
    };
    for at in 0..templates {
        world.put(&format!("s{at}"), "first").await;
    }
    let start = Instant::now();
    let (still, changing) = (world.store(Duration::from_hours(1)), world.store(Duration::from_millis(10)));
    world.template("s0", &changing);
    for at in 1..templates {
        world.template(&format!("s{at}"), &still);
    }
    while !world.health.is_ready() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{templates} templates of a secret each: all read, rendered and written within {:.2?}", start.elapsed());

    let renders = world.renders();
    let mut times = Vec::new();
    for change in 0..changes {
        let value = format!("changed-{change}");
        world.put("s0", &value).await;
        let start = Instant::now();
        while !std::fs::read_to_string(world.path("s0")).is_ok_and(|text| text.contains(&value)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        times.push(start.elapsed());
    }
    // Renderings that are still running would be counted too.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let rendered = world.renders() - renders;
    times.sort();
    let bare = bare(&world.path("bare"), changes);
    println!(
        "one of them changed {changes} times: {rendered} renderings in all; from the change to the file median {:.2?}, most \
         {:.2?} (a bare durable write {bare:.2?})",
        times[times.len() / 2],
        times[times.len() - 1],
    );
    assert_eq!(rendered, changes as u64, "a change is one rendering");
    world.running.shutdown().await;
}

/// The median time of a durable write of a file of that size.
fn bare(path: &Path, changes: usize) -> Duration {
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

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn put(&self, name: &str, password: &str) {
        let url = format!("{}/v1/secret/data/{name}", self.secrets.url());
        let body = json!({ "data": { "user": "app", "password": password, "hosts": ["a", "b", "c"] } });
        let request = reqwest::Client::new().post(url).header("x-vault-token", self.token.expose_secret());
        assert!(request.json(&body).send().await.unwrap().status().is_success());
    }

    fn store(&mut self, interval: Duration) -> SecretRegistry {
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
        let (store, keepers) = SecretRegistry::new(SecretRegistryDeps {
            upstream: self.upstream.clone(),
            tokens,
            session: RefreshSignal::new(Clock::System),
            namespace: None,
            interval,
            clock: Clock::System,
            metrics: self.metrics.clone(),
            offline: None,
        })
        .unwrap();
        self.running.spawn(async move {
            keepers.run(CancellationToken::new()).await;
            drop(publisher);
        });
        store
    }

    fn template(&mut self, name: &str, store: &SecretRegistry) {
        let text = TemplateSource {
            name: name.to_owned(),
            file: None,
            text: TEXT.replace("NAME", name),
            left: "{{".to_owned(),
            right: "}}".to_owned(),
            variables: EnvVars::default(),
            folders: Vec::new(),
        };
        let template = Template::compile(text.clone()).unwrap();
        let file = TemplateFile {
            destination: self.path(name),
            mode: 0o600,
            owner: None,
            group: None,
            create_folders: false,
            command: None,
            backup: false,
            on_missing: OnMissing::Restore,
        };
        let options = TemplateOptions {
            text,
            file: Some(file),
            debounce: Duration::ZERO,
            interval: Duration::from_hours(1),
            required: true,
        };
        let parts = TemplateDeps {
            publisher: credential_channel("starting").0,
            registry: store.clone(),
            clock: Clock::System,
            health: self.health.register(format!("template/{name}"), true, "starting"),
            metrics: self.metrics.clone(),
            outputs: OutputWatch::disabled(),
            launcher: keyward::command::Launcher::default(),
        };
        self.running.spawn(TemplateTask::new(options, template, parts).run(CancellationToken::new()));
    }

    fn renders(&self) -> u64 {
        let text = self.metrics.text();
        let lines = text.lines().filter(|line| line.starts_with("keyward_template_renders_total{"));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}
