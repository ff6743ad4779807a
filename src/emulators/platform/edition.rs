//! Product that the emulated platform claims to be.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

/// Product and release.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edition {
    /// HCP Terraform, which names no release.
    #[default]
    Hosted,
    /// Terraform Enterprise.
    SelfManaged {
        /// Release as it writes it: `v202207-1`, or `1.0.3`.
        release: String,
    },
}

impl Edition {
    pub(super) const fn is_hosted(&self) -> bool {
        matches!(self, Self::Hosted)
    }

    /// Returns true if tokens may expire: everywhere but on self-managed releases before v202305-1.
    pub(super) fn has_token_expiry(&self) -> bool {
        match self {
            Self::Hosted => true,
            Self::SelfManaged { release } => monthly(release).is_none_or(|month| month >= (202_305, 1)),
        }
    }

    /// Returns true if a state's download URL leads to the API, which requires a token and redirects to the archive: on
    /// HCP Terraform, and on self-managed releases since v202311-1. Before that it leads to the archive.
    pub(super) fn guards_downloads(&self) -> bool {
        match self {
            Self::Hosted => true,
            Self::SelfManaged { release } => monthly(release).is_none_or(|month| month >= (202_311, 1)),
        }
    }

    /// Adds the headers of every response that name product and release.
    pub(super) fn insert_headers(&self, headers: &mut HeaderMap) {
        let mut insert = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        insert("tfp-api-version", "2.6");
        match self {
            Self::Hosted => insert("tfp-appname", "HCP Terraform"),
            Self::SelfManaged { release } => match monthly(release) {
                // Releases before this one name neither themselves nor the product.
                Some(month) if month < (202_208, 3) => {}
                Some(_) => {
                    insert("tfp-appname", "Terraform Enterprise");
                    insert("x-tfe-version", release);
                }
                None => {
                    insert("tfp-appname", "Terraform Enterprise");
                    insert("x-tfe-current-version", release);
                }
            },
        }
    }
}

/// Parses `v202208-3` into a month and a number within it.
fn monthly(release: &str) -> Option<(u32, u32)> {
    let (month, number) = release.strip_prefix('v')?.split_once('-')?;
    Some((month.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_edition_sends_the_real_headers() {
        let headers_of = |edition: &Edition| {
            let mut headers = HeaderMap::new();
            edition.insert_headers(&mut headers);
            ["tfp-appname", "x-tfe-version", "x-tfe-current-version"]
                .map(|name| headers.get(name).map(|value| value.to_str().unwrap().to_owned()))
        };
        let release = |release: &str| Edition::SelfManaged { release: release.to_owned() };
        let enterprise = || Some("Terraform Enterprise".to_owned());
        assert_eq!(headers_of(&Edition::Hosted), [Some("HCP Terraform".to_owned()), None, None]);
        assert_eq!(headers_of(&release("v202207-1")), [None, None, None]);
        assert_eq!(headers_of(&release("v202208-3")), [enterprise(), Some("v202208-3".to_owned()), None]);
        assert_eq!(headers_of(&release("1.0.3")), [enterprise(), None, Some("1.0.3".to_owned())]);
        assert!(Edition::Hosted.guards_downloads() && release("1.0.0").guards_downloads());
        assert!(!release("v202310-1").guards_downloads() && release("v202311-1").guards_downloads());
        assert!(
            !release("v202304-1").has_token_expiry()
                && release("v202305-1").has_token_expiry()
                && release("1.0.0").has_token_expiry()
        );
    }
}
