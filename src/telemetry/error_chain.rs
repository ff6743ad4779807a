//! Formats errors with their causes, the same way in every log line and message.

use std::error::Error;

/// Formats an error with all its causes on one line, `error: cause: cause`. A cause that the line already holds is left out.
pub fn format_chain(error: &(dyn Error + 'static)) -> String {
    let mut line = describe_error(error);
    let mut next = error.source();
    while let Some(cause) = next {
        next = cause.source();
        let text = describe_error(cause);
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
    }
    line
}

/// Returns an error and all its causes, also those inside of an `io::Error`.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'a (dyn Error + 'static) = *error;
        // An `io::Error` that wraps an error returns that error's source as its own, and so skips the wrapped one.
        match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        }
    })
}

/// Formats an error without its causes. A rejected certificate is described in plain words, where rustls prints the names
/// of its own types.
pub fn describe_error(error: &(dyn Error + 'static)) -> String {
    // `io::Error` prints the error that it wraps and does not return it as its source.
    let mut innermost = error;
    while let Some(wrapped) = innermost.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        innermost = wrapped;
    }
    match innermost.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::InvalidCertificate(cause)) => {
            format!("invalid peer certificate: {}", describe_certificate(cause))
        }
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            "the server does not speak TLS at this port; check the port, or write http://".to_owned()
        }
        _ => error.to_string(),
    }
}

fn describe_certificate(error: &rustls::CertificateError) -> String {
    use rustls::CertificateError as Cause;
    let text = match error {
        Cause::UnknownIssuer => "it is not issued by a trusted authority",
        Cause::BadEncoding => "it is not valid DER",
        Cause::BadSignature => "its signature is invalid",
        Cause::Expired => "it has expired",
        Cause::NotValidYet => "it is not valid yet",
        Cause::Revoked => "it is revoked",
        Cause::NotValidForName => "it is not valid for this name",
        Cause::InvalidPurpose => "its key usage does not allow this purpose",
        Cause::Other(other) => {
            return match other.0.to_string() {
                text if text == "CaUsedAsEndEntity" => "it is a CA certificate, not a server certificate".into(),
                text => text,
            };
        }
        other => return other.to_string(),
    };
    text.to_owned()
}

/// Escapes control characters, so that text from outside stays on one line of a message.
pub fn escape_controls(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() { escaped.extend(character.escape_default()) } else { escaped.push(character) }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_repeated_cause_is_printed_once() {
        let outer = || Outer(std::io::Error::other("no route"));
        assert_eq!(format_chain(&outer()), "cannot connect: no route");
        assert_eq!(format_chain(&std::io::Error::other(outer())), "cannot connect: no route");
    }
}
