//! Certificates that are requested, written and replaced, in driven time against the emulated PKI engine.

mod commands;
mod faults;
mod pkcs12;
mod reader;
mod restarts;
mod ssh;
mod svids;
mod year;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use keyward_agent::certificates::{
    CertificateDeps, CertificateIssuer, CertificateOptions, CertificateOutput, CertificateRequest, CertificateSubject,
    CertificateTask, EngineOptions, KeyOrigin, KeyType, OutputForm, PkiSubject, RenewalPolicy,
};
use keyward_agent::output_command::{OutputCommand, SharedCommands};
use keyward_agent::output_watch::{OnMissing, OutputWatch};
use keyward_agent::rotation::{Rotation, RotationRegistry};
use keyward_agent::secrets::{SecretRegistry, SecretRegistryDeps};
use keyward_credentials::credential_watch::{RefreshRequest, credential_channel};
use keyward_emulators::secrets::{CannedResponse, Operation, Role};
use keyward_http::tls::{self, CertificateFacts};
use keyward_machine::atomic_file::Attributes;
use keyward_machine::command::{CommandSpec, EnvVars, Launcher};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::harness::session::{Session, World};

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// A world whose session's token needs no attention.
fn world() -> World {
    let role = Role { ttl: DAY * 32, max_ttl: None, ..Role::default() };
    let mut world = World::new(role);
    world.options.check_interval = None;
    world
}

/// A certificate, and the request that issues it.
#[derive(Clone)]
struct Wanted {
    request: CertificateRequest,
    renewal: RenewalPolicy,
    options: CertificateOptions,
}

/// Certificates of one session, and the folder that they are in.
struct Bench<'a> {
    world: &'a World,
    folder: tempfile::TempDir,
    registry: SecretRegistry,
    outputs: OutputWatch,
    rotations: RotationRegistry,
    commands: SharedCommands,
    workers: JoinSet<()>,
    running: JoinSet<()>,
    stop: CancellationToken,
}

impl<'a> Bench<'a> {
    fn new(world: &'a World, session: &Session) -> Self {
        let (registry, worker) = SecretRegistry::new(SecretRegistryDeps {
            upstream: world.upstream().clone(),
            tokens: session.watch.clone(),
            session: session.refresh_signal.clone(),
            namespace: None,
            interval: MINUTE * 5,
            rewrite_interval: None,
            clock: world.clock.clone(),
            metrics: world.metrics.clone(),
            offline: None,
        })
        .unwrap();
        let mut workers = JoinSet::new();
        workers.spawn(worker.run(CancellationToken::new()));
        Self {
            world,
            folder: tempfile::tempdir().unwrap(),
            registry,
            outputs: OutputWatch::disabled(),
            rotations: RotationRegistry::default(),
            commands: SharedCommands::default(),
            workers,
            running: JoinSet::new(),
            stop: CancellationToken::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }

    /// A certificate `web` of ten days.
    fn wanted(&self) -> Wanted {
        let request = CertificateRequest {
            mount: "pki".to_owned(),
            role: "web".to_owned(),
            ttl: Some(DAY * 10),
            key: KeyOrigin::Generated(KeyType::EcP256),
            subject: CertificateSubject::Pki(PkiSubject {
                common_name: "web.example.com".to_owned(),
                alt_names: vec!["www.example.com".to_owned()],
                ip_sans: vec!["10.0.0.1".parse().unwrap()],
                uri_sans: Vec::new(),
            }),
        };
        Wanted { request, renewal: RenewalPolicy::default(), options: self.options() }
    }

    /// Options of the certificate `web`.
    fn options(&self) -> CertificateOptions {
        CertificateOptions {
            name: "web".to_owned(),
            output: CertificateOutput {
                path: self.path("web"),
                form: OutputForm::Folder,
                attributes: Attributes { mode: 0o640, owner: None, group: None },
            },
            command: None,
            command_debounce: Duration::from_secs(1),
            variables: EnvVars::default(),
            on_missing: OnMissing::Restore,
            required: true,
        }
    }

    fn with_command(&self, line: &str) -> Wanted {
        let command = Some(OutputCommand { command: CommandSpec::shell_argv(line), timeout: MINUTE });
        let wanted = self.wanted();
        Wanted { options: CertificateOptions { command, ..wanted.options }, ..wanted }
    }

    fn start(&mut self, wanted: Wanted) {
        let Wanted { request, renewal, options } = wanted;
        let registry = self.registry.clone();
        let rotation = self.rotations.register(&options.name, "web", self.world.clock.clone());
        let engine = EngineOptions { request, renewal, registry, rotation };
        self.start_of(CertificateIssuer::Engine(Box::new(engine)), options);
    }

    /// Starts a certificate of any issuer.
    fn start_of(&mut self, issuer: CertificateIssuer, options: CertificateOptions) {
        let (publisher, _) = credential_channel("starting");
        let deps = CertificateDeps {
            publisher,
            clock: self.world.clock.clone(),
            health: self.world.health.register(format!("certificate/{}", options.name), true, "starting"),
            metrics: self.world.metrics.clone(),
            outputs: self.outputs.clone(),
            launcher: Launcher::default(),
            commands: self.commands.clone(),
        };
        self.running.spawn(CertificateTask::new(options, issuer, deps).run(self.stop.clone()));
    }

    /// Starts the certificate, and waits until it is in place.
    async fn ready(&mut self, wanted: Wanted) {
        self.start(wanted);
        self.until(|bench| bench.reason().is_empty()).await;
    }

    async fn until(&self, condition: impl Fn(&Self) -> bool) {
        for _ in 0..6000 {
            if condition(self) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
        panic!("{}", self.reason());
    }

    /// Ends the tasks as a stop of the agent would.
    async fn end(&mut self) {
        self.stop.cancel();
        while self.running.join_next().await.is_some() {}
        self.stop = CancellationToken::new();
    }

    /// Number of requests that reached the server.
    fn requests(&self) -> u64 {
        self.world.count(Operation::Secret)
    }

    fn rotation(&self) -> Rotation {
        self.rotations.certificates(|session| session == "web").remove(0)
    }

    fn reason(&self) -> String {
        let components = self.world.health.components();
        components.get("certificate/web").map_or("gone".to_owned(), |web| web.reason.clone().unwrap_or_default())
    }

    fn warning(&self) -> String {
        let statuses = self.world.health.statuses();
        statuses["certificate/web"].warning.as_ref().map(|warning| warning.reason.clone()).unwrap_or_default()
    }

    fn metric(&self, name: &str) -> i64 {
        let text = self.world.metrics.text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("keyward_issued_certificate_{name} ")).map(str::to_owned));
        line.map_or(-1, |value| value.parse().unwrap())
    }

    fn state(&self) -> i64 {
        self.metric("state{certificate=\"web\"}")
    }

    /// The certificate in the folder, whose key it fits.
    fn served(&self) -> CertificateFacts {
        let text = |name: &str| self.read(&format!("web/{name}")).unwrap();
        fitting(&text("key.pem"), &text("cert.pem"))
    }

    fn now(&self) -> SystemTime {
        self.world.clock.now().wall
    }
}

/// Checks that a key fits the first certificate of a text, and returns its facts.
#[track_caller]
fn fitting(key: &str, certificates: &str) -> CertificateFacts {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificates.as_bytes()).map(Result::unwrap).collect();
    let facts = CertificateFacts::parse(&chain[0]).unwrap();
    assert!(tls::is_pair(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()), "the key fits no leaf");
    facts
}

#[tokio::test(start_paused = true)]
async fn key_leaf_and_chain_are_written_together() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.ready(bench.wanted()).await;
    let facts = bench.served();
    assert_eq!(facts.ends.duration_since(bench.now()).unwrap().as_secs() / 3600, 239);
    let text = |name: &str| bench.read(&format!("web/{name}")).unwrap();
    // The emulated authority is a root.
    assert_eq!(text("fullchain.pem"), text("cert.pem"));
    let authority = CertificateDer::from_pem_slice(text("chain.pem").as_bytes()).unwrap();
    assert_eq!(CertificateFacts::parse(&authority).unwrap().subject, facts.issuer);
    for name in ["key.pem", "cert.pem", "chain.pem", "fullchain.pem"] {
        let file = std::fs::metadata(bench.path(&format!("web/{name}"))).unwrap();
        assert_eq!(file.mode() & 0o7777, 0o640, "{name}");
    }
    assert_eq!((bench.state(), bench.requests()), (0, 1));
    let expiry = facts.ends.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(u64::try_from(bench.metric("expiry_timestamp_seconds{certificate=\"web\"}")).unwrap(), expiry);
    let note = world.health.statuses()["certificate/web"].note.clone().unwrap();
    assert!(note.starts_with("web.example.com, www.example.com, 10.0.0.1; serial "), "{note}");
}

#[tokio::test(start_paused = true)]
async fn a_bundle_has_certificate_and_key_in_one_file() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let mut wanted = bench.wanted();
    (wanted.options.output.form, wanted.options.output.attributes.mode) = (OutputForm::Bundle, 0o600);
    bench.ready(wanted).await;
    let bundle = bench.read("web").unwrap();
    fitting(&bundle, &bundle);
    assert!(bundle.starts_with("-----BEGIN CERTIFICATE-----") && bundle.ends_with("-----END PRIVATE KEY-----\n"));
    assert_eq!(std::fs::metadata(bench.path("web")).unwrap().mode() & 0o7777, 0o600);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_replaced_with_a_new_key_before_its_end() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.ready(bench.wanted()).await;
    let (key, first) = (bench.read("web/key.pem"), bench.served());
    sleep(DAY * 6).await;
    assert_eq!(bench.served(), first);
    sleep(DAY + HOUR).await;
    let second = bench.served();
    assert_ne!(second.serial, first.serial);
    assert_ne!(bench.read("web/key.pem"), key);
    assert_eq!((bench.requests(), bench.state()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_of_some_seconds_makes_no_loop() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let mut wanted = bench.wanted();
    wanted.request.ttl = Some(Duration::from_secs(5));
    bench.start(wanted);
    sleep(MINUTE * 10).await;
    assert!((50..=61).contains(&bench.requests()), "{}", bench.requests());
}

#[tokio::test(start_paused = true)]
async fn every_type_of_key_is_signed() {
    let world = world();
    let session = world.start();
    for (name, key_type) in KeyType::ALL {
        let mut bench = Bench::new(&world, &session);
        let mut wanted = bench.wanted();
        wanted.request.key = KeyOrigin::Generated(key_type);
        bench.ready(wanted).await;
        bench.served();
        assert_eq!(bench.state(), 0, "{name}");
        bench.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_file_stays_for_every_certificate() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let mut wanted = bench.wanted();
    wanted.request.key = KeyOrigin::File(bench.path("own.pem"));
    bench.start(wanted.clone());
    bench.until(|bench| bench.reason().contains("cannot read the key in ")).await;
    assert_eq!(bench.requests(), 0);
    let write = |bench: &Bench<'_>| {
        std::fs::write(bench.path("own.pem"), rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
    };
    write(&bench);
    bench.until(|bench| bench.reason().is_empty()).await;
    let (first, own) = (bench.served(), bench.read("own.pem"));
    bench.rotation().request();
    bench.rotation().outcome().await.unwrap().unwrap();
    assert_ne!(bench.served().serial, first.serial);
    assert_eq!(bench.read("web/key.pem"), own);
    bench.end().await;
    let before = bench.requests();
    bench.ready(wanted.clone()).await;
    assert_eq!(bench.requests(), before, "it is used again");
    bench.end().await;
    std::fs::remove_file(bench.path("own.pem")).unwrap();
    bench.ready(wanted.clone()).await;
    assert_eq!(bench.requests(), before, "a key that cannot be read takes no certificate away");
    bench.end().await;
    write(&bench);
    bench.start(wanted);
    bench.until(|bench| bench.requests() == before + 1 && bench.reason().is_empty()).await;
    assert_eq!(bench.read("web/key.pem"), bench.read("own.pem"));
    bench.served();
}

#[tokio::test(start_paused = true)]
async fn a_server_may_make_the_key() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let mut wanted = bench.wanted();
    wanted.request.key = KeyOrigin::Server;
    bench.ready(wanted.clone()).await;
    let first = bench.served();
    bench.end().await;
    bench.ready(wanted).await;
    assert_eq!((bench.served(), bench.requests()), (first, 1));
}

#[tokio::test(start_paused = true)]
async fn a_rotation_on_request_waits_for_no_window_and_is_limited() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.ready(bench.wanted()).await;
    let mut accepted = 0;
    for _ in 0..10 {
        let before = bench.served();
        match bench.rotation().request() {
            RefreshRequest::Accepted => {
                let rotated = bench.rotation().outcome().await.unwrap().unwrap();
                assert_ne!(bench.served().serial, before.serial);
                assert!(rotated.expires.starts_with("20"), "{rotated:?}");
                accepted += 1;
            }
            RefreshRequest::RateLimited { .. } => assert_eq!(bench.served(), before),
        }
    }
    assert_eq!((accepted, bench.requests()), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn a_rotation_that_the_server_refuses_says_so_and_leaves_the_certificate() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.ready(bench.wanted()).await;
    let first = bench.served();
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::error(503, "Vault is sealed")));
    bench.rotation().request();
    let error = bench.rotation().outcome().await.unwrap().unwrap_err();
    assert!(error.contains("Vault is sealed [KW-1205]"), "{error}");
    assert_eq!((bench.served(), bench.reason()), (first, String::new()));
}

#[tokio::test]
async fn a_command_runs_after_each_change_and_is_repeated_until_it_succeeds() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let (runs, good) = (bench.path("runs"), bench.path("good"));
    let line = format!("echo ran >> {}; test -e {}", runs.display(), good.display());
    bench.start(bench.with_command(&line));
    bench.until(|bench| bench.reason().contains("the certificate's command failed: it ended with code 1")).await;
    assert!(bench.path(".web.command-pending").exists());
    std::fs::write(&good, "").unwrap();
    bench.until(|bench| bench.reason().is_empty()).await;
    assert!(!bench.path(".web.command-pending").exists());
    let count = bench.read("runs").unwrap().lines().count();
    assert!(count >= 2);
    assert_eq!(bench.requests(), 1);
    bench.end().await;
    bench.ready(bench.with_command(&line)).await;
    assert_eq!(bench.read("runs").unwrap().lines().count(), count, "nothing has changed");
    bench.rotation().request();
    bench.rotation().outcome().await.unwrap().unwrap();
    assert_eq!(bench.read("runs").unwrap().lines().count(), count + 1);
    std::fs::remove_file(&good).unwrap();
    bench.rotation().request();
    let error = bench.rotation().outcome().await.unwrap().unwrap_err();
    let serial = bench.served().serial.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
    let expected = format!("{} is in the files; what failed is repeated: ", serial.trim_start_matches("00:"));
    assert!(error.contains(&expected) && error.contains("ended with code 1"), "{error}");
}

#[tokio::test]
async fn files_that_others_change_are_restored_without_another_certificate() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.outputs = OutputWatch::default();
    bench.workers.spawn(bench.outputs.clone().run(CancellationToken::new()));
    bench.ready(bench.wanted()).await;
    let first = bench.served();
    let changes: [fn(&Path); 3] = [
        |path| std::fs::remove_file(path).unwrap(),
        |path| std::fs::write(path.join("key.pem"), "x").unwrap(),
        |path| std::fs::remove_file(path.join("cert.pem")).unwrap(),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        change(&bench.path("web"));
        let restored =
            format!("keyward_output_changes_total{{output=\"certificate/web\",outcome=\"restored\"}} {}", index + 1);
        bench.until(|bench| bench.world.metrics.text().contains(&restored)).await;
        assert_eq!(bench.served(), first);
    }
    bench.end().await;
    let mut wanted = bench.wanted();
    wanted.options.on_missing = OnMissing::Leave;
    bench.ready(wanted).await;
    std::fs::remove_file(bench.path("web")).unwrap();
    let left = "keyward_output_changes_total{output=\"certificate/web\",outcome=\"left\"} 1";
    bench.until(|bench| bench.world.metrics.text().contains(left)).await;
    assert!(!bench.path("web").exists());
    assert_eq!(bench.requests(), 1);
}
