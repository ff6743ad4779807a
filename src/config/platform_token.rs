//! Source of the gateway's platform token: `gateway.token_file`, `[gateway.secret]` or `[gateway.mint]`.

use std::path::PathBuf;
use std::time::Duration;

use keyward_gateway::token_minting;

use super::mint;
use super::reader::Reader;
use super::references::Text;
use super::sink::Sessions;
use super::values::{self, ValueError, invalid};

/// Source of the platform token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// A file that someone else keeps fresh.
    File(PathBuf),
    /// A secret that is read through a session.
    Secret(SecretToken),
    /// Tokens that the gateway makes for itself.
    Mint(token_minting::MintOptions),
}

impl TokenSource {
    /// The session that it needs.
    pub fn session(&self) -> Option<&String> {
        match self {
            Self::File(_) | Self::Mint(_) => None,
            Self::Secret(secret) => Some(&secret.session),
        }
    }

    /// Names the source in one line, the same in every release: it is saved with the local token.
    pub(crate) fn identity(&self) -> String {
        match self {
            Self::File(path) => format!("file {}", path.display()),
            Self::Secret(SecretToken { session, path, field, .. }) => {
                format!("secret {path} field {field} session {session}")
            }
            Self::Mint(mint) => format!("made for {} with {}", mint.owner, mint.parent_token_file.display()),
        }
    }
}

/// A platform token in a secret of Vault or OpenBao.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretToken {
    /// Name of the session that reads it.
    pub session: String,
    /// The secret's path, without `/v1/`.
    pub path: String,
    /// The field that holds the token.
    pub field: String,
    /// Interval between reads of a secret without a lease.
    pub interval: Duration,
    /// Time that a replaced token stays valid.
    pub grace: Duration,
}

/// Reads one of the three; `None` if there is none, or an invalid one, which is reported. Each given one is read, so that
/// all errors are reported at once.
pub(super) fn read(reader: &mut Reader<'_>, sessions: &Sessions) -> Option<TokenSource> {
    let file = reader.text("token_file").map(|text| (token_file(reader, &text), text));
    let secret = reader.table("secret").map(|table| secret(table, sessions));
    let minted = reader.table("mint").map(|table| (table.at, table.path.clone(), mint::read(table)));
    let advice = "keep one: the token comes from one place";
    match (file, secret, minted) {
        (Some((path, _)), None, None) => path.map(TokenSource::File),
        (None, Some(secret), None) => secret.map(TokenSource::Secret),
        (None, None, Some((.., mint))) => mint.map(TokenSource::Mint),
        (Some((_, text)), secret, _) => {
            let other = if secret.is_some() { "[gateway.secret]" } else { "[gateway.mint]" };
            reader.scope.diagnostics.error(text.at, &text.key, format!("conflicts with {other}"), advice);
            None
        }
        (None, Some(_), Some((at, path, _))) => {
            reader.scope.diagnostics.error(at, &path, "conflicts with [gateway.secret]", advice);
            None
        }
        (None, None, None) => {
            let advice = "name the file of the platform token, or write [gateway.secret] with the path of a secret, or \
                          [gateway.mint] to create tokens";
            reader.missing("token_file", advice);
            None
        }
    }
}

fn token_file(reader: &Reader<'_>, text: &Text) -> Option<PathBuf> {
    let path = reader.parse(text, values::secret_file_path);
    if let Some(path) = &path {
        reader.warn_if_readable_by_others(text, path);
    }
    if text.unknown { path.or_else(|| Some("/".into())) } else { path }
}

fn secret(mut table: Reader<'_>, sessions: &Sessions) -> Option<SecretToken> {
    let session = sessions.one_of(&mut table);
    if let Some(session) = session.as_deref().filter(|session| sessions.is_wrapped(session)) {
        let at = table.locate("session").unwrap_or(table.at);
        let message = format!("session {session} has a wrap_ttl: its token is for one sink");
        table.error(at, "session", message, "name a session without one");
    }
    let path = table.required("path", "the secret's path, such as \"terraform/creds/deploy\"");
    let path = path.and_then(|text| table.parse(&text, secret_path));
    let field = table.text("field").map_or_else(|| "token".to_owned(), |text| text.value);
    let interval =
        table.duration("poll_interval", Duration::from_mins(5), Duration::from_secs(10)..=Duration::from_hours(24));
    let grace = table.duration("grace", Duration::from_mins(1), Duration::ZERO..=Duration::from_hours(24));
    table.finish();
    Some(SecretToken { session: session?, path: path?, field, interval, grace })
}

/// Parses a secret's path as Vault's API has it.
fn secret_path(text: &str) -> Result<String, ValueError> {
    let form = "write it as the server's API has it, such as \"terraform/creds/deploy\" or \"secret/data/platform\"";
    if text.starts_with('/') || text.starts_with("v1/") || text.ends_with('/') {
        return invalid("begins with /v1/ or a slash, or ends with one", form);
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let is_valid_segment = |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(plain);
    if text.split('/').all(is_valid_segment) { Ok(text.to_owned()) } else { invalid("is not a secret's path", form) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secrets_path_is_taken_as_the_api_has_it() {
        for path in ["terraform/creds/deploy", "secret/data/a.b/c-d_e~f", "kv"] {
            assert_eq!(secret_path(path).as_deref().ok(), Some(path));
        }
        for path in ["", "/terraform/creds/x", "v1/kv/x", "kv/", "kv//x", "kv/../x", "kv/a b", "kv/x?y", "kv/%2e%2e"] {
            assert!(secret_path(path).is_err(), "{path}");
        }
    }
}
