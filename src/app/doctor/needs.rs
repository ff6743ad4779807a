//! Programs, file owners and addresses that a configuration needs of the machine.

use keyward_agent::identity::{IdentityMethod, IdentityOrigin};
use keyward_config::Config;
use keyward_http::client::{ClientOptions, ServerAddress};
use keyward_http::server::Endpoint;
use url::Url;

#[cfg(feature = "gateway")]
use crate::probes::platform_client;

/// A command that a part of the configuration runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NeededProgram {
    /// Part that runs it, such as `template app`.
    pub by: String,
    /// Program and arguments.
    pub command: Vec<String>,
}

/// A file that is handed to another owner or group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NeededOwner {
    /// Part that writes it.
    pub by: String,
    /// User id, if it is not the agent's.
    pub owner: Option<u32>,
    /// Group id, if it is not the agent's.
    pub group: Option<u32>,
}

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

/// Lists the commands of templates and of `[process]`.
pub(crate) fn programs(config: &Config) -> Vec<NeededProgram> {
    let templates = config.templates.iter().filter_map(|template| {
        let command = template.options.file.as_ref()?.command.as_ref()?;
        Some(NeededProgram { by: format!("template {}", template.options.text.name), command: command.command.clone() })
    });
    let process = config.process.iter();
    let process = process.map(|process| NeededProgram { by: "process".to_owned(), command: process.command.clone() });
    templates.chain(process).collect()
}

/// Lists the outputs and sockets that get another owner or group.
pub(crate) fn owners(config: &Config) -> Vec<NeededOwner> {
    let sinks =
        config.sinks.iter().map(|sink| (format!("sink {}", sink.options.name), sink.options.owner, sink.options.group));
    let templates = config.templates.iter().filter_map(|template| {
        let file = template.options.file.as_ref()?;
        Some((format!("template {}", template.options.text.name), file.owner, file.group))
    });
    let sockets = endpoints(config).into_iter().filter_map(|(by, endpoint)| match endpoint {
        Endpoint::Unix(socket) => Some((by, socket.owner, socket.group)),
        Endpoint::Tcp(_) | Endpoint::Activated(_) => None,
    });
    let all = sinks.chain(templates).chain(sockets);
    #[cfg(feature = "gateway")]
    let all = all.chain(config.gateway.iter().filter_map(|gateway| {
        let file = gateway.terraform_config_file.as_ref()?;
        Some(("gateway: terraform_config_file".to_owned(), file.attributes.owner, file.attributes.group))
    }));
    let all = all.filter(|(_, owner, group)| owner.is_some() || group.is_some());
    all.map(|(by, owner, group)| NeededOwner { by, owner, group }).collect()
}

/// Lists the addresses that are listened on, each with its part.
#[cfg_attr(not(any(feature = "acl", feature = "gateway")), allow(unused_mut, reason = "other parts add theirs"))]
pub(crate) fn endpoints(config: &Config) -> Vec<(String, &Endpoint)> {
    let mut endpoints: Vec<_> =
        config.listeners.iter().map(|listener| (format!("listener {}", listener.name), &listener.endpoint)).collect();
    #[cfg(feature = "acl")]
    if let Some(acl) = &config.acl {
        endpoints.extend(acl.endpoints.iter().map(|endpoint| ("acl".to_owned(), endpoint)));
    }
    #[cfg(feature = "gateway")]
    if let Some(gateway) = &config.gateway {
        endpoints.extend(gateway.endpoints.iter().map(|endpoint| ("gateway".to_owned(), endpoint)));
    }
    endpoints
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
