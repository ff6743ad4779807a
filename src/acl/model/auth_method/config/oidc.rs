//! Configuration of an auth method of the type `oidc`.

use std::time::Duration;

use super::{AcceptedIdentity, ConfigError, Fields, KeySource, MethodConfig, discovery_source, missing, quote};
use crate::model::jwks_url::parse_endpoint_url;
use crate::model::jwt_rules::JwtRules;
use crate::model::oidc::OidcSettings;

/// Most bytes of a redirect URI: it is part of the URL of a login twice.
const MAX_REDIRECT_URI: usize = 512;

impl Fields<'_> {
    /// Reads the configuration. There is no `BoundIssuer`: the URL of a provider is its issuer. The lifetime of an ID token
    /// is one of its claims, so that no leeway replaces it.
    pub(super) fn into_oidc(mut self) -> Result<MethodConfig, ConfigError> {
        if self.text("OIDCClientSecret")?.is_some() {
            return Err(ConfigError(
                "Config OIDCClientSecret is refused: everyone who may read auth methods would see it. Register keyward at \
                 the provider as a public client with PKCE, which has no secret, and leave the key out"
                    .to_owned(),
            ));
        }
        let url = self.text("OIDCDiscoveryURL")?.ok_or_else(|| missing("OIDCDiscoveryURL"))?;
        let ca_certificates = self.text("OIDCDiscoveryCACert")?;
        let keys = discovery_source(&url, None, ca_certificates)?;
        let client_id = self.text("OIDCClientID")?.ok_or_else(|| missing("OIDCClientID"))?;
        let redirect_uris = self.redirect_uris()?;
        let scopes = self.words("OIDCScopes")?;
        let acr_values = self.words("OIDCACRValues")?;
        let mut audiences = self.texts("BoundAudiences")?;
        if audiences.is_empty() {
            audiences.push(client_id.clone());
        }
        let issuer = match &keys {
            KeySource::Discovery { issuer, .. } => Some(issuer.clone()),
            KeySource::Jwks { .. } | KeySource::Fixed(_) => None,
        };
        let rules = JwtRules {
            issuer,
            audiences,
            values: self.mappings("ClaimMappings")?,
            lists: self.mappings("ListClaimMappings")?,
            expiration_leeway: Duration::ZERO,
            not_before_leeway: Duration::ZERO,
            clock_skew: self.leeway("ClockSkewLeeway", Duration::from_mins(1))?,
        };
        let algorithms = self.algorithms()?;
        self.finish()?;
        let settings = OidcSettings { client_id, redirect_uris, scopes, acr_values, rules };
        Ok(MethodConfig { accepts: AcceptedIdentity::Oidc(settings), keys, algorithms })
    }

    fn redirect_uris(&mut self) -> Result<Vec<String>, ConfigError> {
        let name = "AllowedRedirectURIs";
        let uris = self.texts(name)?;
        if uris.is_empty() {
            return Err(missing(name));
        }
        for uri in &uris {
            let fail = |reason: &str| ConfigError(format!("Config {name} has {}, which {reason}", quote(uri)));
            parse_endpoint_url(uri).map_err(|error| fail(&error.to_string()))?;
            if uri.len() > MAX_REDIRECT_URI {
                return Err(fail(&format!("has more than {MAX_REDIRECT_URI} bytes")));
            }
        }
        Ok(uris)
    }

    /// Reads a list of words, which a request joins with spaces.
    fn words(&mut self, name: &str) -> Result<Vec<String>, ConfigError> {
        let words = self.texts(name)?;
        match words.iter().find(|word| !word.bytes().all(|byte| byte.is_ascii_graphic())) {
            None => Ok(words),
            Some(word) => {
                Err(ConfigError(format!("Config {name} has {}, which is not one word of visible ASCII", quote(word))))
            }
        }
    }
}
