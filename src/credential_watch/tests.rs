use std::time::SystemTime;

use super::*;
use crate::clock::Driven;

#[tokio::test]
async fn a_late_reader_sees_what_was_published_last_even_after_its_maker_ended() {
    let (publisher, mut feed) = feed("no token yet");
    let mut late = feed.clone();
    assert!(matches!(feed.current().state, State::None { reason, .. } if &*reason == "no token yet"));
    publisher.publish(State::Serving(Arc::new(7)), None);
    drop(publisher);
    assert_eq!(late.changed().await, Ok(()));
    assert!(matches!(late.current().state, State::Serving(value) if *value == 7));
    assert_eq!(late.changed().await, Err(Ended));
}

#[tokio::test(start_paused = true)]
async fn rings_come_from_a_bucket_of_three_refilled_by_one_a_minute() {
    let nudge = Nudge::new(Clock::Driven(Driven::starting_at(SystemTime::UNIX_EPOCH)));
    for _ in 0..3 {
        assert_eq!(nudge.ring(), Ring::Heard);
        assert_eq!(nudge.ring(), Ring::Heard, "a ring that is not answered yet is joined");
        nudge.rung().await;
        nudge.answered();
    }
    assert_eq!(nudge.ring(), Ring::Spent { retry_after: Duration::from_mins(1) });
    tokio::time::advance(Duration::from_secs(45)).await;
    assert_eq!(nudge.ring(), Ring::Spent { retry_after: Duration::from_secs(15) });
    tokio::time::advance(Duration::from_secs(15)).await;
    assert_eq!(nudge.ring(), Ring::Heard);
    nudge.answered();
    assert!(matches!(nudge.ring(), Ring::Spent { .. }));
    for _ in 0..2 {
        nudge.allow_one();
    }
    assert_eq!(nudge.ring(), Ring::Heard, "a new credential may be doubted once");
    nudge.answered();
    assert!(matches!(nudge.ring(), Ring::Spent { .. }));
}
