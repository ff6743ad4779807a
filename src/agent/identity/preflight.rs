//! Checks an identity token's claims before it is sent, for what would make the server refuse it.

use std::time::{Duration, SystemTime};

use keyward_credentials::jwt::UnverifiedClaims;

use super::RequestedAudience;

/// Result of the check of a token's claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreflightReport {
    /// Suspicious claims; the login is sent all the same, since the server may accept them.
    pub warnings: Vec<String>,
    /// Decision about the login.
    pub verdict: PreflightVerdict,
}

/// Decision about a login, by the token's validity period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PreflightVerdict {
    /// Send it.
    Send,
    /// The token is not valid yet: send it later. Servers allow no leeway, hence a second after `nbf`.
    Wait {
        /// Time to send it, by our clock.
        until: SystemTime,
        /// Reason for operators.
        reason: String,
    },
    /// The token has expired; a new one is needed.
    Expired {
        /// Time since the expiry, by our clock.
        since: Duration,
        /// Reason for operators.
        reason: String,
    },
}

/// Checks unverified claims at the time `now`.
///
/// With `audience`, which a token was requested for, the audience is checked too, and the issuer of a token from Azure.
pub(crate) fn preflight(
    claims: &UnverifiedClaims,
    audience: Option<&RequestedAudience>,
    now: SystemTime,
) -> PreflightReport {
    let warnings = audience.map(|audience| {
        let is_of_azure = matches!(audience, RequestedAudience::Azure(_));
        [wrong_audience(claims, audience), is_of_azure.then(|| wrong_issuer(claims)).flatten()]
    });
    PreflightReport { warnings: warnings.into_iter().flatten().flatten().collect(), verdict: verdict(claims, now) }
}

fn verdict(claims: &UnverifiedClaims, now: SystemTime) -> PreflightVerdict {
    if let Some(since) = claims.exp.and_then(|end| now.duration_since(end).ok()) {
        let reason = format!(
            "the identity token expired {} s ago: this machine's clock is ahead, or the cloud gave an old token",
            since.as_secs()
        );
        return PreflightVerdict::Expired { since, reason };
    }
    if let Some((start, remaining)) = claims.nbf.and_then(|start| Some((start, start.duration_since(now).ok()?)))
        && !remaining.is_zero()
    {
        let reason = format!(
            "the identity token is not valid for another {} s: this machine's clock is behind the cloud's",
            remaining.as_secs().max(1)
        );
        return PreflightVerdict::Wait { until: start.checked_add(Duration::from_secs(1)).unwrap_or(start), reason };
    }
    PreflightVerdict::Send
}

fn wrong_audience(claims: &UnverifiedClaims, audience: &str) -> Option<String> {
    if claims.aud.iter().any(|aud| aud == audience) {
        return None;
    }
    let audiences = match claims.aud.as_slice() {
        [] => return Some(format!("the identity token has no audience, {audience:?} was requested")),
        [aud] => format!("{aud:?}"),
        auds => auds.iter().map(|aud| format!("{aud:?}")).collect::<Vec<_>>().join(", "),
    };
    let bare = |text: &str| text.trim_end_matches('/').to_ascii_lowercase();
    let slash = claims.aud.iter().any(|aud| bare(aud) == bare(audience));
    // A server that refuses another audience has its own advice.
    let advice = if slash { "; servers compare every byte, a slash at the end too" } else { "" };
    Some(format!("the identity token is for {audiences}, {audience:?} was requested{advice}"))
}

/// Servers accept tokens of version 1.0, whose issuer is `https://sts.HOST/TENANT/` in every Azure cloud.
fn wrong_issuer(claims: &UnverifiedClaims) -> Option<String> {
    let issuer = claims.iss.as_deref()?;
    let second = claims.ver.as_deref() == Some("2.0") || issuer.trim_end_matches('/').ends_with("/v2.0");
    if second {
        return Some(format!(
            "the identity token has version 2.0 (issuer {issuer}), which servers reject: set requestedAccessTokenVersion to null or 1 in the manifest of the application in `resource`"
        ));
    }
    let Some(tenant) = claims.tid.as_deref() else {
        return Some(format!(
            "the identity token (issuer {issuer}) has no tenant: it looks like a Kubernetes service account token, not an Azure token"
        ));
    };
    if issuer.ends_with(&format!("/{tenant}/")) {
        return None;
    }
    Some(format!("the identity token's issuer {issuer} does not end in its tenant, /{tenant}/, as the cloud's do"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    /// The last second that a `SystemTime` can hold.
    const END: u64 = i64::MAX as u64;

    fn requested() -> RequestedAudience {
        RequestedAudience::Azure("https://management.azure.com/".to_owned())
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn good() -> UnverifiedClaims {
        UnverifiedClaims {
            aud: vec!["https://management.azure.com/".to_owned()],
            iss: Some("https://sts.windows.net/tenant/".to_owned()),
            ver: Some("1.0".to_owned()),
            tid: Some("tenant".to_owned()),
            nbf: Some(at(NOW - 300)),
            exp: Some(at(NOW + 3600)),
            ..UnverifiedClaims::default()
        }
    }

    #[test]
    fn suspicious_claims_are_warnings_and_the_login_is_sent() {
        let check = |change: &dyn Fn(&mut UnverifiedClaims), expected: &[&str]| {
            let mut claims = good();
            change(&mut claims);
            let report = preflight(&claims, Some(&requested()), at(NOW));
            assert_eq!(report.verdict, PreflightVerdict::Send);
            assert_eq!(report.warnings.len(), expected.len(), "{:?}", report.warnings);
            for (warning, expected) in report.warnings.iter().zip(expected) {
                assert!(warning.contains(expected), "{warning}");
            }
        };
        check(&|_| {}, &[]);
        check(&|claims| claims.aud = vec!["https://management.azure.com".into()], &["a slash at the end"]);
        check(&|claims| claims.aud = vec!["a".into(), "b".into()], &["for \"a\", \"b\""]);
        check(&|claims| claims.aud = Vec::new(), &["has no audience"]);
        check(&|claims| claims.ver = Some("2.0".into()), &["requestedAccessTokenVersion"]);
        check(&|claims| claims.iss = Some("https://login.example/tenant/v2.0".into()), &["version 2.0"]);
        check(&|claims| claims.tid = None, &["a Kubernetes service account token"]);
        check(&|claims| claims.iss = Some("https://sts.windows.net/other/".into()), &["does not end in its tenant"]);
        check(&|claims| claims.iss = Some("https://sts.chinacloudapi.cn/tenant/".into()), &[]);
        check(&|claims| (claims.nbf, claims.exp) = (None, None), &[]);
    }

    #[test]
    fn a_token_of_google_is_compared_by_its_audience_alone() {
        let claims = UnverifiedClaims {
            aud: vec!["http://vault/web".to_owned()],
            iss: Some("https://accounts.google.com".to_owned()),
            ..UnverifiedClaims::default()
        };
        let check = |audience: &str, expected: usize| {
            let requested = RequestedAudience::Google(audience.to_owned());
            assert_eq!(preflight(&claims, Some(&requested), at(NOW)).warnings.len(), expected, "{audience}");
        };
        check("http://vault/web", 0);
        check("http://vault/other", 1);
    }

    #[test]
    fn only_a_token_outside_its_validity_is_not_sent() {
        let check = |nbf: u64, exp: u64, expected: &str| {
            let claims = UnverifiedClaims { nbf: Some(at(nbf)), exp: Some(at(exp)), ..good() };
            let found = match preflight(&claims, Some(&requested()), at(NOW)).verdict {
                PreflightVerdict::Send => "send".to_owned(),
                PreflightVerdict::Wait { until, reason } => {
                    assert!(reason.contains("clock is behind"), "{reason}");
                    format!("hold {}", until.duration_since(at(NOW)).unwrap().as_secs())
                }
                PreflightVerdict::Expired { since, reason } => {
                    assert!(reason.contains("clock is ahead"), "{reason}");
                    format!("expired {}", since.as_secs())
                }
            };
            assert_eq!(found, expected);
        };
        check(NOW - 1, NOW + 1, "send");
        check(NOW, NOW + 1, "send");
        check(NOW + 1, NOW + 100, "hold 2");
        check(NOW + 3600, NOW + 7200, "hold 3601");
        check(END - 1, END, &format!("hold {}", END - NOW));
        check(END, END, &format!("hold {}", END - NOW));
        check(NOW - 100, NOW, "expired 0");
        check(NOW - 100, NOW - 30, "expired 30");
    }
}
