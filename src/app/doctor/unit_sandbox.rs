//! A service's sandbox apart from its paths: user, capabilities, address families and addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::unit_parser::Unit;

/// Settings of a unit that limit the service's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sandbox {
    bounding: NameFilter,
    ambient: NameFilter,
    families: NameFilter,
    allowed: Vec<Network>,
    denied: Vec<Network>,
    /// True if no program can gain the rights of another user, as `sudo` would.
    pub no_new_privileges: bool,
}

/// Set of names: those, or all but those.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NameFilter {
    names: BTreeSet<String>,
    is_inverted: bool,
}

/// Addresses with one prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Sandbox {
    /// Reads the settings of a unit.
    pub(crate) fn new(unit: &Unit) -> Self {
        Self {
            bounding: NameFilter::parse(unit, "CapabilityBoundingSet", true),
            ambient: NameFilter::parse(unit, "AmbientCapabilities", false),
            families: NameFilter::parse(unit, "RestrictAddressFamilies", true),
            allowed: networks(&unit.words("IPAddressAllow")),
            denied: networks(&unit.words("IPAddressDeny")),
            no_new_privileges: unit.flag("NoNewPrivileges"),
        }
    }

    /// Returns true if the service's process has a capability, such as `CAP_CHOWN`.
    pub(crate) fn has_capability(&self, name: &str, is_root: bool) -> bool {
        self.bounding.contains(name) && (is_root || self.ambient.contains(name))
    }

    /// Returns true if the process may open sockets of a family, such as `AF_INET6`.
    pub(crate) fn allows_family(&self, name: &str) -> bool {
        self.families.contains(name)
    }

    /// Returns true if packets to and from an address pass. What is allowed passes also where it is denied.
    pub(crate) fn allows_address(&self, address: IpAddr) -> bool {
        let is_in = |networks: &[Network]| networks.iter().any(|network| network.contains(address));
        is_in(&self.allowed) || !is_in(&self.denied)
    }
}

impl NameFilter {
    /// Reads a list that `~` before a value inverts. An empty value resets it: to none for capabilities, to the default for
    /// address families, whose default is all.
    fn parse(unit: &Unit, key: &str, all_by_default: bool) -> Self {
        let default = Self { names: BTreeSet::new(), is_inverted: all_by_default };
        let none = Self { names: BTreeSet::new(), is_inverted: false };
        let on_empty = if key == "RestrictAddressFamilies" { &default } else { &none };
        let mut filter = default.clone();
        let mut is_set = false;
        for value in unit.assignments(key) {
            if value.is_empty() {
                (filter, is_set) = (on_empty.clone(), false);
                continue;
            }
            let (value, inverts) = value.strip_prefix('~').map_or((value, false), |rest| (rest, true));
            let names: BTreeSet<String> =
                value.split_whitespace().filter(|name| *name != "none").map(str::to_ascii_uppercase).collect();
            if !is_set {
                (filter, is_set) = (Self { names, is_inverted: inverts }, true);
            } else if inverts == filter.is_inverted {
                filter.names.extend(names);
            } else {
                filter.names.retain(|name| !names.contains(name));
            }
        }
        filter
    }

    fn contains(&self, name: &str) -> bool {
        self.names.contains(name) != self.is_inverted
    }
}

fn networks(words: &[String]) -> Vec<Network> {
    let network = |address: IpAddr, prefix| Network { address, prefix };
    let v4 = |a, b, c, d| IpAddr::V4(Ipv4Addr::new(a, b, c, d));
    let v6 = |first| IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0));
    words
        .iter()
        .flat_map(|word| match word.as_str() {
            "any" => vec![network(v4(0, 0, 0, 0), 0), network(v6(0), 0)],
            "localhost" => vec![network(v4(127, 0, 0, 0), 8), network(IpAddr::V6(Ipv6Addr::LOCALHOST), 128)],
            "link-local" => vec![network(v4(169, 254, 0, 0), 16), network(v6(0xfe80), 64)],
            "multicast" => vec![network(v4(224, 0, 0, 0), 4), network(v6(0xff00), 8)],
            text => Network::parse(text).into_iter().collect(),
        })
        .collect()
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().ok()?;
        let max_prefix = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(max_prefix), |prefix| prefix.parse().ok())?;
        (prefix <= max_prefix).then_some(Self { address, prefix })
    }

    fn contains(&self, address: IpAddr) -> bool {
        let has_same_prefix = |left: u128, right: u128, bits: u32| {
            let shift = bits - self.prefix;
            left.checked_shr(shift).unwrap_or_default() == right.checked_shr(shift).unwrap_or_default()
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                has_same_prefix(network.to_bits().into(), address.to_bits().into(), 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => has_same_prefix(network.to_bits(), address.to_bits(), 128),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(text: &str) -> Sandbox {
        Sandbox::new(&Unit::parse("Service", [format!("[Service]\n{text}").as_str()]))
    }

    #[test]
    fn a_user_has_a_capability_that_is_ambient_and_root_one_that_is_not_dropped() {
        let check = |text: &str, user, root| {
            let sandbox = sandbox(text);
            let has = |is_root| sandbox.has_capability("CAP_CHOWN", is_root);
            assert_eq!((has(false), has(true)), (user, root), "{text}");
        };
        check("", false, true);
        check("CapabilityBoundingSet=\nAmbientCapabilities=", false, false);
        check("CapabilityBoundingSet=CAP_CHOWN\nAmbientCapabilities=CAP_CHOWN", true, true);
        check("CapabilityBoundingSet=CAP_FOWNER\nAmbientCapabilities=CAP_CHOWN", false, false);
        check("CapabilityBoundingSet=~CAP_CHOWN", false, false);
        check("CapabilityBoundingSet=\nCapabilityBoundingSet=cap_chown", false, true);
    }

    #[test]
    fn address_families_are_allowed_by_name_or_all_but_some() {
        let check = |text: &str, unix, inet| {
            let sandbox = sandbox(text);
            assert_eq!((sandbox.allows_family("AF_UNIX"), sandbox.allows_family("AF_INET")), (unix, inet), "{text}");
        };
        check("", true, true);
        check("RestrictAddressFamilies=AF_UNIX", true, false);
        check("RestrictAddressFamilies=AF_UNIX\nRestrictAddressFamilies=AF_INET", true, true);
        check("RestrictAddressFamilies=AF_UNIX AF_INET\nRestrictAddressFamilies=~AF_INET", true, false);
        check("RestrictAddressFamilies=~AF_INET", true, false);
        check("RestrictAddressFamilies=none", false, false);
    }

    #[test]
    fn an_allowed_address_passes_a_filter_that_denies_all() {
        let sandbox =
            sandbox("IPAddressDeny=any\nIPAddressAllow=localhost 169.254.169.254 203.0.113.0/24 2001:db8::/32");
        for (address, passes) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("169.254.169.254", true),
            ("169.254.169.253", false),
            ("203.0.113.9", true),
            ("203.0.114.9", false),
            ("2001:db8::7", true),
            ("2001:db9::7", false),
        ] {
            assert_eq!(sandbox.allows_address(address.parse().unwrap()), passes, "{address}");
        }
        assert!(Sandbox::new(&Unit::default()).allows_address("192.0.2.1".parse().unwrap()));
    }
}
