//! Credentials helper of Terraform: `credentials_helper "keyward" {}`. Terraform runs `terraform-credentials-keyward
//! ARGS... VERB HOST` and reads one JSON object from its output.

use std::path::{Path, PathBuf};

use keyward_machine::secret_string::SecretString;
use serde_json::json;

use super::service_host::ServiceHost;
use super::terraform_config_file::{TerraformConfigFileError, read_token};
use crate::local_token::{self, LocalTokenError};

/// Name of the executable that Terraform runs.
pub const PROGRAM: &str = "terraform-credentials-keyward";

/// Operation that Terraform requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialsVerb {
    /// Print a host's token.
    Get,
    /// Store the token on standard input (`terraform login`).
    Store,
    /// Delete a token (`terraform logout`).
    Forget,
}

/// Error of the helper, in one line for people.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The last two arguments are not a verb and a host.
    #[error("Terraform and OpenTofu run this program, with get, store or forget and a host as its last arguments")]
    Usage,
    /// Attempt to replace the token of a host that the gateway manages.
    #[error("the token of {0} is managed by keyward: no login is needed, and no token is stored")]
    ManagedHost(ServiceHost),
    /// Attempt to store a token for another host.
    #[error("no token is stored here: keyward manages only that of its gateway; write a credentials block for {0}")]
    OtherHost(ServiceHost),
    /// The local token cannot be read.
    #[error("keyward's gateway has no local token yet; start it with `keyward run`")]
    NoToken(#[source] LocalTokenError),
    /// This user may not read the local token.
    #[error("this user may not read the gateway's local token; run the command as root or as the agent's user")]
    TokenDenied(#[source] LocalTokenError),
    /// The file of the local token holds something else.
    #[error("the gateway's local token cannot be read; check the path of its file")]
    BadToken(#[source] LocalTokenError),
    /// The platform token cannot be read.
    #[error("keyward's gateway has no platform token yet; start it with `keyward run`, or see its log")]
    NoPlatformToken(#[source] TerraformConfigFileError),
}

/// Parses the last two arguments.
pub fn parse_request(verb: &str, host: &str) -> Result<(CredentialsVerb, ServiceHost), CredentialsError> {
    let verb = match verb {
        "get" => CredentialsVerb::Get,
        "store" => CredentialsVerb::Store,
        "forget" => CredentialsVerb::Forget,
        _ => return Err(CredentialsError::Usage),
    };
    Ok((verb, ServiceHost::parse(host).map_err(|_| CredentialsError::Usage)?))
}

/// File of the token that clients get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientTokenFile {
    /// The local token's file.
    Local(PathBuf),
    /// Terraform's file with the platform token.
    Platform(PathBuf),
}

impl ClientTokenFile {
    /// Reads the token for the gateway's host.
    pub fn read(&self, host: &ServiceHost) -> Result<SecretString, CredentialsError> {
        match self {
            Self::Local(file) => read_local_token(file),
            Self::Platform(file) => read_token(file, host).map_err(CredentialsError::NoPlatformToken),
        }
    }
}

/// Reads the local token.
pub fn read_local_token(file: &Path) -> Result<SecretString, CredentialsError> {
    local_token::read(file).map_err(|error| match &error {
        LocalTokenError::Read(cause) if cause.is_permission_denied() => CredentialsError::TokenDenied(error),
        LocalTokenError::Read(_) if !file.exists() => CredentialsError::NoToken(error),
        _ => CredentialsError::BadToken(error),
    })
}

/// Returns the output for a request. `managed_host` is the host of the gateway.
pub fn respond(
    verb: CredentialsVerb,
    host: &ServiceHost,
    managed_host: &ServiceHost,
    token_file: &ClientTokenFile,
) -> Result<String, CredentialsError> {
    match verb {
        CredentialsVerb::Get if host == managed_host => {
            Ok(json!({ "token": token_file.read(host)?.expose_secret() }).to_string())
        }
        // Terraform then continues as without a helper.
        CredentialsVerb::Get => Ok("{}".to_owned()),
        // `terraform login` stores a person's token; the gateway puts its own on every call, so that one would never be used.
        CredentialsVerb::Store if host == managed_host => Err(CredentialsError::ManagedHost(host.clone())),
        CredentialsVerb::Store => Err(CredentialsError::OtherHost(host.clone())),
        // There is nothing to delete.
        CredentialsVerb::Forget => Ok(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_managed_host_has_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.token");
        std::fs::write(&file, "keyward-local-0123456789\n").unwrap();
        let managed_host = ServiceHost::parse("app.terraform.io").unwrap();
        let check = |verb: &str, host: &str, expected: Result<&str, &str>| {
            let (verb, host) = parse_request(verb, host).unwrap();
            let found = respond(verb, &host, &managed_host, &ClientTokenFile::Local(file.clone()))
                .map_err(|error| error.to_string());
            match (&found, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.as_str(), expected),
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                _ => panic!("{found:?}"),
            }
        };
        check("get", "app.terraform.io", Ok(r#"{"token":"keyward-local-0123456789"}"#));
        check("get", "APP.terraform.io:443", Ok(r#"{"token":"keyward-local-0123456789"}"#));
        check("get", "tfe.example.com", Ok("{}"));
        check("get", "app.terraform.io:8443", Ok("{}"));
        check("store", "app.terraform.io", Err("is managed by keyward"));
        check("store", "tfe.example.com", Err("no token is stored here"));
        check("forget", "app.terraform.io", Ok(""));
        std::fs::write(&file, "short\n").unwrap();
        check("get", "app.terraform.io", Err("cannot be read; check the path of its file"));
        std::fs::remove_file(&file).unwrap();
        check("get", "app.terraform.io", Err("has no local token yet; start it"));
        check("get", "tfe.example.com", Ok("{}"));
        for (verb, host) in [("list", "a.example"), ("get", "https://a.example"), ("get", "")] {
            assert!(matches!(parse_request(verb, host), Err(CredentialsError::Usage)), "{verb} {host}");
        }
    }
}
