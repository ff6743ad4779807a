//! A year with a window each night.

use keyward_agent::certificates::Window;

use super::*;

/// Nights from 03:00 to 05:00 UTC. The driven clock starts at any time of the day.
const NIGHT: Window = Window { start: Duration::from_hours(3), length: Duration::from_hours(2) };

/// Time of the day.
fn of_day(time: SystemTime) -> Duration {
    Duration::from_secs(time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() % DAY.as_secs())
}

fn in_night(time: SystemTime) -> bool {
    (NIGHT.start..=NIGHT.start + NIGHT.length).contains(&of_day(time))
}

/// Starts with a certificate of this life that is replaced at night.
async fn ready_with_nights(bench: &mut Bench<'_>, ttl: Duration) {
    let mut wanted = bench.wanted();
    wanted.request.ttl = Some(ttl);
    wanted.renewal = RenewalPolicy { window: Some(NIGHT), ..RenewalPolicy::default() };
    bench.ready(wanted).await;
}

/// Times of the replacements within a span, to ten minutes. The certificate is valid all the time.
async fn replacements(bench: &Bench<'_>, span: Duration) -> Vec<SystemTime> {
    let mut times = Vec::new();
    let version = || std::fs::read_link(bench.path("web")).unwrap();
    let (mut current, mut served) = (version(), bench.served());
    let ends = bench.now() + span;
    while bench.now() < ends {
        sleep(MINUTE * 10).await;
        assert!(served.ends > bench.now(), "the certificate has ended");
        let next = version();
        if next != current {
            times.push(bench.now());
            (current, served) = (next, bench.served());
        }
    }
    times
}

#[tokio::test(start_paused = true)]
async fn a_year_keeps_its_windows() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    ready_with_nights(&mut bench, DAY * 30).await;
    let times = replacements(&bench, DAY * 365).await;
    assert!((16..=20).contains(&times.len()), "{}", times.len());
    for time in &times {
        // Seen at most ten minutes later.
        assert!(in_night(*time) || in_night(*time - MINUTE * 10), "{:?}", of_day(*time));
    }
    assert_eq!(bench.requests(), 1 + u64::try_from(times.len()).unwrap());
}

#[tokio::test(start_paused = true)]
async fn no_window_is_waited_for_near_the_end() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    ready_with_nights(&mut bench, HOUR * 12).await;
    let times = replacements(&bench, DAY * 14).await;
    assert!(times.iter().any(|time| !in_night(*time)), "none was outside of the nights");
    assert!(times.len() >= 28);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_a_night_moves_the_replacement_to_the_next_one() {
    let world = world();
    let session = world.start();
    let mut bench = Bench::new(&world, &session);
    ready_with_nights(&mut bench, DAY * 30).await;
    let first = bench.served();
    let unavailable = CannedResponse::error(503, "Vault is sealed");
    world.faults().respond_always(Operation::Secret, Some(unavailable));
    // Until its first try in a window has failed.
    while bench.warning().is_empty() {
        sleep(MINUTE * 10).await;
        assert_eq!(bench.served(), first);
    }
    let failed = bench.now();
    assert!(in_night(failed) || in_night(failed - MINUTE * 10));
    sleep(HOUR * 4).await;
    world.faults().respond_always(Operation::Secret, None);
    assert_eq!((bench.served(), bench.reason()), (first.clone(), String::new()), "it is valid for days");
    let times = replacements(&bench, DAY * 2).await;
    assert_eq!(times.len(), 1);
    assert!(in_night(times[0]) || in_night(times[0] - MINUTE * 10));
    assert!(times[0].duration_since(failed).unwrap() > HOUR * 20);
    assert_eq!(bench.warning(), "");
}
