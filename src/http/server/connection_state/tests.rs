use super::*;

#[tokio::test(start_paused = true)]
async fn each_phase_has_its_own_end() {
    let limits = Limits::default();
    let connection = Connection::new(Instant::now(), Arc::default());
    let left =
        |connection: &Connection| connection.deadline(&limits, connection.now()).map(|end| end - connection.now());
    assert_eq!(left(&connection), Some(2000));
    tokio::time::advance(Duration::from_secs(1)).await;
    connection.received();
    assert_eq!(left(&connection), Some(4000), "a head's time counts from the start of a fresh connection");
    assert!(!connection.pause());
    connection.busy(false);
    assert!(!connection.pause());
    assert_eq!(left(&connection), None);
    connection.answered();
    assert_eq!(connection.phase(), (Phase::Idle, 2), "it was accepted first, and answered second");
    assert!(!connection.pause());
    assert_eq!(left(&connection), Some(60_000), "from when the sweep sees it");
    tokio::time::advance(Duration::from_secs(50)).await;
    connection.received();
    assert!(connection.pause(), "a head that comes in pieces asks for a sweep");
    assert_eq!(left(&connection), Some(5000));
    connection.busy(false);
    connection.write_waits();
    assert_eq!(left(&connection), Some(30_000));
    connection.write_went_on();
    assert_eq!(left(&connection), None);
}
