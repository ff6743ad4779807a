//! Settings of the operator: the server that pods log in to, and the annotations that may change them.

use std::path::PathBuf;
use std::str::FromStr;

/// Settings of the operator.
#[derive(Debug, Clone)]
pub struct InjectorOptions {
    /// The server and the login of pods that name no other.
    pub server: ServerDefaults,
    /// Values that annotations may set in place of the operator's.
    pub allowed: Vec<AllowedOverride>,
    /// Image of the added container.
    pub image: String,
    /// When the kubelet pulls the image; `None` for the default of Kubernetes.
    pub image_pull_policy: Option<PullPolicy>,
    /// True if annotations of the Vault Agent injector are read too.
    pub vault_annotations: bool,
}

/// The server that pods log in to.
#[derive(Debug, Clone)]
pub struct ServerDefaults {
    /// Kind of the server, `vault` or `openbao`.
    pub kind: String,
    /// Address of the server.
    pub address: String,
    /// CA bundle of the server, whose text each pod gets; read at each injection. `None` for the CAs of the image.
    pub ca_file: Option<PathBuf>,
    /// Name to expect in the server's certificate.
    pub server_name: Option<String>,
    /// True if an `http://` address may be another machine's.
    pub allow_http: bool,
    /// Namespace of the server.
    pub namespace: Option<String>,
    /// Method of the login.
    pub method: LoginMethod,
    /// Mount of the auth method; `None` for the method's name.
    pub mount: Option<String>,
    /// Role of pods that name none.
    pub role: Option<String>,
    /// Audience of the service account's token; `None` for the API server's, and for the method `jwt` the server's address.
    pub audience: Option<String>,
    /// Tenant of Azure identities; the method `azure` needs it.
    pub azure_tenant: Option<String>,
    /// Resource of the tokens of Azure identities.
    pub azure_resource: String,
}

/// Method of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginMethod {
    /// The token of the pod's service account, which the server has reviewed by the cluster.
    Kubernetes,
    /// The token of the pod's service account, which the server verifies by the cluster's keys.
    Jwt,
    /// A token of Azure, for which the token of the pod's service account is exchanged (workload identity).
    Azure,
}

impl LoginMethod {
    /// All methods.
    pub const ALL: [Self; 3] = [Self::Kubernetes, Self::Jwt, Self::Azure];

    /// Returns the name, which is the usual mount too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
            Self::Jwt => "jwt",
            Self::Azure => "azure",
        }
    }
}

impl FromStr for LoginMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|method| method.name() == text);
        found.ok_or_else(|| format!("expected one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// Time at which the kubelet pulls an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    /// At each start.
    Always,
    /// If the node does not have it.
    IfNotPresent,
    /// Never.
    Never,
}

impl PullPolicy {
    /// Returns the name, as Kubernetes has it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

impl FromStr for PullPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::Always, Self::IfNotPresent, Self::Never].into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| "expected one of Always, IfNotPresent, Never".to_owned())
    }
}

/// Setting of the operator that annotations may change if the operator allows it: each of them decides where the service
/// account's token goes, or which program gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    Address,
    Namespace,
    Mount,
    Method,
    Image,
}

impl Setting {
    pub(crate) const ALL: [Self; 5] = [Self::Address, Self::Namespace, Self::Mount, Self::Method, Self::Image];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Namespace => "namespace",
            Self::Mount => "mount",
            Self::Method => "method",
            Self::Image => "image",
        }
    }
}

/// A value that annotations may set in place of the operator's, written `SETTING=VALUE`; the value `*` stands for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedOverride {
    setting: Setting,
    value: String,
}

impl FromStr for AllowedOverride {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected SETTING=VALUE with one of {}", Setting::ALL.map(Setting::name).join(", "));
        let (name, value) = text.split_once('=').ok_or_else(expected)?;
        let setting = Setting::ALL.into_iter().find(|setting| setting.name() == name).ok_or_else(expected)?;
        if value.is_empty() {
            return Err(expected());
        }
        Ok(Self { setting, value: value.to_owned() })
    }
}

impl InjectorOptions {
    /// Returns true if an annotation may set this value.
    pub(crate) fn allows(&self, setting: Setting, value: &str) -> bool {
        let mut values = self.allowed.iter().filter(|allowed| allowed.setting == setting);
        values.any(|allowed| allowed.value == "*" || allowed.value == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_names_a_setting_and_a_value() {
        let parse = |text: &str| text.parse::<AllowedOverride>();
        assert_eq!(parse("address=https://a=b").unwrap().value, "https://a=b");
        for text in ["", "address", "address=", "role=web", "=x"] {
            assert!(parse(text).unwrap_err().contains("address, namespace, mount, method, image"), "{text}");
        }
    }
}
