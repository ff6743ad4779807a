//! Logins that the server refuses, postpones, or answers with nonsense.

use std::time::{Duration, SystemTime};

use keyward_emulators::secrets::{CannedResponse, Operation, Role};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use super::case::{Case, LEASE, Setup, case, now};
use super::record::Invariant;
use crate::harness::binary::{ask, eventually};
use crate::harness::chaos::Fault;

fn logins(case: &Case, expected: u64) {
    eventually(Duration::from_mins(1), || match case.count(Operation::Login) {
        found if found >= expected => Ok(()),
        found => Err(format!("{found} logins: {}", case.output())),
    });
}

fn start_with(case: &mut Case, responses: Vec<CannedResponse>) {
    case.prepare(&Setup::default());
    for response in responses {
        case.secrets().faults().respond_next(Operation::Login, response);
    }
    case.inject(|_| ());
    case.start();
}

#[test]
fn f13_a_login_that_is_postponed_by_seven_seconds_follows_in_seven_to_ten_and_a_half() {
    case("F13", |case| {
        start_with(case, vec![CannedResponse::error(429, "too many requests").retry_after("7")]);
        logins(case, 1);
        let requested_at = now();
        case.clear(|_| ());
        // Waiting callers do not make it come sooner.
        case.recovers(Duration::from_secs(11));
        let waited = requested_at.elapsed();
        case.record.observe_time("waited_s", waited);
        assert!(waited > Duration::from_millis(6900), "{waited:?}");
        assert_eq!(case.count(Operation::Login), 2);
        case.until_ready();
    });
}

#[test]
fn f15_a_refused_login_is_repeated_with_growing_waits_and_says_why() {
    case("F15", |case| {
        case.prepare(&Setup::default());
        let refused = CannedResponse::error(400, "role \"ci\" could not be found");
        case.secrets().faults().respond_always(Operation::Login, Some(refused));
        case.inject(|_| ());
        case.start();
        logins(case, 1);
        case.shows("noticed_s", Duration::from_secs(2), |case| match case.ask("/readyz")? {
            (503, body) if body.contains("could not be found") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        case.expect(|expected| expected.up = true);
        // The first, and those after about 1 and 5 s.
        std::thread::sleep(Duration::from_secs(9));
        assert_eq!(case.count(Operation::Login), 3, "{}", case.output());
        case.clear(|case| {
            case.secrets().faults().respond_always(Operation::Login, None);
            // The remedy of a refused login is with an operator, and so is its end.
            let (status, body) = ask(&case.path("api.sock"), "POST", "/agent/v1/retry").unwrap();
            assert_eq!(status, 200, "{body}");
        });
        case.recovers(Duration::from_secs(2));
        case.until_ready();
    });
}

#[test]
fn f16_nonsense_for_a_login_is_an_error_and_the_next_try_succeeds() {
    case("F16", |case| {
        let responses = [
            "<html><body>maintenance</body></html>".to_owned(),
            "{\"auth\": {\"client_token\": \"hvs.trunc".to_owned(),
            "{\"auth\": {\"client_token\": 7, \"lease_duration\": \"long\"}}".to_owned(),
            "x".repeat(64 << 20),
        ];
        start_with(case, responses.into_iter().map(|body| CannedResponse::new(200, body)).collect());
        logins(case, 1);
        case.shows("noticed_s", Duration::from_secs(2), |case| match case.ask("/readyz")? {
            (503, body) if body.contains("session/web") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        case.clear(|_| ());
        case.recovers(Duration::from_secs(30));
        let status = std::fs::read_to_string(format!("/proc/{}/status", case.agent().id())).unwrap();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kib: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
        case.record.observe("most_memory_kib", kib);
        case.record.at_most(Invariant::Bounded, "KiB of memory at most", kib, 96 << 10);
        assert!(!case.output().contains("panicked"), "{}", case.output());
        case.until_ready();
    });
}

#[test]
fn f17_calls_whose_responses_are_cut_off_anywhere_are_repeated_one_at_a_time() {
    case("F17", |case| {
        let role = Role { ttl: LEASE * 2, ..Setup::default().role };
        case.prepare(&Setup { role, session: "check_interval = \"off\"", ..Setup::default() });
        case.inject(|case| case.set(Fault::Reset(0)));
        case.start();
        // The head alone has more than a hundred bytes, a complete response more than three hundred.
        for (done, fault) in [(1, Fault::Reset(1)), (2, Fault::Reset(300)), (3, Fault::Flip(0))] {
            logins(case, done);
            case.set(fault);
        }
        logins(case, 4);
        case.clear(|case| case.set(Fault::None));
        case.recovers(Duration::from_secs(30));
        // Their tokens are unknown to everyone, and end with their leases.
        let orphans = case.secrets().faults().tokens() - 1;
        case.record.observe("orphans", orphans);
        assert!(orphans <= 4, "{orphans}");
        case.until_ready();
        // The same for look-ups and renewals. A renewal whose response was lost is tried again.
        (case.calls, case.lines) = (20, 30);
        for fault in [Fault::Reset(1), Fault::Reset(150), Fault::Reset(300)] {
            let lookups = case.count(Operation::Lookup);
            case.set(fault);
            let _ = ask(&case.path("api.sock"), "POST", "/agent/v1/check");
            let made = case.count(Operation::Lookup) - lookups;
            let (status, body) = case.ask("/agent/v1/token").unwrap();
            assert!((made, status) == (1, 200), "{made} look-ups: {body}: {}", case.output());
        }
        case.set(Fault::None);
        for (fault, done) in [(Fault::Reset(300), 1), (Fault::Reset(1), 2)] {
            let renewals = case.count(Operation::Renew);
            case.set(fault);
            eventually(Duration::from_secs(40), || match case.count(Operation::Renew) - renewals {
                0 => Err(format!("no renewal {done}: {}", case.output())),
                _ => Ok(()),
            });
        }
        case.clear(|case| case.set(Fault::None));
        case.recovers(Duration::from_secs(10));
        case.until_ready();
    });
}

#[test]
fn f14_a_retry_after_is_read_in_both_forms_within_bounds_and_nonsense_is_ignored() {
    case("F14", |case| {
        let date = http_date(SystemTime::now() + Duration::from_secs(62));
        case.prepare(&Setup::default());
        case.inject(|_| ());
        // Seconds until the next login: a wait is stretched by up to a half, and a value without a meaning leaves the backoff.
        for (value, least, most) in
            [(date.as_str(), 58.0, 94.0), ("999999", 899.0, 1350.0), ("-1", 0.0, 1.5), ("soon", 0.0, 1.5)]
        {
            let response = CannedResponse::error(503, "sealed").retry_after(value);
            case.secrets().faults().respond_next(Operation::Login, response);
            case.start();
            let wait: f64 = eventually(Duration::from_secs(40), || {
                let output = case.output();
                let line = output.lines().find(|line| line.contains("token.login.failed"));
                // The log is still written: its last line may be incomplete.
                let wait = line.and_then(|line| line.split_once(" retry_in_seconds=")?.1.split_once(' '));
                wait.map(|(seconds, _)| seconds.parse().unwrap()).ok_or(output)
            });
            case.record.observe(&format!("wait_for_{}", value.split(',').next().unwrap()), wait);
            assert!((least..=most).contains(&wait), "{value}: {wait} s: {}", case.output());
            case.agent = None;
            // The next process knows nothing of it.
            std::fs::remove_file(case.path("web.state")).unwrap();
        }
        case.start();
        case.clear(|_| ());
        case.recovers(Duration::from_secs(5));
        case.until_ready();
    });
}

/// A date as HTTP has it (RFC 9110, section 5.6.7).
fn http_date(time: SystemTime) -> String {
    OffsetDateTime::from(time).format(&Rfc2822).unwrap().replace("+0000", "GMT")
}
