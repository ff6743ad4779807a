//! A signed token that something else on the machine keeps in a file: a Kubernetes service account's, a CI job's.

use std::path::PathBuf;

use async_trait::async_trait;
use secrecy::ExposeSecret as _;

use super::consumable_file::KeptFile;
use super::{IdentityError, IdentityProof, IdentitySource, LoginFields, SignedToken};
use crate::jwt::UnverifiedClaims;

/// Where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtFile {
    /// The file. It is read anew at each login.
    pub file: PathBuf,
    /// Whether it is removed once it is read.
    pub remove: bool,
}

/// The source.
#[derive(Debug)]
pub(super) struct Source(KeptFile);

impl Source {
    pub(super) fn new(options: &JwtFile) -> Self {
        Self(KeptFile::new(options.file.clone(), options.remove))
    }
}

#[async_trait]
impl IdentitySource for Source {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let jwt = self.0.read("token file")?;
        let claims = UnverifiedClaims::decode(jwt.expose_secret()).ok();
        let signed = SignedToken { jwt, fields: LoginFields::default(), claims, audience: None };
        Ok(IdentityProof::Signed(Box::new(signed)))
    }

    fn describe(&self) -> String {
        format!("the signed token in {}", self.0.path().display())
    }
}
