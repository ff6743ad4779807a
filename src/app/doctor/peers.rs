//! Peers that a configuration connects to.

use keyward_agent::identity::{IdentityMethod, IdentityOrigin};
use keyward_config::Config;
use keyward_http::client::{ClientOptions, ServerAddress};
use url::Url;

#[cfg(feature = "gateway")]
use crate::probes::platform_client;

/// A peer on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NeededPeer {
    /// Part that connects to it.
    pub by: String,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// Lists the servers, proxies, members of etcd and the metadata service that the agent connects to.
pub(crate) fn peers(config: &Config) -> Vec<NeededPeer> {
    let mut peers = Vec::new();
    for session in &config.sessions {
        let by = format!("session {}", session.name);
        if let IdentityMethod::Cloud(cloud) = &session.identity
            && matches!(cloud.from, IdentityOrigin::Instance(_))
        {
            peers.extend(peer(format!("{by}: identity"), &cloud.endpoints.metadata));
        }
        let urls = match &session.identity {
            IdentityMethod::Aws(aws) => aws.urls(),
            IdentityMethod::Gcp(gcp) => gcp.urls(),
            IdentityMethod::CiJob(job) => job.urls(),
            _ => Vec::new(),
        };
        peers.extend(urls.iter().filter_map(|url| peer(format!("{by}: identity"), url)));
        peers.extend(peer_of(by, &session.upstream.client));
    }
    #[cfg(feature = "gateway")]
    if let Some(gateway) = &config.gateway {
        peers.extend(peer_of("gateway".to_owned(), &platform_client(gateway)));
    }
    #[cfg(feature = "etcd")]
    if let Some(acl) = &config.acl
        && let keyward_acl::store::StoreOptions::Etcd(etcd) = &acl.service.store
    {
        peers.extend(etcd.endpoints.iter().filter_map(|url| peer("acl: etcd".to_owned(), url)));
    }
    peers
}

/// The server of a client, or the proxy in front of it.
fn peer_of(by: String, client: &ClientOptions) -> Option<NeededPeer> {
    let ServerAddress::Url(url) = &client.address else { return None };
    match client.proxy_endpoint(url) {
        Some((host, port)) => Some(NeededPeer { by, host, port }),
        None => peer(by, url),
    }
}

fn peer(by: String, url: &Url) -> Option<NeededPeer> {
    Some(NeededPeer { by, host: url.host_str()?.to_owned(), port: url.port_or_known_default()? })
}
