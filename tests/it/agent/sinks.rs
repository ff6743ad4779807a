//! File sinks: real files, a real watch, test time.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use keyward_agent::output_watch::OnMissing;
use keyward_agent::sinks::{FileSink, OnExpiry, SinkFormat, SinkOptions};
use keyward_agent::token::{ClientToken, Generation, Lease, Token, TokenKind, TokenPublisher, TokenWatch};
use keyward_credentials::credential_watch::{Availability, credential_channel};
use keyward_machine::clock::{Clock, TestClock};
use keyward_machine::secret_string::SecretString;
use keyward_telemetry::health::Health;
use keyward_telemetry::metrics::Metrics;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::harness::log;

/// A watch, its sinks, and their status and metrics.
struct Scene {
    folder: TempDir,
    clock: Clock,
    publisher: TokenPublisher,
    watch: TokenWatch,
    health: Health,
    metrics: Metrics,
    stop: CancellationToken,
}

impl Scene {
    fn new() -> Self {
        let (publisher, watch) = credential_channel("not logged in yet");
        Self {
            folder: tempfile::tempdir().unwrap(),
            clock: Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))),
            publisher,
            watch,
            health: Health::default(),
            metrics: Metrics::default(),
            stop: CancellationToken::new(),
        }
    }

    fn options(&self, name: &str) -> SinkOptions {
        SinkOptions {
            name: name.to_owned(),
            path: self.folder.path().join(name),
            format: SinkFormat::Raw,
            encrypt: None,
            mode: 0o640,
            owner: None,
            group: None,
            on_expiry: OnExpiry::Keep,
            on_missing: Some(OnMissing::Restore),
            shared_folder: false,
            required: true,
        }
    }

    fn sink(&self, options: SinkOptions) -> FileSink {
        let health = self.health.register(format!("sink/{}", options.name), options.required, "not written yet");
        FileSink::new(options, self.watch.clone(), self.clock.clone(), health, self.metrics.clone())
    }

    fn start(&self, options: SinkOptions) -> JoinHandle<FileSink> {
        let mut sink = self.sink(options);
        let stop = self.stop.clone();
        tokio::task::spawn_local(async move {
            sink.run(stop).await;
            sink
        })
    }

    fn serve(&self, secret: &str) {
        let now = self.clock.now();
        let ttl = Duration::from_mins(1);
        let token = Token {
            secret: ClientToken::parse(SecretString::from(secret)).unwrap(),
            accessor: None,
            lease: Lease { ttl, renewable: true },
            kind: TokenKind::Service,
            policies: Vec::new(),
            obtained: now,
            expires: Some(now + ttl),
            generation: Generation::new(),
        };
        self.publisher.publish(Availability::Available(token.into()), Some(now));
    }

    fn expire(&self) {
        let state =
            Availability::Unavailable { reason: "the token has ended".into(), retry_after: Duration::from_secs(1) };
        self.publisher.publish(state, None);
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join(name)).ok()
    }

    async fn wait_for(&self, name: &str, content: Option<&str>) {
        until(|| self.read(name).as_deref() == content, || format!("{name} holds {:?}", self.read(name))).await;
    }

    async fn wait_for_reason(&self, name: &str, part: &str) {
        let reason = || self.health.components()[&format!("sink/{name}")].reason.clone().unwrap_or_default();
        until(|| reason().contains(part), reason).await;
    }

    async fn wait_until_ready(&self, name: &str) {
        let ready = || self.health.components()[&format!("sink/{name}")].ready;
        until(ready, || format!("{:?}", self.health.components())).await;
    }

    fn metric(&self, line: &str) -> bool {
        self.metrics.text().lines().any(|found| found == line)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Waits (in driven time, up to five minutes) for something to come true.
async fn until(check: impl Fn() -> bool, describe: impl Fn() -> String) {
    for _ in 0..3000 {
        if check() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it never came true: {}", describe());
}

fn driven(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

#[test]
fn each_new_token_is_written_and_an_unchanged_one_is_not_written_again() {
    driven(async {
        let scene = Scene::new();
        scene.start(scene.options("token"));
        scene.wait_for_reason("token", "waiting for a token: not logged in yet").await;
        assert!(scene.metric("keyward_sink_state{sink=\"token\"} 1"));
        assert_eq!(scene.read("token"), None);

        scene.serve("hvs.one");
        scene.wait_until_ready("token").await;
        assert_eq!(scene.read("token").as_deref(), Some("hvs.one"));
        let found = std::fs::metadata(scene.folder.path().join("token")).unwrap();
        assert_eq!(found.mode() & 0o7777, 0o640);
        assert!(scene.metric("keyward_sink_state{sink=\"token\"} 0"), "{}", scene.metrics.text());
        let written = |seconds: u64| format!("keyward_sink_written_timestamp_seconds{{sink=\"token\"}} {seconds}");
        assert!(scene.metric(&written(1_700_000_000)));

        tokio::time::sleep(Duration::from_mins(10)).await;
        scene.serve("hvs.one");
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(std::fs::metadata(scene.folder.path().join("token")).unwrap().ino(), found.ino());
        assert!(scene.metric(&written(1_700_000_000)));

        scene.serve("hvs.two");
        scene.wait_for("token", Some("hvs.two")).await;
    });
}

#[test]
fn a_json_sink_has_the_new_expiry_of_a_renewed_token() {
    driven(async {
        let scene = Scene::new();
        scene.start(SinkOptions { format: SinkFormat::Json, ..scene.options("token") });
        scene.serve("hvs.one");
        scene.wait_until_ready("token").await;
        assert!(scene.read("token").unwrap().contains("\"expires_at\":\"2023-11-14T22:14:20Z\""));
        tokio::time::sleep(Duration::from_secs(40)).await;
        scene.serve("hvs.one");
        let renewed = || scene.read("token").unwrap().contains("\"expires_at\":\"2023-11-14T22:15:0");
        until(renewed, || scene.read("token").unwrap()).await;
    });
}

/// vault#24900: a file that cannot be written.
#[test]
fn a_sink_that_fails_holds_back_no_other_and_comes_back_by_itself() {
    driven(async {
        log::keep();
        let scene = Scene::new();
        let missing = scene.folder.path().join("gone");
        let away = scene.folder.path().join("away");
        std::fs::create_dir(&missing).unwrap();
        scene.start(SinkOptions { path: missing.join("token"), ..scene.options("lost") });
        for name in ["one", "two", "three"] {
            scene.start(scene.options(name));
        }
        scene.serve("hvs.one");
        for name in ["lost", "one", "two", "three"] {
            scene.wait_until_ready(name).await;
        }
        std::fs::rename(&missing, &away).unwrap();
        scene.serve("hvs.two");
        for name in ["one", "two", "three"] {
            scene.wait_for(name, Some("hvs.two")).await;
        }
        scene.wait_for_reason("lost", "gone; it must be there").await;
        assert!(!scene.health.is_ready());
        assert!(scene.metric("keyward_sink_state{sink=\"lost\"} 2"));
        tokio::time::sleep(Duration::from_mins(30)).await;
        let text = scene.metrics.text();
        let failures = text.lines().find_map(|line| line.strip_prefix("keyward_sink_failures_total{sink=\"lost\"} "));
        let failures: u32 = failures.unwrap().parse().unwrap();
        assert!((20..400).contains(&failures), "{failures} tries in half an hour");

        std::fs::create_dir(&missing).unwrap();
        scene.wait_until_ready("lost").await;
        assert_eq!(std::fs::read_to_string(missing.join("token")).unwrap(), "hvs.two");
        assert_eq!(std::fs::read_to_string(away.join("token")).unwrap(), "hvs.one");
        assert!(scene.health.is_ready());
        // Logged once, and once that it is over.
        let logged = |event: &str| -> Vec<_> {
            log::lines().into_iter().filter(|line| line["fields"]["event"] == event).collect()
        };
        assert_eq!(logged("sink.write.failed").len(), 1);
        let recovered = logged("sink.recovered");
        assert_eq!(recovered.len(), 1, "{recovered:?}");
        let lasted = recovered[0]["fields"]["lasted_seconds"].as_f64().unwrap();
        assert!((1800.0..1920.0).contains(&lasted), "{lasted}");
    });
}

#[test]
fn after_the_end_of_the_token_the_file_is_kept_emptied_or_removed_as_configured() {
    driven(async {
        let scene = Scene::new();
        let sinks = [("keep", OnExpiry::Keep), ("truncate", OnExpiry::Truncate), ("remove", OnExpiry::Remove)];
        for (name, on_expiry) in sinks {
            scene.start(SinkOptions { on_expiry, ..scene.options(name) });
        }
        scene.serve("hvs.one");
        for (name, _) in sinks {
            scene.wait_until_ready(name).await;
        }
        scene.expire();
        for (name, _) in sinks {
            scene.wait_for_reason(name, "waiting for a token: the token has ended").await;
            assert!(scene.metric(&format!("keyward_sink_state{{sink=\"{name}\"}} 1")));
        }
        assert_eq!(scene.read("keep").as_deref(), Some("hvs.one"));
        assert_eq!(scene.read("truncate").as_deref(), Some(""));
        assert_eq!(scene.read("remove"), None);
        let emptied = std::fs::metadata(scene.folder.path().join("truncate")).unwrap();
        assert_eq!(emptied.permissions().mode() & 0o7777, 0o640);
        scene.serve("hvs.two");
        for (name, _) in sinks {
            scene.wait_for(name, Some("hvs.two")).await;
        }
    });
}

#[test]
fn the_last_runs_token_stays_until_this_run_has_had_one() {
    driven(async {
        let scene = Scene::new();
        let options = SinkOptions { on_expiry: OnExpiry::Remove, ..scene.options("token") };
        std::fs::write(&options.path, "hvs.old").unwrap();
        scene.start(options);
        scene.expire();
        scene.wait_for_reason("token", "the token has ended").await;
        assert_eq!(scene.read("token").as_deref(), Some("hvs.old"));
    });
}

#[test]
fn a_second_agent_on_the_same_file_refuses_and_takes_over_when_the_first_has_stopped() {
    driven(async {
        let (first, second) = (Scene::new(), Scene::new());
        let shared = first.options("token");
        let running = first.start(shared.clone());
        first.serve("hvs.first");
        first.wait_until_ready("token").await;
        second.start(SinkOptions { on_expiry: OnExpiry::Remove, ..shared });
        second.serve("hvs.second");
        second.wait_for_reason("token", "another agent writes").await;
        assert!(second.metric("keyward_sink_state{sink=\"token\"} 2"));
        second.expire();
        tokio::time::sleep(Duration::from_mins(5)).await;
        second.serve("hvs.second");
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(first.read("token").as_deref(), Some("hvs.first"), "the second agent touched the file");

        first.stop.cancel();
        drop(running.await.unwrap());
        first.wait_for("token", Some("hvs.second")).await;
        second.wait_until_ready("token").await;
    });
}

#[test]
fn a_folder_is_left_as_it_was_found() {
    driven(async {
        let scene = Scene::new();
        let running = scene.start(scene.options("token"));
        let stale = scene.folder.path().join(".token.0123456789abcdef");
        let left = std::fs::File::create(&stale).unwrap();
        left.set_modified(SystemTime::now() - Duration::from_mins(2)).unwrap();
        scene.serve("hvs.one");
        scene.wait_until_ready("token").await;
        assert_eq!(scene.names(), [".token.lock", "token"]);
        scene.stop.cancel();
        drop(running.await.unwrap());
        assert_eq!(scene.names(), ["token"]);
        assert!(scene.health.components().is_empty());
        assert!(!scene.metrics.text().contains("sink_state{"));
    });
}

#[test]
fn a_lock_file_of_a_killed_agent_blocks_no_other_agent() {
    driven(async {
        let scene = Scene::new();
        std::fs::write(scene.folder.path().join(".token.lock"), "").unwrap();
        scene.start(scene.options("token"));
        scene.serve("hvs.one");
        scene.wait_for("token", Some("hvs.one")).await;
    });
}

#[test]
fn a_token_that_is_going_to_be_revoked_stays_in_no_file() {
    driven(async {
        for (name, on_expiry, expected) in [
            ("keep", OnExpiry::Keep, Some("")),
            ("truncate", OnExpiry::Truncate, Some("")),
            ("remove", OnExpiry::Remove, None),
        ] {
            let scene = Scene::new();
            let running = scene.start(SinkOptions { on_expiry, ..scene.options(name) });
            scene.serve("hvs.one");
            scene.wait_until_ready(name).await;
            scene.stop.cancel();
            let mut sink = running.await.unwrap();
            assert_eq!(scene.read(name).as_deref(), Some("hvs.one"));
            sink.clear().await;
            assert_eq!(scene.read(name).as_deref(), expected);
        }
    });
}

#[test]
fn a_sink_continues_after_the_end_of_its_publisher() {
    driven(async {
        let scene = Scene::new();
        let path = scene.folder.path().join("later/token");
        scene.start(SinkOptions { path: path.clone(), ..scene.options("token") });
        scene.serve("hvs.one");
        let Scene { publisher, folder, .. } = scene;
        drop(publisher);
        tokio::time::sleep(Duration::from_mins(1)).await;
        std::fs::create_dir(folder.path().join("later")).unwrap();
        until(|| written(&path), || "nothing".to_owned()).await;
    });
}

fn written(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|found| found == b"hvs.one")
}

#[test]
fn logs_and_status_of_a_sink_do_not_hold_the_token() {
    driven(async {
        let scene = Scene::new();
        scene.start(SinkOptions { path: scene.folder.path().join("none/token"), ..scene.options("token") });
        scene.serve("hvs.canary");
        scene.wait_for_reason("token", "none").await;
        let text = format!("{:?} {} {:?}", scene.health.components(), scene.metrics.text(), scene.watch);
        assert!(!text.contains("canary"), "{text}");
    });
}
