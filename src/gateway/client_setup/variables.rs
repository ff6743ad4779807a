//! What a child process finds in its environment.

use secrecy::{ExposeSecret as _, SecretString};

use super::user_files::VARIABLE;
use super::{CliConfig, CliConfigError, ServiceHost};
use crate::command::EnvVars;

/// The variables that lead a client to an address with a token, by name: `TFE_ADDRESS`, `TFE_HOSTNAME` and `TFE_TOKEN`, which
/// clients of the platform's API read, and Terraform's own `TF_TOKEN_...`, where the host has one. None for a token that is
/// empty: Terraform takes an empty variable for "no token, and look no further".
pub fn client_variables(host: &ServiceHost, address: &str, token: &SecretString) -> Vec<(String, SecretString)> {
    // A line's end in a variable breaks the header that it is put into.
    let token = token.expose_secret().trim();
    if token.is_empty() {
        return Vec::new();
    }
    let plain = [("TFE_ADDRESS", address.to_owned()), ("TFE_HOSTNAME", host.to_string())];
    let plain = plain.map(|(name, value)| (name.to_owned(), SecretString::from(value)));
    let secret = std::iter::once("TFE_TOKEN".to_owned()).chain(host.variable());
    plain.into_iter().chain(secret.map(|name| (name, SecretString::from(token)))).collect()
}

/// All that a program finds: the variables for `host` at `address` with a token, and, where `terraform` is given, the one that
/// leads Terraform there by a file that is written. Blocks for that.
///
/// # Errors
/// The file could not be written.
pub fn client_env(
    host: &ServiceHost,
    address: &str,
    token: &SecretString,
    terraform: Option<&CliConfig>,
) -> Result<EnvVars, CliConfigError> {
    let mut all = EnvVars::default();
    let variables = client_variables(host, address, token);
    if let Some(terraform) = terraform.filter(|_| !variables.is_empty()) {
        let file = terraform.write(host, address, token)?;
        all.set(VARIABLE, SecretString::from(file.display().to_string()));
    }
    for (name, value) in variables {
        all.set(name, value);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

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
