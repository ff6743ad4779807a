//! Sinks with derived tokens: a child with fewer rights, a wrapped token, a line for an environment.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use keyward_agent::secrets::{DerivedTokenDeps, DerivedTokenKind, DerivedTokenManager};
use keyward_agent::server_client::DerivedTokenOptions;
use keyward_agent::token::TokenWatch;
use keyward_credentials::credential_watch::{Availability, RefreshSignal, credential_channel};
use keyward_emulators::secrets::{CannedResponse, LoginMethod, Operation, Role, Secrets, SecretsOptions};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;
use serde_json::{Value, json};

use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::harness::binary::{Binary, ask, eventually};
use crate::harness::log;
use crate::harness::session::{Session, World, one_hour_role};

const JWT: &str = "eyJhbGciOiJub25lIn0.e30.c2ln";

pub(super) fn server(tasks: &mut TaskGroup) -> Secrets {
    let role = Role { policies: vec!["ops".to_owned(), "web".to_owned()], ..Role::default() };
    let roles = BTreeMap::from([("ci".to_owned(), role)]);
    let method = LoginMethod::jwt(vec![SecretString::from(JWT)], roles);
    let options = SecretsOptions {
        methods: BTreeMap::from([("jwt".to_owned(), method)]),
        policies: BTreeMap::from([("web".to_owned(), vec!["secret/data/example".to_owned()])]),
        ..SecretsOptions::for_anyone(Clock::System, "dev", Role::default())
    };
    Secrets::start(options, tasks).unwrap()
}

/// A call with a token: status and response.
pub(super) async fn call(secrets: &Secrets, token: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/v1/{path}", secrets.url());
    let request = match body {
        Some(body) => http.post(url).json(&body),
        None => http.get(url),
    };
    let response = request.header("x-vault-token", token).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap_or_default())
}

pub(super) fn start(secrets: &Secrets, folder: &Path, sinks: &str) -> Binary {
    start_with(secrets, folder, "revoke_on_exit = true\n", sinks)
}

/// As [`start`], with these keys of the session.
pub(super) fn start_with(secrets: &Secrets, folder: &Path, session: &str, sinks: &str) -> Binary {
    let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    put("jwt", JWT);
    let text = format!(
        "[agent]\nstate_dir = \"FOLDER\"\n[server.main]\nkind = \"vault\"\naddress = \"{}\"\n\
         [session.web]\n{session}\
         [session.web.jwt]\nrole = \"ci\"\nfile = \"FOLDER/jwt\"\n[sink.raw]\npath = \"FOLDER/raw\"\n\
         [listener.checks]\naddress = \"unix://FOLDER/checks.sock\"\n{sinks}",
        secrets.url()
    );
    put("keyward.toml", &text.replace("FOLDER", &folder.display().to_string()));
    let config = folder.join("keyward.toml").display().to_string();
    Binary::start(&["run", "--config", &config], &[], folder)
}

/// Ends all tokens of the server, and has the agent look its own up.
pub(super) fn revoke_all(secrets: &Secrets, folder: &Path) {
    secrets.faults().revoke_all();
    let response = tokio::task::block_in_place(|| ask(&folder.join("checks.sock"), "POST", "/agent/v1/check"));
    assert_eq!(response.unwrap().0, 200);
}

/// Waits until a file differs from `before`, and returns its content.
pub(super) fn sink(agent: &Binary, path: &Path, before: &str) -> String {
    tokio::task::block_in_place(|| {
        eventually(Duration::from_secs(40), || match std::fs::read_to_string(path) {
            Ok(text) if !text.is_empty() && text != before => Ok(text),
            other => Err(format!("{}: {other:?}; {}", path.display(), agent.output())),
        })
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_may_hold_a_child_a_wrapping_or_a_line_for_an_environment() {
    let (mut tasks, folder) = (TaskGroup::default(), tempfile::tempdir().unwrap());
    let secrets = server(&mut tasks);
    let sinks = "[sink.env]\npath = \"FOLDER/env\"\nformat = \"env\"\n\
        [sink.child]\npath = \"FOLDER/child\"\n[sink.child.derived_token]\npolicies = [\"web\"]\nttl = \"1h\"\n\
        [sink.wrapped]\npath = \"FOLDER/wrapped\"\nformat = \"json\"\nwrap_ttl = \"5m\"\n";
    let agent = start(&secrets, folder.path(), sinks);
    let file = |name: &str| folder.path().join(name);
    let (raw, child) = (sink(&agent, &file("raw"), ""), sink(&agent, &file("child"), ""));
    assert_eq!(sink(&agent, &file("env"), ""), format!("VAULT_TOKEN={raw}\n"));

    let (_, body) = call(&secrets, &child, "auth/token/lookup-self", None).await;
    assert_eq!((&body["data"]["policies"], &body["data"]["orphan"]), (&json!(["default", "web"]), &json!(false)));
    assert_eq!(call(&secrets, &raw, "kv/example", None).await.0, 200);
    assert_eq!(call(&secrets, &child, "kv/example", None).await.0, 403);
    assert_eq!(call(&secrets, &child, "secret/data/example", None).await.0, 200);

    let wrapped: Value = serde_json::from_str(&sink(&agent, &file("wrapped"), "")).unwrap();
    assert_eq!((&wrapped["creation_path"], &wrapped["ttl"]), (&json!("sys/wrapping/wrap"), &json!(300)));
    let wrapping = wrapped["token"].as_str().unwrap().to_owned();
    let (_, inside) = call(&secrets, &wrapping, "sys/wrapping/unwrap", Some(json!({}))).await;
    assert_eq!(inside["data"]["token"], json!(raw));

    // The derived token ends with the session's token, and the next one gets a new derived token.
    revoke_all(&secrets, folder.path());
    let (next, other) = (sink(&agent, &file("raw"), &raw), sink(&agent, &file("child"), &child));
    assert_eq!(call(&secrets, &other, "auth/token/lookup-self", None).await.0, 200);
    let (ended, output) = tokio::task::block_in_place(|| agent.stop());
    assert!(ended.success(), "{output}");
    assert_eq!(call(&secrets, &other, "auth/token/lookup-self", None).await.0, 403, "it ends with its parent");
    for secret in [raw, child, next, other, wrapping] {
        assert!(!output.contains(&secret), "a token stands in the log: {output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_is_replaced_before_its_end_while_its_parent_lives_on() {
    let (mut tasks, folder) = (TaskGroup::default(), tempfile::tempdir().unwrap());
    let secrets = server(&mut tasks);
    let agent = start(
        &secrets,
        folder.path(),
        "[sink.child]\npath = \"FOLDER/child\"\n[sink.child.derived_token]\nttl = \"10s\"\nnum_uses = 5\n",
    );
    let file = |name: &str| folder.path().join(name);
    let raw = sink(&agent, &file("raw"), "");
    let first = sink(&agent, &file("child"), "");
    let (_, body) = call(&secrets, &first, "auth/token/lookup-self", None).await;
    assert_eq!((&body["data"]["policies"], &body["data"]["num_uses"]), (&json!(["ops", "web"]), &json!(4)));
    let second = sink(&agent, &file("child"), &first);
    assert_eq!(call(&secrets, &second, "auth/token/lookup-self", None).await.0, 200);
    assert_eq!(sink(&agent, &file("raw"), ""), raw);
    assert_eq!(secrets.faults().counts().get(Operation::Login), 1);

    // A denied request is reported and retried slowly.
    let refused = CannedResponse::error(403, "1 error occurred:\n\t* permission denied\n\n");
    secrets.faults().respond_always(Operation::CreateToken, Some(refused));
    tokio::task::block_in_place(|| {
        eventually(Duration::from_secs(40), || {
            let output = agent.output();
            if output.contains("token.derived.failed") { Ok(()) } else { Err(output) }
        });
    });
    let (ended, output) = tokio::task::block_in_place(|| agent.stop());
    assert!(ended.success(), "{output}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_derived_token_is_created_again_only_after_the_backoff() {
    let world = World::new(Role { ttl: Duration::from_hours(1), ..Role::default() });
    let mut session = world.start();
    session.serving().await;
    // The bare text makes the session look its own token up, which it publishes as checked each time.
    let refused = CannedResponse::error(403, "permission denied").retry_after("60");
    world.faults().respond_always(Operation::CreateToken, Some(refused));
    let (watch, _running) = start_child(&world, &session, child(Duration::from_mins(10)));
    let looked_up = world.count(Operation::Lookup);
    sleep(Duration::from_secs(59)).await;
    assert!(world.count(Operation::Lookup) > looked_up, "the session has checked its token");
    assert_eq!(world.count(Operation::CreateToken), 1);
    world.faults().respond_always(Operation::CreateToken, None);
    sleep(Duration::from_secs(40)).await;
    assert_eq!(world.count(Operation::CreateToken), 2);
    assert!(matches!(watch.peek().availability, Availability::Available(_)));
}

#[tokio::test(start_paused = true)]
async fn a_child_that_cannot_be_replaced_is_served_until_its_parent_ends() {
    let world = World::new(Role { ttl: Duration::from_secs(20), renewable: false, ..Role::default() });
    let mut session = world.start();
    let parent = session.serving().await;
    let (mut watch, _running) = start_child(&world, &session, child(Duration::from_mins(15)));
    while !matches!(watch.current().availability, Availability::Available(_)) {
        watch.changed().await.unwrap();
    }
    world.faults().respond_always(Operation::CreateToken, Some(CannedResponse::error(503, "try later")));
    sleep(world.clock.now().until(parent.expires.unwrap()).saturating_sub(Duration::from_secs(1))).await;
    assert_ne!(session.token().unwrap().generation, parent.generation, "the session has its next token");
    assert!(matches!(watch.peek().availability, Availability::Available(_)) && world.health.is_ready());
    sleep(Duration::from_secs(2)).await;
    assert!(session.token().is_some());
    assert!(matches!(watch.peek().availability, Availability::Unavailable { .. }) && !world.health.is_ready());

    world.faults().respond_always(Operation::CreateToken, None);
    while !matches!(watch.current().availability, Availability::Available(_)) {
        watch.changed().await.unwrap();
    }
    assert!(world.health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_child_outlives_the_first_expiry_of_a_parent_that_is_renewed() {
    let world = World::new(Role { ttl: Duration::from_mins(2), max_ttl: None, ..Role::default() });
    let mut session = world.start();
    session.serving().await;
    let (mut watch, _running) = start_child(&world, &session, child(Duration::from_mins(30)));
    while !matches!(watch.current().availability, Availability::Available(_)) {
        watch.changed().await.unwrap();
    }
    for _ in 0..10 {
        sleep(Duration::from_mins(1)).await;
        assert!(matches!(watch.peek().availability, Availability::Available(_)));
    }
    assert_eq!((world.count(Operation::Login), world.count(Operation::CreateToken)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_derived_token_counts_from_its_request() {
    let world = World::new(Role { ttl: Duration::from_hours(1), ..Role::default() });
    let mut session = world.start();
    session.serving().await;
    world.faults().hang_only(Operation::CreateToken);
    let sent = world.clock.now();
    let (mut watch, _running) = start_child(&world, &session, child(Duration::from_mins(10)));
    sleep(Duration::from_secs(1)).await;
    world.driven.set_wall_by(3600);
    sleep(Duration::from_secs(5)).await;
    world.faults().set_unresponsive(false);
    let token = loop {
        if let Availability::Available(token) = watch.current().availability {
            break token;
        }
        watch.changed().await.unwrap();
    };
    let (now, ends) = (world.clock.now(), token.expires.unwrap());
    assert_eq!(sent.until(ends).as_secs(), 600);
    assert_eq!(ends.wall.duration_since(now.wall).unwrap(), now.until(ends), "by the wall clock that was set");
}

#[tokio::test(start_paused = true)]
async fn a_batch_token_is_asked_for_again_without_a_fixed_end_unless_its_uses_are_limited() {
    for (num_uses, requests) in [(0, 2), (5, 1)] {
        log::keep();
        let world = World::new(one_hour_role());
        let mut session = world.start();
        session.serving().await;
        let refused = CannedResponse::error(400, "batch tokens cannot have \"explicit_max_ttl\" set");
        world.faults().respond_next(Operation::CreateToken, refused);
        let options = DerivedTokenOptions { num_uses, has_fixed_end: true, ..child(Duration::from_mins(10)) };
        let (watch, _running) = start_child(&world, &session, options);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(world.count(Operation::CreateToken), requests, "{num_uses} uses");
        let is_served = matches!(watch.peek().availability, Availability::Available(_));
        assert_eq!(is_served, num_uses == 0);
        assert_eq!(log::text().contains("set token_type = service in the token role"), num_uses > 0, "{}", log::text());
    }
}

#[tokio::test]
async fn the_emulated_server_refuses_children_as_the_real_one_does() {
    let mut tasks = TaskGroup::default();
    let secrets = server(&mut tasks);
    let create = async |parent: &Role, body: Value| {
        let parent = secrets.token(parent);
        let (status, response) = call(&secrets, parent.expose_secret(), "auth/token/create", Some(body)).await;
        (status, response["errors"][0].as_str().unwrap_or_default().to_owned())
    };
    let parent = Role::default();
    let service = json!({ "ttl": "1h", "explicit_max_ttl": "1h", "num_uses": 5 });
    assert_eq!(create(&parent, service).await.0, 200);
    assert_eq!(create(&parent, json!({ "type": "batch", "ttl": "1h", "num_uses": 0 })).await.0, 200);
    for (option, value) in [("explicit_max_ttl", json!("1h")), ("num_uses", json!(5)), ("period", json!("1h"))] {
        let mut body = json!({ "type": "batch", "ttl": "1h" });
        body[option] = value;
        let expected = (400, format!("batch tokens cannot have \"{option}\" set"));
        assert_eq!(create(&parent, body).await, expected);
    }
    let limited = Role { num_uses: 5, ..Role::default() };
    let expected = (400, "restricted use token cannot generate child tokens".to_owned());
    assert_eq!(create(&limited, json!({ "ttl": "1h" })).await, expected);
}

/// Options of a child with this TTL.
fn child(ttl: Duration) -> DerivedTokenOptions {
    DerivedTokenOptions { ttl, ..DerivedTokenOptions::default() }
}

/// Starts the manager of a child.
fn start_child(world: &World, session: &Session, options: DerivedTokenOptions) -> (TokenWatch, JoinSet<()>) {
    let (publisher, watch) = credential_channel("starting");
    let deps = DerivedTokenDeps {
        publisher,
        upstream: world.upstream().clone(),
        namespace: None,
        tokens: session.watch.clone(),
        session: session.refresh_signal.clone(),
        refresh_signal: RefreshSignal::new(world.clock.clone()),
        health: Some(world.health.register("sink/a", true, "starting")),
        creation_limit: None,
        clock: world.clock.clone(),
    };
    let kind = DerivedTokenKind::Child(options);
    let mut running = JoinSet::new();
    running.spawn(DerivedTokenManager::new("sink a".to_owned(), kind, deps).run(CancellationToken::new()));
    (watch, running)
}
