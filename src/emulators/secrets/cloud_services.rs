//! Services of a cloud that an auth method calls.

use std::path::PathBuf;

use url::Url;

/// Address of the services.
#[derive(Debug, Clone)]
pub struct CloudServices {
    /// Their URL.
    pub url: Url,
    /// PEM file of the CA to trust for it.
    pub ca_file: PathBuf,
}
