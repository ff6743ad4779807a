//! How values look on the wire, where serde's own way is not theirs. Servers write `null` for an empty list, an empty
//! text for what is not set, and the year 1 for no time.

use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::acl::model::timestamp::Timestamp;

/// What a server puts in the place of a secret that the caller may not have.
const HIDDEN: &str = "<hidden>";

pub(super) fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

pub(super) fn empty_is_none<'de, D: Deserializer<'de>, T>(from: D) -> Result<Option<T>, D::Error>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    let text: Option<String> = Option::deserialize(from)?;
    text.filter(|text| !text.is_empty()).map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

/// `None` for no time at all, which Go writes as the first second of the year 1.
pub(super) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(from)?;
    let set = text.filter(|text| !text.is_empty() && !text.starts_with("0001-01-01T00:00:00"));
    set.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

/// `None` where the server hides it.
pub(super) fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SecretString>, D::Error> {
    let text = Option::<String>::deserialize(from)?.map(SecretString::from);
    Ok(text.filter(|text| !["", HIDDEN].contains(&text.expose_secret())))
}

/// Puts a secret into a request's body.
#[expect(clippy::ref_option, reason = "serde gives a field as it is")]
pub(super) fn reveal<S: Serializer>(secret: &Option<SecretString>, to: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(secrecy::ExposeSecret::expose_secret).serialize(to)
}

/// A span as Go reads it.
#[expect(clippy::ref_option, reason = "serde gives a field as it is")]
pub(super) fn span<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    span.map(go_span).serialize(to)
}

/// A span as Go reads it, such as `90s`.
pub(super) fn go_span(span: Duration) -> String {
    if span.subsec_nanos() == 0 { format!("{}s", span.as_secs()) } else { format!("{}ns", span.as_nanos()) }
}

/// `None` for no bound, which Go writes as `0s`.
pub(super) fn bound<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text: Option<String> = Option::deserialize(from)?;
    Ok(text.filter(|text| !["", "0s"].contains(&text.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_so_that_nothing_is_lost() {
        assert_eq!(go_span(Duration::from_hours(24)), "86400s");
        assert_eq!(go_span(Duration::from_millis(1500)), "1500000000ns");
        assert_eq!(go_span(Duration::ZERO), "0s");
    }

    #[test]
    fn what_is_not_set_is_none_in_each_of_its_forms() {
        #[derive(Deserialize)]
        struct Wire {
            #[serde(default, deserialize_with = "time")]
            time: Option<Timestamp>,
            #[serde(default, deserialize_with = "secret")]
            secret: Option<SecretString>,
            #[serde(default, deserialize_with = "empty_is_none")]
            number: Option<u8>,
            #[serde(default, deserialize_with = "null_is_default")]
            list: Vec<u8>,
        }
        let check = |text: &str, wanted: (Option<&str>, Option<&str>, Option<u8>, usize)| {
            let wire: Wire = serde_json::from_str(text).unwrap();
            let time = wire.time.map(|time| time.to_string());
            let secret = wire.secret.as_ref().map(secrecy::ExposeSecret::expose_secret);
            assert_eq!((time.as_deref(), secret, wire.number, wire.list.len()), wanted, "{text}");
        };
        check("{}", (None, None, None, 0));
        check(r#"{"time": null, "secret": null, "number": null, "list": null}"#, (None, None, None, 0));
        check(r#"{"time": "", "secret": "", "number": "", "list": []}"#, (None, None, None, 0));
        check(r#"{"time": "0001-01-01T00:00:00Z", "secret": "<hidden>"}"#, (None, None, None, 0));
        check(
            r#"{"time": "2030-01-02T03:04:05.000000006Z", "secret": "a", "number": "7", "list": [1]}"#,
            (Some("2030-01-02T03:04:05.000000006Z"), Some("a"), Some(7), 1),
        );
        assert!(serde_json::from_str::<Wire>(r#"{"time": "tomorrow"}"#).is_err());
        assert!(serde_json::from_str::<Wire>(r#"{"number": "300"}"#).is_err());
    }
}
