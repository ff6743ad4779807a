//! How errors, times and bytes are put into words, the same everywhere.

use std::error::Error;
use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// An error with all its causes in one line, each said once.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = describe(error);
    let mut next = error.source();
    while let Some(cause) = next {
        next = cause.source();
        let text = describe(cause);
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
    }
    line
}

/// An error without its causes. A refused certificate is put into words: rustls prints the names of its own types.
pub fn describe(error: &(dyn Error + 'static)) -> String {
    // An error of input and output prints the one that it wraps, and does not name it as its source.
    let mut innermost = error;
    while let Some(wrapped) = innermost.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        innermost = wrapped;
    }
    match innermost.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::InvalidCertificate(cause)) => {
            format!("invalid peer certificate: {}", describe_certificate_error(cause))
        }
        _ => error.to_string(),
    }
}

fn describe_certificate_error(error: &rustls::CertificateError) -> String {
    use rustls::CertificateError as Cause;
    let text = match error {
        Cause::UnknownIssuer => "no authority that is trusted here has issued it",
        Cause::BadEncoding => "it cannot be read",
        Cause::BadSignature => "its signature is wrong",
        Cause::Expired => "it has expired",
        Cause::NotValidYet => "it is not valid yet",
        Cause::Revoked => "it is revoked",
        Cause::NotValidForName => "it is not valid for this name",
        Cause::InvalidPurpose => "it is made for another purpose",
        Cause::Other(other) => {
            return match other.0.to_string() {
                text if text == "CaUsedAsEndEntity" => "this is a CA certificate; a server needs one of its own".into(),
                text => text,
            };
        }
        other => return other.to_string(),
    };
    text.to_owned()
}

/// A time in RFC 3339, in UTC and to the second, such as `2026-01-31T09:00:00Z`. A time before 1970 or after the year 9999
/// is told as the nearest one between them.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = i64::try_from(since).unwrap_or(END_OF_9999).min(END_OF_9999);
    OffsetDateTime::from_unix_timestamp(seconds).ok().and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
}

const END_OF_9999: i64 = 253_402_300_799;

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    // In one piece: a text that grows leaves copies of a secret behind.
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
    let mut text = String::with_capacity(2 * bytes.len() + 1);
    text.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
    text
}

/// The nearest of the names that exist, if one is near: `did you mean NAME?`.
pub fn did_you_mean<T: AsRef<str>>(name: &str, names: &[T]) -> Option<String> {
    let distance = |known: &T| strsim::damerau_levenshtein(&name.chars().take(64).collect::<String>(), known.as_ref());
    let nearest = names.iter().min_by_key(|known| distance(known))?;
    (distance(nearest) <= (nearest.as_ref().len() / 3).max(1)).then(|| format!("did you mean {}?", nearest.as_ref()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_cause_is_said_once() {
        let outer = || Outer(std::io::Error::other("no route"));
        assert_eq!(chain(&outer()), "cannot connect: no route");
        assert_eq!(chain(&std::io::Error::other(outer())), "cannot connect: no route");
    }

    #[test]
    fn a_time_is_told_to_the_second() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250);
        assert_eq!(rfc3339(time), "2023-11-14T22:13:20Z");
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX.unsigned_abs());
        assert_eq!(rfc3339(far), "9999-12-31T23:59:59Z");
        assert_eq!(rfc3339(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00Z");
    }
}
