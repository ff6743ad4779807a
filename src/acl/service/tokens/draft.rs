//! Fields of a new token, and validation of its expiration.

use crate::model::go_duration::GoDuration;
use crate::model::links::{AclLink, AclLinks};
use crate::model::secret::PlainSecret;
use crate::model::timestamp::Timestamp;
use crate::model::token::{MAX_TTL, MIN_TTL};
use crate::service::rejection::InvalidRequest;

/// Fields of a token as a request gives them. Missing ones are empty or zero.
#[derive(Debug, Clone, Default)]
pub(crate) struct TokenDraft {
    /// Accessor; random if missing. Ignored by updates.
    pub accessor: Option<String>,
    /// Secret; random if missing.
    pub secret: Option<PlainSecret>,
    /// Description.
    pub description: String,
    /// Links.
    pub links: AclLinks,
    /// Roles.
    pub roles: Vec<AclLink>,
    /// Valid in this datacenter only.
    pub local: bool,
    /// Name of the auth method that created it.
    pub auth_method: Option<String>,
    /// Expiration time.
    pub expiration_time: Option<Timestamp>,
    /// Lifetime; zero if not given.
    pub expiration_ttl: GoDuration,
}

impl TokenDraft {
    /// Returns the expiration time of a token created at `now`; `None` for no expiration.
    pub(super) fn end(&self, now: Timestamp) -> Result<Option<Timestamp>, InvalidRequest> {
        let end = match (self.expiration_time, self.expiration_ttl) {
            (end, GoDuration(0)) => end,
            (_, ttl @ GoDuration(..0)) => {
                return Err(InvalidRequest::TokenTtl(ttl.to_string()));
            }
            (Some(_), _) => {
                return Err(InvalidRequest::TokenTtlAndTime);
            }
            (None, ttl) => ttl.to_duration().map(|span| now.after(span)),
        };
        if let Some(end) = end {
            validate_end(now, end)?;
        }
        Ok(end)
    }
}

/// Checks that an expiration lies between [`MIN_TTL`] and [`MAX_TTL`] after `now`, inclusive.
pub(super) fn validate_end(now: Timestamp, end: Timestamp) -> Result<(), InvalidRequest> {
    if end < now {
        return Err(InvalidRequest::PastExpiration);
    }
    let life = end.since(now);
    let (comparison, bound) = match life {
        short if short < MIN_TTL => ("less", MIN_TTL),
        long if long > MAX_TTL => ("more", MAX_TTL),
        _ => return Ok(()),
    };
    let bound = GoDuration::from_duration(bound).to_string();
    let lifetime = GoDuration::from_duration(life).to_string();
    Err(InvalidRequest::ExpirationBound { comparison, bound, lifetime })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn an_expiration_is_a_minute_to_a_day_away() {
        let now = Timestamp::from_system_time(UNIX_EPOCH + Duration::from_secs(1_000_000));
        let check = |time: Option<u64>, ttl: &str, expected: Result<Option<u64>, &str>| {
            let at = |seconds: u64| Timestamp::from_system_time(UNIX_EPOCH + Duration::from_secs(seconds));
            let draft = TokenDraft {
                expiration_time: time.map(at),
                expiration_ttl: ttl.parse().unwrap(),
                ..TokenDraft::default()
            };
            let found = draft.end(now).map_err(|error| error.to_string());
            assert_eq!(found, expected.map(|end| end.map(at)).map_err(str::to_owned), "{time:?} {ttl}");
        };
        check(None, "0", Ok(None));
        check(None, "1m", Ok(Some(1_000_060)));
        check(None, "24h", Ok(Some(1_086_400)));
        check(Some(1_000_060), "0", Ok(Some(1_000_060)));
        check(Some(1_086_400), "0", Ok(Some(1_086_400)));
        check(None, "59s", Err("ExpirationTime cannot be less than 1m0s in the future (was 59s)"));
        check(None, "1ms", Err("ExpirationTime cannot be less than 1m0s in the future (was 1ms)"));
        check(None, "25h", Err("ExpirationTime cannot be more than 24h0m0s in the future (was 25h0m0s)"));
        check(None, "-5m", Err("Token Expiration TTL '-5m0s' should be > 0"));
        check(Some(1_000_060), "-5m", Err("Token Expiration TTL '-5m0s' should be > 0"));
        check(Some(1_000_060), "1m", Err("Token Expiration TTL and Expiration Time cannot both be set"));
        check(Some(999_999), "0", Err("ExpirationTime cannot be before CreateTime"));
        check(Some(1_000_000), "0", Err("ExpirationTime cannot be less than 1m0s in the future (was 0s)"));
        check(Some(1_086_401), "0", Err("ExpirationTime cannot be more than 24h0m0s in the future (was 24h0m1s)"));
    }
}
