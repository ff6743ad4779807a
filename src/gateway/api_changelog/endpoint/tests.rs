use super::*;

#[test]
fn endpoints_match_their_calls_only() {
    let check = |endpoint: &str, method: Method, path: &str, query: &str, expected: bool| {
        let read = Endpoint::try_from(endpoint.to_owned()).unwrap();
        assert_eq!(
            read.route().unwrap().matches(&method, path, query),
            expected,
            "{endpoint} for {method} {path}?{query}"
        );
    };
    check("GET/POST /a/:b", Method::GET, "/a/x%2Fy", "", true);
    check("GET/POST /a/:b", Method::POST, "/a/b", "c=d", true);
    check("GET/POST /a/:b", Method::DELETE, "/a/b", "", false);
    check("/a/:b", Method::DELETE, "/a/b", "", true);
    for path in ["/a", "/a/", "/a//", "/a/b/", "/a/b/c", "//a/b", "a/b", "/A/b", "/a/.", "/a/..", "/a/%2e%2E", "/%61/b"]
    {
        check("/a/:b", Method::GET, path, "", false);
    }
    check("GET /a?include=x,y", Method::GET, "/a", "include=z,y", true);
    check("GET /a?include=x,y", Method::GET, "/a", "include=z", false);
    check("GET /a?filter[name]", Method::GET, "/a", "filter%5Bname%5D=", true);
    check("GET /a?filter[name]", Method::GET, "/a", "", false);
}

#[test]
fn urls_outside_the_platform_have_no_route() {
    let read = |text: &str| Endpoint::try_from(text.to_owned());
    assert_eq!(read("POST :url").unwrap().route(), None);
    assert!(read("GET a/b").is_err() && read("G(T /a").is_err() && read("").is_err());
}

#[test]
fn paths_are_split_and_filled_without_decoding() {
    let template: PathTemplate = "/a/:b/c/:d".parse().unwrap();
    let names = template.names("/a/1%2f/c/%20").unwrap();
    assert_eq!(names, [("b", "1%2f"), ("d", "%20")]);
    let filled = template.fill(|name| names.iter().find(|(given, _)| *given == name).map(|(_, segment)| *segment));
    assert_eq!(filled.as_deref(), Some("/a/1%2f/c/%20"));
    assert_eq!(template.fill(|_| None), None);
}
