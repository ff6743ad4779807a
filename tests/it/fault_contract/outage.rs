//! A server that is lost while the agent has a token.

use std::time::Duration;

use keyward_emulators::secrets::Operation;

use super::case::{Case, LEASE, Setup, case};
use crate::harness::binary::eventually;
use crate::harness::chaos::Fault;

/// Waits for the end of the token, and for its signs.
fn token_ends(case: &mut Case) {
    eventually(Duration::from_secs(40), || match case.ask("/agent/v1/token")? {
        (503, _) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    case.shows("noticed_s", Duration::from_secs(2), |case| match case.ask("/readyz")? {
        (503, body) if body.contains("expired") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    case.shows("metric_s", Duration::from_secs(2), |case| {
        let (_, metrics) = case.ask("/metrics")?;
        let ended = metrics.contains("keyward_token_expiry_timestamp_seconds{session=\"web\"} 0");
        if ended { Ok(()) } else { Err(metrics) }
    });
}

#[test]
fn f06_a_token_is_served_until_its_end_when_the_server_dies_and_its_file_is_removed_then() {
    case("F06", |case| {
        case.ready(&Setup { sink: "on_expiry = \"remove\"", ..Setup::default() });
        std::thread::sleep(Duration::from_secs(1));
        case.inject(|case| case.set(Fault::Refuse));
        token_ends(case);
        eventually(Duration::from_secs(5), || {
            if case.path("token").exists() { Err("the sink is still there".to_owned()) } else { Ok(()) }
        });
        case.clear(|case| case.set(Fault::None));
        case.recovers(Duration::from_secs(10));
    });
}

#[test]
fn f07_an_outage_of_two_leases_is_over_with_one_login() {
    case("F07", |case| {
        case.ready(&Setup::default());
        case.inject(|case| case.set(Fault::Refuse));
        token_ends(case);
        std::thread::sleep(LEASE);
        let logins = case.count(Operation::Login);
        // A server that comes back is slow at first.
        case.clear(|case| case.set(Fault::Latency(Duration::from_millis(200))));
        case.recovers(Duration::from_secs(10));
        assert_eq!(case.count(Operation::Login) - logins, 1);
    });
}
