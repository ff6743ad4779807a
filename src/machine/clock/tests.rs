use super::*;

#[tokio::test(start_paused = true)]
async fn a_suspend_ends_a_sleep_and_a_set_wall_clock_does_not() {
    let driven = TestClock::starting_at(SystemTime::UNIX_EPOCH);
    let clock = Clock::Test(driven.clone());
    let start = clock.now();
    let sleeper = {
        let clock = clock.clone();
        async move {
            clock.sleep(Duration::from_hours(2)).await;
            clock.now()
        }
    };
    let driver = async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        driven.set_wall_by(36_000);
        tokio::time::sleep(Duration::from_mins(1)).await;
        driven.suspend(Duration::from_hours(3));
    };
    let (end, ()) = tokio::join!(sleeper, driver);
    assert_eq!(end.since(start), Duration::from_hours(3) + Duration::from_mins(2));
    assert_eq!(end.wall.duration_since(start.wall).unwrap(), Duration::from_hours(13) + Duration::from_mins(2));
}

#[tokio::test]
async fn the_machines_clock_sleeps_by_boottime() {
    let clock = Clock::System;
    let start = clock.now();
    clock.sleep(Duration::from_millis(20)).await;
    assert!(clock.now().since(start) >= Duration::from_millis(20));
    clock.sleep_until(start).await;
}
