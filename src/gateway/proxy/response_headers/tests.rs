use super::*;

fn rewritten(status: u16, given: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
    let mut headers: HeaderMap =
        given.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect();
    let platform_url = Url::parse("https://tfe.example.com/api/registry/v1/modules/a/b/c/1.0.0/download?x=1").unwrap();
    let is_platform = |url: &Url| {
        url.origin() == platform_url.origin()
            || url.origin() == Url::parse("https://internal.example.com").unwrap().origin()
    };
    let status = StatusCode::from_u16(status).unwrap();
    rewrite_headers(status, &mut headers, || platform_url.clone(), is_platform, SystemTime::now());
    let text = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), value.to_str().unwrap().to_owned());
    headers.iter().map(text).collect()
}

#[test]
fn relative_addresses_become_absolute_or_stay_on_the_gateway() {
    let check = |name: &'static str, given: &'static str, expected: &str| {
        assert_eq!(rewritten(302, &[(name, given)]), [(name.to_owned(), expected.to_owned())], "{given}");
    };
    for name in ["location", "x-terraform-get"] {
        check(name, "/v1/object/a?b", "https://tfe.example.com/v1/object/a?b");
        check(name, "https://archivist.example.com/v1/object/a%2f", "https://archivist.example.com/v1/object/a%2f");
        check(name, "//archivist.example.com/a", "https://archivist.example.com/a");
    }
    let module = "/api/registry/v1/modules/a/b/c";
    for (given, path) in [
        ("./archive.tar.gz", format!("{module}/1.0.0/archive.tar.gz")),
        ("../x", format!("{module}/x")),
        ("/api/v2/x?y=%2F#z", "/api/v2/x?y=%2F#z".to_owned()),
        ("//tfe.example.com/api/v2/x", "/api/v2/x".to_owned()),
        ("https://tfe.example.com:443/api/registry/v1/x?y=1", "/api/registry/v1/x?y=1".to_owned()),
        ("https://internal.example.com/api/v2/x", "/api/v2/x".to_owned()),
    ] {
        check("location", given, &path);
    }
    for elsewhere in
        ["https://tfe.example.com/app/x", "https://tfe.example.com:8443/api/v2/x", "https://other.example.com/api/v2/x"]
    {
        check("location", elsewhere, elsewhere);
    }
    check("x-terraform-get", "https://tfe.example.com/api/v2/x", "https://tfe.example.com/api/v2/x");
    check("location", "?page=2", &format!("{module}/1.0.0/download?page=2"));
    check("location", "/api/v2/..%2f..%2fadmin", "https://tfe.example.com/api/v2/..%2f..%2fadmin");
    check("location", "/api/v2/../../admin", "https://tfe.example.com/admin");
    check("x-terraform-get", "../x", &format!("https://tfe.example.com{module}/x"));
    check("x-terraform-get", "/api/v2/x", "https://tfe.example.com/api/v2/x");
    check("x-terraform-get", "git::https://example.com/a.git", "git::https://example.com/a.git");
    check("x-terraform-get", "github.com/a/b", "github.com/a/b");
}

#[test]
fn responses_429_get_retry_after() {
    let retry = |status, given: &[_]| {
        rewritten(status, given).into_iter().find(|(name, _)| name == "retry-after").map(|(_, value)| value)
    };
    let check = |reset: &'static str, expected: Option<&str>| {
        assert_eq!(retry(429, &[("x-ratelimit-reset", reset)]).as_deref(), expected, "{reset}");
    };
    check("0.25", Some("1"));
    check("2", Some("2"));
    check("2.001", Some("3"));
    check("0", Some("1"));
    check("-3", Some("1"));
    check("1e7", Some("900"));
    check("1e300", Some("900"));
    check("1500000000", Some("1"));
    check("NaN", None);
    check("soon", None);
    assert_eq!(retry(429, &[("x-ratelimit-reset", "5"), ("retry-after", "7")]).as_deref(), Some("7"));
    assert_eq!(retry(200, &[("x-ratelimit-reset", "5")]), None);
}

#[test]
fn headers_for_direct_clients_are_removed() {
    let given = [("set-cookie", "a=b"), ("strict-transport-security", "max-age=1"), ("alt-svc", "h3"), ("etag", "1")];
    assert_eq!(rewritten(200, &given), [("etag".to_owned(), "1".to_owned())]);
}
