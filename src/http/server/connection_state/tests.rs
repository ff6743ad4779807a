use super::*;

#[tokio::test(start_paused = true)]
async fn each_phase_has_its_own_timeout() {
    let limits = ListenerLimits::default();
    let connection = ConnectionState::new(Instant::now(), Arc::default());
    let left =
        |connection: &ConnectionState| connection.deadline(&limits, connection.now()).map(|end| end - connection.now());
    assert_eq!(left(&connection), Some(2000));
    tokio::time::advance(Duration::from_secs(1)).await;
    connection.record_bytes();
    assert_eq!(left(&connection), Some(4000), "a head's time counts from the start of a fresh connection");
    assert!(!connection.begin_wait());
    connection.begin_request();
    assert!(!connection.begin_wait());
    assert_eq!(left(&connection), None);
    connection.finish_response();
    assert_eq!(connection.phase(), (Phase::Idle, 2), "it was accepted first, and answered second");
    assert!(!connection.begin_wait());
    assert_eq!(left(&connection), Some(60_000), "from when the sweep sees it");
    tokio::time::advance(Duration::from_secs(50)).await;
    connection.record_bytes();
    assert!(connection.begin_wait(), "a head that comes in pieces asks for a sweep");
    assert_eq!(left(&connection), Some(5000));
    connection.begin_request();
    connection.record_blocked_write();
    assert_eq!(left(&connection), Some(30_000));
    connection.record_write();
    assert_eq!(left(&connection), None);
}
