//! Settings of an auth method of the type `oidc`: the URL of a login, and the verification of its ID token.

use url::Url;

use super::endpoints::{CHALLENGE_METHOD, ProviderEndpoints};
use super::error::OidcError;
use super::login_attempt::LoginAttempt;
use crate::model::azure_identity::{Audience, ClaimsError};
use crate::model::jwt_rules::{Claims, JwtRules};

/// Settings of an auth method of the type `oidc`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OidcSettings {
    /// Id of this server's client at the provider.
    pub(crate) client_id: String,
    /// URIs to which a browser may be sent back, compared byte by byte.
    pub(crate) redirect_uris: Vec<String>,
    /// Scopes to ask for besides `openid`.
    pub(crate) scopes: Vec<String>,
    /// Values of `acr_values`, in the order of preference.
    pub(crate) acr_values: Vec<String>,
    /// Rules that the claims of an ID token must meet, and their mappings.
    pub(crate) rules: JwtRules,
}

impl OidcSettings {
    /// Returns an error unless the redirect URI is listed.
    pub(crate) fn verify_redirect_uri(&self, uri: &str) -> Result<(), OidcError> {
        if self.redirect_uris.iter().any(|listed| listed == uri) {
            return Ok(());
        }
        Err(OidcError::RedirectUri(uri.chars().take(256).collect()))
    }

    /// Builds the URL to which the browser goes (`OpenID` Connect Core 1.0, 3.1.2.1).
    pub(crate) fn authorization_url(&self, endpoints: &ProviderEndpoints, attempt: &LoginAttempt, state: &str) -> Url {
        let scopes =
            std::iter::once("openid").chain(self.scopes.iter().map(String::as_str).filter(|it| *it != "openid"));
        let mut url = endpoints.authorization.clone();
        let mut query = url.query_pairs_mut();
        query
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client_id)
            .append_pair("redirect_uri", &attempt.redirect_uri)
            .append_pair("scope", &scopes.collect::<Vec<_>>().join(" "))
            .append_pair("state", state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &attempt.challenge())
            .append_pair("code_challenge_method", CHALLENGE_METHOD);
        if !self.acr_values.is_empty() {
            query.append_pair("acr_values", &self.acr_values.join(" "));
        }
        drop(query);
        url
    }

    /// Verifies what an ID token must have besides the rules of any JWT (`OpenID` Connect Core 1.0, 2 and 3.1.3.7).
    pub(crate) fn verify_id_token(&self, claims: &Claims, attempt: &LoginAttempt) -> Result<(), IdTokenError> {
        for name in ["iss", "sub", "aud", "exp", "iat"] {
            if claims.get(name).is_none_or(|claim| claim.is_null() || claim == "") {
                return Err(OidcError::MissingClaim(name).into());
            }
        }
        let audience: Audience =
            serde_json::from_value(claims["aud"].clone()).map_err(|_| OidcError::MissingClaim("aud"))?;
        if !audience.contains(&self.client_id) {
            return Err(ClaimsError::Audience { expected: self.client_id.clone(), found: audience }.into());
        }
        let has_several = matches!(&audience, Audience::Many(names) if names.len() > 1);
        match claims.get("azp").filter(|claim| !claim.is_null()) {
            Some(party) if *party != *self.client_id => return Err(OidcError::AuthorizedParty.into()),
            None if has_several => return Err(OidcError::MissingClaim("azp").into()),
            _ => {}
        }
        match claims.get("nonce") {
            Some(nonce) if *nonce == *attempt.nonce => Ok(()),
            _ => Err(OidcError::Nonce.into()),
        }
    }
}

/// Reason why an ID token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IdTokenError {
    /// It does not belong to this login.
    #[error(transparent)]
    Oidc(#[from] OidcError),
    /// Its claims do not meet the rules.
    #[error(transparent)]
    Claims(#[from] ClaimsError),
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::UNIX_EPOCH;

    use serde_json::{Value, json};

    use super::*;
    use crate::model::timestamp::Timestamp;

    fn settings() -> OidcSettings {
        OidcSettings {
            client_id: "keyward".to_owned(),
            redirect_uris: vec!["http://localhost:8550/oidc/callback".to_owned()],
            ..OidcSettings::default()
        }
    }

    fn attempt() -> LoginAttempt {
        let now = Timestamp::from_system_time(UNIX_EPOCH);
        let uri = "http://localhost:8550/oidc/callback".to_owned();
        LoginAttempt::begin(uri, "0123456789abcdef", BTreeMap::new(), now).unwrap()
    }

    #[test]
    fn a_redirect_uri_is_compared_byte_by_byte() {
        let settings = settings();
        assert_eq!(settings.verify_redirect_uri("http://localhost:8550/oidc/callback"), Ok(()));
        for other in [
            "",
            "http://localhost:8551/oidc/callback",
            "http://LOCALHOST:8550/oidc/callback",
            "http://localhost:8550/oidc/callback/",
        ] {
            assert_eq!(settings.verify_redirect_uri(other), Err(OidcError::RedirectUri(other.to_owned())));
        }
    }

    #[test]
    fn the_url_of_a_login_keeps_the_query_of_the_endpoint() {
        let endpoint = |text: &str| text.parse::<Url>().unwrap();
        let endpoints = ProviderEndpoints {
            authorization: endpoint("https://login.example/authorize?p=a%20b"),
            token: endpoint("https://login.example/token"),
            names_issuer: false,
        };
        let attempt = attempt();
        let url = |settings: &OidcSettings| settings.authorization_url(&endpoints, &attempt, "s/1");
        let found: Vec<(String, String)> = url(&settings()).query_pairs().into_owned().collect();
        let challenge = attempt.challenge();
        let expected = [
            ("p", "a b"),
            ("response_type", "code"),
            ("client_id", "keyward"),
            ("redirect_uri", "http://localhost:8550/oidc/callback"),
            ("scope", "openid"),
            ("state", "s/1"),
            ("nonce", attempt.nonce.as_str()),
            ("code_challenge", challenge.as_str()),
            ("code_challenge_method", "S256"),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(
            !url(&settings()).as_str().contains(attempt.verifier()),
            "the verifier is for the token endpoint alone"
        );
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let more = OidcSettings {
            scopes: list(&["profile", "openid", "groups"]),
            acr_values: list(&["phr", "mfa"]),
            ..settings()
        };
        let text = url(&more).to_string();
        assert!(text.contains("&scope=openid+profile+groups&") && text.ends_with("&acr_values=phr+mfa"), "{text}");
    }

    #[test]
    fn an_id_token_is_for_this_client_and_this_login() {
        let attempt = attempt();
        let whole = json!({
            "iss": "https://issuer", "sub": "7", "aud": "keyward", "exp": 2, "iat": 1, "nonce": attempt.nonce,
        });
        let check = |change: Value, expected: &str| {
            let mut claims = whole.as_object().unwrap().clone();
            claims.extend(change.as_object().unwrap().clone());
            let found = settings().verify_id_token(&claims, &attempt).map_err(|error| error.to_string());
            let found = found.err().unwrap_or_default();
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{change}: {found}");
        };
        check(json!({}), "");
        check(json!({"aud": ["keyward"], "azp": "keyward"}), "");
        check(json!({"aud": ["other", "keyward"], "azp": "keyward"}), "");
        check(json!({"aud": ["other", "keyward"]}), "no usable claim \"azp\"");
        check(json!({"aud": ["other", "keyward"], "azp": "other"}), "to another client");
        check(json!({"azp": "other"}), "to another client");
        check(json!({"azp": ["keyward"]}), "to another client");
        check(json!({"aud": "other"}), "expected audience \"keyward\" got \"other\"");
        check(json!({"aud": {}}), "no usable claim \"aud\"");
        for name in ["iss", "sub", "aud", "exp", "iat"] {
            let mut change = json!({});
            change[name] = Value::Null;
            check(change, &format!("no usable claim {name:?}"));
        }
        for nonce in [Value::Null, json!(""), json!("other"), json!([attempt.nonce])] {
            check(json!({ "nonce": nonce }), "the nonce of the ID token");
        }
    }
}
