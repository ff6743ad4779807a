//! Origin of the tokens that tools of this machine get, each for one resource.

use std::path::{Path, PathBuf};

use keyward_machine::clock::Clock;

use super::attempts::Persistence;
use super::consumable_file::ConsumedSecrets;
use super::jwt_file::JwtFileSource;
use super::{CloudIdentityOptions, GcpIdentityOptions, IdentityError, IdentityMethod, IdentitySource, JwtFileOptions};

/// Identity of the machine of which tools get tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityTokenOrigin {
    /// The Azure identity. The options' resource and scope are those of each token.
    Cloud(Box<CloudIdentityOptions>),
    /// The Google Cloud identity. The options' audience is that of each token.
    Gcp(Box<GcpIdentityOptions>),
    /// A signed token in a file that something else replaces, such as that of a Kubernetes service account.
    File(PathBuf),
}

impl IdentityTokenOrigin {
    /// Creates the source of the tokens for a resource, without any request.
    ///
    /// # Errors
    /// The environment variables of a cloud identity are incomplete.
    pub fn build(&self, resource: &str, clock: Clock) -> Result<Box<dyn IdentitySource>, IdentityError> {
        match self {
            Self::Cloud(options) => cloud(options, resource).build_for_tools(clock),
            Self::Gcp(options) => gcp(options, resource).build(clock),
            Self::File(file) => Ok(Box::new(JwtFileSource::new(&jwt(file), &ConsumedSecrets::default()))),
        }
    }

    /// Creates a source that asks once, without retries, for a check. Makes no request.
    ///
    /// # Errors
    /// The environment variables of a cloud identity are incomplete.
    pub(crate) fn build_once(&self, resource: &str, clock: Clock) -> Result<Box<dyn IdentitySource>, IdentityError> {
        match self {
            Self::Cloud(options) => cloud(options, resource).build_with(Persistence::single(clock)),
            Self::Gcp(options) => gcp(options, resource).build_with(Persistence::single(clock)),
            Self::File(_) => self.build(resource, clock),
        }
    }

    /// Returns the method of a login by a token for this resource, which needs the same of the machine.
    pub fn to_method(&self, resource: &str) -> IdentityMethod {
        match self {
            Self::Cloud(options) => IdentityMethod::Cloud(Box::new(cloud(options, resource))),
            Self::Gcp(options) => IdentityMethod::Gcp(Box::new(gcp(options, resource))),
            Self::File(file) => IdentityMethod::Jwt(jwt(file)),
        }
    }
}

fn cloud(options: &CloudIdentityOptions, resource: &str) -> CloudIdentityOptions {
    CloudIdentityOptions { resource: resource.to_owned(), scope: None, ..options.clone() }
}

fn gcp(options: &GcpIdentityOptions, audience: &str) -> GcpIdentityOptions {
    GcpIdentityOptions { audience: audience.to_owned(), ..options.clone() }
}

fn jwt(file: &Path) -> JwtFileOptions {
    JwtFileOptions { file: file.to_owned(), remove: false }
}
