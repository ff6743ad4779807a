//! Proxies by the environment, compared with the selections of Go's httpproxy, which `tests/clients/go-noproxy` recorded.

use keyward_http::client::EnvironmentProxies;
use serde::Deserialize;
use url::Url;

#[derive(Deserialize)]
struct Recorded {
    targets: Vec<String>,
    exclusions: Vec<Exclusion>,
    selections: Vec<Selection>,
}

#[derive(Deserialize)]
struct Exclusion {
    no_proxy: String,
    /// A digit for each target: 1 for a direct connection.
    direct: String,
}

#[derive(Deserialize)]
struct Selection {
    http_proxy: String,
    https_proxy: String,
    cgi: bool,
    url: String,
    proxy: String,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("../fixtures/no_proxy.json")).unwrap()
}

fn proxies(variables: &[(&str, &str)]) -> EnvironmentProxies {
    let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    EnvironmentProxies::from_variables(get)
}

#[test]
fn no_proxy_excludes_what_it_excludes_for_go() {
    let Recorded { targets, exclusions, .. } = recorded();
    let mut differences = Vec::new();
    // Host names are ASCII in all of keyward, so names in Unicode match nothing: they have to be written in their ASCII form.
    let (mut compared, mut known) = (0, 0);
    for Exclusion { no_proxy, direct } in exclusions {
        let proxies = proxies(&[("HTTPS_PROXY", "proxy:1"), ("http_proxy", "proxy:1"), ("NO_PROXY", &no_proxy)]);
        assert_eq!(direct.len(), targets.len());
        for (target, digit) in targets.iter().zip(direct.chars()) {
            let is_direct = proxies.proxy_for(&target.parse::<Url>().unwrap()).is_none();
            let is_known = !no_proxy.is_ascii() && target.contains("xn--") && digit == '1';
            if is_known {
                known += usize::from(!is_direct);
            } else if is_direct != (digit == '1') {
                differences.push(format!("NO_PROXY={no_proxy} for {target}: direct {is_direct}"));
            }
            compared += 1;
        }
    }
    assert!(compared > 2000, "{compared}");
    assert_eq!(known, 4, "the difference in names that are not ASCII");
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn the_proxy_of_a_url_is_that_of_go() {
    let Recorded { selections, .. } = recorded();
    assert!(selections.len() >= 400);
    for Selection { http_proxy, https_proxy, cgi, url, proxy } in selections {
        let method = if cgi { "GET" } else { "" };
        let found = proxies(&[("HTTP_PROXY", &http_proxy), ("https_proxy", &https_proxy), ("REQUEST_METHOD", method)]);
        let found = found.proxy_for(&url.parse().unwrap());
        let address = found.map(|url| {
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}{port}", url.host_str().unwrap())
        });
        // Go's error: the request fails. A direct connection is what the other clients of this machine get.
        let expected = if proxy == "refused" { String::new() } else { proxy };
        assert_eq!(address.unwrap_or_default(), expected, "{http_proxy} {https_proxy} {cgi} {url}");
    }
}

#[test]
fn all_proxy_stands_in_and_capitals_come_first() {
    let check = |variables: &[(&str, &str)], expected: Option<&str>| {
        let proxies = proxies(variables);
        let found = proxies.proxy_for(&"https://vault.example".parse().unwrap()).and_then(Url::host_str);
        assert_eq!(found, expected, "{variables:?}");
        assert!(!format!("{proxies:?}").contains("canary"));
    };
    check(&[("ALL_PROXY", "http://me:canary@all:1")], Some("all"));
    check(&[("all_proxy", "all:1"), ("HTTPS_PROXY", "one:1"), ("https_proxy", "two:1")], Some("one"));
    check(&[("HTTPS_PROXY", ""), ("https_proxy", "two:1")], Some("two"));
    check(&[("HTTP_PROXY", "one:1")], None);
    check(&[("HTTPS_PROXY", "one:1"), ("NO_PROXY", ""), ("no_proxy", "vault.example")], None);
}
