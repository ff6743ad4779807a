//! Serde conversions for Go's JSON: `null` for an empty list, an empty string for an absent value, the year 1 for no time.

use std::time::Duration;

use keyward_machine::secret_string::SecretString;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::timestamp::Timestamp;

/// Placeholder of a secret that the caller may not see.
const HIDDEN: &str = "<hidden>";

pub(crate) fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

pub(crate) fn empty_is_none<'de, D: Deserializer<'de>, T>(from: D) -> Result<Option<T>, D::Error>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    let text: Option<String> = Option::deserialize(from)?;
    text.filter(|text| !text.is_empty()).map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

/// Deserializes a time; Go's zero time, the first second of the year 1, becomes `None`.
pub(crate) fn deserialize_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(from)?;
    let set = text.filter(|text| !text.is_empty() && !text.starts_with("0001-01-01T00:00:00"));
    set.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

/// Deserializes a secret; a hidden one becomes `None`.
pub(crate) fn deserialize_secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SecretString>, D::Error> {
    let text = Option::<String>::deserialize(from)?.map(SecretString::from);
    Ok(text.filter(|text| !["", HIDDEN].contains(&text.expose_secret())))
}

/// Serializes a secret into a request's body.
#[expect(clippy::ref_option, reason = "serde gives a field as it is")]
pub(crate) fn serialize_secret<S: Serializer>(secret: &Option<SecretString>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(SecretString::expose_secret).serialize(serializer)
}

/// Serializes a secret that is always there into a request's body.
pub(crate) fn serialize_present_secret<S: Serializer>(secret: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    secret.expose_secret().serialize(serializer)
}

/// Serializes a duration for Go.
#[expect(clippy::ref_option, reason = "serde gives a field as it is")]
pub(crate) fn serialize_duration<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(format_go_duration).serialize(serializer)
}

/// Formats a duration for Go, such as `90s`, without loss.
pub(crate) fn format_go_duration(duration: Duration) -> String {
    if duration.subsec_nanos() == 0 { format!("{}s", duration.as_secs()) } else { format!("{}ns", duration.as_nanos()) }
}

/// Deserializes a TTL; Go's `0s` for no limit becomes `None`.
pub(crate) fn deserialize_ttl<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text: Option<String> = Option::deserialize(from)?;
    Ok(text.filter(|text| !["", "0s"].contains(&text.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_without_loss() {
        assert_eq!(format_go_duration(Duration::from_hours(24)), "86400s");
        assert_eq!(format_go_duration(Duration::from_millis(1500)), "1500000000ns");
        assert_eq!(format_go_duration(Duration::ZERO), "0s");
    }

    #[test]
    fn each_form_of_an_absent_value_is_none() {
        #[derive(Deserialize)]
        struct Wire {
            #[serde(default, deserialize_with = "deserialize_time")]
            time: Option<Timestamp>,
            #[serde(default, deserialize_with = "deserialize_secret")]
            secret: Option<SecretString>,
            #[serde(default, deserialize_with = "empty_is_none")]
            number: Option<u8>,
            #[serde(default, deserialize_with = "null_is_default")]
            list: Vec<u8>,
        }
        let check = |text: &str, expected: (Option<&str>, Option<&str>, Option<u8>, usize)| {
            let wire: Wire = serde_json::from_str(text).unwrap();
            let time = wire.time.map(|time| time.to_string());
            let secret = wire.secret.as_ref().map(SecretString::expose_secret);
            assert_eq!((time.as_deref(), secret, wire.number, wire.list.len()), expected, "{text}");
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
