//! Probe of the etcd cluster of the ACL server: a read, which changes nothing.

use super::limits::Limits;
use crate::acl::store::etcd::{EtcdOptions, probe};
use crate::app::check_result::{CheckResult, Problem, Progress, Steps};
use crate::error_chain::format_chain;
use crate::error_code::ErrorCode;

/// Reads the store's own record from the cluster.
pub(crate) async fn check_etcd(options: &EtcdOptions, limits: Limits, progress: &Progress) -> Vec<CheckResult> {
    let mut steps = Steps::new("acl", None, progress);
    let read = limits.bound(probe(options)).await;
    let read =
        read.and_then(|read| read.map_err(|error| Problem::new(ErrorCode::StoreUnreachable, format_chain(&error))));
    steps.note("etcd", read);
    steps.into_results()
}
