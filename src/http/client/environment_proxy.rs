//! Selects a proxy by `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` as Go's HTTP client does, and so Vault, Consul and Terraform.
//!
//! `ALL_PROXY` stands in for a variable that is not set, as for curl.

use std::net::IpAddr;

use url::{Host, Url};

/// Proxies of the environment. Pure: the variables are passed in.
#[derive(Clone, Default)]
pub struct EnvironmentProxies {
    http: Option<Url>,
    https: Option<Url>,
    no_proxy: NoProxy,
}

impl std::fmt::Debug for EnvironmentProxies {
    /// Prints the proxies' hosts only: their URLs may hold passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = |proxy: &Option<Url>| proxy.as_ref().and_then(Url::host_str).map(str::to_owned);
        f.debug_struct("EnvironmentProxies")
            .field("http", &host(&self.http))
            .field("https", &host(&self.https))
            .finish_non_exhaustive()
    }
}

impl EnvironmentProxies {
    /// Reads the process's environment.
    #[expect(
        clippy::disallowed_methods,
        reason = "these variables are for each HTTP client of the process, as its libraries read them"
    )]
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads the variables that `get` returns. Names in capitals come first, and empty values count as unset.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Self {
        let first = |name: &str| {
            let names = [name.to_owned(), name.to_ascii_lowercase()];
            names.iter().filter_map(|name| get(name)).find(|value| !value.is_empty())
        };
        let proxy = |name: &str| first(name).or_else(|| first("ALL_PROXY")).as_deref().and_then(parse_proxy);
        // A request sets HTTP_PROXY of a CGI program by its header `Proxy`.
        let is_cgi = get("REQUEST_METHOD").is_some_and(|method| !method.is_empty());
        Self {
            http: proxy("HTTP_PROXY").filter(|_| !is_cgi),
            https: proxy("HTTPS_PROXY"),
            no_proxy: NoProxy::parse(&first("NO_PROXY").unwrap_or_default()),
        }
    }

    /// Returns the proxy of `https` URLs that `NO_PROXY` does not exclude.
    pub const fn https(&self) -> Option<&Url> {
        self.https.as_ref()
    }

    /// Returns the proxy for a URL; `None` for a direct connection.
    pub fn proxy_for(&self, url: &Url) -> Option<&Url> {
        let proxy = match url.scheme() {
            "http" => self.http.as_ref(),
            "https" => self.https.as_ref(),
            _ => None,
        };
        proxy.filter(|_| !self.no_proxy.excludes(url))
    }
}

/// Parses a proxy: a URL, or only host and port. Another text counts as no proxy.
fn parse_proxy(text: &str) -> Option<Url> {
    let is_proxy = |url: &Url| {
        matches!(url.scheme(), "http" | "https" | "socks4" | "socks4a" | "socks5" | "socks5h") && url.has_host()
    };
    Url::parse(text).ok().filter(is_proxy).or_else(|| Url::parse(&format!("http://{text}")).ok().filter(is_proxy))
}

/// Hosts that are called directly, by `NO_PROXY`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NoProxy {
    all: bool,
    networks: Vec<(IpAddr, u8)>,
    addresses: Vec<(IpAddr, String)>,
    domains: Vec<Domain>,
}

/// An entry with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Domain {
    /// The name after a dot, which matches names below it.
    suffix: String,
    /// True if the name itself matches too.
    matches_self: bool,
    /// The only port that matches; empty for any.
    port: String,
}

impl NoProxy {
    fn parse(text: &str) -> Self {
        let mut parsed = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            if entry == "*" {
                return Self { all: true, ..Self::default() };
            }
            parsed.add(&entry.to_lowercase());
        }
        parsed
    }

    fn add(&mut self, entry: &str) {
        if let Some(network) = parse_network(entry) {
            return self.networks.push(network);
        }
        let (host, port) = split_port(entry).unwrap_or((entry, ""));
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.addresses.push((address.to_canonical(), port.to_owned()));
        }
        let name = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        let (name, matches_self) = name.strip_prefix('.').map_or((name, true), |name| (name, false));
        if name.is_empty() && matches_self {
            return;
        }
        let suffix = format!(".{name}");
        self.domains.push(Domain { suffix, matches_self, port: port.to_owned() });
    }

    /// Returns true if a URL is called directly. Loopback always is.
    fn excludes(&self, url: &Url) -> bool {
        let Some(port) = url.port_or_known_default() else { return true };
        let matches_port = |wanted: &str| wanted.is_empty() || wanted == port.to_string();
        let (name, address) = match url.host() {
            Some(Host::Domain(name)) => (name.to_lowercase(), None),
            Some(Host::Ipv4(address)) => (address.to_string(), Some(IpAddr::V4(address))),
            Some(Host::Ipv6(address)) => (address.to_string(), Some(IpAddr::V6(address).to_canonical())),
            None => return true,
        };
        if name == "localhost" || self.all {
            return true;
        }
        let by_address = address.is_some_and(|address| {
            address.is_loopback()
                || self.networks.iter().any(|network| contains(*network, address))
                || self.addresses.iter().any(|(wanted, port)| *wanted == address && matches_port(port))
        });
        by_address
            || self.domains.iter().any(|Domain { suffix, matches_self, port }| {
                (name.ends_with(suffix.as_str()) || (*matches_self && name == suffix[1..])) && matches_port(port)
            })
    }
}

/// Parses `ADDRESS/BITS`. An IPv4 network in IPv6's form counts as one of IPv4.
fn parse_network(entry: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = entry.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = Some(bits).filter(|bits| bits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    match (address, address.to_canonical()) {
        _ if bits > most => None,
        (IpAddr::V6(_), IpAddr::V4(inner)) if bits >= 96 => Some((IpAddr::V4(inner), bits - 96)),
        _ => Some((address, bits)),
    }
}

fn contains((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            (network.to_bits() ^ address.to_bits()).checked_shr(32 - u32::from(bits)).is_none_or(|rest| rest == 0)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            (network.to_bits() ^ address.to_bits()).checked_shr(128 - u32::from(bits)).is_none_or(|rest| rest == 0)
        }
        _ => false,
    }
}

/// Splits `HOST:PORT` or `[ADDRESS]:PORT`; `None` if there is no port, or the host has an unexpected bracket or colon.
fn split_port(entry: &str) -> Option<(&str, &str)> {
    let (host, port) = entry.rsplit_once(':')?;
    let has_bracket = |text: &str| text.contains(['[', ']']);
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None => Some(host).filter(|host| !host.contains(':'))?,
    };
    (!has_bracket(host) && !has_bracket(port)).then_some((host, port))
}
