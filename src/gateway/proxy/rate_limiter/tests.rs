use futures_util::future::join_all;

use super::*;

/// Sends `count` requests at once, and waits for all. Returns how long each waited in milliseconds, in ascending order;
/// `u128::MAX` for refused ones.
async fn waits(limiter: &RateLimiter, class: RequestClass, count: usize) -> Vec<u128> {
    let outcomes = join_all((0..count).map(|_| limiter.acquire(class))).await;
    let mut waits: Vec<_> =
        outcomes.into_iter().map(|outcome| outcome.map_or(u128::MAX, |wait| wait.as_millis())).collect();
    waits.sort_unstable();
    waits
}

/// Number of a request, and the milliseconds until it passed or was refused.
type Passage = (usize, Result<u128, u128>);

/// Sends `count` requests at once, and begins a pause after a second. Returns the passages in their order.
async fn passages(limiter: &RateLimiter, count: usize, pause: Duration) -> Vec<Passage> {
    let start = Instant::now();
    let passed = Mutex::new(Vec::new());
    let request = |number: usize| {
        let passed = &passed;
        async move {
            let outcome = limiter.acquire(RequestClass::Other).await;
            let after = start.elapsed().as_millis();
            passed.lock().push((number, if outcome.is_ok() { Ok(after) } else { Err(after) }));
        }
    };
    let pausing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        limiter.pause(RequestClass::Other, pause);
    };
    tokio::join!(join_all((0..count).map(request)), pausing);
    passed.into_inner()
}

#[tokio::test(start_paused = true)]
async fn requests_over_the_limit_wait_and_too_many_are_refused() {
    let limiter = RateLimiter::new(RateLimit::PerSecond(2));
    assert_eq!(waits(&limiter, RequestClass::Other, 5).await, [0, 0, 1100, 1100, 2200]);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(waits(&limiter, RequestClass::Other, 3).await, [0, 0, 1100]);
    tokio::time::advance(Duration::from_secs(10)).await;
    let many = waits(&limiter, RequestClass::Other, 100).await;
    assert_eq!((many[54], many[55]), (29_700, 29_700), "the last slot within 30 s");
    assert_eq!(many.iter().filter(|wait| **wait == u128::MAX).count(), 100 - 56);
}

#[tokio::test(start_paused = true)]
async fn the_limit_follows_response_headers() {
    let limiter = RateLimiter::new(RateLimit::FromServer);
    assert_eq!(waits(&limiter, RequestClass::Other, 31).await[29..], [0, 1100]);
    limiter.update_limit(None);
    assert_eq!(waits(&limiter, RequestClass::Other, 100).await, [0; 100]);
    limiter.update_limit(Some(1));
    assert_eq!(waits(&limiter, RequestClass::Other, 1).await, [1100], "a second after the last that was counted");
    limiter.update_limit(None);
    assert_eq!(waits(&limiter, RequestClass::Other, 1).await, [1100], "a response without a limit changes none");
    limiter.update_limit(Some(0));
    assert_eq!(waits(&limiter, RequestClass::Other, 100).await, [0; 100], "0 is no limit");
    limiter.update_limit(None);
    assert_eq!(waits(&limiter, RequestClass::RunList, 100).await, [0; 100]);
    let fixed = RateLimiter::new(RateLimit::PerSecond(2));
    fixed.update_limit(None);
    assert_eq!(waits(&fixed, RequestClass::Other, 3).await, [0, 0, 1100]);
}

#[tokio::test(start_paused = true)]
async fn run_lists_have_their_own_limit_and_a_pause_delays_all() {
    let limiter = RateLimiter::new(RateLimit::PerSecond(100));
    let lists = waits(&limiter, RequestClass::RunList, 31).await;
    assert_eq!((lists[29], lists[30]), (0, u128::MAX));
    assert_eq!(waits(&limiter, RequestClass::Other, 1).await, [0]);
    limiter.pause(RequestClass::Other, Duration::from_secs(3));
    limiter.pause(RequestClass::Other, Duration::from_secs(1));
    assert_eq!(waits(&limiter, RequestClass::Other, 1).await, [3000]);
    assert_eq!(waits(&limiter, RequestClass::Other, 1).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_by_the_limit_per_minute_delays_lists_of_runs_alone() {
    let limiter = RateLimiter::new(RateLimit::PerSecond(100));
    let unlimited = RateLimiter::new(RateLimit::FromServer);
    unlimited.update_limit(None);
    for limiter in [&limiter, &unlimited] {
        limiter.pause(RequestClass::RunList, Duration::from_secs(20));
        assert_eq!(waits(limiter, RequestClass::Other, 1).await, [0]);
        assert_eq!(waits(limiter, RequestClass::RunList, 1).await, [20_000]);
        // A shorter one may be about the limit of all requests.
        limiter.pause(RequestClass::RunList, Duration::from_millis(600));
        assert_eq!(waits(limiter, RequestClass::Other, 1).await, [600]);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_in_the_queue_pass_after_a_pause_in_their_order_and_at_the_rate() {
    let limiter = RateLimiter::new(RateLimit::PerSecond(2));
    let expected: [Passage; 6] = [(0, Ok(0)), (1, Ok(0)), (2, Ok(6000)), (3, Ok(6000)), (4, Ok(7100)), (5, Ok(7100))];
    assert_eq!(passages(&limiter, 6, Duration::from_secs(5)).await, expected);
    let unlimited = RateLimiter::new(RateLimit::FromServer);
    unlimited.update_limit(None);
    unlimited.pause(RequestClass::Other, Duration::from_secs(2));
    let expected: [Passage; 3] = [(0, Ok(6000)), (1, Ok(6000)), (2, Ok(6000))];
    assert_eq!(passages(&unlimited, 3, Duration::from_secs(5)).await, expected);
}

#[tokio::test(start_paused = true)]
async fn requests_that_a_pause_delays_by_more_than_the_maximum_are_refused() {
    let limiter = RateLimiter::new(RateLimit::PerSecond(1));
    let outcomes = passages(&limiter, 20, Duration::from_secs(20)).await;
    let passed: Vec<u128> = outcomes.iter().filter_map(|(_, outcome)| outcome.ok()).collect();
    assert_eq!(passed, [0, 21_000, 22_100, 23_200, 24_300, 25_400, 26_500, 27_600, 28_700, 29_800]);
    let refused: Vec<u128> = outcomes.iter().filter_map(|(_, outcome)| outcome.err()).collect();
    assert!(refused.len() == 10 && refused.iter().all(|after| *after <= 30_000), "{outcomes:?}");

    let limiter = RateLimiter::new(RateLimit::PerSecond(1));
    let outcomes = passages(&limiter, 20, Duration::from_mins(1)).await;
    let refused: Vec<u128> = outcomes.iter().filter_map(|(_, outcome)| outcome.err()).collect();
    assert_eq!(refused, [1100; 19], "none waits for a refusal that is certain");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_leaves_its_slot_to_the_next() {
    let limiter = RateLimiter::new(RateLimit::PerSecond(1));
    assert_eq!(waits(&limiter, RequestClass::Other, 1).await, [0]);
    let left = tokio::time::timeout(Duration::from_millis(100), waits(&limiter, RequestClass::Other, 5)).await;
    assert!(left.is_err(), "{left:?}");
    assert_eq!(waits(&limiter, RequestClass::Other, 1).await, [1000]);
}
