//! Verification of the store: all records are present and intact.

use keyward_telemetry::error_chain::format_chain;

use super::acl_service::AclService;
use super::caller::{Caller, Privilege};
use super::error::ServiceError;
use crate::model::names::NamespaceName;
use crate::store::Verification;

impl AclService {
    /// Verifies the store for a caller. Needs `operator:read` in `default`.
    pub(crate) async fn verify(&self, caller: &Caller) -> Result<Verification, ServiceError> {
        caller.require(Privilege::OperatorRead, &NamespaceName::default_namespace())?;
        self.verify_store().await
    }

    /// Verifies the store and logs the result. A shutdown waits for its end, as it has the store's file open.
    pub(crate) async fn verify_at_start(&self) {
        match self.verify_store().await {
            Ok(verification) => tracing::info!(
                event = "acl.store.verified",
                records = verification.records,
                without_checksum = verification.unchecked,
                damaged = verification.damaged,
                "verified all records of the store"
            ),
            Err(error) => {
                let error = format_chain(&error);
                tracing::warn!(event = "acl.store.unverified", error, "cannot verify the store");
            }
        }
    }

    /// Verifies the store. Damage is logged, and reported in lists from then on.
    async fn verify_store(&self) -> Result<Verification, ServiceError> {
        let verification = self.typed_store.store().verify().await?;
        self.typed_store.record_damage(&verification);
        Ok(verification)
    }
}
