//! Authentication methods of sessions, and the identity source of each.

use std::path::PathBuf;
use std::time::SystemTime;

use async_trait::async_trait;
use keyward_http::tls::{self, CertificateFacts};
use keyward_machine::clock::Clock;
use keyward_machine::secret;

use super::attempts::Persistence;
use super::consumable_file::{ConsumedSecrets, unreadable};
use super::{
    AppRoleOptions, AwsIdentityOptions, CiTokenOptions, CloudIdentityOptions, GcpIdentityOptions, IdentityError,
    IdentityErrorKind, IdentityProof, IdentitySource, JwtFileOptions, WorkloadApiOptions, X509SvidOptions, approle,
    jwt_file,
};
use crate::server_client::ServerClient;
use crate::token::ClientToken;

/// Authentication method of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityMethod {
    /// The Azure identity of this machine or pod.
    Cloud(Box<CloudIdentityOptions>),
    /// An AWS identity.
    Aws(Box<AwsIdentityOptions>),
    /// A Google Cloud identity.
    Gcp(Box<GcpIdentityOptions>),
    /// The signed token of a CI job.
    CiJob(Box<CiTokenOptions>),
    /// The token of SPIFFE's Workload API.
    WorkloadApi(Box<WorkloadApiOptions>),
    /// A signed token in a file.
    Jwt(JwtFileOptions),
    /// A role id and its secret id.
    AppRole(AppRoleOptions),
    /// The client certificate of the connections to the server.
    Certificate {
        /// The one of the Workload API that the running agent writes.
        awaited: Option<AwaitedCertificate>,
    },
    /// A token of the server in this file, which is used without a login and never revoked.
    TokenFile(PathBuf),
}

/// A client certificate of the Workload API, in a file that may not be there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedCertificate {
    /// The file of the certificate and its chain.
    pub file: PathBuf,
    /// The identity that it is for.
    pub svid: X509SvidOptions,
}

impl IdentityMethod {
    /// Creates the identity source for logins at a server, without any request.
    ///
    /// # Errors
    /// The environment variables of a cloud identity are incomplete. Other methods fail only at the first proof.
    pub fn build(
        &self,
        clock: Clock,
        upstream: &ServerClient,
        namespace: Option<&str>,
    ) -> Result<Box<dyn IdentitySource>, IdentityError> {
        self.build_with(clock, upstream, namespace, &ConsumedSecrets::default())
    }

    /// Creates the identity source as [`IdentityMethod::build`] does. It has the secrets that an earlier source consumed,
    /// and adds its own.
    pub fn build_with(
        &self,
        clock: Clock,
        upstream: &ServerClient,
        namespace: Option<&str>,
        consumed: &ConsumedSecrets,
    ) -> Result<Box<dyn IdentitySource>, IdentityError> {
        Ok(match self {
            Self::Cloud(options) => options.build(clock)?,
            Self::Aws(options) => options.build(clock)?,
            Self::Gcp(options) => options.build(clock)?,
            Self::CiJob(options) => options.build(clock)?,
            Self::WorkloadApi(options) => options.build(clock),
            Self::Jwt(options) => Box::new(jwt_file::JwtFileSource::new(options, consumed)),
            Self::AppRole(options) => {
                Box::new(approle::AppRoleSource::new(options.clone(), upstream, namespace, consumed))
            }
            Self::Certificate { awaited } => Box::new(CertificateSource { awaited: awaited.clone(), clock }),
            Self::TokenFile(file) => Box::new(TokenFileSource(file.clone())),
        })
    }

    /// Creates the identity source as [`IdentityMethod::build`] does, for one attempt instead of retries.
    pub fn build_for_one_attempt(
        &self,
        clock: Clock,
        upstream: &ServerClient,
        namespace: Option<&str>,
    ) -> Result<Box<dyn IdentitySource>, IdentityError> {
        match self {
            Self::Cloud(options) => options.build_with(Persistence::single(clock)),
            Self::Aws(options) => options.build_with(Persistence::single(clock)),
            Self::Gcp(options) => options.build_with(Persistence::single(clock)),
            Self::CiJob(options) => options.build_with(Persistence::single(clock)),
            Self::WorkloadApi(options) => Ok(options.build_with(Persistence::single(clock))),
            other => other.build(clock, upstream, namespace),
        }
    }

    /// Returns true for an identity that a cloud gives the machine: one proof serves all sessions with equal options.
    pub const fn is_of_machine(&self) -> bool {
        matches!(self, Self::Cloud(_) | Self::Aws(_) | Self::Gcp(_) | Self::CiJob(_) | Self::WorkloadApi(_))
    }

    /// Returns true if secrets that `before` consumed came from the files of this method, and by the same wrapping path.
    pub fn has_files_of(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::Jwt(new), Self::Jwt(old)) => new.file == old.file,
            (Self::AppRole(new), Self::AppRole(old)) => {
                new.role_id_file == old.role_id_file
                    && new.secret_id_file == old.secret_id_file
                    && new.wrapping_path == old.wrapping_path
            }
            _ => false,
        }
    }
}

#[derive(Debug)]
struct CertificateSource {
    awaited: Option<AwaitedCertificate>,
    clock: Clock,
}

impl AwaitedCertificate {
    /// Returns the reason why a login with the file's certificate has to wait.
    fn missing(&self, now: SystemTime) -> Option<&'static str> {
        let Ok(certificates) = tls::certificates(&self.file) else { return Some("is not there yet") };
        let facts = certificates.first().and_then(|leaf| CertificateFacts::parse(leaf));
        let wanted = self.svid.spiffe_id.as_ref();
        match facts {
            None => Some("holds no certificate that can be read"),
            Some(facts) if facts.ends <= now => Some("holds a certificate that has ended"),
            Some(facts) if wanted.is_some_and(|id| !facts.uris.contains(id)) => Some("is of another identity"),
            Some(_) => None,
        }
    }
}

#[async_trait]
impl IdentitySource for CertificateSource {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        // A login without it would be refused, and would count.
        let now = self.clock.now().wall;
        match self.awaited.as_ref().and_then(|awaited| Some((&awaited.file, awaited.missing(now)?))) {
            None => Ok(IdentityProof::Certificate),
            Some((file, reason)) => Err(IdentityError {
                kind: IdentityErrorKind::NotReady,
                source_name: "client certificate",
                message: format!("{} {reason}", file.display()),
                hint: Some("the running agent writes it as soon as it has the certificate"),
                retry_after: None,
            }),
        }
    }

    fn describe(&self) -> String {
        "client certificate".to_owned()
    }
}

#[derive(Debug)]
struct TokenFileSource(PathBuf);

#[async_trait]
impl IdentitySource for TokenFileSource {
    async fn prove(&self) -> Result<IdentityProof, IdentityError> {
        let text = secret::read_file(&self.0).map_err(|error| unreadable("token file", &error))?;
        // A wrapped token, as the sinks of agents write it. It could be taken for a token: it has no space.
        let is_json = text.expose_secret().starts_with('{');
        let token = ClientToken::parse(text).filter(|_| !is_json);
        token.map(IdentityProof::Token).ok_or_else(|| IdentityError {
            kind: IdentityErrorKind::Denied,
            source_name: "token file",
            message: if is_json {
                format!("{} holds JSON instead of a token", self.0.display())
            } else {
                format!("{} holds no token: it must be 1 to 4096 visible ASCII characters", self.0.display())
            },
            hint: is_json.then_some("a response-wrapped token has to be unwrapped first, and put there by itself"),
            retry_after: None,
        })
    }

    fn describe(&self) -> String {
        format!("the token in {}", self.0.display())
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.0.clone()]
    }
}
