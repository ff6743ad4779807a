//! The fuzz targets on their seeds and on some thousand changed ones, so that they don't rot between two fuzzings.

use std::path::Path;

#[path = "../../fuzz/bodies.rs"]
mod bodies;

/// Tells changes apart, and the same each time.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit.max(1)
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// A seed with a few bytes taken out, doubled, changed, or taken from another.
fn changed(seeds: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = seeds[chance.below(seeds.len())].clone();
    for _ in 0..=chance.below(3) {
        let from = chance.below(bytes.len());
        let end = (from + 1 + chance.below(12)).min(bytes.len());
        match chance.below(4) {
            0 => drop(bytes.drain(from..end)),
            1 => bytes.extend_from_within(from..end),
            2 if !bytes.is_empty() => bytes[from] = b"\"{}[]=,\\$<:#/\n a0-"[chance.below(18)],
            _ => {
                let other = &seeds[chance.below(seeds.len())];
                let start = chance.below(other.len());
                let piece = other[start..(start + chance.below(40)).min(other.len())].to_vec();
                bytes.splice(from..from, piece);
            }
        }
    }
    bytes
}

fn run(target: &str, body: fn(&[u8])) {
    let seeds = seeds(target);
    assert!(seeds.len() > 3, "the seeds of {target} were not found");
    let mut chance = Chance(0x5eed);
    let many = (0..5000).map(|_| changed(&seeds, &mut chance));
    for bytes in seeds.iter().cloned().chain(many) {
        let outcome = std::panic::catch_unwind(|| body(&bytes));
        assert!(outcome.is_ok(), "{target}: {:?}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn rules_hold_what_they_promise() {
    run("rules", bodies::rules);
}

#[test]
fn snapshots_are_read_as_they_were_written_or_refused_in_one_line() {
    run("snapshot", bodies::snapshot);
}

#[test]
fn bodies_are_taken_or_refused_in_one_line() {
    run("json", bodies::json);
}
