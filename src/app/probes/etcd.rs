//! Probe of the etcd cluster of the ACL server: a read, which changes nothing.

use std::time::Duration;

use keyward_acl::store::etcd::{EtcdOptions, probe};
use keyward_telemetry::error_chain::format_chain;
use keyward_telemetry::error_code::ErrorCode;

use super::limits::Limits;
use crate::check_result::{CheckResult, Problem, Progress, Steps};

/// Longest time of a read where the probe's time is bounded.
const REQUEST_TIME: Duration = Duration::from_secs(3);

/// Reads the store's own record from the cluster.
pub(crate) async fn check_etcd(options: &EtcdOptions, limits: Limits, progress: &Progress) -> Vec<CheckResult> {
    let mut steps = Steps::new("acl", None, progress);
    let mut options = options.clone();
    if limits.is_bounded() {
        // So that its own error comes before the end of this probe.
        options.request_timeout = options.request_timeout.min(REQUEST_TIME);
    }
    let read = Box::pin(limits.bound(probe(&options))).await;
    let read =
        read.and_then(|read| read.map_err(|error| Problem::new(ErrorCode::StoreUnreachable, format_chain(&error))));
    steps.record("etcd", read);
    steps.into_results()
}
