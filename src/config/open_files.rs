//! Computes the open files that a configuration needs: for the limit of the process, and for that of the systemd unit.

use keyward_http::server::ListenerLimits;

use super::{Config, Serves};

/// Open files that a configuration needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenFiles {
    /// Configured numbers of connections, such as `gateway.connections = 256`, each with the files that it takes.
    pub configured: Vec<(String, usize)>,
    /// Sockets without a configured number: they serve fewer clients if the process may not open so many files.
    pub sockets: usize,
    /// Locks of sinks, and the folders that they are in.
    pub locks: usize,
}

impl OpenFiles {
    /// Files that are not connections: store, log, the agent's own sockets.
    pub const RESERVED: usize = 256;

    /// Adds up all parts of a configuration.
    pub fn new(config: &Config) -> Self {
        let mut files = Self { configured: Vec::new(), sockets: config.listeners.len(), locks: config.sinks.len() * 2 };
        for listener in &config.listeners {
            if let Serves::ApiProxy(options) = &listener.serves {
                files.add(&format!("listener.{}.connections", listener.name), options.connections, 1);
            }
        }
        #[cfg(feature = "acl")]
        if let Some(acl) = &config.acl {
            match acl.connections {
                Some(connections) => files.add("acl.connections", connections, acl.endpoints.len()),
                None => files.sockets += acl.endpoints.len(),
            }
        }
        #[cfg(feature = "gateway")]
        if let Some(gateway) = &config.gateway {
            files.add("gateway.connections", gateway.proxy.connections, 1);
            files.sockets += gateway.endpoints.len();
        }
        files
    }

    fn add(&mut self, key: &str, connections: usize, addresses: usize) {
        let each = if addresses == 1 { String::new() } else { format!(" for each of {addresses} addresses") };
        self.configured.push((format!("{key} = {connections}{each}"), connections.saturating_mul(addresses)));
    }

    /// Returns the files that the configured numbers of connections need.
    pub fn least(&self) -> usize {
        self.configured.iter().fold(Self::RESERVED, |sum, (_, files)| sum.saturating_add(*files))
    }

    /// Returns the files that all parts need, with the default number of clients for the other sockets.
    pub fn total(&self) -> usize {
        let clients = self.sockets.saturating_mul(ListenerLimits::default().connections);
        self.least().saturating_add(clients).saturating_add(self.locks)
    }
}
