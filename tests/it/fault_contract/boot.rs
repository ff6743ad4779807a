//! Servers that are not there when the agent starts.

use std::time::Duration;

use keyward_emulators::secrets::Operation;

use super::case::{SERVER, Setup, case, now};
use super::record::Invariant;
use crate::harness::binary::eventually;
use crate::harness::chaos::{Blackhole, Fault};

#[test]
fn f01_a_server_that_refuses_connections_at_the_start_is_tried_with_backoff() {
    case("F01", |case| {
        case.prepare(&Setup::default());
        case.set(Fault::Refuse);
        case.inject(|_| ());
        case.start();
        let begun = now();
        eventually(Duration::from_secs(30), || case.ask("/livez").map(drop));
        case.took(Invariant::Observable, "socket_s", begun.elapsed(), Duration::from_secs(1));
        case.expect(|expected| expected.up = true);
        let (status, body) = case.ask("/agent/v1/token").unwrap();
        assert_eq!(status, 503, "{body}");
        case.shows("noticed_s", Duration::from_secs(2), |case| match case.ask("/readyz")? {
            (503, body) if body.contains("cannot connect") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        std::thread::sleep(Duration::from_secs(8));
        case.clear(|case| case.set(Fault::None));
        case.recovers(Duration::from_secs(10));
        case.until_ready();
        assert_eq!(case.count(Operation::Login), 1, "one login after the outage");
    });
}

#[test]
fn f02_a_server_whose_packets_vanish_at_the_start_delays_a_caller_by_its_own_wait_at_most() {
    case("F02", |case| {
        case.prepare(&Setup::default());
        case.set(Fault::Refuse);
        let hole = Blackhole::at(SERVER.parse().unwrap());
        case.inject(|_| ());
        case.start();
        eventually(Duration::from_secs(30), || case.ask("/livez").map(drop));
        case.expect(|expected| expected.up = true);
        let begun = now();
        let (status, body) = case.ask("/agent/v1/token?wait=3s").unwrap();
        case.took(Invariant::Observable, "caller_s", begun.elapsed(), Duration::from_secs(4));
        assert_eq!(status, 503, "{body}");
        case.shows("noticed_s", Duration::from_secs(4), |case| match case.ask("/readyz")? {
            (503, body) if body.contains("no connection") || body.contains("time allowed") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        case.clear(|case| {
            drop(hole);
            case.set(Fault::None);
        });
        // One try may still wait for its connection.
        case.recovers(Duration::from_secs(15));
        case.until_ready();
    });
}
