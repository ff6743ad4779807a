//! A signed token in a file, such as a Kubernetes service account's or a CI job's.

use std::path::PathBuf;

use async_trait::async_trait;
use keyward_credentials::jwt::UnverifiedClaims;

use super::consumable_file::{ConsumableFile, ConsumedSecrets};
use super::{IdentityError, IdentityProof, IdentitySource, LoginFields, SignedToken};

/// File of a signed token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtFileOptions {
    /// Path of the file, read at each login.
    pub file: PathBuf,
    /// True if the file is deleted after it is read.
    pub remove: bool,
}

/// Identity source of the JWT method.
#[derive(Debug)]
pub(super) struct JwtFileSource(ConsumableFile);

impl JwtFileSource {
    pub(super) fn new(options: &JwtFileOptions, consumed: &ConsumedSecrets) -> Self {
        Self(ConsumableFile::new(options.file.clone(), options.remove, consumed))
    }
}

#[async_trait]
impl IdentitySource for JwtFileSource {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let jwt = self.0.read("token file")?;
        let claims = UnverifiedClaims::decode(jwt.expose_secret()).ok();
        let signed = SignedToken { jwt, fields: LoginFields::default(), claims, audience: None };
        Ok(IdentityProof::Signed(Box::new(signed)))
    }

    fn describe(&self) -> String {
        format!("the signed token in {}", self.0.path().display())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.0.path().to_owned()]
    }
}
