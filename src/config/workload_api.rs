//! Keys of SPIFFE's Workload API: `[session.NAME.jwt]` with its token, and `[certificate.NAME]` of the kind `spiffe`.

use std::path::PathBuf;

use keyward_agent::identity::{WorkloadApiOptions, X509SvidOptions};

use super::reader::Reader;
use super::values::{ValueError, invalid};

/// Key of the API's socket.
const KEY: &str = "workload_api";

/// Returns true if the table takes its token from the Workload API.
pub(super) fn is_named(reader: &Reader<'_>) -> bool {
    reader.has(KEY)
}

/// Reads the method's parameters. Returns the role, if the method has one, and the identity source.
pub(super) fn read(mut reader: Reader<'_>, wants_role: bool) -> (String, WorkloadApiOptions) {
    let role = super::cloud::role(&mut reader, wants_role);
    for key in ["file", "remove_after_reading", "variable", "ci"] {
        if reader.locate(key).is_some() {
            reader.conflict(key, KEY, "the token has one origin");
        }
    }
    let socket = reader.parse_text(KEY, socket);
    let audience = reader.required("audience", "the audience of the token, which the server's role requires");
    let spiffe_id = reader.parse_text("spiffe_id", spiffe_id);
    reader.finish();
    let audience = audience.map(|text| text.value).unwrap_or_default();
    (role, WorkloadApiOptions { socket: socket.unwrap_or_default(), audience, spiffe_id })
}

/// Reads the parameters of a certificate.
pub(super) fn read_certificate(reader: &mut Reader<'_>) -> X509SvidOptions {
    if !reader.has(KEY) {
        reader.missing(KEY, "the socket of SPIFFE's agent, such as \"unix:///run/spire/sockets/agent.sock\"");
    }
    let socket = reader.parse_text(KEY, socket).unwrap_or_default();
    X509SvidOptions { socket, spiffe_id: reader.parse_text("spiffe_id", spiffe_id) }
}

/// Parses the address of a socket, as `SPIFFE_ENDPOINT_SOCKET` has it (spiffe.io, "SPIFFE Workload Endpoint").
fn socket(text: &str) -> Result<PathBuf, ValueError> {
    const ADVICE: &str = "write the agent's socket, such as \"unix:///run/spire/sockets/agent.sock\"";
    if text.starts_with("tcp:") {
        return invalid("is a TCP address, where the API cannot know its caller", ADVICE);
    }
    let path = text.strip_prefix("unix:").unwrap_or(text);
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.starts_with('/') && !path.starts_with("//") {
        return Ok(PathBuf::from(path));
    }
    invalid("is not the address of a unix socket", ADVICE)
}

/// Parses an identity (spiffe.io, "SPIFFE ID").
fn spiffe_id(text: &str) -> Result<String, ValueError> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let rest = text.strip_prefix("spiffe://").unwrap_or_default();
    if rest.split_once('/').is_some_and(|(domain, path)| !domain.is_empty() && !path.is_empty())
        && rest.bytes().all(is_letter)
    {
        return Ok(text.to_owned());
    }
    invalid("is not the id of a workload", "write \"spiffe://TRUST_DOMAIN/PATH\"")
}

/// Describes a certificate for `keyward check`.
pub(super) fn describe_certificate(
    options: &X509SvidOptions,
    describe_value: &impl Fn(&str, &str) -> String,
) -> String {
    let socket = describe_value(KEY, &options.socket.display().to_string());
    let id = options.spiffe_id.as_ref().map(|id| describe_value("spiffe_id", id));
    let id = id.unwrap_or_else(|| "of its own identity".to_owned());
    format!("takes the certificate {id} with its key from SPIFFE's Workload API at {socket}")
}

/// Describes the proof for `keyward check`.
pub(super) fn describe(options: &WorkloadApiOptions, describe_value: &impl Fn(&str, &str) -> String) -> String {
    let socket = describe_value(KEY, &options.socket.display().to_string());
    let audience = describe_value("audience", &options.audience);
    let of = options.spiffe_id.as_ref().map(|id| format!(" of {}", describe_value("spiffe_id", id)));
    format!(
        "authenticates with a token{} for the audience {audience} from SPIFFE's Workload API at {socket}",
        of.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_is_at_a_unix_socket() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(socket(text).ok(), expected.map(PathBuf::from), "{text}");
        };
        check("unix:///run/spire/agent.sock", Some("/run/spire/agent.sock"));
        check("unix:/run/spire/agent.sock", Some("/run/spire/agent.sock"));
        check("/run/spire/agent.sock", Some("/run/spire/agent.sock"));
        for other in ["", "tcp://127.0.0.1:8081", "agent.sock", "unix://agent.sock", "unix:////run/a"] {
            check(other, None);
        }
    }

    #[test]
    fn an_identity_has_a_trust_domain_and_a_path() {
        for good in ["spiffe://example.org/web", "spiffe://example.org/ns/shop/sa/web"] {
            assert!(spiffe_id(good).is_ok(), "{good}");
        }
        for bad in ["", "web", "spiffe://example.org", "spiffe:///web", "spiffe://a/b?c", "spiffe://a/b\n"] {
            assert!(spiffe_id(bad).is_err(), "{bad}");
        }
    }
}
