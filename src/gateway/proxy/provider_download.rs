//! Answers of the provider registry about a download. Their addresses may be relative to the address that was called, and
//! Terraform fetches them without a token: on the gateway they would be refused.

use serde_json::{Map, Value};
use url::Url;

/// Members with addresses.
const ADDRESSES: [&str; 3] = ["download_url", "shasums_url", "shasums_signature_url"];

/// Largest document, in bytes. It has the keys of the provider's authors.
pub(super) const MAX_SIZE: usize = 1024 * 1024;

/// Returns true for the path of a download: `/api/registry/.../NAMESPACE/TYPE/VERSION/download/OS/ARCH`.
pub(super) fn is_download(path: &str) -> bool {
    let mut segments = path.rsplit('/');
    path.starts_with("/api/registry/") && path.contains("/providers/") && segments.nth(2) == Some("download")
}

/// Returns the document with its relative addresses at the platform; `None` if it has none. `called` is the URL of the call
/// at the platform.
pub(super) fn make_addresses_absolute(document: &[u8], called: &Url) -> Option<Vec<u8>> {
    let mut document: Map<String, Value> = serde_json::from_slice(document).ok()?;
    let mut is_changed = false;
    for name in ADDRESSES {
        let Some(address) = document.get_mut(name) else { continue };
        if let Some(relative) = address.as_str()
            && !relative.is_empty()
            && Url::parse(relative).is_err()
            && let Ok(absolute) = called.join(relative)
        {
            *address = Value::from(String::from(absolute));
            is_changed = true;
        }
    }
    is_changed.then(|| Value::Object(document).to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn relative_addresses_become_those_of_the_platform() {
        let called = "https://tfe.example.com/api/registry/v1/providers/acme/a/1.0.0/download/linux/amd64";
        assert!(is_download(called.strip_prefix("https://tfe.example.com").unwrap()));
        for other in ["/api/registry/v1/providers/acme/a/versions", "/api/registry/v1/modules/a/b/c/1.0.0/download"] {
            assert!(!is_download(other), "{other}");
        }
        let called = Url::parse(called).unwrap();
        let given = json!({"download_url": "../a.zip", "shasums_url": "/_archivist/v1/x", "filename": "a.zip", "n": 1,
            "shasums_signature_url": "https://archivist.example.com/y"});
        let found = make_addresses_absolute(given.to_string().as_bytes(), &called).unwrap();
        let expected = json!({"download_url": "https://tfe.example.com/api/registry/v1/providers/acme/a/1.0.0/download/a.zip",
            "shasums_url": "https://tfe.example.com/_archivist/v1/x", "filename": "a.zip", "n": 1,
            "shasums_signature_url": "https://archivist.example.com/y"});
        assert_eq!(serde_json::from_slice::<Value>(&found).unwrap(), expected);
        for same in
            [&br#"{"download_url":"https://a.example/b","shasums_url":7,"shasums_signature_url":""}"#[..], b"[]", b"{"]
        {
            assert_eq!(make_addresses_absolute(same, &called), None);
        }
    }
}
