use std::time::Duration;

use super::*;

#[test]
fn single_tokens_replace_the_previous_one() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
    let check = |kind: TokenKind, both: bool| {
        let mut tokens = Tokens::default();
        let mut make = |text: &str| {
            let description = Some(text.to_owned());
            let request =
                TokenRequest { kind, owner: "x".to_owned(), description, expires: None, created_by: "u".to_owned() };
            tokens.make(request, text, now).unwrap().id
        };
        assert_ne!(make("one"), make("two"));
        assert_eq!(tokens.authenticate(b"one", now).is_some(), both, "{kind:?}");
        assert!(tokens.authenticate(b"two", now).is_some(), "{kind:?}");
    };
    for (kind, both) in [
        (TokenKind::User, true),
        (TokenKind::Team, true),
        (TokenKind::AgentPool, true),
        (TokenKind::TeamLegacy, false),
        (TokenKind::Organization, false),
        (TokenKind::AuditTrails, false),
    ] {
        check(kind, both);
    }
}

#[test]
fn tokens_expire() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
    let mut tokens = Tokens::default();
    let expires = Some(now + Duration::from_secs(10));
    let request = TokenRequest {
        kind: TokenKind::User,
        owner: "u".to_owned(),
        description: None,
        expires,
        created_by: "u".to_owned(),
    };
    tokens.make(request, "text", now).unwrap();
    assert!(tokens.authenticate(b"text", now + Duration::from_secs(9)).is_some());
    assert!(tokens.authenticate(b"text", now + Duration::from_secs(10)).is_none());
    assert!(tokens.authenticate(b"other", now).is_none());
}
