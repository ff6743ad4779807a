use std::time::SystemTime;

use keyward_machine::clock::TestClock;

use super::*;

#[tokio::test]
async fn a_late_reader_sees_the_last_publication_even_after_its_publisher_closed() {
    let (publisher, mut watch) = credential_channel("no token yet");
    let mut late = watch.clone();
    assert!(
        matches!(watch.current().availability, Availability::Unavailable { reason, .. } if &*reason == "no token yet")
    );
    publisher.publish(Availability::Available(Arc::new(7)), None);
    drop(publisher);
    assert_eq!(late.changed().await, Ok(()));
    assert!(matches!(late.current().availability, Availability::Available(value) if *value == 7));
    assert_eq!(late.changed().await, Err(PublisherClosed));
}

#[tokio::test(start_paused = true)]
async fn refresh_requests_are_limited_to_three_and_one_more_each_minute() {
    let refresh_signal = RefreshSignal::new(Clock::Test(TestClock::starting_at(SystemTime::UNIX_EPOCH)));
    for _ in 0..3 {
        assert_eq!(refresh_signal.request(), RefreshRequest::Accepted);
        assert_eq!(refresh_signal.request(), RefreshRequest::Accepted, "a request joins the pending one");
        refresh_signal.requested().await;
        refresh_signal.complete();
    }
    assert_eq!(refresh_signal.request(), RefreshRequest::RateLimited { retry_after: Duration::from_mins(1) });
    tokio::time::advance(Duration::from_secs(45)).await;
    assert_eq!(refresh_signal.request(), RefreshRequest::RateLimited { retry_after: Duration::from_secs(15) });
    tokio::time::advance(Duration::from_secs(15)).await;
    assert_eq!(refresh_signal.request(), RefreshRequest::Accepted);
    refresh_signal.complete();
    assert!(matches!(refresh_signal.request(), RefreshRequest::RateLimited { .. }));
    for _ in 0..2 {
        refresh_signal.allow_one();
    }
    assert_eq!(refresh_signal.request(), RefreshRequest::Accepted, "a check of a new credential is accepted once");
    refresh_signal.complete();
    assert!(matches!(refresh_signal.request(), RefreshRequest::RateLimited { .. }));
}
