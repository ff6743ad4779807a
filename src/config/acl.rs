//! `[acl]`: the ACL server.

mod method;

use keyward_acl::AclOptions;
use keyward_acl::api;
use keyward_acl::model::authorize::DefaultPolicy;
use keyward_acl::model::names::is_name;
use keyward_acl::store::StoreOptions;
use keyward_http::server::Endpoint;
use keyward_http::tls::ServerCertificate;
use keyward_telemetry::time_format::format_duration;

use super::diagnostic::Location;
use super::listener::endpoint;
use super::reader::Reader;
use super::server_certificate;
use super::values::{self, ValueError, invalid};
use super::{Certificate, NeedKind};

/// The ACL server and the sockets that it is served on.
#[derive(Debug, Clone, PartialEq)]
pub struct AclServer {
    /// Addresses that it listens on: at least one.
    pub endpoints: Vec<Endpoint>,
    /// Certificate for TLS on TCP addresses; `None` serves plain HTTP.
    pub tls: Option<ServerCertificate>,
    /// Maximum of concurrent connections per address. `None` takes the listener's default, or fewer if the process may not
    /// open so many files.
    pub connections: Option<usize>,
    /// The service itself.
    pub service: AclOptions,
}

const DEFAULT_DATACENTER: &str = "dc1";

/// Reads the section. Returns `None`, with errors recorded, if required settings are missing.
pub(super) fn read(mut reader: Reader<'_>, certificates: &[Certificate]) -> Option<AclServer> {
    let tls = server_certificate::read(&mut reader, certificates);
    let endpoints = endpoints(&mut reader, tls.is_some());
    let connections = reader.number("connections", 16..=1_000_000);
    let store = store(&mut reader);
    let key_file = reader.key_file("key_file");
    let datacenter = reader.parse_text("datacenter", name).unwrap_or_else(|| DEFAULT_DATACENTER.to_owned());
    let methods = reader.tables("method").into_iter().map(|(name, table)| {
        let method = method::read(&name, table)?;
        Some((name, method))
    });
    let methods = methods.collect::<Vec<_>>();
    let keywords = [("deny", DefaultPolicy::Deny), ("allow", DefaultPolicy::Allow)];
    let default_policy = reader.choice("default_policy", &keywords).unwrap_or_default();
    let base_path = reader.parse_text("base_path", base_path).unwrap_or_default();
    let token_in_query = reader.flag("token_in_query", true);
    let hosts = reader.list("allowed_hosts").unwrap_or_default();
    let allowed_hosts = hosts.iter().filter_map(|text| reader.parse(text, values::host)).collect();
    let default_limit = api::LoginLimit::default();
    let mut logins = |name| reader.number(name, 1..=1_000_000).and_then(|number| u32::try_from(number).ok());
    let api = api::ApiOptions {
        base_path,
        token_in_query,
        allowed_hosts,
        login_limit: api::LoginLimit {
            burst: logins("login_burst").unwrap_or(default_limit.burst),
            per_second: logins("login_rate").unwrap_or(default_limit.per_second),
        },
    };
    reader.finish();
    let methods = methods.into_iter().collect::<Option<_>>()?;
    let service = AclOptions { store: store?, key_file, datacenter, default_policy, api, methods };
    (!endpoints.is_empty()).then_some(AclServer { endpoints, tls, connections, service })
}

/// Reads `listen`. Addresses beyond loopback require TLS.
fn endpoints(reader: &mut Reader<'_>, tls: bool) -> Vec<Endpoint> {
    if reader.locate("listen").is_none() {
        reader.missing("listen", "the address to listen on, such as \"tcp://127.0.0.1:8500\", or a list");
    }
    let mut endpoints = Vec::new();
    for text in reader.one_or_more("listen") {
        let Some(endpoint) = reader.parse(&text, endpoint) else { continue };
        if let Endpoint::Tcp(address) = &endpoint
            && !tls
            && !address.ip().is_loopback()
        {
            let advice = "write tls_cert and tls_key, or listen on loopback or a unix socket";
            reader.scope.diagnostics.error(text.at, &text.key, "would take and give unencrypted tokens", advice);
        }
        if endpoints.contains(&endpoint) {
            reader.scope.diagnostics.error(text.at, &text.key, "a duplicate address", "name each once");
        } else {
            reader.record_value(&text, NeedKind::Listen(endpoint.clone()));
            endpoints.push(endpoint);
        }
    }
    endpoints
}

/// Reads the store: `data_dir` or `[acl.etcd]`.
fn store(reader: &mut Reader<'_>) -> Option<StoreOptions> {
    let Some(at) = reader.locate("etcd") else {
        let text = reader.required("data_dir", "the folder of its store, such as \"/var/lib/keyward/acl\"")?;
        let data_dir = reader.parse(&text, values::path)?;
        reader.check_future_folder(&text, &data_dir);
        reader.warn_of_readable_files_in(&text, &data_dir, &["acl.redb", "seal.key"]);
        return Some(StoreOptions::Embedded { data_dir });
    };
    if reader.locate("data_dir").is_some() {
        reader.conflict("data_dir", "etcd", "the records are kept in one place");
    }
    if reader.locate("key_file").is_none() {
        reader.missing("key_file", "the file of the key that seals tokens; the same on every server of the cluster");
    }
    etcd(reader, at)
}

#[cfg(feature = "etcd")]
fn etcd(reader: &mut Reader<'_>, _: Location) -> Option<StoreOptions> {
    reader.table("etcd").and_then(super::etcd::read).map(StoreOptions::Etcd)
}

#[cfg(not(feature = "etcd"))]
fn etcd(reader: &mut Reader<'_>, at: Location) -> Option<StoreOptions> {
    let advice = "keep the records in data_dir, or use a build that has it";
    reader.error(at, "etcd", "this build has no etcd part", advice);
    None
}

fn name(text: &str) -> Result<String, ValueError> {
    if is_name(text) {
        Ok(text.to_owned())
    } else {
        invalid("is not a name", "write 1 to 128 letters, digits, - and _")
    }
}

/// Parses `base_path`, the prefix of every path before `/v1`.
fn base_path(text: &str) -> Result<String, ValueError> {
    let segment = |segment: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        !segment.is_empty() && segment.bytes().all(plain) && !matches!(segment, "." | "..")
    };
    match text.strip_prefix('/') {
        Some(rest) if rest.split('/').all(segment) => Ok(text.to_owned()),
        _ => invalid("is not a base path", "write \"/NAME\", with no slash at the end"),
    }
}

/// Describes the ACL server for `keyward check`, one clause per entry.
pub(super) fn describe(server: &AclServer) -> Vec<String> {
    let AclServer { endpoints, tls, connections: _, service } = server;
    let mut does = Vec::new();
    for endpoint in endpoints {
        let tls = tls.as_ref().filter(|_| !matches!(endpoint, Endpoint::Unix(_)));
        let secured = server_certificate::describe(tls);
        does.push(format!("serves the ACL API on {endpoint}{secured}"));
    }
    does.push(format!("stores the tokens of datacenter {} in {}", service.datacenter, service.store));
    for (name, method) in &service.methods {
        does.push(format!("accepts logins at auth/{name} with {}", method.describe()));
        for role in method.roles() {
            let policies = if role.policies.is_empty() { "no policy".to_owned() } else { role.policies.join(", ") };
            let life = format_duration(role.ttl);
            let role = role.name;
            does.push(format!("gives logins with role {role} of {name} a token for {life} with {policies}"));
        }
    }
    does
}
