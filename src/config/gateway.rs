//! `[gateway]`: the gateway in front of HCP Terraform or Terraform Enterprise, "the platform" below.

mod address;
mod describe;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keyward_gateway::actions::{self, DeprecatedCallMode};
use keyward_gateway::client_setup::{
    ClientTokenKind, ProxyExceptions, ServiceHost, TerraformConfigFileOptions, UserConfigFiles,
};
use keyward_gateway::local_token;
use keyward_gateway::proxy::{Exemption, GatewayOptions, RateLimit};
use keyward_http::client::ProxyMode;
use keyward_http::server::Endpoint;
use keyward_machine::atomic_file::Attributes;
use keyward_telemetry::error_code::ErrorCode;
use url::Url;

use super::NeedKind;
use super::listener::{THREADS, endpoint, socket_owner};
use super::platform_token::{self, TokenSource};
use super::reader::Reader;
use super::references::Text;
use super::server;
use super::sink::Sessions;
use super::tree::quote;
use super::values::{self, ValueError, invalid, join_alternatives};

pub(super) use describe::describe_gateway;

/// The gateway and the sockets that it is served on.
#[derive(Debug, Clone, PartialEq)]
pub struct Gateway {
    /// Addresses that it listens on: at least one.
    pub endpoints: Vec<Endpoint>,
    /// Connection to the platform, and handling of calls.
    pub proxy: GatewayOptions,
    /// Source of the platform token.
    pub token: TokenSource,
    /// Options of the local token, which callers present.
    pub local_token: local_token::LocalTokenOptions,
    /// The host by which configurations of Terraform and OpenTofu name the platform.
    pub host: ServiceHost,
    /// The generated configuration file of Terraform and OpenTofu that leads that host to the gateway, if configured.
    pub terraform_config_file: Option<TerraformConfigFileOptions>,
    /// Token in the environment of programs that keyward runs; `None` sets no variables.
    pub process_token: Option<ClientTokenKind>,
    /// User configuration files of Terraform and OpenTofu for the child process; `None` without `[process]`.
    pub process_files: Option<UserConfigFiles>,
    /// Exceptions from a proxy that the child process has.
    pub process_proxy_exceptions: ProxyExceptions,
    /// Threads that serve each of its addresses.
    pub threads: usize,
    /// True if readiness depends on the gateway.
    pub required: bool,
}

const TENTH: Duration = Duration::from_millis(100);
const DAY: Duration = Duration::from_hours(24);

/// Default time that the previous local token stays valid: longer than the longest run.
const DEFAULT_GRACE: Duration = DAY;

/// Default time that a call waits for another platform token: longer than a rotation takes.
const DEFAULT_TOKEN_WAIT: Duration = Duration::from_mins(1);

/// Default of `connections`: connections to the platform at once.
const DEFAULT_CONNECTIONS: usize = 256;

/// Reads the section. Returns `None`, with errors recorded, if required settings are missing.
pub(super) fn read(
    mut reader: Reader<'_>,
    sessions: &Sessions,
    state_dir: Option<&Path>,
    process: Option<(UserConfigFiles, ProxyExceptions)>,
) -> Option<Gateway> {
    let text = reader.required("upstream", "the platform's address, such as \"https://app.terraform.io\"");
    let upstream =
        text.and_then(|text| or_placeholder(&text, reader.parse(&text, address::upstream), unknown_upstream));
    let endpoints = endpoints(&mut reader);
    let without_tls = upstream.as_ref().is_some_and(|url| url.scheme() == "http");
    let ca_file = ca_file(&mut reader, without_tls);
    let proxy_mode = proxy(&mut reader, without_tls);
    let other_names = reader.list("aliases").unwrap_or_default();
    let other_names: Vec<Url> = other_names.iter().filter_map(|text| reader.parse(text, address::alias)).collect();
    let hosts = reader.list("allowed_hosts").unwrap_or_default();
    let allowed_hosts: BTreeSet<_> = hosts.iter().filter_map(|text| reader.parse(text, values::host)).collect();
    let exempt = exempt(&mut reader);
    let limit = match reader.number("requests_per_second", 0..=10_000) {
        None => RateLimit::FromServer,
        Some(0) => RateLimit::None,
        Some(rate) => RateLimit::PerSecond(u32::try_from(rate).unwrap_or(u32::MAX)),
    };
    let connections = reader.number("connections", 1..=10_000).unwrap_or(DEFAULT_CONNECTIONS);
    let threads = reader.number("threads", THREADS).unwrap_or(1);
    let connect_timeout = reader.duration("connect_timeout", Duration::from_secs(10), TENTH..=Duration::from_mins(5));
    let response_timeout = reader.duration("response_timeout", Duration::from_mins(2), TENTH..=Duration::from_hours(1));
    let token_wait = reader.duration("token_wait", DEFAULT_TOKEN_WAIT, Duration::ZERO..=Duration::from_mins(10));
    let token = platform_token::read(&mut reader, sessions);
    let owner = upstream
        .iter()
        .map(|url| url.origin().ascii_serialization())
        .chain(token.iter().map(TokenSource::identity))
        .collect::<Vec<_>>();
    let local_token = local_token(&mut reader, state_dir, owner.join(" "));
    let host = reader.parse_text("host", service_host);
    let host = host.or_else(|| upstream.as_ref().and_then(|url| ServiceHost::parse(url.authority()).ok()));
    let terraform_config_file = terraform_config_file(&mut reader, host.as_ref(), &endpoints);
    let process_token = process_token(&mut reader, &endpoints);
    let actions = actions(&mut reader);
    let required = reader.flag("required", true);
    reader.finish();
    let upstream = upstream?;
    // The platform identifies itself by the host in Terraform's configurations, whatever its address is.
    let platform_name = host.as_ref().and_then(|host| Url::parse(&format!("https://{host}")).ok());
    let names = platform_name.into_iter().chain(other_names);
    let aliases = names.filter(|url| url.origin() != upstream.origin()).collect();
    let proxy = GatewayOptions {
        upstream,
        aliases,
        ca_file,
        proxy: proxy_mode,
        connections,
        connect_timeout,
        response_timeout,
        token_wait,
        limit,
        actions,
        exempt,
        allowed_hosts,
    };
    let (process_files, process_proxy_exceptions) = process.unzip();
    let gateway = Gateway {
        endpoints,
        proxy,
        token: token?,
        local_token: local_token?,
        host: host?,
        terraform_config_file,
        process_token,
        process_files,
        process_proxy_exceptions: process_proxy_exceptions.unwrap_or_default(),
        threads,
        required,
    };
    (!gateway.endpoints.is_empty()).then_some(gateway)
}

fn ca_file(reader: &mut Reader<'_>, without_tls: bool) -> Option<PathBuf> {
    let ca_file = reader.file("ca_file");
    if without_tls && let Some(at) = reader.locate("ca_file") {
        let key = reader.key("ca_file");
        reader.scope.diagnostics.error(at, &key, "not allowed without TLS", "leave it out, or use https://");
    }
    ca_file
}

fn proxy(reader: &mut Reader<'_>, without_tls: bool) -> ProxyMode {
    let proxy = reader.parse_text("proxy", server::proxy).unwrap_or(ProxyMode::Environment);
    if without_tls && matches!(proxy, ProxyMode::Through(_)) {
        reader.conflict("proxy", "an http:// upstream", "tokens would leave this machine unencrypted");
    }
    proxy
}

/// Reads the calls that make platform tokens and are allowed.
fn exempt(reader: &mut Reader<'_>) -> BTreeSet<Exemption> {
    let texts = reader.one_or_more("exempt");
    let mut exempt = BTreeSet::new();
    for text in texts {
        match Exemption::parse(&text.value) {
            Some(kind) => {
                exempt.insert(kind);
            }
            None if text.unknown => {}
            None => {
                let names: Vec<_> = Exemption::names().map(quote).collect();
                let message = format!("{} is not a known exemption", text.display());
                reader.scope.diagnostics.error(
                    text.at,
                    &text.key,
                    message,
                    format!("write {}", join_alternatives(&names)),
                );
            }
        }
    }
    exempt
}

/// Reads the handling of deprecated calls and of pages.
fn actions(reader: &mut Reader<'_>) -> actions::ActionOptions {
    let defaults = actions::ActionOptions::default();
    actions::ActionOptions {
        deprecated: reader.choice("deprecated", &MODES).unwrap_or(defaults.deprecated),
        strict: reader.flag("strict", defaults.strict),
        registry_name: reader.parse_text("registry_name", segment).unwrap_or(defaults.registry_name),
        namespace: reader.parse_text("namespace", segment),
        organization: reader.parse_text("organization", segment),
        merge_pages: reader.flag("merge_pages", defaults.merge_pages),
    }
}

/// Reads a name that becomes one encoded path segment; rejects `.` and `..`.
fn segment(text: &str) -> Result<String, ValueError> {
    if matches!(text, "." | "..") { invalid("is not a name", "write the name itself") } else { Ok(text.to_owned()) }
}

const MODES: [(&str, DeprecatedCallMode); 4] = [
    ("off", DeprecatedCallMode::Off),
    ("warn", DeprecatedCallMode::Warn),
    ("fallback", DeprecatedCallMode::Fallback),
    ("always", DeprecatedCallMode::Always),
];

/// Reads `process_token`, which needs a TCP address for the local token.
fn process_token(reader: &mut Reader<'_>, endpoints: &[Endpoint]) -> Option<ClientTokenKind> {
    let at = reader.locate("process_token")?;
    let token_kind = reader.choice("process_token", &TOKEN_KINDS);
    let diagnostics = reader.scope.diagnostics;
    let key = reader.key("process_token");
    if token_kind == Some(ClientTokenKind::LocalToken) && only_on_unix_sockets(endpoints) {
        let advice = "add an address on 127.0.0.1 to gateway.listen";
        diagnostics.error(
            at,
            &key,
            "needs a TCP address: the program's clients cannot connect to a unix socket",
            advice,
        );
    }
    token_kind
}

fn only_on_unix_sockets(endpoints: &[Endpoint]) -> bool {
    !endpoints.is_empty() && endpoints.iter().all(|endpoint| matches!(endpoint, Endpoint::Unix(_)))
}

fn terraform_config_file(
    reader: &mut Reader<'_>,
    host: Option<&ServiceHost>,
    endpoints: &[Endpoint],
) -> Option<TerraformConfigFileOptions> {
    let mut table = reader.table("terraform_config_file")?;
    let token_kind = table.choice("token_kind", &TOKEN_KINDS).unwrap_or_default();
    if token_kind == ClientTokenKind::LocalToken && only_on_unix_sockets(endpoints) {
        let advice = "add an address on 127.0.0.1 to gateway.listen";
        table.scope.diagnostics.error(
            table.at,
            &table.path,
            "needs a TCP address: Terraform and OpenTofu cannot connect to a unix socket",
            advice,
        );
    }
    let text = table.required(
        "path",
        "a file of Terraform's or OpenTofu's, such as \"/home/ci/.terraform.d/zz-keyward.tfrc.json\"",
    );
    let path = text.and_then(|text| {
        let path = table.parse(&text, terraform_file)?;
        table.check_parent_folder(&text, &path);
        Some(path)
    });
    let mode = table.private_mode(0o600, "the token");
    let attributes = Attributes { mode, owner: table.user("owner"), group: table.group("group") };
    table.finish();
    Some(TerraformConfigFileOptions { file: path?, attributes, host: host?.clone(), token_kind })
}

const TOKEN_KINDS: [(&str, ClientTokenKind); 2] =
    [("local_token", ClientTokenKind::LocalToken), ("platform_token", ClientTokenKind::PlatformToken)];

/// A file in the folder of Terraform or OpenTofu that is read in addition to the user's own, which are not written.
fn terraform_file(text: &str) -> Result<PathBuf, ValueError> {
    let path = values::path(text)?;
    match path.file_name().and_then(|name| name.to_str()) {
        Some("credentials.tfrc.json") => invalid(
            "is the user's own file",
            "choose another name, such as zz-keyward.tfrc.json: the last by name wins",
        ),
        Some(name) if name.ends_with(".tfrc.json") => Ok(path),
        _ => invalid("is not a file that Terraform or OpenTofu reads", "end its name in .tfrc.json"),
    }
}

fn service_host(text: &str) -> Result<ServiceHost, ValueError> {
    match ServiceHost::parse(text) {
        Ok(host) => Ok(host),
        Err(error) => {
            let error = error.to_string();
            let (message, advice) = error.split_once("; ").unwrap_or((&error, ""));
            invalid(message, values::host_advice(text, advice))
        }
    }
}

/// Replaces an unknown value by a placeholder; its absence was already reported.
fn or_placeholder<T>(text: &Text, read: Option<T>, nothing: impl FnOnce() -> Option<T>) -> Option<T> {
    if text.unknown { read.or_else(nothing) } else { read }
}

fn unknown_upstream() -> Option<Url> {
    Url::parse("https://unknown.invalid").ok()
}

fn endpoints(reader: &mut Reader<'_>) -> Vec<Endpoint> {
    if reader.locate("listen").is_none() {
        reader.missing("listen", "the address to listen on, such as \"tcp://127.0.0.1:8800\", or a list");
    }
    let (mut endpoints, mut sockets) = (Vec::new(), Vec::new());
    for text in reader.one_or_more("listen") {
        let read = reader.parse(&text, endpoint);
        let Some(endpoint) = or_placeholder(&text, read, || Some(Endpoint::Activated("gateway".to_owned()))) else {
            continue;
        };
        match &endpoint {
            Endpoint::Tcp(address) if !address.ip().is_loopback() => {
                let message = format!("listens on {}, which is not loopback", address.ip());
                let advice = "use 127.0.0.1 or [::1]: only local callers are allowed";
                reader.scope.diagnostics.error(text.at, &text.key, message, advice);
            }
            Endpoint::Unix(socket) => sockets.push((text.clone(), socket.path.clone())),
            _ => {}
        }
        if endpoints.contains(&endpoint) {
            reader.scope.diagnostics.error(text.at, &text.key, "a duplicate address", "name each once");
        } else {
            reader.record_value(&text, NeedKind::Listen(endpoint.clone()));
            endpoints.push(endpoint);
        }
    }
    let unix = endpoints.iter().find(|endpoint| matches!(endpoint, Endpoint::Unix(_))).cloned();
    let (first, shared_folder) = socket_owner(reader, unix.or_else(|| endpoints.first().cloned()));
    reader.check_socket_folders(&sockets, shared_folder);
    if let Some(first @ Endpoint::Unix(_)) = &first {
        for endpoint in endpoints.iter_mut().filter(|endpoint| matches!(endpoint, Endpoint::Unix(_))) {
            if let (Endpoint::Unix(socket), Endpoint::Unix(first)) = (endpoint, first) {
                (socket.mode, socket.owner, socket.group) = (first.mode, first.owner, first.group);
            }
        }
    }
    endpoints
}

fn local_token(
    reader: &mut Reader<'_>,
    state_dir: Option<&Path>,
    owner: String,
) -> Option<local_token::LocalTokenOptions> {
    let max_age = reader.duration_if_given("local_token_max_age", Duration::from_mins(1)..=365 * DAY);
    let grace = reader.duration("local_token_grace", DEFAULT_GRACE, Duration::from_secs(1)..=30 * DAY);
    if let (None, Some(at)) = (reader.locate("local_token_max_age"), reader.locate("local_token_grace")) {
        let message = (ErrorCode::SettingIgnored, "has no effect: the local token is never replaced");
        let key = reader.key("local_token_grace");
        let advice = "leave it out, or set local_token_max_age";
        reader.scope.diagnostics.warning(at, &key, message, advice);
    }
    let file = match (reader.text("local_token_file"), state_dir) {
        (Some(text), _) => {
            let path = or_placeholder(&text, reader.parse(&text, values::secret_file_path), || Some("/".into()))?;
            reader.check_parent_folder(&text, &path);
            path
        }
        (None, Some(folder)) => folder.join("gateway.token"),
        (None, None) => {
            reader.missing("local_token_file", "where the local token is kept; or name a folder in agent.state_dir");
            return None;
        }
    };
    Some(local_token::LocalTokenOptions { file, max_age, grace, owner })
}
