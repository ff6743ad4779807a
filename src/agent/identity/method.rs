//! The ways to prove an identity, and the source of each.

use std::path::PathBuf;

use async_trait::async_trait;

use super::consumable_file::unreadable;
use super::{AppRole, Class, IdentityError, IdentityProof, IdentitySource, JwtFile, Options, approle, jwt_file};
use crate::agent::server_client::Upstream;
use crate::agent::token::ClientToken;
use crate::clock::Clock;
use crate::secret;

/// How a session proves who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// By the cloud's identity of this machine or pod.
    Cloud(Box<Options>),
    /// By a signed token in a file.
    Jwt(JwtFile),
    /// By a role's id and its secret id.
    AppRole(AppRole),
    /// By the client certificate that connections to the server show.
    Certificate,
    /// By a token of the server that someone else got, in this file. There is no login, and it is never revoked.
    TokenFile(PathBuf),
}

impl Method {
    /// A source of proofs for logins at a server. Nothing is asked yet.
    ///
    /// # Errors
    /// What the cloud's method lacks; the others lack nothing before they are asked.
    pub fn build(
        &self,
        clock: Clock,
        upstream: &Upstream,
        namespace: Option<&str>,
    ) -> Result<Box<dyn IdentitySource>, IdentityError> {
        Ok(match self {
            Self::Cloud(options) => options.build(clock)?,
            Self::Jwt(options) => Box::new(jwt_file::Source::new(options)),
            Self::AppRole(options) => Box::new(approle::Source::new(options.clone(), upstream, namespace)),
            Self::Certificate => Box::new(Certificate),
            Self::TokenFile(file) => Box::new(TokenFile(file.clone())),
        })
    }
}

#[derive(Debug)]
struct Certificate;

#[async_trait]
impl IdentitySource for Certificate {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        Ok(IdentityProof::Certificate)
    }

    fn describe(&self) -> String {
        "client certificate".to_owned()
    }
}

#[derive(Debug)]
struct TokenFile(PathBuf);

#[async_trait]
impl IdentitySource for TokenFile {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let text = secret::read_file(&self.0).map_err(|error| unreadable("token file", &error))?;
        ClientToken::parse(text).map(IdentityProof::Token).ok_or_else(|| IdentityError {
            class: Class::Denied,
            source_name: "token file",
            message: format!("{} holds no token: it must be 1 to 4096 visible ASCII characters", self.0.display()),
            hint: None,
            retry_after: None,
        })
    }

    fn describe(&self) -> String {
        format!("the token in {}", self.0.display())
    }
}
