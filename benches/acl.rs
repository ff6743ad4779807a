//! Benchmarks of the ACL server over the embedded store. `benches/run` starts it with one of these arguments:
//!
//! `acl creates FOLDER`: 64 writers create tokens over HTTP, compared with the store alone writing the same rows and bytes in
//! groups of the observed size. `acl fill FOLDER TOKENS`: creates a store with that many tokens; prints the first token's secret
//! and an accessor. `acl write ADDRESS SECRET SECONDS`: runs the writers, in a process of their own.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    missing_docs
)]

mod counted;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use keyward_acl::model::authorize::DefaultPolicy;
use keyward_acl::store::{
    Batch, Check, CommitError, Embedded, Export, Freshness, Key, Listing, Page, Record, Revision, Store, StoreError,
    StoreOptions, Write,
};
use keyward_acl::{AclOptions, AclServer, api};
use keyward_http::server::{Endpoint, Listener, ListenerLimits};
use keyward_machine::clock::Clock;
use keyward_telemetry::metrics::Metrics;
use parking_lot::Mutex;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use counted::SyncCounter;

/// Number of concurrent writers.
const WRITERS: usize = 64;
/// Length of a measurement, in seconds.
const SECONDS: u64 = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match words[..] {
            ["creates", folder] => compare_creates(Path::new(folder)).await,
            ["fill", folder, tokens] => fill_store(Path::new(folder), tokens.parse().unwrap()).await,
            ["write", address, secret, seconds] => run_writers(address, secret, seconds.parse().unwrap()).await,
            _ => println!("acl creates FOLDER | fill FOLDER TOKENS | write ADDRESS SECRET SECONDS"),
        }
    });
}

fn options(folder: &Path) -> AclOptions {
    AclOptions {
        store: StoreOptions::Embedded { data_dir: folder.to_owned() },
        key_file: None,
        datacenter: "dc1".to_owned(),
        default_policy: DefaultPolicy::Deny,
        api: api::ApiOptions::default(),
        methods: std::collections::BTreeMap::new(),
    }
}

/// Measures creates over HTTP, then the store alone, on the same disk. Prints the figures that `benches/run` parses.
async fn compare_creates(folder: &Path) {
    let (backend, syncs) = SyncCounter::create(&folder.join("http.redb"));
    let store = Embedded::open_backend(backend, &folder.join("http.redb"), "dc1").unwrap();
    let store = Arc::new(RecordingStore { store, commits: AtomicU64::new(0), last_batch: Mutex::default() });
    let (address, secret) = serve(Arc::clone(&store) as Arc<dyn Store>, folder).await;

    let before = (store.commits.load(Ordering::Relaxed), syncs.load(Ordering::Relaxed));
    let mut writers = Command::new(std::env::current_exe().unwrap());
    writers.args(["write", &address, &secret, &SECONDS.to_string()]).stdout(Stdio::piped());
    let output = tokio::task::spawn_blocking(move || writers.output().unwrap()).await.unwrap();
    let http_rate: f64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let commits = store.commits.load(Ordering::Relaxed) - before.0;
    let group = commits as f64 / (syncs.load(Ordering::Relaxed) - before.1) as f64;

    let batch = store.last_batch.lock().clone();
    let (store_rate, store_group) = measure_store(folder, &batch, (group.round() as usize).max(1)).await;
    let rows = batch.writes.len();
    println!("http={http_rate:.0} group={group:.1} store={store_rate:.0} store_group={store_group:.1} rows={rows}");
}

/// Serves a new store; returns its address and the secret of its first token.
async fn serve(store: Arc<dyn Store>, folder: &Path) -> (String, String) {
    let options = options(folder);
    let service = AclServer::with_store(store, &options, Clock::System, Metrics::default()).await.unwrap();
    let listener = Listener::bind(&Endpoint::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = listener.tcp_address().unwrap().to_string();
    let handler = service.handler(listener.tcp_address());
    tokio::spawn(listener.serve(handler, ListenerLimits::default(), CancellationToken::new()));
    let bootstrap = Connection::open(&address).await.put("/v1/acl/bootstrap", "", "").await;
    let bootstrap: serde_json::Value = serde_json::from_slice(&bootstrap).unwrap();
    (address, bootstrap["SecretID"].as_str().unwrap().to_owned())
}

/// Measures the store alone: returns tokens per second and the mean group size. The writers form two groups, as over HTTP: one
/// waits while the commits of the other are written together.
async fn measure_store(folder: &Path, sample: &Batch, group_size: usize) -> (f64, f64) {
    let path = folder.join("alone.redb");
    let (backend, syncs) = SyncCounter::create(&path);
    let store = Arc::new(Embedded::open_backend(backend, &path, "dc1").unwrap());
    let unchanged = sample.checks.iter().find_map(|check| match check {
        Check::Unchanged(key, _) => Some(key.clone()),
        Check::Absent(_) => None,
    });
    let unchanged = unchanged.unwrap();
    let revision =
        store.commit(Batch { checks: vec![], writes: vec![Write::Put(unchanged.clone(), vec![0; 100])] }).await;
    let revision = revision.unwrap();
    let (created, before, start) = (Arc::new(AtomicU64::new(0)), syncs.load(Ordering::Relaxed), Instant::now());
    let mut tasks = JoinSet::new();
    for _ in 0..(WRITERS / group_size).clamp(1, 2) {
        let group = Arc::new(Barrier::new(group_size.min(WRITERS)));
        let stopping = Arc::new(AtomicU64::new(0));
        for _ in 0..group_size.min(WRITERS) {
            let (group, stopping, store, created) =
                (Arc::clone(&group), Arc::clone(&stopping), Arc::clone(&store), Arc::clone(&created));
            let (sample, unchanged) = (sample.clone(), unchanged.clone());
            tasks.spawn(async move {
                loop {
                    if start.elapsed() > Duration::from_secs(SECONDS) {
                        stopping.store(1, Ordering::Relaxed);
                    }
                    group.wait().await;
                    // Read between two barriers, so that all writers of a group stop in the same round.
                    let end = stopping.load(Ordering::Relaxed) == 1;
                    group.wait().await;
                    if end {
                        break;
                    }
                    store.commit(copy_with_new_keys(&sample, &unchanged, revision)).await.unwrap();
                    created.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
    tasks.join_all().await;
    let (created, syncs) = (created.load(Ordering::Relaxed) as f64, syncs.load(Ordering::Relaxed) - before);
    (created / start.elapsed().as_secs_f64(), created / syncs as f64)
}

/// Returns a batch for another token, with keys and values of the same sizes.
fn copy_with_new_keys(sample: &Batch, unchanged: &Key, revision: Revision) -> Batch {
    let rename = |key: &Key| {
        let (prefix, id) = key.as_str().rsplit_once('/').unwrap();
        let mut random = format!("{}{}", uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
        random.truncate(id.len());
        Key::from(format!("{prefix}/{random}"))
    };
    let writes = sample.writes.iter().map(|write| match write {
        Write::Put(key, value) => Write::Put(rename(key), value.clone()),
        Write::Delete(key) => Write::Delete(rename(key)),
    });
    let checks = sample.checks.iter().map(|check| match check {
        Check::Absent(key) => Check::Absent(rename(key)),
        Check::Unchanged(..) => Check::Unchanged(unchanged.clone(), revision),
    });
    Batch { checks: checks.collect(), writes: writes.collect() }
}

/// Creates tokens over HTTP with all writers; prints tokens per second.
async fn run_writers(address: &str, secret: &str, seconds: u64) {
    let (start, created) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..WRITERS {
        let (address, secret, created) = (address.to_owned(), secret.to_owned(), Arc::clone(&created));
        tasks.spawn(async move {
            let mut connection = Connection::open(&address).await;
            while start.elapsed() < Duration::from_secs(seconds) {
                connection.put("/v1/acl/token", &secret, BODY).await;
                created.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tasks.join_all().await;
    println!("{}", created.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64());
}

/// A token like those of a fleet: linked to a service, with an expiry.
const BODY: &str =
    r#"{"Description": "of web-1", "ServiceIdentities": [{"ServiceName": "web"}], "ExpirationTTL": "1h"}"#;

struct Connection(hyper::client::conn::http1::SendRequest<Full<Bytes>>);

impl Connection {
    async fn open(address: &str) -> Self {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn put(&mut self, path: &str, secret: &str, body: impl Into<Bytes>) -> Bytes {
        let request = Request::put(path).header("host", "localhost").header("x-service-token", secret);
        let request = request.body(Full::new(body.into())).unwrap();
        let response = self.0.send_request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(status, 200, "{body:?}");
        body
    }
}

/// Creates a store with that many tokens.
async fn fill_store(folder: &Path, tokens: u64) {
    let store = Arc::new(Embedded::open(folder, "dc1").unwrap());
    let (address, secret) = serve(store, folder).await;
    let mut tasks = JoinSet::new();
    for writer in 0..WRITERS as u64 {
        let (address, secret) = (address.clone(), secret.clone());
        tasks.spawn(async move {
            let (mut connection, mut last) = (Connection::open(&address).await, None);
            for number in (writer..tokens).step_by(WRITERS) {
                let body = format!(r#"{{"Description": "of machine {number}"}}"#);
                last = Some(connection.put("/v1/acl/token", &secret, body).await);
            }
            last
        });
    }
    let created = tasks.join_all().await.into_iter().flatten().next().unwrap();
    let created: serde_json::Value = serde_json::from_slice(&created).unwrap();
    println!("secret={secret} accessor={}", created["AccessorID"].as_str().unwrap());
}

/// Store that counts commits and keeps a recent batch.
#[derive(Debug)]
struct RecordingStore {
    store: Embedded,
    commits: AtomicU64,
    last_batch: Mutex<Batch>,
}

#[async_trait]
impl Store for RecordingStore {
    async fn get(&self, key: &Key, freshness: Freshness) -> Result<Option<Record>, StoreError> {
        self.store.get(key, freshness).await
    }

    async fn list(&self, prefix: &str, page: Page, freshness: Freshness) -> Result<Listing, StoreError> {
        self.store.list(prefix, page, freshness).await
    }

    async fn export(&self) -> Result<Export, StoreError> {
        self.store.export().await
    }

    async fn commit(&self, batch: Batch) -> Result<Revision, CommitError> {
        if self.commits.fetch_add(1, Ordering::Relaxed) % 100 == 50 {
            self.last_batch.lock().clone_from(&batch);
        }
        self.store.commit(batch).await
    }

    async fn changed(&self, prefix: &str, since: Revision) -> Result<Revision, StoreError> {
        self.store.changed(prefix, since).await
    }
}
