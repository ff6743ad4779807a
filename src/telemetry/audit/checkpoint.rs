//! Checkpoints: the position of a chain, kept elsewhere, against which a cut tail is found.

use serde::{Deserialize, Serialize};

use super::key::Mac;
use super::line::ChainPosition;

/// Number and MAC of the last record of a chain. Holds no secret, and cannot be made without the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Random name of the chain.
    pub(crate) chain: String,
    /// Number of the record.
    pub(crate) seq: u64,
    /// MAC of the record.
    pub(crate) mac: String,
    /// Time at which the checkpoint was made.
    pub(crate) time: String,
}

/// A line is not a checkpoint.
#[derive(Debug, thiserror::Error)]
#[error("not a checkpoint; expected {{\"chain\":...,\"seq\":...,\"mac\":...,\"time\":...}}")]
pub struct CheckpointError(#[source] Option<serde_json::Error>);

impl Checkpoint {
    /// Makes the checkpoint of a chain's position; `None` before its first record.
    pub(super) fn new(chain: &str, position: &ChainPosition, time: String) -> Option<Self> {
        let seq = position.next.checked_sub(1)?;
        Some(Self { chain: chain.to_owned(), seq, mac: position.mac.hex(), time })
    }

    /// Parses checkpoints, one in each line.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, CheckpointError> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let all: Vec<Self> =
            lines.map(serde_json::from_str).collect::<Result<_, _>>().map_err(|error| CheckpointError(Some(error)))?;
        let are_valid = all.iter().all(|checkpoint| Mac::parse(checkpoint.mac.as_bytes()).is_some());
        if all.is_empty() || !are_valid { Err(CheckpointError(None)) } else { Ok(all) }
    }
}
