//! Environment variables for clients of the gateway or the platform.

use keyward_machine::command::EnvVars;
use keyward_machine::secret_string::SecretString;

use super::user_config_files::VARIABLE;
use super::{PreparedCliConfig, ProgramCliConfig, ProgramCliConfigError, ServiceHost};

/// Builds the variables for an address and a token: `TFE_ADDRESS`, `TFE_HOSTNAME` and `TFE_TOKEN` for clients of the
/// platform's API, and Terraform's own `TF_TOKEN_...` if the host has one. Empty for an empty token: Terraform takes an
/// empty variable for "no token, and look no further".
pub fn client_variables(host: &ServiceHost, address: &str, token: &SecretString) -> Vec<(String, SecretString)> {
    // A line break in a variable would break the header that a client puts it into.
    let token = token.expose_secret().trim();
    if token.is_empty() {
        return Vec::new();
    }
    let plain = [("TFE_ADDRESS", address.to_owned()), ("TFE_HOSTNAME", host.to_string())];
    let plain = plain.map(|(name, value)| (name.to_owned(), SecretString::from(value)));
    let secret = std::iter::once("TFE_TOKEN".to_owned()).chain(host.variable());
    plain.into_iter().chain(secret.map(|name| (name, SecretString::from(token)))).collect()
}

/// Returns the names of all variables that [`client_env`] sets for a host.
pub fn client_variable_names(host: &ServiceHost) -> impl Iterator<Item = String> {
    let names = ["TFE_ADDRESS", "TFE_HOSTNAME", "TFE_TOKEN", VARIABLE].into_iter().chain(NO_PROXY);
    names.map(str::to_owned).chain(host.variable())
}

/// The variables that name hosts which are called without a proxy, as a program has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyExceptions([Option<String>; 2]);

/// Programs read the one or the other, and some both.
const NO_PROXY: [&str; 2] = ["NO_PROXY", "no_proxy"];

impl ProxyExceptions {
    /// Reads them from a program's variables.
    pub fn new(variables: &EnvVars) -> Self {
        Self(NO_PROXY.map(|name| variables.get(name).map(|value| value.expose_secret().to_owned())))
    }

    /// Returns both variables with the host of `address` (`http://HOST:PORT`) added: some programs would call the gateway
    /// through a proxy, which cannot reach it. A variable that is not set takes the value of the other.
    pub fn with(&self, address: &str) -> Vec<(&'static str, String)> {
        let host = url::Url::parse(address).ok().and_then(|url| url.host_str().map(str::to_owned));
        let host = host.unwrap_or_default();
        let host = host.trim_matches(['[', ']']);
        let [upper, lower] = &self.0;
        let existing = [upper.as_ref().or(lower.as_ref()), lower.as_ref().or(upper.as_ref())];
        let add = |existing: Option<&String>| match existing.map(|text| text.trim()).filter(|text| !text.is_empty()) {
            None => host.to_owned(),
            Some(text) if text.split(',').any(|entry| entry.trim() == host || entry.trim() == "*") => text.to_owned(),
            Some(text) => format!("{text},{host}"),
        };
        NO_PROXY.into_iter().zip(existing).map(|(name, existing)| (name, add(existing))).collect()
    }
}

/// Variables for clients, and the file that one of them names, which is not written yet.
pub(super) type ClientEnv = (EnvVars, Option<PreparedCliConfig>);

/// Setup of a program's clients for the gateway, besides the variables with its address and token.
#[derive(Debug, Clone)]
pub struct GatewayClient {
    /// File for the program's Terraform.
    pub terraform: ProgramCliConfig,
    /// Its exceptions from a proxy.
    pub proxy_exceptions: ProxyExceptions,
}

/// Builds all variables for `host` at `address`. For a `client` of the gateway it also prepares the file for Terraform and
/// adds the variable that names it. Blocks for that.
pub fn client_env(
    host: &ServiceHost,
    address: &str,
    token: &SecretString,
    client: Option<&GatewayClient>,
) -> Result<ClientEnv, ProgramCliConfigError> {
    let mut all = EnvVars::default();
    let variables = client_variables(host, address, token);
    let client = client.filter(|_| !variables.is_empty());
    let file = client.map(|client| client.terraform.prepare(host, address, token)).transpose()?;
    if let Some(file) = &file {
        all.set(VARIABLE, SecretString::from(file.path().display().to_string()));
    }
    for (name, value) in client.iter().flat_map(|client| client.proxy_exceptions.with(address)) {
        all.set(name, SecretString::from(value));
    }
    for (name, value) in variables {
        all.set(name, value);
    }
    Ok((all, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateways_host_is_added_to_the_exceptions_from_a_proxy() {
        let check = |set: &[(&str, &str)], address: &str, upper: &str, lower: &str| {
            let mut variables = EnvVars::default();
            for (name, value) in set {
                variables.set(*name, SecretString::from((*value).to_owned()));
            }
            let expected = vec![("NO_PROXY", upper.to_owned()), ("no_proxy", lower.to_owned())];
            assert_eq!(ProxyExceptions::new(&variables).with(address), expected, "{set:?}");
        };
        let gateway = "http://127.0.0.1:8800";
        check(&[], gateway, "127.0.0.1", "127.0.0.1");
        check(&[("NO_PROXY", "a.example")], gateway, "a.example,127.0.0.1", "a.example,127.0.0.1");
        check(&[("no_proxy", "b, 127.0.0.1")], gateway, "b, 127.0.0.1", "b, 127.0.0.1");
        check(&[("NO_PROXY", "*"), ("no_proxy", " ")], gateway, "*", "127.0.0.1");
        check(&[("NO_PROXY", "a")], "http://[::1]:8800", "a,::1", "a,::1");
    }

    #[test]
    fn a_token_is_trimmed_and_an_empty_one_is_never_set() {
        let variables = |host: &str, token: &str| {
            let all = client_variables(
                &ServiceHost::parse(host).unwrap(),
                "http://127.0.0.1:8800",
                &SecretString::from(token),
            );
            all.into_iter().map(|(name, value)| format!("{name}={}", value.expose_secret())).collect::<Vec<_>>()
        };
        assert_eq!(
            variables("app.terraform.io", "tok\n"),
            [
                "TFE_ADDRESS=http://127.0.0.1:8800",
                "TFE_HOSTNAME=app.terraform.io",
                "TFE_TOKEN=tok",
                "TF_TOKEN_app_terraform_io=tok",
            ]
        );
        assert_eq!(variables("tfe.example.com:8443", "tok").len(), 3, "no shell could name the variable");
        assert!(variables("app.terraform.io", " \n").is_empty());
    }
}
