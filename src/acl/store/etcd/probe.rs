//! Reads the store's own record without creating it: a check of the cluster that changes nothing.

use std::sync::Arc;

use etcd_client::Client;

use super::connect::{EtcdTls, LeaderRequirement};
use super::keys::Prefix;
use super::members::Members;
use super::{EtcdOptions, OpenError};

/// Reads from the cluster, linearizably; returns a description for people.
pub async fn probe(options: &EtcdOptions) -> Result<String, OpenError> {
    let shared = Arc::new(options.clone());
    let tls = EtcdTls::new(&shared)?;
    let members = Members::new(&shared, &tls, LeaderRequirement::Required).await?;
    let key = Prefix(options.prefix.clone()).prepend_to("about");
    let read = members.read(members.deadline(), |client: Client| {
        let key = key.clone();
        async move { client.kv_client().get(key, None).await }
    });
    let response = read.await.map_err(|errors| OpenError::Unreachable {
        store: options.to_string(),
        advice: "check that it is running and that addresses, certificates and the user are right",
        source: errors.into(),
    })?;
    let state = if response.kvs().is_empty() { "no store yet" } else { "the store is there" };
    Ok(format!("{options} answers; {state}"))
}
