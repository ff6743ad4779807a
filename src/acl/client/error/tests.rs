use http::HeaderValue;

use super::*;

fn parse(status: u16, text: &str) -> AclClientError {
    let status = StatusCode::from_u16(status).unwrap();
    parse_error(status, &HeaderMap::new(), text.as_bytes(), "calls for roles", Some("1.5.0"), "hush")
}

#[test]
fn texts_of_all_servers_map_to_the_same_errors() {
    let check = |status: u16, text: &str, expected: &str| {
        let found = parse(status, text);
        let kind = format!("{found:?}");
        let kind = kind.split([' ', '(']).next().unwrap();
        assert_eq!(kind, expected, "{status} {text}: {found:?}");
    };
    check(403, "ACL not found", "Unauthenticated");
    check(403, "rpc error making call: rpc error making call: ACL not found", "Unauthenticated");
    check(403, "ACL not found: auth method \"ci\" does not exist", "NotFound");
    check(403, "rpc error making call: ACL not found: auth method \"ci\" not found", "NotFound");
    check(404, "Supplied token does not exist", "Unauthenticated");
    check(401, "Supplied token does not exist", "Unauthenticated");
    check(403, "Permission denied", "PermissionDenied");
    check(404, "Requested token does not exist: ACL not found", "NotFound");
    check(404, "Requested role does not exist: ACL not found", "NotFound");
    check(404, "", "NotFound");
    check(409, "Invalid Role: A Role with Name \"web\" already exists", "Conflict");
    check(500, "Invalid Role: A Role with Name \"web\" already exists", "Conflict");
    check(500, "Invalid Token: AccessorID is already in use", "Conflict");
    check(400, "Token decoding failed: EOF", "Invalid");
    check(500, "Invalid Token: AccessorID - not a valid UUID", "Invalid");
    check(500, "rpc error making call: Cannot toggle local mode of 1", "Invalid");
    check(500, "No such ACL policy with name \"x\"", "Invalid");
    check(500, "Token Expiration TTL '-5m0s' should be > 0", "Invalid");
    check(405, "method POST not allowed", "Invalid");
    check(413, "the body is larger than 512 KiB", "TooLarge");
    check(429, "", "RateLimited");
    check(503, "", "Unavailable");
    check(500, "internal error", "Unexpected");
    check(500, "", "Unexpected");
    check(307, "", "Unexpected");
    check(204, "", "Unexpected");
    check(401, "ACL support disabled", "NotSupported");
    check(404, "Invalid URL path: not a recognized HTTP API endpoint\n", "NotSupported");
    check(400, "Token decoding failed: json: unknown field \"NodeIdentities\"", "NotSupported");
    check(400, "Auth method decoding failed: json: unknown field \"BoundAudience\"", "Invalid");
    check(400, "Invalid query parameter: \"ns\" - Namespaces are a Consul Enterprise feature", "NotSupported");
}

#[test]
fn errors_of_older_servers_name_the_version_that_is_needed() {
    let check = |status: u16, text: &str, feature: &str, since: Option<&'static str>| {
        assert_eq!(parse(status, text), AclClientError::NotSupported { feature: feature.to_owned(), since }, "{text}");
    };
    let no_path = "Invalid URL path: not a recognized HTTP API endpoint";
    check(404, no_path, "calls for roles, or the address's path is wrong", Some("1.5.0"));
    let unknown = |field: &str| format!("Token decoding failed: json: unknown field \"{field}\"");
    for field in ["AccessorID", "SecretID", "Roles", "ServiceIdentities", "ExpirationTime", "ExpirationTTL"] {
        check(400, &unknown(field), &format!("the field {field}"), Some("1.5.0"));
    }
    check(400, &unknown("NodeIdentities"), "the field NodeIdentities", Some("1.8.1"));
    check(400, &unknown("Namespace"), "the field Namespace", Some("1.7.0"));
    check(400, &unknown("TemplatedPolicies"), "the field TemplatedPolicies", None);
    let smaller = format!("{} - Namespaces are a Consul Enterprise feature", unknown("Namespace"));
    check(400, &smaller, "namespaces", Some("1.7.0"));
    let text = parse(400, &unknown("NodeIdentities")).to_string();
    assert_eq!(text, "this server does not support the field NodeIdentities: it needs 1.8.1 or later");
}

#[test]
fn denials_name_accessor_permission_and_resource() {
    let check = |text: &str, expected: [Option<&str>; 4], shown: &str| {
        let found = parse(403, text);
        let AclClientError::PermissionDenied(denial) = &found else { panic!("{found:?}") };
        let parts = [&denial.accessor, &denial.permission, &denial.resource, &denial.text];
        assert_eq!(parts.map(Option::as_deref), expected, "{text}");
        assert_eq!(found.to_string(), shown);
    };
    let accessor = "6a1253d2-1785-24fd-91c2-f8e78c745511";
    check(
        &format!("Permission denied: token with AccessorID '{accessor}' lacks permission 'acl:write'"),
        [Some(accessor), Some("acl:write"), None, None],
        &format!("permission denied: the token with accessor {accessor} lacks acl:write"),
    );
    check(
        &format!(
            "rpc error making call: Permission denied: token with AccessorID '{accessor}' \
             lacks permission 'namespace:read' on \"team-1\""
        ),
        [Some(accessor), Some("namespace:read"), Some("team-1"), None],
        &format!("permission denied: the token with accessor {accessor} lacks namespace:read on \"team-1\""),
    );
    check(
        "Permission denied: anonymous token lacks permission 'acl:read'. The anonymous token is used implicitly when \
         a request does not specify a token.",
        [Some("anonymous"), Some("acl:read"), None, None],
        "permission denied: no token was sent, and the anonymous token lacks acl:read",
    );
    check("Permission denied", [None; 4], "permission denied");
    let why = "ACL bootstrap no longer allowed (reset index: 13)";
    check(&format!("Permission denied: {why}"), [None, None, None, Some(why)], &format!("permission denied: {why}"));
}

#[test]
fn echoed_secrets_and_terminal_escapes_are_sanitized() {
    assert_eq!(parse(400, "bad token hush\n\u{1b}[2J").to_string(), "bad token [redacted]\\n\\u{1b}[2J");
}

#[test]
fn retry_after_is_kept_in_the_error() {
    let headers = HeaderMap::from_iter([(http::header::RETRY_AFTER, HeaderValue::from_static("7"))]);
    let parse = |status| parse_error(status, &headers, b"busy", "calls", None, "");
    let retry_after = Some(Duration::from_secs(7));
    assert_eq!(parse(StatusCode::TOO_MANY_REQUESTS), AclClientError::RateLimited { retry_after });
    let unavailable = AclClientError::Unavailable { status: 503, text: "busy".to_owned(), retry_after };
    assert_eq!(parse(StatusCode::SERVICE_UNAVAILABLE), unavailable);
    assert!(unavailable.to_string().ends_with("try again in 7 s"), "{unavailable}");
}

#[test]
fn a_write_without_a_definite_response_is_in_doubt() {
    let server = || "it".to_owned();
    let check = |error: AclClientError, expected: bool| assert_eq!(error.is_in_doubt(), expected, "{error:?}");
    check(AclClientError::Transport(TransportError::Connect { server: server(), cause: String::new() }), false);
    check(AclClientError::Transport(TransportError::TimedOut { server: server(), after: Duration::ZERO }), true);
    check(AclClientError::Transport(TransportError::Broken { server: server(), cause: String::new() }), true);
    check(parse(502, ""), true);
    check(parse(500, "internal error"), true);
    check(parse(429, ""), false);
    check(parse(403, "ACL not found"), false);
    check(parse(409, "already exists"), false);
}
