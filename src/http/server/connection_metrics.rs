//! Counts and logs refused connections.

use std::sync::Arc;

use prometheus_client::metrics::gauge::Gauge;

use super::metrics::{HttpMetrics, ListenerLabel, RefusalLabels};
use super::request_head::HeadError;
use super::{ListenerLimits, Peer, RefusedHeads};

/// Counts and logs refused connections of a listener.
#[derive(Debug)]
pub(super) struct ConnectionMetrics {
    /// Metrics, and the listener's name.
    metrics: Option<(HttpMetrics, Arc<str>)>,
    refused_heads: Option<RefusedHeads>,
}

impl ConnectionMetrics {
    pub(super) fn new(limits: &ListenerLimits) -> Self {
        let metrics = limits.listener_metrics.as_ref();
        let metrics = metrics.map(|metrics| (metrics.metrics.get(), metrics.listener.as_str().into()));
        Self { metrics, refused_heads: limits.refused_heads.clone() }
    }

    /// Returns the listener's name; empty without metrics.
    pub(super) fn listener(&self) -> Arc<str> {
        self.metrics.as_ref().map_or_else(|| "".into(), |(_, listener)| Arc::clone(listener))
    }

    pub(super) fn connections(&self) -> Option<Gauge> {
        let (metrics, listener) = self.metrics.as_ref()?;
        let label = ListenerLabel { listener: listener.to_string() };
        Some(metrics.connections.get_or_create(&label).clone())
    }

    /// Records a head that no service sees.
    pub(super) fn refuse_head(&self, error: HeadError, peer: &Peer) {
        // The responses to such heads.
        let (status, reason) = match error {
            HeadError::TooLarge => (431, "head_size"),
            HeadError::Malformed => (400, "malformed"),
        };
        if let Some(RefusedHeads(record)) = &self.refused_heads {
            record(peer, status, reason);
        }
        self.refuse(reason, peer);
    }

    pub(super) fn refuse(&self, reason: &'static str, peer: &Peer) {
        let listener = self.metrics.as_ref().map_or("", |(_, listener)| listener);
        tracing::debug!(event = "local.connection.refused", listener, reason, uid = peer.uid(), pid = peer.pid());
        if let Some((metrics, listener)) = &self.metrics {
            metrics.refused.get_or_create(&RefusalLabels { listener: listener.to_string(), reason }).inc();
        }
    }
}
