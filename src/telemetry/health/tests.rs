use std::time::{Duration, SystemTime};

use keyward_machine::clock::TestClock;
use serde_json::json;

use super::*;

#[test]
fn the_process_is_ready_when_every_required_component_is() {
    let health = Health::default();
    let session = health.register("session/web", true, "no token yet");
    let sink = health.register("sink/token", false, "not written yet");
    assert!(!health.is_ready());
    session.set_ready();
    assert!(health.is_ready() && health.is_started());
    session.set_failed(ErrorCode::TokenExpired, "the token has expired");
    assert!(!health.is_ready() && health.is_started());
    assert_eq!(health.components()["session/web"].describe(), "the token has expired [KW-1302]");
    session.set_not_ready("no token yet");
    assert_eq!(health.components()["session/web"].describe(), "no token yet");
    drop(session);
    assert!(health.is_ready());
    drop(sink);
    assert!(health.components().is_empty());
}

#[test]
fn the_newest_component_of_a_name_counts_until_it_is_dropped() {
    let health = Health::default();
    let old = health.register("session/web", true, "no token yet");
    old.set_ready();
    let new = health.register("session/web", true, "no token yet");
    assert!(!health.is_ready());
    drop(new);
    assert!(health.is_ready());
    let new = health.register("session/web", true, "no token yet");
    drop(old);
    assert!(!health.is_ready());
    new.set_ready();
    assert!(health.is_ready());
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_component_has_its_target_and_times_until_its_readiness_changes() {
    let clock = TestClock::starting_at(SystemTime::UNIX_EPOCH);
    let health = Health(Arc::new(Inner { clock: Clock::Test(clock.clone()), ..Inner::default() }));
    let sink = health.register("sink/token", true, "not written yet");
    let status = || serde_json::to_value(&health.statuses()["sink/token"]).unwrap();
    sink.set_target("/run/token");
    sink.keep_previous(true);
    clock.suspend(Duration::from_secs(5));
    sink.set_failed(ErrorCode::OutputFolder, "no space left");
    sink.set_retry_at(health.now() + Duration::from_secs(2));
    let failing = json!({
        "ready": false, "required": true, "started": false, "reason": "no space left", "code": "KW-1401",
        "since": "1970-01-01T00:00:00Z", "target": "/run/token", "next_try": "1970-01-01T00:00:07Z",
    });
    assert_eq!(status(), failing);
    sink.set_ready();
    sink.record_update();
    clock.suspend(Duration::from_secs(5));
    // A clock that is set later changes the distance to no time.
    clock.set_wall_by(100);
    let ready = json!({
        "ready": true, "required": true, "started": true,
        "since": "1970-01-01T00:01:45Z", "target": "/run/token", "updated": "1970-01-01T00:01:45Z",
    });
    assert_eq!(status(), ready);
    sink.keep_previous(true);
    assert_eq!(status(), ready, "nothing that is ready keeps what it had before");
    sink.warn(ErrorCode::OutputFolder, "somebody else changed the file");
    clock.suspend(Duration::from_secs(5));
    sink.warn(ErrorCode::OutputFolder, "somebody else changed the file again");
    let warning =
        json!({ "reason": "somebody else changed the file again", "code": "KW-1401", "since": "1970-01-01T00:01:50Z" });
    assert_eq!(status()["warning"], warning);
    sink.clear_warning();
    assert_eq!(status(), ready);
    sink.set_failed(None, "no space left");
    sink.keep_previous(true);
    assert_eq!(status()["keeps_previous"], true);
    assert_eq!(status()["since"], "1970-01-01T00:01:55Z");
}
