//! Figures of the process, each second: a line of `samples.csv`, and the ceilings at the end.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::client::now;
use super::ledger::Ledger;
use super::log::Log;

/// Figures of one second.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) process: u32,
    pub(super) rss_kib: u64,
    pub(super) anonymous_kib: u64,
    pub(super) descriptors: usize,
    pub(super) threads: u64,
    pub(super) log_bytes: u64,
}

/// Reads the figures until it is stopped.
pub(super) struct Sampler {
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    thread: Option<JoinHandle<()>>,
}

/// Objects of the samples.
pub(super) struct Sampled {
    pub(super) process: Arc<AtomicU32>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) log: Log,
    pub(super) begun: Instant,
}

impl Sampler {
    pub(super) fn start(sampled: Sampled, out: Option<&Path>) -> Self {
        let (stop, samples) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let mut file = out.map(|out| std::fs::File::create(out.join("samples.csv")).unwrap());
        if let Some(file) = &mut file {
            let names = "second,process,rss_kib,anonymous_kib,descriptors,threads,log_bytes,requests,errors";
            writeln!(file, "{names}").unwrap();
        }
        let thread = std::thread::spawn({
            let (stop, samples) = (Arc::clone(&stop), Arc::clone(&samples));
            move || {
                let mut next = sampled.begun;
                while !stop.load(Ordering::Relaxed) {
                    next += Duration::from_secs(1);
                    std::thread::sleep(next.saturating_duration_since(now()));
                    sampled.ledger.stalled(now().saturating_duration_since(next));
                    let (requests, errors) = sampled.ledger.recent();
                    // None while the process is started again.
                    let Some(sample) = take(&sampled) else { continue };
                    let errors: Vec<_> = errors.iter().map(|(kind, count)| format!("{kind}={count}")).collect();
                    if let Some(file) = &mut file {
                        let Sample { at, process, rss_kib, anonymous_kib, descriptors, threads, log_bytes } = &sample;
                        let (at, errors) = (at.as_secs(), errors.join(";"));
                        let figures = format!("{at},{process},{rss_kib},{anonymous_kib},{descriptors},{threads}");
                        writeln!(file, "{figures},{log_bytes},{requests},{errors}").unwrap();
                    }
                    samples.lock().push(sample);
                }
            }
        });
        Self { stop, samples, thread: Some(thread) }
    }

    /// Ends it and returns all samples.
    pub(super) fn end(mut self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        std::mem::take(&mut self.samples.lock())
    }
}

fn take(sampled: &Sampled) -> Option<Sample> {
    let process = sampled.process.load(Ordering::Relaxed);
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(Sample {
        at: sampled.begun.elapsed(),
        process,
        rss_kib: number("VmRSS:")?,
        anonymous_kib: number("RssAnon:")?,
        descriptors: std::fs::read_dir(format!("/proc/{process}/fd")).ok()?.count(),
        threads: number("Threads:")?,
        log_bytes: sampled.log.bytes(),
    })
}

/// Most of each figure that a run may have.
pub(super) struct Ceilings {
    pub(super) anonymous_kib: u64,
    pub(super) descriptors: usize,
    pub(super) threads: u64,
    /// Bytes of the log in a minute: each changed file and each login is a line.
    pub(super) log_bytes_a_minute: u64,
    /// Growth of the memory from the second fifth of the last process's life to its last fifth.
    pub(super) growth_kib: u64,
}

/// Ceilings of a debug build.
pub(super) const CEILINGS: Ceilings = Ceilings {
    anonymous_kib: 128 << 10,
    descriptors: 1200,
    // One for each file that is written at the same time (50 templates, 20 sinks, 20 states, stores), all of them while the disk
    // is slow; they stay while there is work.
    threads: 192,
    log_bytes_a_minute: 256 << 10,
    growth_kib: 16 << 10,
};

/// Figures that are above their ceiling.
pub(super) fn above(samples: &[Sample], long: bool) -> Vec<String> {
    let mut above = Vec::new();
    let mut check = |name: &str, found: u64, max: u64| {
        if found > max {
            above.push(format!("{name}: {found}, and at most {max} are allowed"));
        }
    };
    let max = |figure: &dyn Fn(&Sample) -> u64| samples.iter().map(figure).max().unwrap_or_default();
    check("KiB of memory", max(&|sample| sample.anonymous_kib), CEILINGS.anonymous_kib);
    check("descriptors", max(&|sample| sample.descriptors as u64), CEILINGS.descriptors as u64);
    check("threads", max(&|sample| sample.threads), CEILINGS.threads);
    let minutes = samples.last().map_or(0, |sample| sample.at.as_secs()) / 60 + 1;
    check("bytes of the log", max(&|sample| sample.log_bytes), CEILINGS.log_bytes_a_minute * minutes);
    if long {
        check("KiB of growth", growth(samples), CEILINGS.growth_kib);
    }
    above
}

/// Growth of the memory within the life of the last process, between medians of its second and its last fifth.
pub(super) fn growth(samples: &[Sample]) -> u64 {
    let last = samples.last().map_or(0, |sample| sample.process);
    let own: Vec<u64> =
        samples.iter().filter(|sample| sample.process == last).map(|sample| sample.anonymous_kib).collect();
    let fifth = own.len() / 5;
    let median = |part: &[u64]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part.get(part.len() / 2).copied().unwrap_or_default()
    };
    median(&own[own.len() - fifth..]).saturating_sub(median(&own[fifth..2 * fifth]))
}
