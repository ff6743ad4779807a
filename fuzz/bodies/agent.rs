//! The agent: responses of Vault, OpenBao, Consul and Azure, state files, and templates.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use keyward::agent::secrets::{SecretFields, SecretRequest, SecretResponse};
use keyward::agent::server_client::fuzz::{ResponseKind, parse};
use keyward::agent::templates::{Dependency, Rendered, Resolved, Template, TemplateSource};
use keyward::agent::{identity, secrets, token_lifecycle};
use keyward::clock::ClockReading;
use keyward::command::EnvVars;
use keyward::secret_string::SecretString;

/// Credential of a call, or secret of a template. No message may hold it.
const CANARY: &str = "canary-5ecret";

/// Reads bytes as the response to a login, a look-up or a renewal, good and bad.
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
                Ok(found) => {
                    assert_eq!(status, StatusCode::OK, "a refusal is taken for a success");
                    let Some(login) = found else { continue };
                    let token = login.secret.secret().expose_secret();
                    let fits = (1..=4096).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
                    assert!(fits, "a token that fits no header");
                    assert!(login.lease.ttl <= Duration::from_hours(32 * 24) && login.policies.len() <= 256);
                    for name in &login.policies {
                        super::assert_one_line(name);
                    }
                }
                Err(error) => {
                    let words = error.to_string();
                    super::assert_one_line(&words);
                    assert!(!words.contains(CANARY), "the credential is in the error: {words}");
                }
            }
        }
    }
}

/// Reads bytes as a response of Azure, good and bad.
pub(crate) fn azure(bytes: &[u8]) {
    let secrets = [SecretString::from(CANARY)];
    match identity::fuzz::token(bytes, &secrets) {
        Ok(token) => assert!(token.expose_secret().bytes().all(|byte| byte.is_ascii_graphic()), "no header's value"),
        Err(words) => assert_clean(&words),
    }
    for status in [StatusCode::BAD_REQUEST, StatusCode::TOO_MANY_REQUESTS, StatusCode::INTERNAL_SERVER_ERROR] {
        assert_clean(&identity::fuzz::refusal(status, bytes, &secrets));
    }
}

fn assert_clean(words: &str) {
    super::assert_one_line(words);
    assert!(!words.contains(CANARY), "a secret is in the error: {words}");
}

/// Parses bytes as the content of a state file.
pub(crate) fn state(bytes: &[u8]) {
    let since = Duration::from_hours(500_000);
    let now = ClockReading { boot: Duration::from_hours(1), wall: SystemTime::UNIX_EPOCH + since };
    if let Some(waits) = token_lifecycle::fuzz::waits(bytes, now) {
        // A refill of the bucket takes at most as long as its whole size.
        assert!(waits.iter().all(|wait| *wait <= Duration::from_mins(16)), "a file makes it wait for {waits:?}");
    }
    for reserialize in [token_lifecycle::fuzz::reserialize_token, secrets::fuzz::reserialize] {
        if let Some(written) = reserialize(bytes, now) {
            let again = reserialize(&written, now).expect("what was written is not read");
            assert_eq!(again, written, "what is read again is another");
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
    };
    let compiled = match Template::compile(source) {
        Ok(compiled) => compiled,
        Err(errors) => {
            assert!(!errors.is_empty(), "an error without a word");
            for error in &errors {
                super::assert_one_line(&error.to_string());
            }
            return;
        }
    };
    let fields = serde_json::json!({"password": CANARY, "port": 5432, "hosts": ["b", "a"], "data": {"key": CANARY}});
    let fields = SecretFields::from(fields.as_object().cloned().unwrap_or_default());
    let secret = SecretResponse { data: Arc::new(fields), lease: None, suggested_ttl: None };
    let known = BTreeMap::from([
        (Dependency::Secret(SecretRequest::read("secret/app")), Resolved::Secret(Arc::new(secret))),
        (Dependency::File("/etc/app/motd".into()), Resolved::Text(Arc::new(SecretString::from("hello")))),
    ]);
    match compiled.render(Arc::new(known), SystemTime::UNIX_EPOCH) {
        Rendered::Complete { .. } => {}
        Rendered::Unresolved(wanted) => assert!(!wanted.is_empty(), "it waits for nothing"),
        Rendered::Failed(error) => {
            let words = error.to_string();
            assert!(!words.contains(CANARY), "a secret is in the error: {words}");
        }
    }
}
