//! A random mix of the network's and the server's faults, from a seed that is printed.

use std::time::Duration;

use keyward::emulators::secrets::{CannedResponse, Operation};

use super::case::{Case, Setup, case, now};
use super::record::not_run;
use crate::harness::chaos::Fault;

/// Length of the mix.
const LENGTH: Duration = Duration::from_mins(1);

/// Numbers from a seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::vars_os().find(|(key, _)| key == name).and_then(|(_, value)| value.into_string().ok())
}

/// Begins one fault, and returns its name.
fn begin(case: &Case, chance: &mut Chance) -> String {
    let bytes = usize::try_from(chance.below(600)).unwrap_or_default();
    let faults = case.secrets().faults();
    let network = match chance.below(9) {
        0 => Fault::Refuse,
        1 => Fault::Silence,
        2 => Fault::Latency(Duration::from_millis(chance.below(800))),
        3 => Fault::Reset(bytes),
        4 => Fault::Finish(bytes),
        5 => Fault::Drip(Duration::from_millis(5)),
        6 => {
            faults.garbage(true);
            return "garbage".to_owned();
        }
        number => {
            let status = if number == 7 { 500 } else { 503 };
            for operation in [Operation::Login, Operation::Renew, Operation::Lookup] {
                faults.answer_always(operation, Some(CannedResponse::error(status, "out of order")));
            }
            return format!("status {status}");
        }
    };
    case.set(network);
    format!("{network:?}")
}

fn end(case: &Case) {
    case.set(Fault::None);
    let faults = case.secrets().faults();
    faults.garbage(false);
    for operation in [Operation::Login, Operation::Renew, Operation::Lookup] {
        faults.answer_always(operation, None);
    }
}

#[test]
fn a_random_mix_of_faults_breaks_no_promise() {
    let given = variable("KEYWARD_FAULTS_SEED").map(|seed| seed.parse().expect("a number"));
    if given.is_none() && variable("KEYWARD_FAULTS").is_none() {
        not_run("MIX", "it takes more than a minute; tests/faults without --fast runs it");
        return;
    }
    // Another one in each run.
    let seed: u64 = given.unwrap_or_else(|| u64::from(std::process::id()));
    case("MIX", |case| {
        eprintln!("seed {seed}: tests/faults --seed {seed}");
        case.record.observe("seed", seed);
        case.ready(&Setup { server: "response_timeout = \"2s\"\nlogin_timeout = \"2s\"", ..Setup::default() });
        (case.calls, case.lines) = (200, 200);
        let (mut chance, begun) = (Chance(seed), now());
        let mut mixed = Vec::new();
        case.inject(|_| ());
        while begun.elapsed() < LENGTH {
            mixed.push(begin(case, &mut chance));
            std::thread::sleep(Duration::from_millis(500 + chance.below(4500)));
            end(case);
            std::thread::sleep(Duration::from_millis(chance.below(3000)));
        }
        case.record.observe("mix", mixed);
        case.clear(|_| ());
        case.recovers(Duration::from_secs(30));
    });
}
