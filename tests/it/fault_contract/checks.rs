//! The checks at the end of each case: calls, log, processor, memory, descriptors, sink, and secrets where none may be.

use std::path::Path;
use std::time::Duration;

use super::case::{Case, JWT, Mark, SEAL_KEY};
use super::record::Invariant;
use super::watcher::Watcher;

impl Case {
    /// Checks the promises of every case, and stops the agent.
    pub(super) fn finish(&mut self) {
        if let Some(mut watcher) = self.watcher.take() {
            self.figures();
            watcher.end();
            self.check_watch(&watcher);
        }
        if let Some(agent) = self.agent.take() {
            let (status, output) = agent.stop();
            assert!(status.success(), "{status}: {output}");
            assert!(!self.path("api.sock").exists(), "the socket is left");
        }
    }

    /// Checks calls, log, processor, memory and descriptors of the process; a case that ends it does so before.
    pub(super) fn figures(&mut self) {
        if self.agent.is_none() {
            return;
        }
        let calls = self.upstream_calls();
        self.record.observe("upstream_calls", calls);
        self.record.at_most(Invariant::NoBusyLoop, "upstream calls", calls, self.calls);
        if let Some(Mark { at, cpu, lines }) = self.injected.take() {
            let lines = self.output().lines().count().saturating_sub(lines);
            self.record.observe("log_lines", lines);
            self.record.at_most(Invariant::NoBusyLoop, "lines in the log", lines, self.lines);
            // Ticks are hundredths of a second.
            let (ticks, seconds) = (self.ticks().saturating_sub(cpu), at.elapsed().as_secs().max(1));
            self.record.observe("cpu_percent", ticks / seconds);
            if seconds >= 5 {
                self.record.at_most(Invariant::NoBusyLoop, "percent of a core", ticks / seconds, self.cpu);
            }
        }
        if let Some((descriptors, memory)) = self.baseline {
            let max_descriptors = descriptors + 5;
            let (now, kib) = (self.settled_descriptors(max_descriptors), self.memory_kib());
            self.record.observe("descriptors", now);
            self.record.observe("memory_kib", kib);
            self.record.at_most(Invariant::Bounded, "descriptors", now, max_descriptors);
            self.record.at_most(Invariant::Bounded, "KiB of memory", kib, memory + self.memory);
        }
        if let Some(network) = &self.network {
            let logins = network.most_logins();
            self.record.observe("connections", network.connections());
            self.record.at_most(Invariant::SingleFlight, "logins at once", logins, 1);
        }
    }

    fn check_watch(&mut self, watcher: &Watcher) {
        let observations = watcher.observations.lock();
        let record = &mut self.record;
        if !observations.tokens().is_empty() {
            record.check(Invariant::ServeUntilExpiry, None);
            record.check(Invariant::NeverServeDead, None);
        }
        if observations.sink_reads > 0 {
            record.check(Invariant::AtomicSinks, None);
        }
        for (invariant, text) in &observations.violations {
            record.check(*invariant, Some(text.clone()));
        }
        record.observe("calls_of_the_watch", observations.calls);
        record.observe("tokens", observations.tokens().len());
        record.observe_time("slowest_call_s", observations.slowest);
        record.observe_time("without_token_s", observations.without);
        record.observe_time("machine_stall_s", observations.stall);
        let mut secrets = observations.tokens();
        secrets.extend([JWT.to_owned(), SEAL_KEY.to_owned()]);
        drop(observations);
        let mut places: Vec<(String, String)> = vec![("the log".to_owned(), self.output())];
        for path in ["/metrics", "/readyz", "/agent/v1/status"] {
            places.push((path.to_owned(), self.ask(path).map(|(_, text)| text).unwrap_or_default()));
        }
        if let Some(agent) = &self.agent {
            for name in ["cmdline", "environ"] {
                let bytes = std::fs::read(format!("/proc/{}/{name}", agent.id())).unwrap_or_default();
                places.push((name.to_owned(), String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
        let own = ["token", "jwt", "seal.key", "more"];
        files(self.folder.path(), &mut |path, text| {
            if !own.iter().any(|name| path.ends_with(name)) {
                places.push((path.display().to_string(), text));
            }
        });
        for (place, text) in places {
            let found = secrets.iter().any(|secret| text.contains(secret.as_str()));
            self.record.check(Invariant::NoSecretOutside, found.then(|| format!("a secret stands in {place}")));
        }
    }

    pub(super) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.agent().id())).unwrap().count()
    }

    /// Number of descriptors, once it is at most `max`, or after five seconds: connections and files of the last requests are
    /// closed by then, and a leak is not.
    fn settled_descriptors(&self, max: usize) -> usize {
        let mut number = self.descriptors();
        for _ in 0..250 {
            if number <= max {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
            number = self.descriptors();
        }
        number
    }

    /// Anonymous memory in KiB.
    pub(super) fn memory_kib(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.agent().id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// User and system time, in hundredths of a second.
    pub(super) fn ticks(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.agent().id())).unwrap();
        let fields: Vec<&str> = text[text.rfind(')').unwrap() + 2..].split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

/// Reads every file of a folder and below.
fn files(folder: &Path, read: &mut dyn FnMut(&Path, String)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&path, read),
            Ok(kind) if kind.is_file() => {
                read(&path, String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned());
            }
            _ => {}
        }
    }
}
