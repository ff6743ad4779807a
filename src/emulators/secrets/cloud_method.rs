//! The auth methods of other clouds than Azure, by their mounts.

use std::time::Duration;

use keyward_http::client;
use serde_json::Value;

use super::aws_login::AwsMethod;
use super::gcp_login::GcpMethod;
use super::login_method::VerifiedLogin;
use super::reply::WrappableResponse;

/// An auth method that asks a cloud about a proof.
#[derive(Debug, Clone)]
pub enum CloudMethod {
    /// `aws`, for roles of the type `iam`.
    Aws(AwsMethod),
    /// `gcp`, for roles of both types.
    Gcp(GcpMethod),
}

/// A method with its connection to the cloud.
#[derive(Debug)]
pub(super) struct CloudVerifier {
    method: CloudMethod,
    client: client::Client,
}

impl CloudVerifier {
    pub(super) fn new(method: CloudMethod) -> Result<Self, client::BuildError> {
        let services = match &method {
            CloudMethod::Aws(method) => &method.sts,
            CloudMethod::Gcp(method) => &method.apis,
        };
        let options = client::ClientOptions {
            address: client::ServerAddress::Url(services.url.clone()),
            tls: client::TlsOptions { ca_file: Some(services.ca_file.clone()), ..client::TlsOptions::default() },
            proxy: client::ProxyMode::Direct,
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(10),
        };
        Ok(Self { client: options.build()?, method })
    }

    /// Verifies a login with the checks of the real method, in its order.
    pub(super) async fn verify(
        &self,
        body: &Value,
        now: std::time::SystemTime,
    ) -> Result<VerifiedLogin<'_>, WrappableResponse> {
        match &self.method {
            CloudMethod::Aws(method) => method.verify(&self.client, body).await,
            CloudMethod::Gcp(method) => method.verify(&self.client, body, now).await,
        }
    }
}
