//! URLs of AWS's services.

use std::path::PathBuf;

use url::Url;

use crate::identity::ProviderVariables;

/// URLs of AWS's services. Fixed by AWS; only emulators and tests set others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsEndpoints {
    /// The metadata service of a virtual machine.
    pub metadata: Url,
    /// PEM file to trust for STS instead of the system's certificates.
    pub sts_ca: Option<PathBuf>,
    /// True if STS runs on this machine, so that no proxy is used.
    pub sts_is_local: bool,
}

impl AwsEndpoints {
    /// Returns AWS's own endpoints.
    pub fn provider() -> Self {
        Self { metadata: METADATA_SERVICE.clone(), sts_ca: None, sts_is_local: false }
    }
}

/// `http://169.254.169.254/`, link-local on every virtual machine.
#[expect(clippy::expect_used, reason = "a constant that parses")]
static METADATA_SERVICE: std::sync::LazyLock<Url> =
    std::sync::LazyLock::new(|| Url::parse("http://169.254.169.254/").expect("a constant that parses"));

/// Returns the host of STS in a region; without one the global endpoint's, whose requests are signed for [`GLOBAL_REGION`].
pub(super) fn sts_host(region: Option<&str>) -> String {
    match region {
        None => "sts.amazonaws.com".to_owned(),
        // The partition of China (docs.aws.amazon.com, "AWS Security Token Service endpoints and quotas").
        Some(region) if region.starts_with("cn-") => format!("sts.{region}.amazonaws.com.cn"),
        Some(region) => format!("sts.{region}.amazonaws.com"),
    }
}

/// Region that requests to the global endpoint are signed for.
pub(super) const GLOBAL_REGION: &str = "us-east-1";

/// Returns the URL at which tokens are exchanged: that of `AWS_ENDPOINT_URL_STS`, else of the region.
///
/// # Errors
/// The variable is no https URL, or the region no host name.
pub(super) fn sts_url(region: Option<&str>, variables: &ProviderVariables) -> Result<Url, &'static str> {
    if let Some(text) = variables.get("AWS_ENDPOINT_URL_STS") {
        let url = Url::parse(text).ok().filter(|url| url.scheme() == "https" && url.has_host());
        return url.ok_or("AWS_ENDPOINT_URL_STS is not an https URL");
    }
    let region = region.or_else(|| variables.get("AWS_REGION")).or_else(|| variables.get("AWS_DEFAULT_REGION"));
    if region.is_some_and(|region| !is_region(region)) {
        return Err("AWS_REGION or AWS_DEFAULT_REGION is not the name of a region");
    }
    Url::parse(&format!("https://{}/", sts_host(region))).map_err(|_| "the region is not a part of a host name")
}

/// Returns true if a text can be the name of a region, such as `eu-west-1`.
pub fn is_region(text: &str) -> bool {
    (1..=32).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_follows_region_partition_and_variables() {
        let check = |region: Option<&str>, variables: &[(&str, &str)], expected: Result<&str, &str>| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let url = sts_url(region, &ProviderVariables::of_aws(variables));
            assert_eq!(url.as_ref().map(Url::as_str).map_err(|message| *message), expected);
        };
        check(None, &[], Ok("https://sts.amazonaws.com/"));
        check(Some("eu-west-1"), &[("AWS_REGION", "us-east-2")], Ok("https://sts.eu-west-1.amazonaws.com/"));
        check(None, &[("AWS_REGION", "us-east-2")], Ok("https://sts.us-east-2.amazonaws.com/"));
        check(None, &[("AWS_DEFAULT_REGION", "cn-north-1")], Ok("https://sts.cn-north-1.amazonaws.com.cn/"));
        check(None, &[("AWS_ENDPOINT_URL_STS", "https://vpce.example/")], Ok("https://vpce.example/"));
        check(
            None,
            &[("AWS_ENDPOINT_URL_STS", "http://vpce.example/")],
            Err("AWS_ENDPOINT_URL_STS is not an https URL"),
        );
        let message = "AWS_REGION or AWS_DEFAULT_REGION is not the name of a region";
        check(None, &[("AWS_REGION", "evil.example/")], Err(message));
    }
}
