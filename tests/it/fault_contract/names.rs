//! Names that cannot be resolved, that move, and that have dead addresses.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::case::{Case, Setup, case};
use super::record::not_run;
use crate::harness::binary::eventually;
use crate::harness::certificates::{Authority, Presented};
use crate::harness::chaos::{Blackhole, ChaosProxy, Fault};
use crate::harness::dns::{Dns, DnsAnswer};

pub(super) const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn is_root(id: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        not_run(id, "its DNS server has a port of root's");
    }
    root
}

/// Prepares a server with a name, over TLS, that a DNS server of the case resolves.
fn named(case: &mut Case, addresses: Vec<Ipv4Addr>, lease: Duration) -> Dns {
    let authority = Authority::new();
    let presented = Presented::new(authority.issue("vault.test", 2090));
    case.put("ca.pem", &authority.pem);
    let role = keyward_emulators::secrets::Role { ttl: lease, max_ttl: None, ..Setup::default().role };
    case.prepare(&Setup {
        role,
        tls: Some(presented.server()),
        address: "https://vault.test:8200".to_owned(),
        server: "ca_file = \"FOLDER/ca.pem\"\nresponse_timeout = \"3s\"",
        session: "check_interval = \"off\"",
        ..Setup::default()
    });
    Dns::start(&case.path(""), DnsAnswer::Addresses(addresses))
}

/// Counts renewals by the log. A request for the metrics at each poll would occupy the processor, whose use is checked.
fn renewals(case: &Case) -> usize {
    case.output().matches("event=\"token.renew.ok\"").count()
}

/// Waits for another renewal.
fn renewed(case: &Case, before: usize) {
    eventually(Duration::from_secs(30), || match renewals(case) {
        found if found > before => Ok(()),
        found => Err(format!("{found} renewals: {}", case.output())),
    });
}

#[test]
fn f22_a_name_that_cannot_be_resolved_any_more_has_its_last_address() {
    if !is_root("F22") {
        return;
    }
    case("F22", |case| {
        let dns = named(case, vec![HERE], Duration::from_secs(6));
        case.start();
        case.until_ready();
        case.inject(|_| ());
        for response in [DnsAnswer::NoName, DnsAnswer::Failure, DnsAnswer::Silence] {
            dns.answer(response);
            // The next call needs a new connection.
            case.set(Fault::Refuse);
            case.set(Fault::None);
            renewed(case, renewals(case));
        }
        case.clear(|_| dns.answer(DnsAnswer::Addresses(vec![HERE])));
        case.recovers(Duration::from_secs(1));
    });
}

#[test]
fn f23_a_server_that_moves_is_found_though_packets_to_its_old_address_vanish() {
    if !is_root("F23") {
        return;
    }
    case("F23", |case| {
        let dns = named(case, vec![HERE], Duration::from_secs(20));
        case.start();
        case.until_ready();
        let upstream = case.secrets().url().strip_prefix("https://").unwrap().parse().unwrap();
        let elsewhere = Ipv4Addr::new(127, 0, 0, 2);
        let moved = ChaosProxy::start(case.runtime.handle(), (elsewhere, 8200).into(), upstream);
        case.inject(|case| {
            case.set(Fault::Silence);
            dns.answer(DnsAnswer::Addresses(vec![elsewhere]));
        });
        // The renewal finds its connection dead after 3 s, and is tried again on a new one.
        renewed(case, renewals(case));
        case.clear(|_| ());
        case.recovers(Duration::from_secs(1));
        assert_eq!(moved.connections(), 1, "{}", case.output());
        case.network = Some(moved);
    });
}

#[test]
fn f24_of_five_addresses_the_one_that_answers_is_found_within_the_limit_of_a_connection() {
    if !is_root("F24") {
        return;
    }
    case("F24", |case| {
        let dead = [2, 3, 4, 5].map(|last| Ipv4Addr::new(127, 0, 0, last));
        // The system sorts the addresses by their common prefix with ours (RFC 6724): the live one comes last.
        let live = Ipv4Addr::new(127, 1, 0, 1);
        let _dns = named(case, [&dead[..], &[live]].concat(), Duration::from_secs(20));
        let upstream = case.secrets().url().strip_prefix("https://").unwrap().parse().unwrap();
        case.network = Some(ChaosProxy::start(case.runtime.handle(), (live, 8200).into(), upstream));
        // Two refuse connections, and at two packets vanish.
        let _holes = [dead[0], dead[2]].map(|address| Blackhole::at((address, 8200).into()));
        case.inject(|_| ());
        case.clear(|_| ());
        case.start();
        eventually(Duration::from_secs(30), || case.ask("/livez").map(drop));
        case.recovers(Duration::from_secs(6));
        case.until_ready();
    });
}
