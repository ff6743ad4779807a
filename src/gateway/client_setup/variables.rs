//! Environment variables for clients of the gateway or the platform.

use keyward_machine::command::EnvVars;
use keyward_machine::secret_string::SecretString;

use super::user_config_files::VARIABLE;
use super::{ProgramCliConfig, ProgramCliConfigError, ServiceHost};

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

/// Builds all variables for `host` at `address`; with `terraform`, also writes its file and adds the variable that
/// names it. Blocks for that.
pub fn client_env(
    host: &ServiceHost,
    address: &str,
    token: &SecretString,
    terraform: Option<&ProgramCliConfig>,
) -> Result<EnvVars, ProgramCliConfigError> {
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
