//! SPIFFE's Workload API, which SPIRE's agent serves on a unix socket (spiffe.io, "The SPIFFE Workload API"), and the source of proofs
//! that asks it for a signed token (JWT-SVID).

mod error;
mod call;
mod jwt_svid;
mod x509_svid;

pub(crate) use self::error::WorkloadApiError;
pub use self::x509_svid::X509SvidOptions;
pub(crate) use self::x509_svid::{X509Svid, X509SvidStream};

use std::path::PathBuf;

use async_trait::async_trait;
use keyward_credentials::jwt::UnverifiedClaims;
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;

use super::attempts::Persistence;
use super::error::{AttemptError, ErrorResponse};
use super::retry::IdentityEndpoint;
use super::token_response;
use super::{IdentityError, IdentityProof, IdentitySource, LoginFields, SignedToken};
use jwt_svid::fetch_jwt_svid;

/// Options of a token of the Workload API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadApiOptions {
    /// Path of the API's socket.
    pub socket: PathBuf,
    /// Audience of the token.
    pub audience: String,
    /// Identity to use if this process has several; `None` for the first.
    pub spiffe_id: Option<String>,
}

impl WorkloadApiOptions {
    /// Creates the source, without any request.
    pub fn build(&self, clock: Clock) -> Box<dyn IdentitySource> {
        self.build_with(Persistence::new(clock))
    }

    pub(super) fn build_with(&self, persistence: Persistence) -> Box<dyn IdentitySource> {
        Box::new(WorkloadApiSource { options: self.clone(), persistence })
    }
}

#[derive(Debug)]
struct WorkloadApiSource {
    options: WorkloadApiOptions,
    persistence: Persistence,
}

#[async_trait]
impl IdentitySource for WorkloadApiSource {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let mut attempts = self.persistence.start(IdentityEndpoint::WorkloadApi, "Workload API");
        let jwt = loop {
            match self.options.fetch().await {
                Ok(token) => break attempts.succeed(token),
                Err(failure) => attempts.wait(&failure).await?,
            }
        };
        let claims = UnverifiedClaims::decode(jwt.expose_secret()).ok();
        let signed = SignedToken { jwt, fields: LoginFields::default(), claims, audience: None };
        Ok(IdentityProof::Signed(Box::new(signed)))
    }

    fn describe(&self) -> String {
        format!("the token of SPIFFE's Workload API at {}", self.options.socket.display())
    }
}

impl WorkloadApiOptions {
    async fn fetch(&self) -> Result<SecretString, AttemptError> {
        let svid = fetch_jwt_svid(&self.socket, &self.audience, self.spiffe_id.as_deref()).await?;
        if token_response::is_signed_token(svid.expose_secret()) {
            Ok(svid)
        } else {
            Err(AttemptError::Unreadable("it is not a signed token".to_owned()))
        }
    }
}

impl From<WorkloadApiError> for AttemptError {
    fn from(error: WorkloadApiError) -> Self {
        let text = error.to_string();
        match error {
            WorkloadApiError::Unreachable { .. } => Self::Unreachable(text),
            WorkloadApiError::Broken(_) | WorkloadApiError::Late(_) => Self::Broken(text),
            WorkloadApiError::TooLarge | WorkloadApiError::Unreadable(_) | WorkloadApiError::OtherIdentity { .. } => {
                Self::Unreadable(text)
            }
            WorkloadApiError::Refused { status, name, text } => {
                Self::Refused(ErrorResponse { status, error: name, text, ..ErrorResponse::default() })
            }
        }
    }
}
