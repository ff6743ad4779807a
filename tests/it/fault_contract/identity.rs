//! Identity sources that are unreachable, slow or invalid: the metadata service, and a file with a signed token.

use std::net::TcpStream;
use std::time::Duration;

use keyward_emulators::cloud::FaultTarget;
use keyward_emulators::secrets::{Operation, Role};

use super::case::{Case, JWT, LEASE, Setup, case};
use super::record::Invariant;
use crate::harness::binary::{ask, eventually};
use crate::harness::chaos::{ChaosProxy, Fault};
use crate::harness::world::World;

/// Causes a fault of a case.
type Injection = fn(&Case);

const METADATA: &str = "169.254.169.254:80";

/// Prepares an agent on an emulated machine of Azure; the metadata service may stand behind a proxy.
fn on_a_machine(case: &mut Case, proxied: bool) {
    let behind = "127.0.0.1:18080";
    let address = if proxied { behind } else { METADATA };
    let world = World::with(|cloud| cloud.metadata = address.parse().unwrap(), |_, _| ());
    if proxied {
        let (at, to) = (METADATA.parse().unwrap(), behind.parse().unwrap());
        case.network = Some(ChaosProxy::start(case.runtime.handle(), at, to));
    }
    world.config(&case.path(""), "");
    case.sink = case.path("token");
    case.secrets = Some(world.secrets.clone());
    case.world = Some(world);
}

fn requests(case: &Case) -> u64 {
    case.world.as_ref().unwrap().cloud.faults().requests(FaultTarget::Metadata)
}

#[test]
fn f03_without_the_metadata_service_the_server_is_not_asked() {
    case("F03", |case| {
        on_a_machine(case, false);
        let refuse = |case: &Case, on: bool| {
            case.world.as_ref().unwrap().cloud.faults().refuse(on);
            eventually(Duration::from_secs(10), || match TcpStream::connect(METADATA).is_err() {
                refused if refused == on => Ok(()),
                refused => Err(format!("refused: {refused}")),
            });
        };
        case.inject(|case| refuse(case, true));
        case.start();
        eventually(Duration::from_secs(30), || case.ask("/livez").map(drop));
        case.expect(|expected| expected.up = true);
        // The source is tried for some seconds before the session reports the reason.
        case.shows("noticed_s", Duration::from_secs(10), |case| match case.ask("/readyz")? {
            (503, body) if body.contains("169.254.169.254") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        assert_eq!(case.secrets().faults().counts().total(), 0, "{}", case.output());
        case.clear(|case| refuse(case, false));
        case.recovers(Duration::from_secs(15));
        case.until_ready();
    });
}

#[test]
fn f04_a_metadata_service_that_starts_is_asked_again_until_it_works() {
    case("F04", |case| {
        on_a_machine(case, false);
        case.inject(|case| {
            let faults = case.world.as_ref().unwrap().cloud.faults().clone();
            faults.fail_next_tokens(2, 404);
            faults.fail_next_tokens(1, 410);
        });
        case.start();
        eventually(Duration::from_secs(40), || match requests(case) {
            3.. => Ok(()),
            found => Err(format!("{found} requests: {}", case.output())),
        });
        case.clear(|_| ());
        // After a 410 the service updates itself: Azure asks for ten seconds and more.
        case.recovers(Duration::from_secs(12));
        assert_eq!((requests(case), case.count(Operation::Login)), (4, 1));
        case.until_ready();
    });
}

#[test]
fn f05_a_metadata_service_that_drips_holds_back_no_caller_and_no_stop() {
    case("F05", |case| {
        on_a_machine(case, true);
        case.inject(|case| case.set(Fault::Drip(Duration::from_secs(1))));
        case.start();
        eventually(Duration::from_secs(30), || case.ask("/livez").map(drop));
        case.expect(|expected| expected.up = true);
        std::thread::sleep(Duration::from_secs(8));
        assert_eq!(case.secrets().faults().counts().total(), 0, "{}", case.output());
        let (status, _) = case.ask("/readyz").unwrap();
        case.record.check(Invariant::Observable, (status != 503).then(|| format!("/readyz answers {status}")));
        case.clear(|case| case.set(Fault::None));
        case.recovers(Duration::from_secs(30));
        case.until_ready();
    });
}

#[test]
fn f42_a_file_with_a_signed_token_is_read_for_each_login() {
    case("F42", |case| {
        let role = Role { ttl: LEASE, max_ttl: Some(LEASE), ..Role::default() };
        case.ready(&Setup { role, ..Setup::default() });
        let refusals = |case: &Case| case.output().matches("token.login.failed").count();
        case.inject(|case| case.put("jwt", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJvdGhlciJ9.c2ln"));
        // The next login reads the other token, which the server refuses.
        eventually(Duration::from_secs(30), || if refusals(case) == 1 { Ok(()) } else { Err(case.output()) });
        let retry = |case: &Case| ask(&case.path("api.sock"), "POST", "/agent/v1/retry").unwrap();
        let faults: [(&str, Injection); 3] = [
            ("empty", |case| case.put("jwt", "")),
            ("No such file", |case| std::fs::remove_file(case.path("jwt")).unwrap()),
            ("not a regular file", |case| std::fs::create_dir(case.path("jwt")).unwrap()),
        ];
        for (reason, inject) in faults {
            inject(case);
            // While the last token is valid, the response is about it.
            retry(case);
            case.shows("noticed_s", Duration::from_secs(10), |case| match case.ask("/agent/v1/status")? {
                (200, body) if body.contains(reason) => Ok(()),
                other => Err(format!("{reason}: {other:?}")),
            });
        }
        case.clear(|case| {
            std::fs::remove_dir(case.path("jwt")).unwrap();
            case.put("jwt", JWT);
        });
        case.recovers(Duration::from_secs(15));
    });
}
