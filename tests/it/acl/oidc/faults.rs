//! Logins that are refused: by what the client sends, what the provider returns, and what it says of itself.

use serde_json::{Value, json};

use super::{NONCE, World, begin, finish};
use crate::harness::issuer::Key;
use crate::harness::openid_provider::{OpenIdProvider, TokenAnswer};
use crate::harness::{Acl, Answer};

#[track_caller]
fn check(answer: &Answer, status: u16, reason: &str) {
    assert_eq!((answer.status, answer.text.contains(reason)), (status, true), "{reason}: {answer:?}");
    assert!(!answer.text.contains(char::is_control) && answer.text.len() < 2048, "{answer:?}");
    assert!(status != 403 || answer.text.starts_with("Permission denied: "), "{answer:?}");
}

const STATE: &str = "State is not of a login by this server and this auth method, or was altered";

#[tokio::test]
async fn a_login_begins_only_with_a_listed_redirect_uri_and_a_long_nonce() {
    let world = World::start().await;
    let unlisted = "is not in AllowedRedirectURIs of the auth method";
    for uri in
        ["", "http://localhost:8551/oidc/callback", "https://evil.example/", "http://localhost:8550/oidc/callback/"]
    {
        check(&world.begin(json!({ "RedirectURI": uri })).await, 400, unlisted);
    }
    for nonce in ["", "0123456789abcde", &"x".repeat(257)] {
        check(&world.begin(json!({ "ClientNonce": nonce })).await, 400, "ClientNonce must have 16 to 256");
    }
    check(&world.begin(json!({"Meta": {"a": "b".repeat(2000)}})).await, 400, "Meta is larger than 1024 bytes");
    // A change of the method counts for logins that have begun.
    let (code, state) = world.arrive().await;
    world.method(json!({"AllowedRedirectURIs": ["http://localhost:9000/"]})).await;
    check(&world.finish(&code, &state).await, 400, unlisted);
}

#[tokio::test]
async fn t41_a_state_counts_only_for_its_method_its_client_and_five_minutes() {
    let world = World::start().await;
    let method = json!({"Name": "others", "Type": "oidc", "Config": world.provider.config()});
    world.acl.make("/v1/acl/auth-method", method).await;
    let (code, state) = world.arrive().await;
    let other = json!({"AuthMethod": "others", "Code": code, "State": state});
    check(&finish(&world.acl, "", other).await, 403, STATE);
    for nonce in ["", "0123456789abcdef0123456789abcdeF", "x"] {
        let stolen = json!({"ClientNonce": nonce, "Code": code, "State": state});
        check(&finish(&world.acl, "", stolen).await, 403, "ClientNonce is not the one that the login began with");
    }
    for at in (0..state.len()).step_by(7) {
        let own = state.as_bytes()[at];
        let altered = format!("{}{}{}", &state[..at], if own == b'A' { 'B' } else { 'A' }, &state[at + 1..]);
        check(&world.finish(&code, &altered).await, 403, STATE);
    }
    for state in ["", "A", "AAAA", &state[1..], &format!("{state}="), &"A".repeat(10_000), "\u{e9}"] {
        check(&world.finish(&code, state).await, 403, STATE);
    }
    check(&world.finish("", &state).await, 400, "Code is required");
    // A server of another store has other keys.
    let elsewhere = World { acl: Acl::start().await, provider: OpenIdProvider::start() };
    elsewhere.method(json!({})).await;
    check(&elsewhere.finish(&code, &state).await, 403, STATE);
    assert!(world.provider.faults.exchanges.lock().is_empty(), "the provider was asked");

    world.acl.clock.set_wall_by(280);
    assert_eq!(world.finish(&code, &state).await.status, 200);
    // The provider takes a code once.
    let again = world.finish(&code, &state).await;
    check(&again, 403, "the provider refused the code: invalid_grant: unknown code");
    assert_eq!(world.provider.faults.exchanges.lock().len(), 2);
    // Another provider of the method does not get the code with its verifier, nor does another client.
    let other = OpenIdProvider::start();
    for change in [json!({"OIDCDiscoveryURL": other.url}), json!({"OIDCClientID": "another"})] {
        let (code, state) = world.arrive().await;
        world.method(change).await;
        check(&world.finish(&code, &state).await, 403, STATE);
        world.method(json!({})).await;
        assert_eq!(world.finish(&code, &state).await.status, 200, "as it was");
    }
    assert!(other.faults.exchanges.lock().is_empty(), "the other provider was asked");

    let (code, state) = world.arrive().await;
    world.acl.clock.set_wall_by(301);
    check(&world.finish(&code, &state).await, 403, "the login was not finished within 5 minutes");

    // A new method of the same name is another one.
    let (code, state) = world.arrive().await;
    assert_eq!(world.acl.delete("/v1/acl/auth-method/people").await.status, 200);
    world.method(json!({})).await;
    check(&world.finish(&code, &state).await, 403, STATE);
}

#[tokio::test]
async fn an_id_token_must_be_for_this_login_this_client_and_of_this_provider() {
    let world = World::start().await;
    let login_with = async |claim: &'static str, value: Value| {
        world.provider.faults.claims.lock().clear();
        world.provider.faults.claims.lock().insert(claim, value);
        world.log_in().await
    };
    let now = keyward_acl::model::timestamp::Timestamp::from_system_time(world.acl.now()).unix_seconds();
    for (claim, value, reason) in [
        ("nonce", json!("another"), "the nonce of the ID token is not the one of this login"),
        ("nonce", Value::Null, "the nonce of the ID token is not the one of this login"),
        ("aud", json!("another"), "expected audience \"keyward\" got \"another\""),
        ("aud", json!(["another", "keyward"]), "the ID token has no usable claim \"azp\""),
        ("azp", json!("another"), "the ID token was issued to another client"),
        ("iss", json!("https://another.example"), "id token issued by a different provider"),
        ("iss", json!(format!("{}/", world.provider.url)), "id token issued by a different provider"),
        ("exp", json!(now - 61), "token is expired"),
        ("exp", Value::Null, "the ID token has no usable claim \"exp\""),
        ("iat", json!(now + 120), "before the nbf"),
        ("nbf", json!(now + 120), "before the nbf"),
        ("iat", Value::Null, "the ID token has no usable claim \"iat\""),
        ("sub", Value::Null, "the ID token has no usable claim \"sub\""),
        ("groups", json!({}), "\"groups\" has the wrong type"),
    ] {
        check(&login_with(claim, value).await, 403, reason);
    }
    assert_eq!(login_with("azp", json!("keyward")).await.status, 200);
    assert_eq!(login_with("exp", json!(now - 30)).await.status, 200, "within the leeway of clocks");

    let claims = json!({"iss": world.provider.url, "aud": "keyward", "sub": "7", "exp": now + 60, "iat": now});
    let none = keyward_credentials::jwt::signing_input(&json!({"alg": "none"}), &claims);
    let stranger = Key::new("key-1").sign(&claims);
    let unsigned = format!("{none}.");
    for (token, status, reason) in [
        (unsigned.as_str(), 403, "unsupported algorithm"),
        (stranger.as_str(), 403, "failed to verify signature"),
        ("no-jwt", 503, "its id_token is no signed JWT"),
        ("a.b.c.d.e", 503, "its id_token is no signed JWT"),
    ] {
        *world.provider.faults.id_token.lock() = Some(token.to_owned());
        check(&world.log_in().await, status, reason);
    }
    // An audience that the method binds is required besides the client's own.
    *world.provider.faults.id_token.lock() = None;
    world.method(json!({"BoundAudiences": ["api"]})).await;
    check(&login_with("aud", json!("keyward")).await, 403, "expected audience \"api\" got \"keyward\"");
    check(&login_with("aud", json!("api")).await, 403, "expected audience \"keyward\" got \"api\"");
    world.provider.faults.claims.lock().insert("aud", json!(["api", "keyward"]));
    check(&world.log_in().await, 403, "no usable claim \"azp\"");
    world.provider.faults.claims.lock().insert("azp", json!("keyward"));
    assert_eq!(world.log_in().await.status, 200);
}

#[tokio::test]
async fn a_token_endpoint_that_fails_gives_no_token_and_an_error_of_one_line() {
    let world = World::start().await;
    let unusable = "the token endpoint of the provider cannot be used: ";
    let huge = format!("{{\"id_token\": \"{}\"}}", "x".repeat(300_000));
    for (answer, status, reason) in [
        (TokenAnswer::Fixed(500, "{}".into()), 503, "returned HTTP 500"),
        (TokenAnswer::Fixed(302, String::new()), 503, "returned HTTP 302"),
        (TokenAnswer::Fixed(200, "<html>".into()), 503, "did not return a JSON object"),
        (TokenAnswer::Fixed(200, "{}".into()), 503, "returned no id_token"),
        (TokenAnswer::Fixed(200, huge), 503, "is larger than 262144 bytes"),
        (TokenAnswer::Never, 503, "no response from"),
    ] {
        *world.provider.faults.answer.lock() = answer;
        let failed = world.log_in().await;
        check(&failed, status, reason);
        assert!(failed.text.starts_with(unusable) && failed.headers.contains_key("retry-after"), "{failed:?}");
    }
    let refusal = json!({"error": "invalid_client", "error_description": "a\u{1b}[2Jb\nc"}).to_string();
    *world.provider.faults.answer.lock() = TokenAnswer::Fixed(401, refusal);
    check(&world.log_in().await, 403, "the provider refused the code: invalid_client: a\\u{1b}[2Jb\\nc");
}

#[tokio::test]
async fn a_discovery_document_must_name_secure_endpoints_and_the_configured_issuer() {
    for (field, value, reason) in [
        ("authorization_endpoint", Value::Null, "it names no authorization_endpoint"),
        ("token_endpoint", Value::Null, "it names no token_endpoint"),
        ("token_endpoint", json!(7), "it names no token_endpoint"),
        ("authorization_endpoint", json!("http://people.example/a"), "its authorization_endpoint must be https"),
        ("authorization_endpoint", json!("javascript:alert(1)"), "its authorization_endpoint must be https"),
        ("token_endpoint", json!("http://169.254.169.254/token"), "its token_endpoint must be https"),
        ("jwks_uri", json!("http://people.example/keys"), "must be https"),
        ("issuer", json!("https://another.example"), "the discovery document is of issuer \"https://another.example\""),
        ("code_challenge_methods_supported", json!(["plain"]), "it offers no PKCE with S256"),
    ] {
        let world = World::start().await;
        world.provider.faults.discovery.lock().insert(field, value);
        let refused = world.begin(json!({})).await;
        check(&refused, 503, reason);
        let prefix = "the discovery document of the provider cannot be used: ";
        assert!(refused.text.starts_with(prefix) && refused.headers.contains_key("retry-after"), "{refused:?}");
        // It is fetched again within a minute, and not for each login.
        world.provider.faults.discovery.lock().clear();
        check(&world.begin(json!({})).await, 503, reason);
        world.acl.clock.suspend(std::time::Duration::from_secs(61));
        assert_eq!(world.begin(json!({})).await.status, 200, "{field}");
    }
    // Without endpoints, a `jwt` method of the same issuer works.
    let world = World::start().await;
    world.provider.faults.discovery.lock().insert("token_endpoint", json!([]));
    let config = json!({"OIDCDiscoveryURL": world.provider.url, "BoundAudiences": ["a"]});
    world.acl.make("/v1/acl/auth-method", json!({"Name": "jobs", "Type": "jwt", "Config": config})).await;
    world
        .acl
        .make("/v1/acl/binding-rule", json!({"AuthMethod": "jobs", "BindType": "service", "BindName": "web"}))
        .await;
    let now = keyward_acl::model::timestamp::Timestamp::from_system_time(world.acl.now()).unix_seconds();
    let claims = json!({"iss": world.provider.url, "aud": "a", "exp": now + 60, "iat": now});
    assert_eq!(world.acl.log_in("jobs", &world.provider.key.sign(&claims)).await.status, 200);
}

/// One authority for the whole of a login: discovery document, keys, and the exchange of the code.
#[cfg(feature = "dev")]
#[tokio::test]
async fn the_authority_of_the_method_verifies_every_call_of_the_provider() {
    use keyward_http::tls::{ServerCertificate, ServerTls};

    let folder = tempfile::tempdir().unwrap();
    crate::http::tls::certificates(folder.path());
    let file = |name: &str| folder.path().join(name);
    let certificate =
        ServerCertificate { certificate: file("cert.pem"), key: file("key.pem"), is_awaited: false, client_ca: None };
    let provider = OpenIdProvider::serve(Some(ServerTls::new(&certificate).unwrap()));
    let world = World { acl: Acl::start().await, provider };
    world.method(json!({})).await;
    world
        .acl
        .make("/v1/acl/binding-rule", json!({"AuthMethod": "people", "BindType": "service", "BindName": "web"}))
        .await;
    check(&world.begin(json!({})).await, 503, "certificate");
    let authority = json!({"OIDCDiscoveryCACert": std::fs::read_to_string(file("ca.pem")).unwrap()});
    world.method(authority.clone()).await;
    let login = world.log_in().await;
    assert_eq!(login.status, 200, "{login:?}");

    // Its document does not send the server to services of its own machine.
    let inside = OpenIdProvider::start();
    for (field, path) in [("authorization_endpoint", "authorize"), ("token_endpoint", "token/"), ("jwks_uri", "keys/")]
    {
        world.provider.faults.discovery.lock().insert(field, json!(format!("{}/{path}", inside.url)));
        // As another method's, it is fetched anew.
        let config = [world.provider.config(), authority.clone()].map(|part| part.as_object().unwrap().clone());
        let config: serde_json::Map<_, _> = config.into_iter().flatten().collect();
        world.acl.make("/v1/acl/auth-method", json!({"Name": field, "Type": "oidc", "Config": config})).await;
        let refused = world.begin(json!({ "AuthMethod": field })).await;
        check(&refused, 503, &format!("{field} must be https, as the document's own URL is"));
        world.provider.faults.discovery.lock().clear();
    }
}

#[tokio::test]
async fn a_login_that_no_binding_rule_matches_gets_no_token() {
    let world = World::start().await;
    world
        .acl
        .make("/v1/acl/auth-method", json!({"Name": "bare", "Type": "oidc", "Config": world.provider.config()}))
        .await;
    let begun = begin(&world.acl, "", json!({"AuthMethod": "bare"})).await;
    let (code, state) = world.provider.authorize(begun.json()["AuthURL"].as_str().unwrap());
    let body = json!({"AuthMethod": "bare", "ClientNonce": NONCE, "Code": code, "State": state});
    let denied = finish(&world.acl, "", body).await;
    assert_eq!((denied.status, denied.text.as_str()), (403, "Permission denied"));
}
