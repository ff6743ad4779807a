//! Audit devices of the configuration, started and replaced, and joined to the services of the parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::Full;
#[cfg(feature = "acl")]
use keyward_acl as acl;
use keyward_agent::{identity_api, local_api};
#[cfg(feature = "gateway")]
use keyward_gateway as gateway;
use keyward_http::audited::{AuditedService, record_refused_heads};
use keyward_http::server::RefusedHeads;
use keyward_telemetry::audit::{AuditOptions, RunningDevice};

use super::session::Shared;

/// Running audit devices, by name.
#[derive(Debug, Default)]
pub(super) struct RunningAudit(BTreeMap<String, RunningDevice>);

impl RunningAudit {
    /// Checks that the devices of a new configuration can be used.
    ///
    /// # Errors
    /// The file of one cannot be opened. Nothing has changed then.
    pub(super) fn check(new: &[AuditOptions]) -> anyhow::Result<()> {
        for options in new {
            RunningDevice::probe(options).with_context(|| format!("audit {}", options.name))?;
        }
        Ok(())
    }

    /// Starts new devices, replaces changed ones and stops others. Files of the rest are reopened if another one is
    /// at their path, as after a rotation by another tool.
    pub(super) fn apply(&mut self, new: &[AuditOptions], shared: &Shared) -> anyhow::Result<()> {
        let mut running = std::mem::take(&mut self.0);
        let mut result = Ok(());
        for options in new {
            let device = match running.remove(&options.name) {
                Some(device) if device.options() == options => {
                    device.reopen();
                    device
                }
                predecessor => {
                    let Shared { health, metrics, clock, .. } = shared;
                    match RunningDevice::start(options.clone(), predecessor, health, metrics, clock) {
                        Ok(device) => device,
                        Err(error) => {
                            result = Err(error).with_context(|| format!("audit {}", options.name));
                            continue;
                        }
                    }
                }
            };
            self.0.insert(options.name.clone(), device);
        }
        running.values().for_each(RunningDevice::stop);
        shared.auditor.set_devices(self.0.values().map(RunningDevice::handle).collect());
        result
    }

    /// Stops all devices once what is queued is written.
    pub(super) async fn stop(self) {
        for device in self.0.into_values() {
            device.finish().await;
        }
    }
}

/// Records the requests of a listener that the HTTP server itself refuses.
pub(super) fn refused_heads(shared: &Shared, part: &'static str, listener: &str) -> RefusedHeads {
    record_refused_heads(shared.auditor.clone(), part, Arc::from(listener))
}

/// Records the requests of a local API.
pub(super) fn local_api(shared: &Shared, listener: &str) -> AuditedService<Full<Bytes>> {
    let auditor = shared.auditor.clone();
    let listener = Arc::from(listener);
    let route = local_api::audited_route;
    let unavailable = local_api::unaudited_response;
    AuditedService { auditor, part: "agent", listener, route, decides_by_status: false, unavailable }
}

/// Records the requests of an identity listener.
pub(super) fn identity(shared: &Shared, listener: &str) -> AuditedService<Full<Bytes>> {
    AuditedService { route: identity_api::audited_route, ..local_api(shared, listener) }
}

/// Records the requests of an ACL server.
#[cfg(feature = "acl")]
pub(super) fn acl(shared: &Shared, listener: &str) -> AuditedService<acl::api::ResponseBody> {
    let auditor = shared.auditor.clone();
    let listener = Arc::from(listener);
    // Names of policies contain a slash: only a path whose first `/v1/` is that of `sys/health` is the probe.
    let route = |path: &str| {
        let is_probe = path.strip_suffix("/v1/sys/health").is_some_and(|base| !base.contains("/v1/"));
        (!is_probe).then_some("acl")
    };
    AuditedService {
        auditor,
        part: "acl",
        listener,
        route,
        decides_by_status: true,
        unavailable: acl::api::unaudited_response,
    }
}

/// Records the requests of a gateway.
#[cfg(feature = "gateway")]
pub(super) fn gateway(shared: &Shared, listener: &str) -> AuditedService<gateway::proxy::GatewayBody> {
    let auditor = shared.auditor.clone();
    let listener = Arc::from(listener);
    let unavailable = gateway::proxy::unaudited_response;
    AuditedService {
        auditor,
        part: "gateway",
        listener,
        route: |_| Some("gateway"),
        decides_by_status: false,
        unavailable,
    }
}
