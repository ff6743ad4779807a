//! State that outlives a restart: the encrypted token, and the backoff. Dropping a session is `kill -9`.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation};

use crate::harness::blocking::{BusyThread, let_tasks_run, run_with_one_blocking_thread};
use crate::harness::session::{World, minutes, one_hour_role};

fn sealed() -> (World, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(one_hour_role());
    world.keep_state(folder.path(), true);
    (world, folder)
}

/// vault#16148: a restart forgets a token that is still alive.
#[tokio::test(start_paused = true)]
async fn twenty_kills_and_restarts_need_one_login() {
    let (world, _folder) = sealed();
    let mut session = world.start();
    let first = session.serving().await;
    for _ in 0..20 {
        minutes(1).await;
        drop(session);
        session = world.start();
        let token = session.serving().await;
        assert_eq!(token.secret.secret().expose_secret(), first.secret.secret().expose_secret());
        assert_eq!(token.expires.unwrap().boot.as_secs(), first.expires.unwrap().boot.as_secs());
    }
    session.serves_for(Duration::from_hours(2)).await;
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn the_state_file_has_mode_0600_and_holds_no_plain_secret() {
    let (world, folder) = sealed();
    let mut session = world.start();
    let token = session.serving().await;
    minutes(1).await;
    let file = folder.path().join("web.json");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"token\":\"") && !text.contains(token.secret.secret().expose_secret()), "{text}");
    assert!(!text.contains(token.accessor.as_deref().unwrap()));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[tokio::test(start_paused = true)]
async fn a_saved_token_that_cannot_be_looked_up_is_served_at_once() {
    let (mut world, _folder) = sealed();
    world.wrap_ttl = Some(Duration::from_mins(10));
    let mut session = world.start();
    let first = session.serving().await;
    minutes(1).await;
    drop(session);
    let start = world.clock.now();
    let token = world.start().serving().await;
    assert_eq!(token.secret.secret().expose_secret(), first.secret.secret().expose_secret());
    assert!(world.clock.now().since(start) < Duration::from_millis(500));
    assert_eq!(world.count(Operation::Login), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_key_the_token_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(one_hour_role());
    world.keep_state(folder.path(), false);
    world.start().serving().await;
    minutes(1).await;
    let mut session = world.start();
    session.serving().await;
    assert_eq!(world.count(Operation::Login), 2);
    minutes(1).await;
    let text = std::fs::read_to_string(folder.path().join("web.json")).unwrap();
    assert!(text.contains("\"token\":null"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_at_start_does_not_shorten_the_tokens_life() {
    let (world, _folder) = sealed();
    let mut session = world.start();
    let ends = session.serving().await.expires.unwrap();
    minutes(10).await;
    drop(session);
    for hangs in [false, true] {
        if hangs {
            world.faults().come_back().await;
            world.faults().set_unresponsive(true);
        } else {
            world.faults().go_away().await;
        }
        let started = world.clock.now();
        let mut session = world.start();
        session.serving().await;
        assert!(world.clock.now().since(started) <= Duration::from_secs(1));
        minutes(10).await;
        assert!(session.token().is_some());
    }
    let mut session = world.start();
    session.serving().await;
    session.not_serving().await;
    let late = world.clock.now().boot.abs_diff(ends.boot);
    assert!(late <= Duration::from_secs(2), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_revoked_while_stopped_is_not_served() {
    let (world, _folder) = sealed();
    let first = world.start().serving().await;
    minutes(1).await;
    world.faults().revoke_all();
    let mut session = world.start();
    let second = session.serving().await;
    assert_ne!(first.secret.secret().expose_secret(), second.secret.secret().expose_secret());
    assert_eq!(world.count(Operation::Login), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_expired_while_stopped_is_not_served() {
    let (world, _folder) = sealed();
    world.start().serving().await;
    minutes(1).await;
    minutes(60).await;
    world.faults().go_away().await;
    let session = world.start();
    minutes(1).await;
    assert!(session.token().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_modified_or_foreign_state_file_is_ignored_and_a_login_made() {
    let damage: [fn(&mut World, &std::path::Path); 7] = [
        |_, file| {
            let text = std::fs::read_to_string(file).unwrap();
            let at = text.find("\"token\":\"").unwrap() + 40;
            let other = if text.as_bytes()[at] == b'A' { "B" } else { "A" };
            std::fs::write(file, [&text[..at], other, &text[at + 1..]].concat()).unwrap();
        },
        |_, file| std::fs::write(file, "not what we write").unwrap(),
        |_, file| std::fs::write(file, vec![b' '; 1_000_000]).unwrap(),
        |_, file| {
            std::fs::remove_file(file).unwrap();
            std::fs::create_dir(file).unwrap();
        },
        |_, file| {
            std::fs::rename(file, file.with_extension("moved")).unwrap();
            std::os::unix::fs::symlink(file.with_extension("moved"), file).unwrap();
        },
        |world, _| world.role = "ops".to_owned(),
        |world, _| world.seal_with("another key"),
    ];
    for (case, damage) in damage.into_iter().enumerate() {
        let (mut world, folder) = sealed();
        world.start().serving().await;
        minutes(1).await;
        damage(&mut world, &folder.path().join("web.json"));
        let mut session = world.start();
        session.serving().await;
        assert_eq!(world.count(Operation::Login), 2, "case {case}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_after_a_refusal_outlives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(one_hour_role());
    world.keep_state(folder.path(), false);
    world.faults().respond_always(Operation::Login, Some(CannedResponse::error(400, "invalid role name \"dev\"")));
    for _ in 0..100 {
        let session = world.start();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(session.token().is_none());
    }
    assert_eq!(world.count(Operation::Login), 4, "the first, and its quick retries");
}

#[tokio::test(start_paused = true)]
async fn sessions_that_stop_before_they_have_read_the_state_file_leave_it_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(one_hour_role());
    world.keep_state(folder.path(), false);
    world.faults().respond_always(Operation::Login, Some(CannedResponse::error(400, "invalid role name \"dev\"")));
    let session = world.start();
    minutes(1).await;
    drop(session.stop().await);
    let file = folder.path().join("web.json");
    let before = std::fs::read_to_string(&file).unwrap();
    // It is stopped before its first step.
    drop(world.start().stop().await);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn a_clock_behind_the_login_makes_the_saved_token_unusable() {
    let (world, _folder) = sealed();
    world.start().serving().await;
    minutes(1).await;
    world.driven.set_wall_by(-7200);
    world.faults().go_away().await;
    let session = world.start();
    minutes(1).await;
    assert!(session.token().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_unwritable_state_folder_only_loses_the_saved_state() {
    let mut world = World::new(one_hour_role());
    world.keep_state(std::path::Path::new("/proc/none"), true);
    let mut session = world.start();
    session.serving().await;
    session.serves_for(Duration::from_hours(2)).await;
}

#[tokio::test(start_paused = true)]
async fn failures_are_inherited_by_a_session_with_the_same_settings_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(one_hour_role());
    world.keep_state(folder.path(), false);
    let refused = CannedResponse::error(400, "invalid role name \"dev\"");
    world.faults().respond_always(Operation::Login, Some(refused));
    let session = world.start();
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(session);
    world.faults().respond_always(Operation::Login, None);

    let session = world.start();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(session.reason().contains("invalid role name"), "{}", session.reason());
    let status = &world.session_statuses.sessions()["web"];
    assert!(status.last_error.as_ref().unwrap().contains("invalid role name") && status.next_step_at.is_some());
    drop(session);

    world.fingerprint = "two".to_owned();
    let start = world.clock.now();
    world.start().serving().await;
    assert!(world.clock.now().since(start) < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_restart_with_other_settings_replaces_the_saved_token_once() {
    let (mut world, _folder) = sealed();
    let mut session = world.start();
    let first = session.serving().await;
    minutes(1).await;
    drop(session);
    world.fingerprint = "two".to_owned();
    for _ in 0..2 {
        let mut session = world.start();
        session.serving().await;
        minutes(1).await;
        let token = session.token().unwrap();
        assert_ne!(token.secret.secret().expose_secret(), first.secret.secret().expose_secret());
        assert_eq!(world.count(Operation::Login), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn the_login_of_a_changed_session_is_still_made_after_a_restart() {
    let (mut world, _folder) = sealed();
    let mut session = world.start();
    let first = session.serving().await;
    minutes(1).await;
    world.fingerprint = "two".to_owned();
    let refused = CannedResponse::error(400, "invalid role name \"dev\"");
    world.faults().respond_always(Operation::Login, Some(refused));
    let mut session = world.start_after(Some(session.stop().await));
    let inherited = session.serving().await;
    assert_eq!(inherited.secret.secret().expose_secret(), first.secret.secret().expose_secret());
    minutes(1).await;
    drop(session);

    world.faults().respond_always(Operation::Login, None);
    let session = world.start();
    minutes(6).await;
    let token = session.token().unwrap();
    assert_ne!(token.secret.secret().expose_secret(), first.secret.secret().expose_secret());
}

#[tokio::test(start_paused = true)]
async fn logins_with_settings_that_change_at_each_restart_share_one_bucket() {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(one_hour_role());
    world.keep_state(folder.path(), false);
    world.faults().respond_always(Operation::Login, Some(CannedResponse::error(400, "invalid role name \"dev\"")));
    for number in 0..100 {
        world.fingerprint = number.to_string();
        let _session = world.start();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(world.count(Operation::Login) <= 9, "{}", world.count(Operation::Login));
}

#[test]
fn a_state_file_that_is_not_read_in_time_is_reported() {
    run_with_one_blocking_thread(async {
        crate::harness::log::keep();
        let (world, _folder) = sealed();
        let busy = BusyThread::start();
        let mut session = world.start();
        let_tasks_run().await;
        tokio::time::advance(Duration::from_secs(6)).await;
        let_tasks_run().await;
        busy.release().await;
        session.serving().await;
        let text = crate::harness::log::text();
        assert!(text.contains("state.write.failed") && text.contains("web.json was not read within 5 s"), "{text}");
    });
}
