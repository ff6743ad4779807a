use std::time::UNIX_EPOCH;

use serde_json::json;

use super::*;

/// 2026-01-01T00:00:00Z
const NOW: u64 = 1_767_225_600;
const SIGNATURE: &str = "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b";

fn trust() -> AwsTrust {
    AwsTrust { server_id: "acl.example.com".to_owned(), regions: vec!["eu-west-1".to_owned(), "cn-north-1".to_owned()] }
}

fn headers() -> Value {
    json!({
        "Authorization": [format!(
            "AWS4-HMAC-SHA256 Credential=ASIA1/20260101/us-east-1/sts/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-vault-aws-iam-server-id, Signature={SIGNATURE}"
        )],
        "Content-Type": ["application/x-www-form-urlencoded; charset=utf-8"],
        "X-Amz-Date": ["20260101T000000Z"],
        "X-Amz-Security-Token": ["session"],
        "X-Vault-AWS-IAM-Server-ID": ["acl.example.com"],
    })
}

fn parse_at(url: &str, body: &str, headers: &Value, seconds: u64) -> Result<CallerRequest, AwsError> {
    let encode = |text: &str| STANDARD.encode(text);
    let unverified = UnverifiedCallerRequest {
        method: Some("POST".to_owned()),
        url: Some(encode(url)),
        body: Some(encode(body)),
        headers: Some(encode(&headers.to_string()).into()),
    };
    trust().parse(&unverified, Timestamp::from_system_time(UNIX_EPOCH + Duration::from_secs(seconds)))
}

fn parse(url: &str, body: &str, headers: &Value) -> Result<CallerRequest, AwsError> {
    parse_at(url, body, headers, NOW)
}

#[test]
fn only_allowed_endpoints_are_called() {
    let scoped = |region: &str| {
        let mut headers = headers();
        let text = headers["Authorization"][0].as_str().unwrap().replace("us-east-1", region);
        headers["Authorization"] = json!([text]);
        headers
    };
    let host = |url: &str, region: &str| parse(url, BODY, &scoped(region)).map(|request| request.endpoint.host);
    assert_eq!(host("https://sts.amazonaws.com/", "us-east-1").as_deref(), Ok("sts.amazonaws.com"));
    assert_eq!(host("https://sts.amazonaws.com", "us-east-1").as_deref(), Ok("sts.amazonaws.com"));
    assert_eq!(host("https://sts.eu-west-1.amazonaws.com/", "eu-west-1").as_deref(), Ok("sts.eu-west-1.amazonaws.com"));
    let china = host("https://sts.cn-north-1.amazonaws.com.cn/", "cn-north-1");
    assert_eq!(china.as_deref(), Ok("sts.cn-north-1.amazonaws.com.cn"));
    assert_eq!(host("https://sts.eu-west-1.amazonaws.com/", "us-east-1"), Err(AwsError::Scope));
    for url in [
        "https://sts.us-west-2.amazonaws.com/",
        "http://sts.amazonaws.com/",
        "https://sts.amazonaws.com/?Action=AssumeRole",
        "https://sts.amazonaws.com//",
        "https://sts.amazonaws.com/x",
        "https://sts.amazonaws.com:444/",
        "https://sts.amazonaws.com.evil.example/",
        "https://sts.amazonaws.com@evil.example/",
        "https://evil.example/#https://sts.amazonaws.com/",
        "HTTPS://sts.amazonaws.com/",
        "https://STS.amazonaws.com/",
        "",
    ] {
        let error = host(url, "us-east-1").unwrap_err();
        assert!(matches!(error, AwsError::Endpoint | AwsError::Missing(_)), "{url}: {error}");
    }
}

#[test]
fn only_known_parts_of_a_request_pass() {
    let url = "https://sts.amazonaws.com/";
    let request = parse(url, BODY, &headers()).unwrap();
    assert_eq!(request.headers.len(), 5);
    for body in
        ["Action=AssumeRole&Version=2011-06-15", "Action=GetCallerIdentity", &format!("{BODY}&Action=AssumeRole"), " "]
    {
        assert!(matches!(parse(url, body, &headers()), Err(AwsError::Malformed(_))), "{body}");
    }
    let check = |name: &str, value: Value, expected: &str| {
        let mut changed = headers();
        changed[name] = value;
        let error = parse(url, BODY, &changed).map(|_| ()).map_err(|error| error.to_string()).err().unwrap_or_default();
        assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{name}: {error}");
    };
    check("User-Agent", json!("an SDK"), "");
    check("X-Vault-AWS-IAM-Server-ID", json!("acl.example.com"), "");
    check("X-Vault-AWS-IAM-Server-ID", json!(["other"]), "error validating X-Vault-AWS-IAM-Server-ID");
    check("X-Vault-AWS-IAM-Server-ID", json!(["acl.example.com", "other"]), "iam_request_headers");
    check("x-vault-aws-iam-server-id", json!(["acl.example.com"]), "iam_request_headers");
    check("X-Amz-Target", json!(["x"]), "invalid request header: X-Amz-Target");
    check("Transfer-Encoding", json!(["chunked"]), "invalid request header");
    check("Content-Type", json!(["a\r\nb"]), "iam_request_headers");
    check("Content-Type", json!(7), "iam_request_headers");
    check("X-Amz-Date", json!(["today"]), "X-Amz-Date is not a time");
    let mut without = headers();
    without.as_object_mut().unwrap().remove("X-Vault-AWS-IAM-Server-ID");
    assert_eq!(parse(url, BODY, &without).unwrap_err(), AwsError::NoServerId);
    for bad in ["", "x", "[]", "{"] {
        let unverified = UnverifiedCallerRequest { headers: Some(bad.into()), ..UnverifiedCallerRequest::default() };
        assert!(trust().parse(&unverified, Timestamp::from_system_time(UNIX_EPOCH)).is_err());
    }
}

#[test]
fn the_signature_has_one_reading_and_covers_what_decides() {
    let check = |change: fn(&str) -> String, expected: &str| {
        let mut changed = headers();
        let text = change(changed["Authorization"][0].as_str().unwrap());
        changed["Authorization"] = json!([text]);
        let error = parse("https://sts.amazonaws.com/", BODY, &changed).map_err(|error| error.to_string()).err();
        let error = error.unwrap_or_default();
        assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{text}: {error}");
    };
    check(str::to_owned, "");
    check(|text| text.replace(", ", ","), "");
    check(|text| text.replace(";x-vault-aws-iam-server-id", ""), "\"x-vault-aws-iam-server-id\" is not signed");
    check(|text| text.replace(";x-amz-security-token", ""), "\"x-amz-security-token\" is not signed");
    check(|text| text.replace("host;", ""), "\"host\" is not signed");
    check(|text| text.replace("20260101", "20260102"), "scoped to a valid region, and to the day");
    check(|text| text.replace("/sts/", "/iam/"), "not a signature of version 4");
    check(|text| text.replace("HMAC-SHA256", "ECDSA-P256-SHA256"), "not a signature of version 4");
    check(|text| format!("{text}, SignedHeaders=host"), "not a signature of version 4");
    check(|text| format!("{text},x"), "not a signature of version 4");
    check(|text| text.replace("Signature=5", "Signature=Z"), "not a signature of version 4");
    check(|_| "Bearer x".to_owned(), "not a signature of version 4");
}

#[test]
fn a_signature_counts_for_five_minutes() {
    let at = |seconds: u64| parse_at("https://sts.amazonaws.com/", BODY, &headers(), seconds).map(|_| ());
    assert_eq!((at(NOW), at(NOW + 300), at(NOW - 300)), (Ok(()), Ok(()), Ok(())));
    assert!(matches!(at(NOW + 301), Err(AwsError::Expired { .. })));
    assert!(matches!(at(NOW - 301), Err(AwsError::NotYet { .. })));
}

fn answer(account: &str, arn: &str) -> Vec<u8> {
    let caller = json!({ "Account": account, "Arn": arn, "UserId": "AROA1:i-1" });
    json!({ "GetCallerIdentityResponse": { "GetCallerIdentityResult": caller } }).to_string().into_bytes()
}

fn bounds(roles: &[&str], users: &[&str]) -> AwsBounds {
    let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect();
    AwsBounds { accounts: vec!["111122223333".to_owned()], roles: list(roles), users: list(users) }
}

#[test]
fn a_caller_is_admitted_by_its_account_and_exact_name() {
    let check = |arn: &str, bounds: AwsBounds, expected: Result<&str, AwsError>| {
        let account = arn.split(':').nth(4).unwrap_or_default();
        let facts = verify_login(&answer(account, arn), &StsEndpoint::of(None), &bounds);
        assert_eq!(facts.map(|facts| facts["principal_name"].clone()), expected.map(str::to_owned), "{arn}");
    };
    let role = "arn:aws:sts::111122223333:assumed-role/web/i-1";
    check(role, bounds(&["web"], &[]), Ok("web"));
    check(role, bounds(&[], &[]), Ok("web"));
    check(role, bounds(&["we", "web2", "WEB"], &["web"]), Err(AwsError::Principal));
    check("arn:aws:iam::111122223333:user/path/ann", bounds(&[], &["ann"]), Ok("ann"));
    check("arn:aws:iam::111122223333:user/ann", bounds(&["ann"], &[]), Err(AwsError::Principal));
    check("arn:aws:sts::999922223333:assumed-role/web/i-1", bounds(&["web"], &[]), Err(AwsError::Account));
    check("arn:aws-cn:sts::111122223333:assumed-role/web/i-1", bounds(&["web"], &[]), Err(AwsError::Answer));
    check("arn:aws:iam::111122223333:root", bounds(&[], &[]), Err(AwsError::Principal));
    check("arn:aws:sts::111122223333:federated-user/web", bounds(&[], &[]), Err(AwsError::Principal));
    check("arn:aws:sts::111122223333:assumed-role/web/a/b", bounds(&["web"], &[]), Err(AwsError::Principal));
    check(role, AwsBounds { accounts: Vec::new(), ..bounds(&["web"], &[]) }, Err(AwsError::Account));
    let of_another = verify_login(&answer("999922223333", role), &StsEndpoint::of(None), &bounds(&["web"], &[]));
    assert_eq!(of_another.unwrap_err(), AwsError::Answer);
    for bad in ["", "<GetCallerIdentityResponse/>", "{}", "[]"] {
        assert_eq!(
            verify_login(bad.as_bytes(), &StsEndpoint::of(None), &bounds(&[], &[])).unwrap_err(),
            AwsError::Answer
        );
    }
}

#[test]
fn bounds_that_would_admit_every_customer_are_invalid() {
    let check = |bounds: AwsBounds, expected: &str| {
        let error = bounds.validation_error().unwrap_or_default();
        assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{bounds:?}: {error}");
    };
    check(bounds(&["web"], &["ann"]), "");
    check(AwsBounds::default(), "no accounts");
    check(AwsBounds { accounts: vec!["*".to_owned()], ..AwsBounds::default() }, "twelve digits");
    for name in ["*", "", "path/web", "arn:aws:iam::1:role/web"] {
        check(bounds(&[name], &[]), "without path, ARN");
    }
}
