//! Finds the organization of `POST /registry-modules`, which names none in its path: in the body, or through the OAuth
//! token that the body names, in two lookups.

use serde_json::Value;

use super::BASE_PATH;
use super::segment::Segment;

/// Organization as far as the body names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OrganizationHint {
    /// Name of the organization.
    Organization(String),
    /// Path of the OAuth token, from the root: `GET` it, and see [`oauth_client_path`].
    TokenPath(String),
    /// The name cannot be a path segment.
    InvalidName,
    /// The body names none.
    Missing,
}

/// Reads `vcs-repo.organization-name`, or `vcs-repo.oauth-token-id`, from a body.
pub(crate) fn organization_hint(body: &[u8]) -> OrganizationHint {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return OrganizationHint::Missing };
    let repository = &body["data"]["attributes"]["vcs-repo"];
    let text = |name: &str| repository[name].as_str().filter(|text| !text.is_empty());
    if let Some(organization) = text("organization-name") {
        let usable = Segment::encode(organization).is_some();
        return if usable {
            OrganizationHint::Organization(organization.to_owned())
        } else {
            OrganizationHint::InvalidName
        };
    }
    text("oauth-token-id")
        .and_then(|id| resource_path("oauth-tokens", id))
        .map_or(OrganizationHint::Missing, OrganizationHint::TokenPath)
}

/// Returns the path of the OAuth client that an OAuth token belongs to, from the root: `GET` it, and see
/// [`organization_from_client`].
pub(crate) fn oauth_client_path(token: &[u8]) -> Option<String> {
    resource_path("oauth-clients", &related_id(token, "oauth-client")?)
}

/// Returns the organization that an OAuth client belongs to.
pub(crate) fn organization_from_client(client: &[u8]) -> Option<String> {
    related_id(client, "organization")
}

fn related_id(document: &[u8], name: &str) -> Option<String> {
    let document: Value = serde_json::from_slice(document).ok()?;
    let id = document["data"]["relationships"][name]["data"]["id"].as_str()?;
    (!id.is_empty()).then(|| id.to_owned())
}

fn resource_path(collection: &str, id: &str) -> Option<String> {
    Some(format!("{BASE_PATH}/{collection}/{}", Segment::encode(id)?.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_organization_or_token_is_read_from_the_body() {
        let check =
            |body: &str, expected: OrganizationHint| assert_eq!(organization_hint(body.as_bytes()), expected, "{body}");
        let attributes = |inner: &str| format!(r#"{{"data":{{"attributes":{{"vcs-repo":{inner}}}}}}}"#);
        check(
            &attributes(r#"{"organization-name":"a b","oauth-token-id":"ot-1"}"#),
            OrganizationHint::Organization("a b".into()),
        );
        check(
            &attributes(r#"{"oauth-token-id":"ot-1/x"}"#),
            OrganizationHint::TokenPath("/api/v2/oauth-tokens/ot-1%2Fx".into()),
        );
        // Names follow the rules for paths of callers.
        for name in ["..", "a/../b", "..;x", "%2e%2e", "a\\..\\b", "a\u{0}"] {
            let quoted = serde_json::to_string(name).unwrap();
            check(&attributes(&format!(r#"{{"organization-name":{quoted}}}"#)), OrganizationHint::InvalidName);
            check(&attributes(&format!(r#"{{"oauth-token-id":{quoted}}}"#)), OrganizationHint::Missing);
        }
        for inner in ["{}", "null", r#"{"oauth-token-id":""}"#, r#"{"oauth-token-id":".."}"#, r#"{"oauth-token-id":7}"#]
        {
            check(&attributes(inner), OrganizationHint::Missing);
        }
        check("", OrganizationHint::Missing);
        check("[1]", OrganizationHint::Missing);
    }

    #[test]
    fn the_organization_is_found_through_token_and_client() {
        let token = br#"{"data":{"relationships":{"oauth-client":{"data":{"id":"oc-1","type":"oauth-clients"}}}}}"#;
        assert_eq!(oauth_client_path(token).as_deref(), Some("/api/v2/oauth-clients/oc-1"));
        let client = br#"{"data":{"relationships":{"organization":{"data":{"id":"my-org"}}}}}"#;
        assert_eq!(organization_from_client(client).as_deref(), Some("my-org"));
        assert_eq!(organization_from_client(token), None);
        assert_eq!(oauth_client_path(b"not json"), None);
    }
}
