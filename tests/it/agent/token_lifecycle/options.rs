//! Changed options of a running session, which keeps its token. Time is driven.

use std::time::Duration;

use keyward_agent::token_lifecycle::SessionStateOptions;
use keyward_emulators::secrets::{CannedResponse, Operation};
use keyward_machine::secret_string::SecretString;

use crate::harness::session::{World, minutes, one_hour_role};

#[tokio::test(start_paused = true)]
async fn changed_options_keep_the_token_without_a_login() {
    let mut world = World::new(one_hour_role());
    let mut session = world.start();
    let first = session.serving().await;
    minutes(1).await;
    world.options.check_interval = Some(Duration::from_secs(30));
    world.options.login_jitter = Duration::from_hours(1);
    session.options.send_replace(world.options.clone());
    let looks = world.count(Operation::Lookup);
    session.serves_for(Duration::from_mins(5)).await;
    let looked = world.count(Operation::Lookup) - looks;
    assert!((9..=11).contains(&looked), "{looked} looks");
    world.options.check_interval = None;
    session.options.send_replace(world.options.clone());
    session.serves_for(Duration::from_hours(1)).await;
    assert!(world.count(Operation::Lookup) - looks <= looked + 1, "checks are off");
    assert_eq!((session.token().unwrap().generation, world.count(Operation::Login)), (first.generation, 1));
}

#[tokio::test(start_paused = true)]
async fn a_state_file_and_a_key_added_at_runtime_are_used_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(one_hour_role());
    let mut session = world.start();
    session.serving().await;
    for name in ["one", "other"] {
        world.options.state = Some(SessionStateOptions {
            file: folder.path().join(name),
            seal_key: Some(SecretString::from(format!("the key of {name}"))),
        });
        session.options.send_replace(world.options.clone());
        minutes(1).await;
        drop(session);
        session = world.start();
        session.serving().await;
    }
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn revocation_at_shutdown_follows_the_latest_options() {
    for expected in [true, false] {
        let mut world = World::new(one_hour_role());
        world.options.revoke_on_exit = !expected;
        let mut session = world.start();
        session.serving().await;
        world.options.revoke_on_exit = expected;
        session.options.send_replace(world.options.clone());
        session.stop().await.revoke().await;
        assert_eq!(world.count(Operation::Revoke), u64::from(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_running_session_cannot_be_changed() {
    let mut world = World::new(one_hour_role());
    let mut session = world.start();
    session.serving().await;
    world.options.name = "other".to_owned();
    session.options.send_replace(world.options.clone());
    minutes(1).await;
    assert_eq!(world.session_statuses.sessions().into_keys().collect::<Vec<_>>(), ["web"]);
}

#[tokio::test(start_paused = true)]
async fn an_inherited_token_is_served_and_renewed_on_schedule_while_logins_are_refused() {
    let world = World::new(one_hour_role());
    let mut session = world.start();
    let first = session.serving().await.generation;
    let shutdown = session.stop().await;
    world.faults().respond_always(Operation::Login, Some(CannedResponse::error(400, "invalid role name")));
    let session = world.start_after(Some(shutdown));
    for _ in 0..5 {
        let before = world.upstream_calls();
        session.serves_for(Duration::from_hours(1)).await;
        let calls = world.upstream_calls() - before;
        assert!(calls <= 200, "{calls} calls in an hour");
    }
    assert_eq!(session.token().unwrap().generation, first);
    assert!((6..=9).contains(&world.count(Operation::Renew)), "{:?}", world.faults().counts());
    assert!((50..=130).contains(&world.count(Operation::Login)), "{:?}", world.faults().counts());
    world.faults().respond_always(Operation::Login, None);
    session.serves_for(Duration::from_mins(6)).await;
    assert_ne!(session.token().unwrap().generation, first);
}
