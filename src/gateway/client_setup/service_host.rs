//! Hostname of the platform in Terraform's configuration.

use serde_json::{Value, json};
use url::Host;

/// A host, perhaps with a port, as Terraform compares it: ASCII (punycode) in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceHost {
    name: String,
    port: Option<u16>,
}

/// Host that sources of modules may name in place of the platform's. Terraform takes it for the host of the `cloud` block,
/// and its credentials with it, but discovers its services on their own: they would be those of the public site.
pub(crate) const LOCAL_HOST: &str = "localterraform.com";

/// The text is not a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a host; write HOST or HOST:PORT")]
pub struct InvalidServiceHost;

/// Reason why a host has no [`ServiceHost::variable`].
pub const NO_VARIABLE_REASON: &str = "no environment variable's name can contain it";

impl ServiceHost {
    /// Parses `HOST` or `HOST:PORT`.
    pub fn parse(text: &str) -> Result<Self, InvalidServiceHost> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().map_err(|_| InvalidServiceHost)?)),
            _ => (text, None),
        };
        let host = Host::parse(host).map_err(|_| InvalidServiceHost)?;
        // Terraform treats a host without a port as port 443.
        Ok(Self { name: host.to_string().to_ascii_lowercase(), port: port.filter(|port| *port != 443) })
    }

    /// Returns the variable from which Terraform reads this host's token: dots as `_`, hyphens as `__`. `None` for a
    /// host with a port, which no shell could export.
    pub fn variable(&self) -> Option<String> {
        let plain = self.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
        let name = self.name.replace('-', "__").replace('.', "_");
        (plain && self.port.is_none()).then(|| format!("TF_TOKEN_{name}"))
    }

    /// Builds the services of a gateway at `address` (`http://HOST:PORT`, no trailing slash) for Terraform's `host`
    /// block, which replaces service discovery.
    pub(crate) fn services(address: &str) -> Value {
        let registry = format!("{address}/api/registry/v1");
        let api = format!("{address}/api/v2/");
        json!({
            "tfe.v2": api,
            "tfe.v2.1": api,
            "tfe.v2.2": api,
            "state.v2": api,
            "modules.v1": format!("{registry}/modules/"),
            "providers.v1": format!("{registry}/providers/"),
        })
    }

    /// Returns the hosts by which configurations name the platform: this one, and [`LOCAL_HOST`].
    pub(crate) fn aliases(&self) -> impl Iterator<Item = String> {
        let name = self.to_string();
        let local = (name != LOCAL_HOST).then(|| LOCAL_HOST.to_owned());
        std::iter::once(name).chain(local)
    }

    /// Builds the lines of the `host` blocks.
    pub fn blocks(&self, address: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for host in self.aliases() {
            lines.extend([format!("host \"{host}\" {{"), "  services = {".to_owned()]);
            if let Value::Object(services) = Self::services(address) {
                lines.extend(services.iter().map(|(name, at)| format!("    \"{name}\" = {at}")));
            }
            lines.extend(["  }".to_owned(), "}".to_owned()]);
        }
        lines
    }
}

impl std::fmt::Display for ServiceHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            None => f.write_str(&self.name),
            Some(port) => write!(f, "{}:{port}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_normalized_and_have_one_variable() {
        let check = |text: &str, shown: &str, variable: Option<&str>| {
            let host = ServiceHost::parse(text).unwrap();
            assert_eq!((host.to_string().as_str(), host.variable().as_deref()), (shown, variable), "{text}");
        };
        check("app.terraform.io", "app.terraform.io", Some("TF_TOKEN_app_terraform_io"));
        check("TFE-1.Example.com", "tfe-1.example.com", Some("TF_TOKEN_tfe__1_example_com"));
        check("xn--caf-dma.fr", "xn--caf-dma.fr", Some("TF_TOKEN_xn____caf__dma_fr"));
        check("tfe.example.com:443", "tfe.example.com", Some("TF_TOKEN_tfe_example_com"));
        check("tfe.example.com:8443", "tfe.example.com:8443", None);
        check("127.0.0.1", "127.0.0.1", Some("TF_TOKEN_127_0_0_1"));
        check("[::1]", "[::1]", None);
        assert_eq!(
            ServiceHost::parse("tfe.example.com:8443").unwrap().aliases().collect::<Vec<_>>(),
            ["tfe.example.com:8443", "localterraform.com"]
        );
        assert_eq!(ServiceHost::parse("localterraform.com").unwrap().aliases().count(), 1);
        check("a_b.example.com", "a_b.example.com", None);
        for text in
            ["", "https://app.terraform.io", "app.terraform.io/x", "a b", "a:x", ":80", "a:70000", "caf\u{e9}.fr"]
        {
            assert_eq!(ServiceHost::parse(text), Err(InvalidServiceHost), "{text}");
        }
    }
}
