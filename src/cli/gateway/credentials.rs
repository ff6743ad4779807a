//! The executable by its other name: Terraform's credentials helper.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use clap::Parser;
use keyward_app::error_codes;
use keyward_gateway::client_setup::credentials::{self, CredentialsError, CredentialsVerb, PROGRAM};

use super::target::GatewayAddress;
use crate::cli::{Exit, print_error};

/// Give Terraform or OpenTofu the local token of keyward's gateway. They add a verb and a host to the arguments that its
/// configuration gives in the block `credentials_helper "keyward"`.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version)]
struct HelperRequest {
    #[command(flatten)]
    at: GatewayAddress,
    /// get, store or forget
    verb: String,
    /// Host whose token is requested
    hostname: String,
}

/// The arguments, if this process was started by the helper's name.
pub(in crate::cli) fn parse_helper_invocation(mut arguments: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let program = arguments.next()?;
    let is_helper = Path::new(&program).file_name().is_some_and(|name| name == PROGRAM);
    is_helper.then(|| std::iter::once(program).chain(arguments).collect())
}

/// Answers Terraform or OpenTofu. A failure prints one line, which they show in their log.
pub(in crate::cli) fn respond_to_helper(arguments: &[OsString]) -> Exit {
    match HelperRequest::try_parse_from(arguments) {
        Ok(request) => request.response(),
        Err(error) => {
            let code = if error.use_stderr() { Exit::Failed } else { Exit::Ok };
            let _ = error.print();
            code
        }
    }
}

impl HelperRequest {
    fn response(&self) -> Exit {
        let (verb, host) = match credentials::parse_request(&self.verb, &self.hostname) {
            Ok(request) => request,
            Err(error) => return failed(error),
        };
        // Needs no gateway: a logout must work while it is stopped.
        if verb == CredentialsVerb::Forget {
            return Exit::Ok;
        }
        let Ok(variables) = self.at.find() else { return Exit::Failed };
        let Some(own_host) = variables.host else {
            print_error("--host is missing: write the host of HCP Terraform or Terraform Enterprise");
            return Exit::Failed;
        };
        match credentials::respond(verb, &host, &own_host, &variables.token_file) {
            Ok(response) => {
                // The command's purpose is to print the token.
                let written = writeln!(std::io::stdout(), "{}", response.as_str());
                if written.is_ok() { Exit::Ok } else { Exit::Failed }
            }
            Err(error) => failed(error),
        }
    }
}

fn failed(error: CredentialsError) -> Exit {
    print_error(&error_codes::format(&error.into()));
    Exit::Failed
}
