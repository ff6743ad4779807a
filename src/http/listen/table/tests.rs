use super::*;

const OURS: [u32; 2] = [0, 500];

fn limits(connections: usize, per_user: usize) -> Limits {
    Limits { connections, per_user, ..Limits::default() }
}

fn standing(id: u64, uid: u32, phase: Phase, since: u64) -> Standing {
    Standing { id, uid: Some(uid), phase, since }
}

#[test]
fn a_full_listener_makes_room_at_the_cost_of_who_holds_most_and_says_least() {
    let check = |open: &[Standing], uid: Option<u32>, wanted: Admission| {
        assert_eq!(admit(open, uid, &limits(4, 3), OURS), wanted, "{open:?}");
    };
    let busy = |id| standing(id, 1, Phase::Busy, 0);
    check(&[], Some(7), Admission::Room);
    check(
        &[busy(1), busy(2), standing(3, 2, Phase::Idle, 9), standing(4, 2, Phase::Idle, 5)],
        Some(7),
        Admission::InPlaceOf(4),
    );
    check(
        &[busy(1), standing(2, 2, Phase::Idle, 1), standing(3, 2, Phase::Fresh, 8), busy(4)],
        Some(7),
        Admission::InPlaceOf(3),
    );
    check(
        &[standing(1, 8, Phase::Idle, 1), standing(2, 2, Phase::Idle, 7), standing(3, 2, Phase::Head, 8), busy(4)],
        Some(7),
        Admission::InPlaceOf(3),
    );
    check(
        &[busy(1), busy(2), standing(3, 2, Phase::Busy, 0), standing(4, 2, Phase::Busy, 0)],
        Some(7),
        Admission::Full,
    );
}

#[test]
fn a_user_at_its_limit_gives_up_a_connection_of_its_own_and_no_other() {
    let own = |phase| [standing(1, 7, Phase::Busy, 0), standing(2, 7, phase, 4), standing(3, 7, Phase::Busy, 0)];
    assert_eq!(admit(&own(Phase::Idle), Some(7), &limits(100, 3), OURS), Admission::InPlaceOf(2));
    assert_eq!(admit(&own(Phase::Busy), Some(7), &limits(100, 3), OURS), Admission::Full);
    assert_eq!(admit(&own(Phase::Busy), Some(8), &limits(100, 3), OURS), Admission::Room);
}

#[test]
fn the_last_places_are_kept_for_root_and_ourselves() {
    let open: Vec<Standing> = (0..30).map(|id| standing(id, 7, Phase::Busy, 0)).collect();
    for (uid, wanted) in [(8, Admission::Full), (0, Admission::Room), (500, Admission::Room)] {
        assert_eq!(admit(&open, Some(uid), &limits(32, 100), OURS), wanted, "uid {uid}");
    }
    assert_eq!(admit(&open, None, &limits(32, 100), OURS), Admission::Room);
}

#[tokio::test(start_paused = true)]
async fn each_phase_has_its_own_end() {
    let limits = Limits::default();
    let connection = Connection::new(Instant::now());
    let left = |connection: &Connection| connection.deadline(&limits).map(|end| end - connection.now());
    assert_eq!(left(&connection), Some(2000));
    tokio::time::advance(Duration::from_secs(1)).await;
    connection.received();
    assert_eq!(left(&connection), Some(4000), "a head's time counts from the start of a fresh connection");
    assert!(!connection.pause());
    connection.busy();
    assert!(!connection.pause());
    assert_eq!(left(&connection), None);
    connection.answered();
    assert_eq!(left(&connection), None, "not stamped before the task sleeps");
    assert!(!connection.pause());
    assert_eq!(left(&connection), Some(60_000));
    tokio::time::advance(Duration::from_secs(50)).await;
    connection.received();
    assert!(connection.pause(), "a head that comes in pieces asks for a sweep");
    assert_eq!(left(&connection), Some(5000));
    connection.busy();
    connection.write_waits();
    assert_eq!(left(&connection), Some(30_000));
    connection.write_went_on();
    assert_eq!(left(&connection), None);
}
