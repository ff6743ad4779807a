//! Roles of the token method, as `auth/token/roles/NAME` has them.

use std::net::IpAddr;

use super::TokenType;

/// Properties of the tokens that a token role creates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenRole {
    /// Policies that its tokens may have; all of them where a request names none. Empty for those of the parent.
    pub allowed_policies: Vec<String>,
    /// Tokens do not end with their parent.
    pub orphan: bool,
    /// Tokens are batch tokens.
    pub batch: bool,
    /// Addresses that its tokens are bound to, such as `127.0.0.0/8`; empty for every address.
    pub bound_cidrs: Vec<String>,
}

impl TokenRole {
    /// Returns the type of its tokens.
    pub(super) const fn token_type(&self) -> TokenType {
        if self.batch { TokenType::Batch } else { TokenType::Service }
    }
}

/// Returns true if an address may use a token that is bound to these blocks. A block that cannot be read contains nothing.
pub(super) fn admit(bound_cidrs: &[String], address: IpAddr) -> bool {
    bound_cidrs.is_empty() || bound_cidrs.iter().any(|cidr| contains(cidr, address) == Some(true))
}

fn contains(cidr: &str, address: IpAddr) -> Option<bool> {
    let (network, length) = cidr.split_once('/')?;
    let network: IpAddr = network.parse().ok()?;
    let length: u32 = length.parse().ok()?;
    let to_bits = |address| match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    let (network, width) = to_bits(network);
    let (address, other_width) = to_bits(address);
    let is_same = (network ^ address).checked_shr(128 - length.min(128)).unwrap_or(0) == 0;
    Some(width == other_width && length <= width && is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_token_is_admitted_from_its_blocks_alone() {
        let check = |cidrs: &[&str], address: &str, expected| {
            let cidrs: Vec<_> = cidrs.iter().map(|cidr| (*cidr).to_owned()).collect();
            assert_eq!(admit(&cidrs, address.parse().unwrap()), expected, "{cidrs:?} {address}");
        };
        check(&[], "192.0.2.1", true);
        check(&["127.0.0.0/8"], "127.1.2.3", true);
        check(&["127.0.0.0/8"], "128.0.0.1", false);
        check(&["10.0.0.0/8", "127.0.0.1/32"], "127.0.0.1", true);
        check(&["127.0.0.1/32"], "127.0.0.2", false);
        check(&["0.0.0.0/0"], "192.0.2.1", true);
        check(&["::/0"], "192.0.2.1", false);
        check(&["127.0.0.1"], "127.0.0.1", false);
    }
}
