//! Content of a token file in each format.

use keyward_telemetry::time_format::format_rfc3339;
use serde::Serialize;

use super::SinkFormat;
use crate::token::{Token, TokenKind};

/// Formats a token. Only the environment format ends in a newline.
pub(super) fn render(token: &Token, format: SinkFormat) -> Vec<u8> {
    let secret = token.secret.secret().expose_secret();
    match format {
        SinkFormat::Raw => secret.as_bytes().to_vec(),
        SinkFormat::Env(name) => {
            // Tokens are visible ASCII; within single quotes a shell interprets only the quote itself.
            let plain = secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+/=".contains(&byte));
            let mut line = format!("{name}=");
            if plain {
                line.push_str(secret);
            } else {
                line.push('\'');
                // A quote ends the string, stands escaped outside, and begins the string again.
                for (number, part) in secret.split('\'').enumerate() {
                    if number > 0 {
                        line.push_str("'\\''");
                    }
                    line.push_str(part);
                }
                line.push('\'');
            }
            line.push('\n');
            line.into_bytes()
        }
        SinkFormat::Json => match &token.kind {
            TokenKind::Wrapping { creation_time, creation_path, .. } => json(&WrappedTokenJson {
                token: secret,
                accessor: token.accessor.as_deref().unwrap_or_default(),
                ttl: token.lease.ttl.as_secs(),
                creation_time,
                creation_path,
            }),
            TokenKind::Service | TokenKind::Batch => json(&TokenJson {
                token: secret,
                accessor: token.accessor.as_deref(),
                expires_at: token.expires.map(|end| format_rfc3339(end.wall)),
                renewable: token.lease.renewable,
                policies: &token.policies,
            }),
        },
    }
}

#[derive(Serialize)]
struct TokenJson<'a> {
    token: &'a str,
    accessor: Option<&'a str>,
    expires_at: Option<String>,
    renewable: bool,
    policies: &'a [String],
}

/// The JSON that Vault Agent writes for a wrapped login, so that programs that unwrap it work unchanged.
#[derive(Serialize)]
struct WrappedTokenJson<'a> {
    token: &'a str,
    accessor: &'a str,
    ttl: u64,
    creation_time: &'a str,
    creation_path: &'a str,
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Cannot fail: strings, numbers and lists have a JSON form.
    serde_json::to_vec(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use keyward_machine::clock::ClockReading;
    use keyward_machine::secret_string::SecretString;

    use super::*;
    use crate::token::{ClientToken, Generation, Lease};

    fn token(kind: TokenKind, expires: Option<u64>) -> Token {
        let at = |seconds| ClockReading {
            boot: Duration::from_secs(seconds),
            wall: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_250 + seconds * 1000),
        };
        Token {
            secret: ClientToken::parse(SecretString::from("hvs.abc")).unwrap(),
            accessor: Some("acc".to_owned()),
            lease: Lease { ttl: Duration::from_secs(expires.unwrap_or(0)), renewable: true },
            kind,
            policies: vec!["default".to_owned(), "web".to_owned()],
            obtained: at(0),
            expires: expires.map(at),
            generation: Generation::new(),
        }
    }

    #[test]
    fn each_format_has_its_documented_bytes() {
        let check = |token: &Token, format, expected: &str| {
            assert_eq!(String::from_utf8_lossy(&render(token, format)), expected);
        };
        check(&token(TokenKind::Service, Some(60)), SinkFormat::Raw, "hvs.abc");
        check(&token(TokenKind::Service, Some(60)), SinkFormat::Env("VAULT_TOKEN"), "VAULT_TOKEN=hvs.abc\n");
        let odd = ClientToken::parse(SecretString::from("a'$b")).unwrap();
        check(&Token { secret: odd, ..token(TokenKind::Service, None) }, SinkFormat::Env("T"), "T='a'\\''$b'\n");
        check(
            &token(TokenKind::Service, Some(60)),
            SinkFormat::Json,
            r#"{"token":"hvs.abc","accessor":"acc","expires_at":"2023-11-14T22:14:20Z","renewable":true,"policies":["default","web"]}"#,
        );
        check(
            &Token { accessor: None, ..token(TokenKind::Batch, None) },
            SinkFormat::Json,
            r#"{"token":"hvs.abc","accessor":null,"expires_at":null,"renewable":true,"policies":["default","web"]}"#,
        );
        let wrapping = TokenKind::Wrapping {
            creation_time: "2023-11-14T22:13:20.5Z".to_owned(),
            creation_path: "auth/azure/login".to_owned(),
        };
        check(&token(wrapping.clone(), Some(300)), SinkFormat::Raw, "hvs.abc");
        check(
            &token(wrapping, Some(300)),
            SinkFormat::Json,
            r#"{"token":"hvs.abc","accessor":"acc","ttl":300,"creation_time":"2023-11-14T22:13:20.5Z","creation_path":"auth/azure/login"}"#,
        );
    }
}
