//! Metrics of the servers that requests are sent to, for all parts that send some.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::StatusCode;
use keyward_telemetry::metrics::{LatencyHistogram, Metrics, latency_histogram, metric_set};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::ForwardError;
use crate::client::{ClientResponse, TransportError};

metric_set! {
    /// Metrics of servers.
    pub struct UpstreamMetrics {
        /// Requests sent to a server, by class of path. `status` is a status or a class of them, or without a response
        /// `unreachable`, `timeout`, `busy` or `broken`.
        pub(crate) requests: Family<UpstreamRequestLabels, Counter> = "keyward_upstream_requests";
        /// Time to a server's response, in seconds: to its head for requests of callers, to its end for those of sessions. Blocking
        /// queries are left out.
        pub(crate) seconds: Family<UpstreamPathLabels, LatencyHistogram, fn() -> LatencyHistogram> =
            "keyward_upstream_seconds", Family::new_with_constructor(latency_histogram);
        /// Time that requests waited for one of the connections to a server, in seconds. Requests that need not wait are not
        /// counted.
        pub(crate) queue_seconds: Family<UpstreamServerLabels, LatencyHistogram, fn() -> LatencyHistogram> =
            "keyward_upstream_queue_seconds", Family::new_with_constructor(latency_histogram);
    }
}

/// Labels of requests to a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct UpstreamRequestLabels {
    /// Name from the configuration.
    pub server: String,
    /// Class of the path, from a fixed set.
    pub path: &'static str,
    /// Status or its class; a word without a response.
    pub status: &'static str,
}

/// Labels of a server and a class of paths.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct UpstreamPathLabels {
    /// Name from the configuration.
    pub server: String,
    /// Class of the path, from a fixed set.
    pub path: &'static str,
}

/// Label of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct UpstreamServerLabels {
    /// Name from the configuration.
    pub server: String,
}

/// Records the requests to one server. Each metric is looked up once: a look-up by labels costs more than counting. Clones
/// share it.
#[derive(Debug, Clone)]
pub struct UpstreamRecorder(Arc<Recorder>);

#[derive(Debug)]
struct Recorder {
    server: String,
    metrics: UpstreamMetrics,
    /// One for each class of paths.
    paths: Vec<PathRecorder>,
    queue_seconds: OnceLock<LatencyHistogram>,
}

#[derive(Debug, Default)]
struct PathRecorder {
    path: &'static str,
    seconds: OnceLock<LatencyHistogram>,
    requests: [OnceLock<Counter>; STATUSES.len()],
}

/// Outcome of a request that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamOutcome {
    /// A response with this status.
    Response(StatusCode),
    /// No connection.
    Unreachable,
    /// No response in time.
    Timeout,
    /// No free connection in time.
    Busy,
    /// An incomplete or invalid response.
    Broken,
}

impl UpstreamOutcome {
    /// Returns the outcome of a failed request; `None` if the caller is at fault.
    pub(crate) const fn from_error(error: &ForwardError) -> Option<Self> {
        match error {
            ForwardError::Connect(..) | ForwardError::ConnectTimeout { .. } => Some(Self::Unreachable),
            ForwardError::Busy(_) | ForwardError::ShareBusy(_) => Some(Self::Busy),
            ForwardError::Connection(_) => Some(Self::Broken),
            ForwardError::ResponseTimeout(_) => Some(Self::Timeout),
            ForwardError::RequestBody(_) => None,
        }
    }

    /// Returns the outcome of a call of this process.
    pub const fn from_call(result: &Result<ClientResponse, TransportError>) -> Self {
        match result {
            Ok(response) => Self::Response(response.status),
            Err(error) => Self::from_failed_call(error),
        }
    }

    /// Returns the outcome of a call of this process that has no complete response.
    pub const fn from_failed_call(error: &TransportError) -> Self {
        match error {
            TransportError::Connect { .. } => Self::Unreachable,
            TransportError::TimedOut { .. } => Self::Timeout,
            TransportError::Broken { .. } | TransportError::TooLarge { .. } | TransportError::NotWebSocket { .. } => {
                Self::Broken
            }
        }
    }

    /// Returns the place of the outcome in [`STATUSES`].
    fn index(self) -> usize {
        match self {
            Self::Response(status) => match status.as_u16() {
                300..400 => 1,
                401 => 2,
                403 => 3,
                404 => 4,
                429 => 5,
                400..500 => 6,
                503 => 7,
                500.. => 8,
                _ => 0,
            },
            Self::Unreachable => 9,
            Self::Timeout => 10,
            Self::Busy => 11,
            Self::Broken => 12,
        }
    }
}

/// Values of the label `status`.
const STATUSES: [&str; 13] =
    ["2xx", "3xx", "401", "403", "404", "429", "4xx", "503", "5xx", "unreachable", "timeout", "busy", "broken"];

impl UpstreamRecorder {
    /// Creates a recorder for a server whose paths have these classes. Nothing is served before its first request.
    pub fn new(metrics: &Metrics, server: impl Into<String>, classes: &[&'static str]) -> Self {
        let paths = classes.iter().map(|path| PathRecorder { path, ..PathRecorder::default() }).collect();
        let server = server.into();
        let metrics = metrics.get();
        let queue_seconds = OnceLock::new();
        Self(Arc::new(Recorder { server, metrics, paths, queue_seconds }))
    }

    /// Records a request to a path of the class with this index; without `elapsed` it is only counted.
    pub fn record(&self, class: usize, outcome: UpstreamOutcome, elapsed: impl Into<Option<Duration>>) {
        let Recorder { server, metrics, paths, .. } = &*self.0;
        let Some(recorder) = paths.get(class) else { return };
        let path = recorder.path;
        if let Some(elapsed) = elapsed.into() {
            let labels = || UpstreamPathLabels { server: server.clone(), path };
            let seconds = recorder.seconds.get_or_init(|| metrics.seconds.get_or_create_owned(&labels()));
            seconds.observe(elapsed.as_secs_f64());
        }
        let index = outcome.index();
        let (Some(counter), Some(status)) = (recorder.requests.get(index), STATUSES.get(index)) else { return };
        let counter = counter.get_or_init(|| {
            metrics.requests.get_or_create_owned(&UpstreamRequestLabels { server: server.clone(), path, status })
        });
        counter.inc();
    }

    /// Records a request that failed; one that failed by the caller's fault is not counted.
    pub fn record_error(&self, class: usize, error: &ForwardError, elapsed: impl Into<Option<Duration>>) {
        if let Some(outcome) = UpstreamOutcome::from_error(error) {
            self.record(class, outcome, elapsed);
        }
    }

    /// Records a wait for a connection.
    pub(super) fn record_wait(&self, elapsed: Duration) {
        let Recorder { server, metrics, queue_seconds, .. } = &*self.0;
        let histogram = queue_seconds.get_or_init(|| {
            metrics.queue_seconds.get_or_create_owned(&UpstreamServerLabels { server: server.clone() })
        });
        histogram.observe(elapsed.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_label() {
        let check = |status: u16, expected: &str| {
            let outcome = UpstreamOutcome::Response(StatusCode::from_u16(status).unwrap());
            assert_eq!(STATUSES[outcome.index()], expected, "{status}");
        };
        for (status, expected) in [(200, "2xx"), (204, "2xx"), (304, "3xx"), (400, "4xx"), (401, "401"), (403, "403")] {
            check(status, expected);
        }
        for (status, expected) in [(404, "404"), (412, "4xx"), (429, "429"), (500, "5xx"), (503, "503"), (599, "5xx")] {
            check(status, expected);
        }
        let outcomes =
            [UpstreamOutcome::Unreachable, UpstreamOutcome::Timeout, UpstreamOutcome::Busy, UpstreamOutcome::Broken];
        assert_eq!(outcomes.map(|outcome| STATUSES[outcome.index()]), ["unreachable", "timeout", "busy", "broken"]);
    }

    #[test]
    fn only_what_was_recorded_is_served() {
        let metrics = Metrics::default();
        let recorder = UpstreamRecorder::new(&metrics, "main", &["login", "secret"]);
        let text = metrics.text();
        assert!(!text.contains("server=\"main\""), "{text}");
        recorder.record(1, UpstreamOutcome::Response(StatusCode::OK), Duration::from_millis(3));
        recorder.record_error(1, &ForwardError::Busy(4), Duration::from_secs(5));
        recorder.record(7, UpstreamOutcome::Timeout, Duration::ZERO);
        recorder.record_wait(Duration::from_millis(20));
        let text = metrics.text();
        let requests = |status| {
            format!("keyward_upstream_requests_total{{server=\"main\",path=\"secret\",status=\"{status}\"}} 1")
        };
        assert!(text.contains(&requests("2xx")) && text.contains(&requests("busy")), "{text}");
        assert!(text.contains("keyward_upstream_seconds_count{server=\"main\",path=\"secret\"} 2"), "{text}");
        assert!(text.contains("keyward_upstream_queue_seconds_count{server=\"main\"} 1"), "{text}");
        assert!(!text.contains("path=\"login\"") && !text.contains("status=\"timeout\""), "{text}");
    }
}
