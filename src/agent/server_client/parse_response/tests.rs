use http::{HeaderMap, StatusCode};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parsed(body: &[u8]) -> Result<Value, CallError> {
    let headers = HeaderMap::new();
    let body = body.to_vec();
    parse_json(&ClientResponse { status: StatusCode::OK, headers, body }, &SecretString::from("sent"))
}

#[test]
fn a_login_response_is_accepted_only_if_every_field_is_valid() {
    let check = |auth: Value, expected: Result<(u64, bool), &str>| {
        let found = login(&mut json!({ "auth": auth }), false);
        let found = found.map(|(found, _)| (found.lease.ttl.as_secs(), found.lease.renewable));
        assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    };
    let nonsense = |what: &str| format!("invalid response from the server: {what}");
    let good = json!({ "client_token": "t", "lease_duration": 60, "renewable": true });
    let with = |key: &str, value: Value| {
        let mut auth = good.clone();
        auth[key] = value;
        auth
    };
    check(good.clone(), Ok((60, true)));
    check(with("token_type", json!("batch")), Ok((60, false)));
    check(with("renewable", Value::Null), Ok((60, false)));
    check(with("lease_duration", json!(0)), Ok((0, true)));
    check(with("lease_duration", json!(u64::MAX)), Ok((32 * 24 * 3600, true)));
    check(with("num_uses", json!(0)), Ok((60, true)));
    check(with("policies", json!([1, null, { "a": 1 }])), Ok((60, true)));
    check(with("accessor", json!({})), Ok((60, true)));
    let lease = nonsense("auth.lease_duration is not a whole number of seconds");
    for bad in [json!(-1), json!(1.5), json!("60"), json!(1e300), Value::Null, json!([60]), json!(true)] {
        check(with("lease_duration", bad), Err(&lease));
    }
    let token = nonsense("auth.client_token is not 1 to 4096 visible ASCII characters");
    for bad in ["", "a b", "a\nb", "a\r\nX-Other: b", "a\0", "é", &"a".repeat(4097)] {
        check(with("client_token", json!(bad)), Err(&token));
    }
    for bad in [Value::Null, json!(1), json!(["t"]), json!({})] {
        check(with("client_token", bad), Err(&nonsense("auth.client_token is missing")));
    }
    for bad in [json!("yes"), json!(1)] {
        check(with("renewable", bad), Err(&nonsense("auth.renewable is not a boolean")));
    }
    for bad in [json!(-1), json!("1"), json!(0.5)] {
        check(with("num_uses", bad), Err(&nonsense("auth.num_uses is not a non-negative integer")));
    }
    for bad in [Value::Null, json!([]), json!("auth"), json!(1)] {
        check(bad, Err(&nonsense("auth is missing")));
    }
    assert_eq!(login(&mut json!({ "auth": with("num_uses", json!(3)) }), false).unwrap().1, Some(3));
    let is_orphan = |auth: Value| login(&mut json!({ "auth": auth }), false).unwrap().0.is_orphan;
    assert!(is_orphan(with("orphan", json!(true))) && !is_orphan(good.clone()));
}

#[test]
fn a_wrapped_login_is_accepted_only_with_a_token_and_a_ttl() {
    let check = |mut response: Value, expected: bool| assert_eq!(login(&mut response, true).is_ok(), expected);
    check(json!({ "wrap_info": { "token": "t", "ttl": 60 } }), true);
    check(json!({ "wrap_info": { "token": "t", "ttl": 0 } }), false);
    check(json!({ "wrap_info": { "token": "t", "ttl": -1 } }), false);
    check(json!({ "wrap_info": { "ttl": 60 } }), false);
    check(json!({ "wrap_info": null, "auth": { "client_token": "t", "lease_duration": 60 } }), false);
}

#[test]
fn a_response_that_is_not_a_json_object_is_rejected() {
    let deep = "[".repeat(100_000);
    for body in ["", " ", "null", "1", "\"x\"", "[]", "{", "{\"auth\":", "<html></html>", "\u{feff}{}", &deep] {
        assert!(matches!(parsed(body.as_bytes()), Err(CallError::InvalidResponse { .. })), "{body:.20}");
    }
    assert!(parsed(&[0xff, 0xfe]).is_err());
    assert!(parsed(b"{}").is_ok());
}

#[test]
fn a_look_up_and_a_renewal_are_checked_alike() {
    assert!(lookup(&json!({ "data": { "ttl": 60, "renewable": true, "type": "service" } })).is_ok());
    assert!(lookup(&json!({ "data": { "ttl": 0, "expire_time": null } })).unwrap().lease.ttl.is_zero());
    assert!(lookup(&json!({ "data": { "ttl": -5 } })).is_err());
    assert!(lookup(&json!({ "data": null })).is_err());
    for (uses, expected) in [(json!(0), None), (json!(2), Some(2)), (json!(-1), Some(0)), (Value::Null, None)] {
        let found = lookup(&json!({ "data": { "ttl": 60, "num_uses": uses } })).unwrap();
        assert_eq!(found.uses_left, expected);
    }
    assert!(lookup(&json!({ "data": { "ttl": 60, "num_uses": "2" } })).is_err());
    assert!(renewal(&json!({ "auth": { "lease_duration": 60, "renewable": true } })).is_ok());
    assert!(renewal(&json!({ "auth": { "lease_duration": "60" } })).is_err());
    assert!(renewal(&json!({ "data": {} })).is_err());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("auth"),
        Just("data"),
        Just("wrap_info"),
        Just("client_token"),
        Just("token"),
        Just("lease_duration"),
        Just("ttl"),
        Just("renewable"),
        Just("num_uses"),
        Just("policies"),
        Just("errors"),
    ];
    leaf.prop_recursive(4, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn parsing_any_response_does_not_panic(body in prop::collection::vec(any::<u8>(), 0..256), status in 100_u16..1000) {
        let status = StatusCode::from_u16(status).unwrap();
        let response = ClientResponse { status, headers: HeaderMap::new(), body };
        let _ = parse_json(&response, &SecretString::from("sent"));
    }

    #[test]
    fn a_token_parsed_from_any_json_is_usable(mut response in any_json(), wrapped in any::<bool>()) {
        let _ = (lookup(&response), renewal(&response));
        if let Ok((found, _)) = login(&mut response, wrapped) {
            let text = found.secret.secret().expose_secret();
            prop_assert!((1..=4096).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert!(found.lease.ttl <= MAX_LEASE);
        }
    }
}
