//! Times in the life of a token: when it is replaced, and when it is handed out for the last time. Pure.

use std::time::Duration;

use keyward_machine::clock::ClockReading;

/// Longest time before its end at which a token is replaced. SDKs of Azure ask again in the last five minutes: there is another one
/// by then.
const MAX_RENEWAL_MARGIN: Duration = Duration::from_mins(6);

/// Longest time before its end at which a token is handed out no more: it has to reach a service before it ends.
const MAX_SERVING_MARGIN: Duration = Duration::from_secs(5);

/// Shortest wait before the next request: a metadata service that keeps tokens may return one that ends soon.
const MIN_INTERVAL: Duration = Duration::from_secs(5);

/// Returns the time at which a token that was obtained at `now` is replaced. `is_same` if it is the one from before.
pub(super) fn renewal(now: ClockReading, expires: ClockReading, is_same: bool) -> ClockReading {
    let life = now.until(expires);
    // Of the same token its rest is halved, so that few calls are made until another one is there.
    let wait = if is_same { life / 2 } else { life.saturating_sub((life / 10).min(MAX_RENEWAL_MARGIN)) };
    now + wait.max(MIN_INTERVAL)
}

/// Returns the time from which a token that was obtained at `now` is handed out no more.
pub(super) fn end_of_serving(now: ClockReading, expires: ClockReading) -> ClockReading {
    let life = now.until(expires);
    now + life.saturating_sub((life / 20).min(MAX_SERVING_MARGIN))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    const START: ClockReading = ClockReading { boot: Duration::from_hours(1), wall: SystemTime::UNIX_EPOCH };

    #[test]
    fn a_token_is_replaced_and_withheld_before_its_end() {
        let check = |life: u64, renewal_after: u64, served_for: u64| {
            let expires = START + Duration::from_secs(life);
            let times =
                [renewal(START, expires, false), end_of_serving(START, expires)].map(|at| at.since(START).as_secs());
            assert_eq!(times, [renewal_after, served_for], "{life}");
        };
        check(86_400, 86_040, 86_395);
        check(3600, 3240, 3595);
        check(60, 54, 57);
        check(20, 18, 19);
        check(3, 5, 2);
        check(0, 5, 0);
    }

    #[test]
    fn the_same_token_again_is_asked_for_less_and_less_often() {
        let expires = START + Duration::from_mins(6);
        let mut now = START;
        let mut waits = Vec::new();
        while now.boot < expires.boot {
            let next = renewal(now, expires, true);
            waits.push(next.since(now).as_secs());
            now = next;
        }
        assert_eq!(waits, [180, 90, 45, 22, 11, 5, 5, 5]);
    }
}
