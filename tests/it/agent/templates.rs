//! Rendering of templates, in driven time against the emulated Vault server.

mod certificates;
mod commands;
mod events;
mod made;
mod offline;
mod polled_versions;
mod refused;
mod revocations;
mod stops;
mod unleased;
mod versioned_paths;
mod written_files;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use keyward_agent::output_command::{OutputCommand, SharedCommands};
use keyward_agent::output_watch::{OnMissing, OutputWatch};
use keyward_agent::secrets::{OfflineOptions, SecretRegistry, SecretRegistryDeps};
use keyward_agent::templates::{
    Encoding, Template, TemplateDeps, TemplateFile, TemplateOptions, TemplateSource, TemplateTask,
};
use keyward_credentials::credential_watch::credential_channel;
use keyward_emulators::secrets::terraform::Credential;
use keyward_emulators::secrets::{CannedResponse, LeaseTerms, Operation, Role, terraform};
use keyward_machine::command::{CommandSpec, EnvVars, Launcher};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::harness::session::{Session, World};

const MINUTE: Duration = Duration::from_mins(1);

fn world() -> World {
    let terms = LeaseTerms { ttl: MINUTE * 10, max_ttl: MINUTE * 30, renewable: true };
    let roles = BTreeMap::from([("deploy".to_owned(), Credential::Team(terms))]);
    let role = Role { ttl: MINUTE * 60, max_ttl: Some(MINUTE * 240), ..Role::default() };
    World::with_terraform(role, terraform::TerraformEngineOptions { roles, platform: None })
}

/// Templates of one session, and the folder that they write to.
struct Bench<'a> {
    world: &'a World,
    folder: tempfile::TempDir,
    store: SecretRegistry,
    running: JoinSet<()>,
    commands: SharedCommands,
    /// Ends the templates, and not the store.
    stop: CancellationToken,
}

impl<'a> Bench<'a> {
    fn new(world: &'a World, session: &Session) -> Self {
        Self::with(world, session, None)
    }

    fn with(world: &'a World, session: &Session, offline: Option<OfflineOptions>) -> Self {
        let offline = offline.map(|offline| (offline, vec!["web".to_owned()]));
        Self::with_registry(world, session, |deps| deps.offline = offline)
    }

    fn with_registry(world: &'a World, session: &Session, change: impl FnOnce(&mut SecretRegistryDeps)) -> Self {
        let mut deps = SecretRegistryDeps {
            upstream: world.upstream().clone(),
            tokens: session.watch.clone(),
            session: session.refresh_signal.clone(),
            namespace: None,
            interval: MINUTE * 5,
            rewrite_interval: None,
            clock: world.clock.clone(),
            metrics: world.metrics.clone(),
            offline: None,
        };
        change(&mut deps);
        let (store, keepers) = SecretRegistry::new(deps).unwrap();
        let mut running = JoinSet::new();
        running.spawn(keepers.run(CancellationToken::new()));
        let (folder, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        Self { world, folder, store, running, commands: SharedCommands::default(), stop }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }

    fn start(&mut self, name: &str, text: &str) {
        self.start_with(name, text, None);
    }

    fn start_with(&mut self, name: &str, text: &str, command: Option<&str>) {
        self.start_every(name, text, command, MINUTE * 5);
    }

    /// Starts a template that reads its files again in this interval.
    fn start_every(&mut self, name: &str, text: &str, command: Option<&str>, interval: Duration) {
        let task = self.task(name, text, command, interval);
        self.running.spawn(task.run(self.stop.clone()));
    }

    /// Builds the task of a template.
    fn task(&self, name: &str, text: &str, command: Option<&str>, interval: Duration) -> TemplateTask {
        let text = TemplateSource {
            name: name.to_owned(),
            file: None,
            text: text.to_owned(),
            left: "{{".to_owned(),
            right: "}}".to_owned(),
            variables: EnvVars::default(),
            folders: vec![self.folder.path().to_owned()],
            write_folders: vec![self.folder.path().to_owned()],
            allows_missing_keys: false,
        };
        let template = Template::compile(text.clone()).unwrap();
        let file = TemplateFile {
            destination: self.path(name),
            mode: 0o600,
            owner: None,
            group: None,
            create_folders: true,
            encoding: Encoding::Text,
            backup: false,
            on_missing: OnMissing::Restore,
            command: command.map(|line| OutputCommand { command: CommandSpec::shell_argv(line), timeout: MINUTE }),
            command_debounce: Duration::from_secs(1),
        };
        let options =
            TemplateOptions { text, file: Some(file), debounce: Duration::from_secs(1), interval, required: true };
        let (publisher, _) = credential_channel("starting");
        let parts = TemplateDeps {
            publisher,
            registry: self.store.clone(),
            clock: self.world.clock.clone(),
            health: self.world.health.register(format!("template/{name}"), true, "starting"),
            metrics: self.world.metrics.clone(),
            outputs: OutputWatch::disabled(),
            launcher: Launcher::default(),
            commands: self.commands.clone(),
        };
        TemplateTask::new(options, template, parts)
    }

    /// Ends the templates, as a stop of the agent would.
    async fn end(&mut self) {
        self.stop.cancel();
        sleep(Duration::from_secs(1)).await;
        self.stop = CancellationToken::new();
    }

    /// The value of a metric of a template.
    fn metric(&self, name: &str, labels: &str) -> u64 {
        let text = self.world.metrics.text();
        let line =
            text.lines().find_map(|line| line.strip_prefix(&format!("keyward_{name}{{{labels}}} ")).map(str::to_owned));
        line.map_or(0, |value| value.parse().unwrap())
    }

    fn renders(&self, name: &str) -> u64 {
        self.metric("template_renders_total", &format!("template=\"{name}\",outcome=\"ok\""))
    }

    fn reason(&self, name: &str) -> String {
        self.world.health.components()[&format!("template/{name}")].reason.clone().unwrap_or_default()
    }
}

/// Writes a value to the key-value store as another client.
async fn put(world: &World, path: &str, fields: serde_json::Value) {
    let token = world.secrets.token(&Role::default());
    let url = format!("{}/v1/secret/data/{path}", world.secrets.url());
    let request = reqwest::Client::new().post(url).header("x-vault-token", token.expose_secret());
    let body = json!({ "data": fields }).to_string();
    assert!(request.header("content-type", "application/json").body(body).send().await.unwrap().status().is_success());
}

fn password(path: &str) -> String {
    format!("{{{{ with secret \"secret/data/{path}\" }}}}{{{{ .Data.data.password }}}}{{{{ end }}}}")
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_secret_is_not_requested_in_a_loop_and_delays_no_other() {
    let world = world();
    let session = world.start();
    put(&world, "good", json!({ "password": "p1" })).await;
    let mut bench = Bench::new(&world, &session);
    bench.start("nothing", "{{ with secret \"kv/made\" \"a=b\" }}{{ .Data.x }}{{ end }}");
    bench.start("good", &password("good"));
    sleep(MINUTE).await;
    assert!(bench.reason("nothing").contains("the response is empty"), "{}", bench.reason("nothing"));
    assert_eq!(bench.read("good").as_deref(), Some("p1"));
    let before = world.count(Operation::Secret);
    sleep(MINUTE * 60).await;
    let reads = world.count(Operation::Secret) - before;
    assert!(reads <= 14, "{reads} requests in an hour, of which 11 to 14 read the good one");
}

#[tokio::test(start_paused = true)]
async fn a_path_may_name_a_version_and_hold_characters_that_need_encoding() {
    let world = world();
    let session = world.start();
    put(&world, "web", json!({ "password": "old" })).await;
    put(&world, "web", json!({ "password": "new" })).await;
    put(&world, "a b/\u{fc}n?", json!({ "password": "odd" })).await;
    let mut bench = Bench::new(&world, &session);
    bench.start("first", &password("web?version=1"));
    bench.start("newest", &password("web"));
    bench.start("odd", &password("a b/\u{fc}n"));
    let every = "{{ range secrets \"secret/metadata/a b/\" }}{{ with secret (printf \"secret/data/a b/%s\" .) }}\
                 {{ .Data.data.password }}{{ end }}{{ end }}";
    bench.start("every", every);
    bench.start("encoded", &password("a%20b"));
    sleep(MINUTE).await;
    for (name, expected) in [("first", "old"), ("newest", "new"), ("odd", "odd"), ("every", "odd")] {
        assert_eq!(bench.read(name).as_deref(), Some(expected), "{name}: {}", bench.reason(name));
    }
    assert!(bench.reason("encoded").contains("write it without encoding"), "{}", bench.reason("encoded"));
}

/// vault#32035, vault#26283: one template that fails stops all, and is tried in a loop.
#[tokio::test(start_paused = true)]
async fn one_failing_template_does_not_affect_the_others() {
    let world = world();
    let session = world.start();
    put(&world, "good", json!({ "password": "p1" })).await;
    let mut bench = Bench::new(&world, &session);
    bench.start("good", &password("good"));
    bench.start("gone", &password("nowhere"));
    bench.start("wrong", "{{ with secret \"secret/data/good\" }}\n{{ .Data.data.missing }}{{ end }}");
    std::fs::create_dir(bench.path("folder")).unwrap();
    bench.start("folder", "x");
    sleep(MINUTE).await;
    assert_eq!(bench.read("good").as_deref(), Some("p1"));
    assert!(
        bench.reason("gone").contains("the secret secret/data/nowhere is not available: HTTP 404"),
        "{}",
        bench.reason("gone")
    );
    assert!(
        bench.reason("wrong").starts_with("line 2, column 4: there is no \"missing\""),
        "{}",
        bench.reason("wrong")
    );
    assert!(bench.reason("folder").contains("is a folder, not a regular file"), "{}", bench.reason("folder"));
    assert_eq!(bench.reason("good"), "");

    put(&world, "good", json!({ "password": "p2" })).await;
    sleep(MINUTE * 7).await;
    assert_eq!(bench.read("good").as_deref(), Some("p2"), "it goes on beside those that fail");
    assert_eq!(bench.metric("template_state", "template=\"wrong\""), 2);
    assert_eq!(bench.metric("template_state", "template=\"good\""), 0);
    assert!(
        bench.metric("template_renders_total", "template=\"wrong\",outcome=\"failed\"") <= 3,
        "it is not tried in a loop"
    );
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_read_once_however_many_templates_name_it_and_forgotten_after_the_last() {
    let world = world();
    let session = world.start();
    put(&world, "shared", json!({ "password": "p" })).await;
    let reads = world.count(Operation::Secret);
    let mut bench = Bench::new(&world, &session);
    for at in 0..20 {
        bench.start(&format!("t{at}"), &password("shared"));
    }
    sleep(MINUTE).await;
    assert!((0..20).all(|at| bench.read(&format!("t{at}")).as_deref() == Some("p")));
    assert_eq!((world.count(Operation::Secret) - reads, bench.store.len()), (1, 1));
    bench.end().await;
    sleep(MINUTE * 2).await;
    assert!(bench.store.is_empty(), "what nobody uses is not kept");
    let reads = world.count(Operation::Secret);
    sleep(MINUTE * 30).await;
    assert_eq!(world.count(Operation::Secret), reads);
}

/// vault#11030: each new login renders everything anew.
#[tokio::test(start_paused = true)]
async fn a_new_token_renders_nothing_again_and_leased_secrets_are_leased_again() {
    let world = world();
    let mut session = world.start();
    put(&world, "app", json!({ "password": "p" })).await;
    let mut bench = Bench::new(&world, &session);
    bench.start("static", &password("app"));
    bench.start("leased", "{{ with secret \"terraform/creds/deploy\" }}{{ .Data.token }}{{ end }}");
    sleep(Duration::from_secs(10)).await;
    let (inode, first) = (std::fs::metadata(bench.path("static")).unwrap().ino(), bench.read("leased").unwrap());
    assert_eq!((bench.renders("static"), bench.renders("leased"), world.faults().leases()), (1, 1, 1));

    let before = session.serving().await.generation;
    world.faults().revoke_all();
    // The session finds out when it looks, within five minutes and a half.
    sleep(MINUTE * 8).await;
    assert_ne!(session.serving().await.generation, before);
    assert_eq!(bench.renders("static"), 1);
    assert_eq!(std::fs::metadata(bench.path("static")).unwrap().ino(), inode);
    assert_eq!((bench.renders("leased"), world.faults().leases()), (2, 1));
    assert_ne!(bench.read("leased").unwrap(), first);

    // Renewals and reads without a change do not render either.
    let leased = bench.read("leased");
    sleep(MINUTE * 15).await;
    assert_eq!((bench.renders("static"), bench.renders("leased")), (1, 2));
    assert_eq!(bench.read("leased"), leased);
}

/// consul-template#2165: where renewals fail, each try makes another credential.
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_is_replaced_once_a_life_and_not_once_a_try() {
    for status in [400, 403, 500, 503] {
        let world = world();
        let session = world.start();
        let mut bench = Bench::new(&world, &session);
        world.faults().respond_always(Operation::RenewLease, Some(CannedResponse::error(status, "not now")));
        bench.start("login", "{{ with secret \"database/creds/dev\" }}{{ .Data.username }}{{ end }}");
        let calls = world.count(Operation::RenewLease) + world.count(Operation::Secret);
        sleep(MINUTE * 60).await;
        // Leases of ten minutes, each replaced between two thirds of it and its end.
        let lent = world.faults().leases_issued();
        assert!((4..=15).contains(&lent), "HTTP {status}: {lent} credentials in an hour");
        let calls = world.count(Operation::RenewLease) + world.count(Operation::Secret) - calls;
        assert!(calls <= 200, "HTTP {status}: {calls} calls in an hour");
        // The last one may not be written yet.
        let renders = bench.renders("login");
        assert!(renders == lent || renders + 1 == lent, "HTTP {status}: {renders} renderings of {lent} credentials");
    }
}

/// vault#29507: the interval at which values are looked at makes new credentials, too.
#[tokio::test(start_paused = true)]
async fn values_are_looked_at_by_the_interval_and_credentials_live_by_their_own_time() {
    let world = world();
    let session = world.start();
    put(&world, "app", json!({ "password": "p" })).await;
    let mut bench = Bench::new(&world, &session);
    let both = "{{ with secret \"terraform/creds/deploy\" }}{{ .Data.token }}{{ end }}".to_owned() + &password("app");
    bench.start("both", &both);
    let reads = world.count(Operation::Secret);
    sleep(MINUTE * 22).await;
    // Values are read every five minutes; the credential has a lease of half an hour and is renewed.
    let reads = world.count(Operation::Secret) - reads;
    assert!((4..=6).contains(&reads), "{reads} reads, one of them of the credential");
    assert_eq!((world.faults().leases_issued(), bench.renders("both")), (1, 1));
    assert!(world.count(Operation::RenewLease) >= 2);
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_file_is_not_touched_even_after_a_restart() {
    let world = world();
    let session = world.start();
    put(&world, "app", json!({ "password": "p1", "other": 1 })).await;
    let mut bench = Bench::new(&world, &session);
    bench.start("conf", &password("app"));
    sleep(MINUTE).await;
    let before = std::fs::metadata(bench.path("conf")).unwrap();

    // Another field of the secret changes: it is rendered, and the bytes are the same.
    put(&world, "app", json!({ "password": "p1", "other": 2 })).await;
    sleep(MINUTE * 7).await;
    assert_eq!(bench.renders("conf"), 2);
    bench.end().await;
    bench.start("conf", &password("app"));
    sleep(MINUTE).await;
    let after = std::fs::metadata(bench.path("conf")).unwrap();
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));

    put(&world, "app", json!({ "password": "p2" })).await;
    sleep(MINUTE * 7).await;
    assert_eq!(bench.read("conf").as_deref(), Some("p2"));
}

/// Waits for something that a real process does, in real time.
async fn until(done: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(tokio::time::Instant::now() < deadline, "it did not happen within 30 s");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_command_is_run_after_a_change_until_it_ends_well_and_not_without_one() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let line = format!("echo ran >> {0}; test -e {1}", bench.path("runs").display(), bench.path("mended").display());
    bench.start_with("conf", "x", Some(&line));
    until(|| bench.reason("conf").contains("the template's command failed: it ended with code 1")).await;
    // An alert sees the first event, as the counters are there before.
    assert!(world.metrics.text().contains("template_commands_total{template=\"conf\",outcome=\"ok\"} 0\n"));
    std::fs::write(bench.path("mended"), "").unwrap();
    until(|| bench.reason("conf").is_empty()).await;
    let runs = bench.read("runs").unwrap().lines().count();
    assert!(runs >= 2, "{runs}");
    let counted = ["ok", "failed"]
        .map(|outcome| bench.metric("template_commands_total", &format!("template=\"conf\",outcome=\"{outcome}\"")));
    assert_eq!(counted, [1, runs as u64 - 1]);

    // Started anew, it finds its file as it should be.
    bench.end().await;
    let renders = bench.renders("conf");
    bench.start_with("conf", "x", Some(&line));
    until(|| bench.renders("conf") > renders && bench.reason("conf").is_empty()).await;
    assert_eq!(bench.read("runs").unwrap().lines().count(), runs);
}

#[tokio::test(start_paused = true)]
async fn changes_at_once_are_rendered_once() {
    let world = world();
    let session = world.start();
    for at in 0..5 {
        put(&world, &format!("s{at}"), json!({ "password": "1" })).await;
    }
    let mut bench = Bench::new(&world, &session);
    let all: Vec<String> = (0..5).map(|at| password(&format!("s{at}"))).collect();
    bench.start("all", &all.join(""));
    sleep(MINUTE).await;
    assert_eq!((bench.read("all").as_deref(), bench.renders("all")), (Some("11111"), 1));
    for at in 0..5 {
        put(&world, &format!("s{at}"), json!({ "password": "2" })).await;
    }
    sleep(MINUTE * 7).await;
    assert_eq!(bench.read("all").as_deref(), Some("22222"));
    // Each is looked at on its own schedule, half a minute apart at most: no render a secret and look.
    assert!((2..=6).contains(&bench.renders("all")), "{} renders", bench.renders("all"));
}

#[tokio::test(start_paused = true)]
async fn an_outage_leaves_files_as_they_are_and_is_one_caller_however_many_secrets() {
    let world = world();
    let session = world.start();
    for at in 0..50 {
        put(&world, &format!("s{at}"), json!({ "password": "p" })).await;
    }
    let mut bench = Bench::new(&world, &session);
    for at in 0..50 {
        bench.start(&format!("t{at}"), &password(&format!("s{at}")));
    }
    sleep(MINUTE).await;
    let before = world.count(Operation::Secret);
    world.faults().respond_always(Operation::Secret, Some(CannedResponse::error(503, "Vault is sealed")));
    sleep(MINUTE * 60).await;
    let calls = world.count(Operation::Secret) - before;
    assert!(calls < 150, "{calls} calls in an hour for fifty secrets");
    assert!((0..50).all(|at| bench.read(&format!("t{at}")).as_deref() == Some("p")));
    assert!(world.health.is_ready(), "what is there is still what it should be as far as anyone knows");
    world.faults().respond_always(Operation::Secret, None);
    put(&world, "s7", json!({ "password": "q" })).await;
    sleep(MINUTE * 12).await;
    assert_eq!(bench.read("t7").as_deref(), Some("q"));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_is_requested_once_and_again_before_its_end() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let text = "{{ with pkiCert \"pki/issue/web\" \"common_name=web.example\" \"ttl=30m\" }}{{ .Cert }}{{ .Key }}{{ .CA }}{{ end }}";
    bench.start("cert", text);
    bench.start("same", text);
    sleep(MINUTE).await;
    let first = bench.read("cert").unwrap();
    assert!(first.contains("BEGIN CERTIFICATE") && first.contains("PRIVATE KEY"));
    assert_eq!(bench.read("same").unwrap(), first);
    assert_eq!(world.count(Operation::Secret), 1);
    sleep(MINUTE * 15).await;
    assert_eq!(world.count(Operation::Secret), 1, "the interval of what has no end is not that of a certificate");
    sleep(MINUTE * 8).await;
    assert_eq!(world.count(Operation::Secret), 2);
    assert_ne!(bench.read("cert").unwrap(), first);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_a_template_reads_is_looked_at() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    std::fs::write(bench.path("part"), "one").unwrap();
    let text = format!("{{{{ file \"{}\" }}}}", bench.path("part").display());
    bench.start("whole", &text);
    sleep(MINUTE).await;
    assert_eq!(bench.read("whole").as_deref(), Some("one"));
    std::fs::write(bench.path("part"), "two").unwrap();
    sleep(MINUTE * 6).await;
    assert_eq!(bench.read("whole").as_deref(), Some("two"));
}

#[tokio::test(start_paused = true)]
async fn a_file_is_read_again_by_its_interval_however_often_a_secret_changes() {
    let terms = LeaseTerms { ttl: MINUTE * 3, max_ttl: MINUTE * 3, renewable: false };
    let roles = BTreeMap::from([("deploy".to_owned(), Credential::Team(terms))]);
    let role = Role { ttl: MINUTE * 60, max_ttl: None, ..Role::default() };
    let world = World::with_terraform(role, terraform::TerraformEngineOptions { roles, platform: None });
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    std::fs::write(bench.path("part"), "one").unwrap();
    let file = bench.path("part").display().to_string();
    let text = format!("{{{{ with secret \"terraform/creds/deploy\" }}}}{{{{ end }}}}{{{{ file \"{file}\" }}}}");
    bench.start("whole", &text);
    sleep(MINUTE).await;
    assert_eq!(bench.read("whole").as_deref(), Some("one"));
    std::fs::write(bench.path("part"), "two").unwrap();
    let before = bench.renders("whole");
    sleep(MINUTE * 6).await;
    assert!(bench.renders("whole") >= before + 2, "the secret is replaced more often than the file is read");
    assert_eq!(bench.read("whole").as_deref(), Some("two"));
}

#[tokio::test(start_paused = true)]
async fn a_symlink_that_leads_out_of_the_read_folders_is_not_read() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("shadow"), "canary").unwrap();
    std::fs::create_dir(bench.path("..1")).unwrap();
    std::fs::write(bench.path("..1/part"), "inside").unwrap();
    std::os::unix::fs::symlink("..1/part", bench.path("inner")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("shadow"), bench.path("outer")).unwrap();
    std::os::unix::fs::symlink(outside.path(), bench.path("away")).unwrap();
    for (name, part, expected) in [("a", "inner", Some("inside")), ("b", "outer", None), ("c", "away/shadow", None)] {
        bench.start(name, &format!("{{{{ file \"{}\" }}}}", bench.path(part).display()));
        sleep(MINUTE).await;
        assert_eq!(bench.read(name).as_deref(), expected, "{part}");
    }
    std::fs::remove_file(bench.path("outer")).unwrap();
    std::fs::write(bench.path("outer"), "a file now").unwrap();
    sleep(MINUTE * 6).await;
    assert_eq!(bench.read("b").as_deref(), Some("a file now"));
}

#[tokio::test(start_paused = true)]
async fn a_template_that_has_ended_shows_no_state_and_no_time_of_a_write() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    bench.start("plain", "text");
    sleep(MINUTE).await;
    let gauges = ["keyward_template_state{", "keyward_template_written_timestamp_seconds{"];
    let has_gauges = || gauges.map(|gauge| world.metrics.text().contains(gauge));
    assert_eq!((bench.read("plain").as_deref(), has_gauges()), (Some("text"), [true, true]));
    bench.end().await;
    assert_eq!(has_gauges(), [false, false]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_as_on_the_server_although_its_response_was_slow() {
    let world = world();
    let mut session = world.start();
    session.serving().await;
    let mut bench = Bench::new(&world, &session);
    world.faults().hang_only(Operation::Secret);
    bench.start("login", "{{ with secret \"database/creds/dev\" }}{{ .Data.username }}{{ end }}");
    while world.count(Operation::Secret) == 0 {
        sleep(Duration::from_secs(1)).await;
    }
    let sent = world.clock.now();
    sleep(Duration::from_secs(6)).await;
    world.faults().set_unresponsive(false);
    while !bench.reason("login").is_empty() {
        sleep(Duration::from_secs(1)).await;
    }
    world.faults().go_away().await;
    while bench.reason("login").is_empty() {
        sleep(Duration::from_secs(1)).await;
    }
    let lasted = world.clock.now().since(sent);
    assert!(lasted <= MINUTE * 10 + Duration::from_secs(3), "{lasted:?}");
}
