//! Faults of the random mix.

use std::time::Duration;

use crate::harness::chaos::Fault;
use crate::harness::dns::DnsAnswer;
use crate::harness::rng::TestRng;

/// A fault of the mix.
#[derive(Debug, Clone)]
pub(super) enum Mixed {
    Network(Fault),
    Dns(DnsAnswer),
    Garbage,
    Status(u16),
    Revoked,
    FullDisk,
    ReadOnlyDisk,
    Descriptors,
    Stopped,
    Killed,
    Reloads,
    BrokenConfig,
    EmptyProof,
}

impl Mixed {
    pub(super) fn choose(rng: &mut TestRng) -> Self {
        let bytes = rng.below(600);
        match rng.below(20) {
            0 => Self::Network(Fault::Refuse),
            1 => Self::Network(Fault::Silence),
            2 => Self::Network(Fault::Latency(rng.milliseconds(800))),
            3 => Self::Network(Fault::Reset(bytes)),
            4 => Self::Network(Fault::Finish(bytes)),
            5 => Self::Network(Fault::Drip(Duration::from_millis(5))),
            6 => Self::Network(Fault::Flip(bytes)),
            7 => Self::Dns(DnsAnswer::NoName),
            8 => Self::Dns(DnsAnswer::Failure),
            9 => Self::Dns(DnsAnswer::Silence),
            10 => Self::Garbage,
            11 => Self::Status(if rng.below(2) == 0 { 500 } else { 503 }),
            12 => Self::Revoked,
            13 => Self::FullDisk,
            14 => Self::ReadOnlyDisk,
            15 => Self::Descriptors,
            16 => Self::Stopped,
            17 => Self::Killed,
            18 => {
                if rng.below(2) == 0 {
                    Self::Reloads
                } else {
                    Self::BrokenConfig
                }
            }
            _ => Self::EmptyProof,
        }
    }
}
