use serde_json::json;

use super::*;

fn read(kind: MethodType, written: &Value) -> Result<MethodConfig, String> {
    MethodConfig::read(kind, written.as_object().unwrap()).map_err(|error| error.to_string())
}

#[test]
fn a_configuration_has_one_source_of_keys() {
    let check = |written: Value, expected: Result<&str, &str>| {
        let found = read(MethodType::Jwt, &written);
        let found = found.as_ref().map(|config| match &config.keys {
            KeySource::Discovery { url, issuer, .. } => format!("{url} {issuer}"),
            KeySource::Jwks { url, ca_certificates } => format!("{url} {ca_certificates:?}"),
            KeySource::Fixed(keys) => keys.join(" "),
        });
        assert_eq!(found.as_ref().map(String::as_str).map_err(|text| text.as_str()), expected, "{written}");
    };
    let one = "Config must have exactly one of OIDCDiscoveryURL, JWKSURL and JWTValidationPubKeys";
    check(json!({}), Err(one));
    check(json!({"JWKSURL": "https://a/", "JWTValidationPubKeys": ["k"]}), Err(one));
    check(json!({"JWKSURL": "https://a/", "OIDCDiscoveryURL": "https://a/"}), Err(one));
    let document = "https://a/t/.well-known/openid-configuration";
    check(json!({"OIDCDiscoveryURL": "https://a/t"}), Ok(&format!("{document} https://a/t")));
    check(json!({"OIDCDiscoveryURL": "https://a/t/"}), Ok(&format!("{document} https://a/t/")));
    check(json!({"oidcdiscoveryurl": document, "BoundIssuer": "i"}), Ok(&format!("{document} i")));
    check(json!({"JWKSURL": "https://a/k", "JWKSCACert": "pem"}), Ok("https://a/k Some(\"pem\")"));
    check(json!({"JWTValidationPubkeys": ["k", "l"]}), Ok("k l"));
    check(json!({"JWKSURL": "http://a/"}), Err("Config JWKSURL must be https, or http on loopback"));
    check(json!({"JWKSURL": {}}), Err("Config JWKSURL must be a string"));
    check(json!({"JWKSURL": ["https://a/k"], "JWTValidationPubKeys": []}), Ok("https://a/k None"));
    check(json!({"JWTValidationPubKeys": "k"}), Ok("k"));
    check(json!({"JWKSURL": ["https://a/", "https://b/"]}), Err("Config JWKSURL must be a string"));
    check(
        json!({"JWKSURL": "https://a", "OIDCDiscoveryCACert": "x"}),
        Err("Config OIDCDiscoveryCACert is only allowed with OIDCDiscoveryURL"),
    );
    check(
        json!({"JWTValidationPubKeys": ["k"], "JWKSCACert": "x"}),
        Err("Config JWKSCACert is only allowed with JWKSURL"),
    );
    check(
        json!({"JWTValidationPubKeys": [""]}),
        Err("Config JWTValidationPubKeys must be a list of at most 64 non-empty strings"),
    );
    check(json!({"JWKSURL": "https://a", "jwksurl": "https://b"}), Err("Config \"jwksurl\" is given twice"));
    check(json!({"JWKSURL": "https://a", "Host": "b"}), Err("Config \"Host\" is unknown for this type"));
}

#[test]
fn algorithms_mappings_and_leeways_have_their_usual_values_and_bounds() {
    let with = |name: &str, value: Value| {
        let config = read(MethodType::Jwt, &json!({"JWKSURL": "https://a", name: value}))?;
        let AcceptedIdentity::Jwt(rules) = config.accepts else { panic!() };
        Ok::<_, String>((config.algorithms, rules))
    };
    let (algorithms, rules) = with("BoundIssuer", Value::Null).unwrap();
    assert_eq!((algorithms, rules.issuer), (vec![Algorithm::Rs256], None));
    let leeways = [rules.expiration_leeway, rules.not_before_leeway, rules.clock_skew];
    assert_eq!(leeways.map(|leeway| leeway.as_secs()), [150, 150, 60]);
    let skew = |value: Value| with("ClockSkewLeeway", value).map(|(_, rules)| rules.clock_skew.as_secs());
    assert_eq!(skew(json!("10s")), Ok(10));
    assert_eq!(skew(json!(10_000_000_000_i64)), Ok(10));
    assert_eq!(skew(json!(0)), Ok(60));
    assert_eq!(skew(json!("-1ns")), Ok(0));
    assert_eq!(skew(json!("2h")).unwrap_err(), "Config ClockSkewLeeway cannot be more than 1h0m0s");
    // As in Consul, a string of digits counts nanoseconds.
    assert_eq!([skew(json!("60")), skew(json!("60000000000")), skew(json!(["10s"]))], [Ok(0), Ok(60), Ok(10)]);
    assert_eq!(with("BoundIssuer", json!(7)).unwrap().1.issuer.as_deref(), Some("7"));
    let audiences = |value: Value| with("BoundAudiences", value).map(|(_, rules)| rules.audiences.join(" "));
    assert_eq!(audiences(json!("x")).as_deref(), Ok("x"));
    assert_eq!(audiences(json!(["x", 5, true])).as_deref(), Ok("x 5 1"));
    assert_eq!(audiences(json!([])).as_deref(), Ok(""));
    assert!(audiences(json!("")).is_err() && audiences(json!([["x"]])).is_err() && audiences(json!({})).is_err());
    assert!(skew(json!("soon")).is_err() && skew(json!(1.5)).is_err());
    let algorithms = |names: Value| with("JWTSupportedAlgs", names).map(|(algorithms, _)| algorithms.len());
    assert_eq!(algorithms(json!(["RS256", "RS384", "RS512", "ES256", "ES384", "PS256"])), Ok(6));
    for refused in ["HS256", "none", "None", "rs256", "EdDSA"] {
        assert!(algorithms(json!([refused])).unwrap_err().contains("which is none of RS256, "), "{refused}");
    }
    let mapped = |map: Value| with("ClaimMappings", map).map(|(_, rules)| rules.values.len());
    assert_eq!(mapped(json!({"a": "x", "/b/c": "y_1", "http://c": "Z"})), Ok(3));
    assert_eq!(mapped(json!([{"a": "x"}, {"b": "y"}, {"a": "z"}])), Ok(2));
    assert_eq!((mapped(json!([])), mapped(json!({}))), (Ok(0), Ok(0)));
    assert!(mapped(json!("x")).is_err() && mapped(json!(["x"])).is_err());
    assert!(mapped(json!({"a": "x", "b": "x"})).unwrap_err().contains("maps two claims to \"x\""));
    for no_name in [json!(""), json!("a.b"), json!("1a"), json!("a-b"), json!(7)] {
        assert!(mapped(json!({"a": no_name})).unwrap_err().contains("maps \"a\" to an invalid name"), "{no_name}");
    }
}

#[test]
fn a_cloud_method_names_issuer_and_audience() {
    let whole = json!({"BoundIssuer": "i", "BoundAudiences": ["a"], "OIDCDiscoveryURL": "https://d"});
    let config = read(MethodType::Cloud, &whole).unwrap();
    assert_eq!(config.accepts, AcceptedIdentity::Cloud { issuer: "i".into(), audiences: vec!["a".into()] });
    assert_eq!(config.claim_names().values.len(), 8);
    let without = |name: &str| {
        let mut written = whole.clone();
        written.as_object_mut().unwrap().remove(name);
        read(MethodType::Cloud, &written).unwrap_err()
    };
    assert_eq!(without("BoundIssuer"), "Config BoundIssuer is required");
    assert_eq!(without("BoundAudiences"), "Config BoundAudiences is required");
    assert!(without("OIDCDiscoveryURL").contains("exactly one of OIDCDiscoveryURL and JWKSURL"));
    let mut written = whole.clone();
    written["ClaimMappings"] = json!({});
    assert_eq!(read(MethodType::Cloud, &written).unwrap_err(), "Config \"ClaimMappings\" is unknown for this type");
}

#[test]
fn an_oidc_method_has_a_provider_a_client_and_redirect_uris_and_no_secret() {
    let whole = json!({
        "OIDCDiscoveryURL": "https://login.example/realms/a", "OIDCClientID": "keyward",
        "AllowedRedirectURIs": ["http://localhost:8550/oidc/callback"],
    });
    let with = |name: &str, value: Value| {
        let mut written = whole.clone();
        written[name] = value;
        read(MethodType::Oidc, &written)
    };
    let config = with("OIDCClientSecret", json!("")).unwrap();
    let AcceptedIdentity::Oidc(settings) = &config.accepts else { panic!() };
    assert_eq!(
        (settings.client_id.as_str(), &settings.redirect_uris[..]),
        ("keyward", &["http://localhost:8550/oidc/callback".to_owned()][..])
    );
    assert_eq!(settings.rules.issuer.as_deref(), Some("https://login.example/realms/a"));
    assert_eq!((&settings.rules.audiences[..], settings.rules.clock_skew.as_secs()), (&["keyward".to_owned()][..], 60));
    assert_eq!(config.algorithms, [Algorithm::Rs256]);
    let KeySource::Discovery { url, issuer, .. } = &config.keys else { panic!() };
    assert_eq!(url.as_str(), "https://login.example/realms/a/.well-known/openid-configuration");
    assert_eq!(issuer, "https://login.example/realms/a");

    // As Consul's Go client writes the configuration of either type.
    let mut rendered = whole.clone();
    for (name, value) in [
        ("JWKSURL", json!("")),
        ("JWKSCACert", json!("")),
        ("JWTValidationPubKeys", Value::Null),
        ("BoundIssuer", json!("")),
        ("ExpirationLeeway", json!(0)),
        ("NotBeforeLeeway", json!(0)),
        ("ClockSkewLeeway", json!(0)),
        ("VerboseOIDCLogging", json!(false)),
        ("OIDCScopes", json!([])),
    ] {
        rendered[name] = value;
    }
    assert_eq!(read(MethodType::Oidc, &rendered).unwrap(), read(MethodType::Oidc, &whole).unwrap());
    let empty =
        json!({"JWKSURL": "https://a", "OIDCClientID": "", "AllowedRedirectURIs": [], "VerboseOIDCLogging": false});
    assert_eq!(
        read(MethodType::Jwt, &empty).unwrap(),
        read(MethodType::Jwt, &json!({"JWKSURL": "https://a"})).unwrap()
    );

    let config = with("ClaimMappings", json!({"email": "mail"})).unwrap();
    assert_eq!(config.claim_names().values.len(), 1);
    let config = with("BoundAudiences", json!(["api"])).unwrap();
    let AcceptedIdentity::Oidc(settings) = &config.accepts else { panic!() };
    assert_eq!(settings.rules.audiences, ["api"]);
    for name in ["OIDCDiscoveryURL", "OIDCClientID", "AllowedRedirectURIs"] {
        assert_eq!(with(name, Value::Null).unwrap_err(), format!("Config {name} is required"));
    }
    let refused = |name: &str, value: Value, expected: &str| {
        let error = with(name, value).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    refused("OIDCClientSecret", json!("hush"), "Register keyward at the provider as a public client with PKCE");
    assert!(!with("OIDCClientSecret", json!("hush")).unwrap_err().contains("hush"));
    for name in ["BoundIssuer", "JWKSURL", "JWTValidationPubKeys", "ExpirationLeeway", "VerboseOIDCLogging"] {
        refused(name, json!("x"), &format!("Config {name:?} is unknown for this type"));
    }
    refused("OIDCDiscoveryURL", json!("http://login.example"), "must be https, or http on loopback");
    for (uri, reason) in [
        ("/oidc/callback", "is not a URL"),
        ("http://people.example/oidc/callback", "must be https, or http on loopback"),
        ("javascript:alert(1)", "must be https, or http on loopback"),
        ("https://people.example/#a", "must not contain a user or a fragment"),
    ] {
        refused("AllowedRedirectURIs", json!([uri]), &format!("has {uri:?}, which {reason}"));
    }
    refused("AllowedRedirectURIs", json!(format!("https://a/{}", "x".repeat(512))), "has more than 512 bytes");
    refused("OIDCScopes", json!(["profile email"]), "Config OIDCScopes has \"profile email\", which is not one word");
    refused("OIDCACRValues", json!(["\u{e9}"]), "Config OIDCACRValues has ");
    refused("JWTSupportedAlgs", json!(["none"]), "which is none of RS256, ");
}
