//! Faults of a run, and the errors that callers may see in each.

use std::time::Duration;

use crate::harness::chaos::Fault;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// The network between the program and Vault.
    Network(Fault),
    /// Vault is away for longer than its tokens live.
    Outage,
    /// Vault answers reads, logins, renewals and look-ups with 503.
    VaultFails,
    /// Vault answers logins and renewals with HTML.
    Garbage,
    /// Vault's clock is an hour off in its responses.
    Skew,
    /// Every token of Vault is revoked.
    Revoked,
    /// The network between the gateway and its platform.
    Platform(Fault),
    /// The platform answers 503.
    PlatformFails,
    /// The platform's token is replaced, and the old one ends.
    PlatformRotates,
    /// The disk of sinks, templates and state is full.
    FullDisk,
    /// No more descriptors may be opened.
    Descriptors,
    /// SIGSTOP.
    Stopped,
    /// SIGKILL, and another start.
    Killed,
    /// SIGHUP again and again, at last with another configuration.
    Reloads,
    /// SIGHUP with a configuration that is broken.
    BrokenConfig,
    /// Nobody reads the log.
    StalledLog,
    /// The program's child is killed.
    ChildKilled,
    /// The file with the signed token is empty.
    EmptyProof,
}

/// Kinds of errors that a fault explains.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tolerance(&'static [&'static str]);

impl Tolerance {
    pub(super) fn allows(self, kind: &str) -> bool {
        self.0.contains(&kind)
    }
}

/// The server fails, and the program says so.
const REASONS: Tolerance = Tolerance(&["502", "503", "504"]);

/// A response may also end within its body, which has begun.
const NETWORK: Tolerance = Tolerance(&["502", "503", "504", "cut off"]);

/// The process itself is in trouble.
const PROCESS: Tolerance = Tolerance(&["502", "503", "504", "cut off", "unreachable", "no answer"]);

impl Disturbance {
    /// Every fault, each once.
    pub(super) fn all() -> Vec<Self> {
        let (late, slow) = (Duration::from_millis(700), Duration::from_millis(2));
        let network = [
            Fault::Refuse,
            Fault::Silence,
            Fault::Latency(late),
            Fault::Reset(300),
            Fault::Finish(900),
            Fault::Drip(slow),
            Fault::Flip(400),
        ];
        let platform = [Fault::Refuse, Fault::Latency(late), Fault::Reset(200)];
        let others = [
            Self::Outage,
            Self::VaultFails,
            Self::Garbage,
            Self::Skew,
            Self::Revoked,
            Self::PlatformFails,
            Self::PlatformRotates,
            Self::FullDisk,
            Self::Descriptors,
            Self::Stopped,
            Self::Killed,
            Self::Reloads,
            Self::BrokenConfig,
            Self::StalledLog,
            Self::ChildKilled,
            Self::EmptyProof,
        ];
        let network = network.into_iter().map(Self::Network);
        network.chain(platform.into_iter().map(Self::Platform)).chain(others).collect()
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Network(fault) => format!("network to Vault: {fault:?}"),
            Self::Platform(fault) => format!("network to the platform: {fault:?}"),
            other => format!("{other:?}"),
        }
    }

    pub(super) const fn tolerance(self) -> Tolerance {
        match self {
            Self::Network(_) | Self::Outage | Self::Platform(_) => NETWORK,
            Self::VaultFails
            | Self::Garbage
            | Self::Revoked
            | Self::PlatformFails
            | Self::FullDisk
            | Self::EmptyProof => REASONS,
            Self::Descriptors | Self::Stopped | Self::Killed => PROCESS,
            Self::Skew
            | Self::PlatformRotates
            | Self::ChildKilled
            | Self::Reloads
            | Self::BrokenConfig
            | Self::StalledLog => Tolerance(&[]),
        }
    }
}
