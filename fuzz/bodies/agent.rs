//! The agent: responses and events of Vault, responses of OpenBao, Consul and Azure, certificates of OpenSSH, state files, and templates.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use keyward_agent::secrets::{SecretFields, SecretRequest, SecretResponse};
use keyward_agent::server_client::fuzz::{ResponseKind, parse};
use keyward_agent::templates::{Dependency, Rendered, Resolved, Template, TemplateSource};
use keyward_agent::{certificates, identity, secrets, token_lifecycle};
use keyward_machine::clock::ClockReading;
use keyward_machine::command::EnvVars;
use keyward_machine::secret_string::SecretString;

/// Credential of a request, or secret of a template. No message may contain it.
const CANARY: &str = "canary-5ecret";

/// Reads bytes as the response to a login, a look-up or a renewal, with and without an error status.
pub(crate) fn login(bytes: &[u8]) {
    let sent = SecretString::from(CANARY);
    let kinds = [
        ResponseKind::Login,
        ResponseKind::WrappedLogin,
        ResponseKind::ConsulLogin,
        ResponseKind::Lookup,
        ResponseKind::Renewal,
    ];
    for kind in kinds {
        for status in [StatusCode::OK, StatusCode::FORBIDDEN] {
            match parse(kind, status, bytes, &sent) {
                Ok(parsed) => {
                    assert_eq!(status, StatusCode::OK, "an error response is parsed as a success");
                    let Some(login) = parsed else { continue };
                    let token = login.secret.secret().expose_secret();
                    let is_header_value =
                        (1..=4096).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
                    assert!(is_header_value, "a token that no header can carry");
                    assert!(login.lease.ttl <= Duration::from_hours(32 * 24) && login.policies.len() <= 256);
                    for name in &login.policies {
                        super::assert_one_line(name);
                    }
                }
                Err(error) => {
                    let message = error.to_string();
                    super::assert_one_line(&message);
                    assert!(!message.contains(CANARY), "the credential is in the error: {message}");
                }
            }
        }
    }
}

/// Reads bytes as an event of Vault's key-value stores.
pub(crate) fn events(bytes: &[u8]) {
    let parse = |path: &str| secrets::fuzz::parse_event(bytes, &SecretRequest::read(path), None);
    match parse("secret/data/app") {
        Err(message) => super::assert_one_line(&message),
        Ok(None) => {}
        Ok(Some((path, version, concerns))) => {
            // The secret of the event, in the root namespace: it is what the event is about, and nothing below it or beside it is.
            let segments: Vec<_> = path.split('/').filter(|segment| !segment.is_empty()).collect();
            let own = segments.join("/");
            let about = |path: &str| parse(path).ok().flatten().is_some_and(|(_, _, concerns)| concerns);
            let is_of_root = about(&own);
            assert!(!is_of_root || !about(&format!("{own}-other")), "an event is about a sibling of {own:?}");
            assert!(!about(&format!("{own}/x/data/y")), "an event is about a secret below {own:?}");
            assert!(!about(""), "an event is about all");
            assert!(!about(&format!("{own}?version=1")), "an event is about a version that was fixed");
            let again = parse("secret/data/app");
            assert_eq!(again, Ok(Some((path, version, concerns))));
        }
    }
}

/// Reads bytes as lines of OpenSSH: a certificate, and a public key.
pub(crate) fn ssh(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for line in text.lines() {
        if let Some(key) = certificates::fuzz::parse_public_key(line) {
            assert_eq!(
                certificates::fuzz::parse_public_key(&key).as_ref(),
                Some(&key),
                "a key is not read as it was written"
            );
        }
        let Some(read) = certificates::fuzz::parse_certificate(line) else { continue };
        let again = certificates::fuzz::parse_certificate(&read.line).expect("a certificate that was written is read");
        assert!(again.blob == read.blob && again.is_signed == read.is_signed && again.principals == read.principals);
        for key in [&read.key_line, &read.authority_line] {
            assert_eq!(
                certificates::fuzz::parse_public_key(key).as_ref(),
                Some(key),
                "the key of a certificate is none"
            );
        }
        assert!(line.split_ascii_whitespace().nth(1) == read.line.split(' ').nth(1), "other bytes are written");
        if read.is_signed {
            assert_no_change_is_signed(&read);
        }
    }
}

/// Asserts that a certificate with one other bit of its nonce, serial number or names is not signed.
fn assert_no_change_is_signed(read: &certificates::fuzz::ReadCertificate) {
    let kind = read.line.split(' ').next().unwrap_or_default();
    for at in [kind.len() + 8, read.blob.len() / 3, read.blob.len() / 2] {
        let mut blob = read.blob.clone();
        blob[at] ^= 1;
        let line = format!("{kind} {}", STANDARD.encode(&blob));
        let changed = certificates::fuzz::parse_certificate(&line);
        assert!(changed.is_none_or(|changed| !changed.is_signed), "a changed certificate is signed");
    }
}

/// Reads bytes as a response of Azure, with and without an error status.
pub(crate) fn azure(bytes: &[u8]) {
    let secrets = [SecretString::from(CANARY)];
    match identity::fuzz::parse_token(bytes, &secrets) {
        Ok(token) => assert!(
            token.expose_secret().bytes().all(|byte| byte.is_ascii_graphic()),
            "a token that no header can carry"
        ),
        Err(message) => assert_clean(&message),
    }
    for status in [StatusCode::BAD_REQUEST, StatusCode::TOO_MANY_REQUESTS, StatusCode::INTERNAL_SERVER_ERROR] {
        assert_clean(&identity::fuzz::parse_error(status, bytes, &secrets));
    }
}

/// Asserts that a message is one line without the secret.
fn assert_clean(message: &str) {
    super::assert_one_line(message);
    assert!(!message.contains(CANARY), "a secret is in the error: {message}");
}

/// Parses bytes as the content of a state file.
pub(crate) fn state(bytes: &[u8]) {
    let since = Duration::from_hours(500_000);
    let now = ClockReading { boot: Duration::from_hours(1), wall: SystemTime::UNIX_EPOCH + since };
    if let Some(waits) = token_lifecycle::fuzz::waits(bytes, now) {
        // No wait is longer than a refill of the whole bucket.
        assert!(waits.iter().all(|wait| *wait <= Duration::from_mins(16)), "a state file delays requests by {waits:?}");
    }
    for reserialize in [token_lifecycle::fuzz::reserialize_token, secrets::fuzz::reserialize] {
        if let Some(written) = reserialize(bytes, now) {
            let again = reserialize(&written, now).expect("a written state file is not readable");
            assert_eq!(again, written, "a state file changes when it is read and written");
        }
    }
}

/// Reads bytes as a template, and renders it.
pub(crate) fn template(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let source = TemplateSource {
        name: "fuzz".to_owned(),
        file: None,
        text: text.to_owned(),
        left: "{{".to_owned(),
        right: "}}".to_owned(),
        variables: EnvVars::default(),
        folders: vec!["/etc/app".into()],
        write_folders: vec!["/etc/ssl/app".into()],
        allows_missing_keys: bytes.len().is_multiple_of(2),
    };
    let compiled = match Template::compile(source) {
        Ok(compiled) => compiled,
        Err(errors) => {
            assert!(!errors.is_empty(), "a failure without an error");
            for error in &errors {
                super::assert_one_line(&error.to_string());
            }
            return;
        }
    };
    let fields = serde_json::json!({"password": CANARY, "port": 5432, "hosts": ["b", "a"], "data": {"key": CANARY}});
    let fields = SecretFields::from(fields.as_object().cloned().unwrap_or_default());
    let secret = SecretResponse { data: Arc::new(fields), lease: None, suggested_ttl: None };
    let resolved = BTreeMap::from([
        (Dependency::Secret(SecretRequest::read("secret/app")), Resolved::Secret(Arc::new(secret))),
        (Dependency::File("/etc/app/motd".into()), Resolved::Text(Arc::new(SecretString::from("hello")))),
    ]);
    match compiled.render(Arc::new(resolved), SystemTime::UNIX_EPOCH) {
        Rendered::Complete { .. } => {}
        Rendered::Unresolved(dependencies) => {
            assert!(!dependencies.is_empty(), "an unresolved template without a dependency");
        }
        Rendered::Failed(error) => {
            let message = error.to_string();
            assert!(!message.contains(CANARY), "a secret is in the error: {message}");
        }
    }
}
