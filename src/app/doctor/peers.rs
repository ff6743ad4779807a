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
        peers.extend(peers_of_identity(&format!("{by}: identity"), &session.identity));
        peers.extend(peer_of(by, &session.upstream.client));
    }
    for identity in &config.identities {
        let by = format!("identity {}", identity.name);
        peers.extend(peers_of_identity(&by, &identity.origin.to_method("")));
        let sts = identity.aws_role.as_ref().and_then(|role| role.url().ok());
        peers.extend(sts.as_ref().and_then(|url| peer(format!("{by}: AWS STS"), url)));
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

/// The services that an identity comes from.
fn peers_of_identity(by: &str, identity: &IdentityMethod) -> Vec<NeededPeer> {
    let urls = match identity {
        IdentityMethod::Cloud(cloud) if matches!(cloud.from, IdentityOrigin::Instance(_)) => {
            vec![cloud.endpoints.metadata.clone()]
        }
        IdentityMethod::Aws(aws) => aws.urls(),
        IdentityMethod::Gcp(gcp) => gcp.urls(),
        IdentityMethod::CiJob(job) => job.urls(),
        _ => Vec::new(),
    };
    urls.iter().filter_map(|url| peer(by.to_owned(), url)).collect()
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
