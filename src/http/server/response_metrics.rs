//! Answers of one listener, counted by status.

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;

use super::Observed;
use crate::metrics::ResponseLabels;

/// Counts answers. Most are good: their counter is looked up once.
#[derive(Debug)]
pub struct Answers {
    observed: Observed,
    good: Counter,
}

impl Answers {
    /// Of that listener.
    pub fn of(observed: Observed) -> Self {
        let label = ResponseLabels { listener: observed.listener.clone(), code: StatusCode::OK.as_u16() };
        let good = observed.metrics.local_requests.get_or_create(&label).clone();
        Self { observed, good }
    }

    /// Counts one.
    pub fn count(&self, status: StatusCode) {
        if status == StatusCode::OK {
            self.good.inc();
        } else {
            let label = ResponseLabels { listener: self.observed.listener.clone(), code: status.as_u16() };
            self.observed.metrics.local_requests.get_or_create(&label).inc();
        }
    }

    /// The listener's name.
    pub fn listener(&self) -> &str {
        &self.observed.listener
    }
}
