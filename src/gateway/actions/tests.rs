use std::collections::BTreeMap;

use http::HeaderMap;
use percent_encoding::percent_decode_str;
use proptest::prelude::*;

use super::*;
use crate::api_changelog::{Changelog, GatewayAction};

mod bodies;

fn actions(options: ActionOptions) -> CallAssessor {
    CallAssessor::new(options)
}

fn assess_call(method: &str, target: &str, server: &ServerInfo) -> CallFindings {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    actions(ActionOptions::default()).assess_call(ApiCall { method: &method.parse().unwrap(), path, query }, server)
}

/// Returns the replacement of a call: the row and `METHOD PATH`, with `-` appended if the body is dropped.
fn replaced(method: &str, path: &str) -> Option<(&'static str, String)> {
    let deprecated = assess_call(method, path, &ServerInfo::default()).deprecated?;
    let text = deprecated.replacement(None).map_or_else(String::new, |new| {
        format!("{} {}{}", new.method, new.path, if new.drops_body { " -" } else { "" })
    });
    Some((deprecated.change.id.as_str(), text))
}

fn server(headers: &[(&'static str, &str)]) -> ServerInfo {
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    ServerInfo::default().updated_by(&headers).unwrap_or_default()
}

fn hosted() -> ServerInfo {
    server(&[("tfp-appname", "HCP Terraform")])
}

fn released(release: &str) -> ServerInfo {
    server(&[("x-tfe-version", release)])
}

#[test]
fn every_replaced_call_is_detected_and_keeps_its_raw_segments() {
    let check = |method: &str, old: &str, row: &str, new: &str| {
        assert_eq!(replaced(method, &format!("/api/v2{old}")), Some((row, new.to_owned())), "{method} {old}");
    };
    let modules = "/api/v2/organizations/o%2F1/registry-modules/private/o%2F1";
    let delete = "/registry-modules/actions/delete/o%2F1";
    check("POST", &format!("{delete}/n/p%20/1.0"), "2021-06-08/d1", &format!("DELETE {modules}/n/p%20/1.0 -"));
    check("POST", &format!("{delete}/n/p"), "2021-06-08/d2", &format!("DELETE {modules}/n/p -"));
    check("POST", &format!("{delete}/n"), "2021-06-08/d3", &format!("DELETE {modules}/n -"));
    check("POST", "/registry-modules", "2021-06-08/d4", "");
    check("POST", "/registry-modules/o%2F1/n/p/versions", "2021-06-08/d5", &format!("POST {modules}/n/p/versions"));
    check("GET", "/registry-modules/show/o%2F1/n/p", "2021-06-08/d6", &format!("GET {modules}/n/p"));
    // Literals come before parameters.
    let named_versions = "DELETE /api/v2/organizations/o/registry-modules/private/o/versions -";
    check("POST", "/registry-modules/actions/delete/o/versions", "2021-06-08/d3", named_versions);
    let actions = "POST /api/v2/organizations/actions/registry-modules/private/actions/n/p/versions";
    check("POST", "/registry-modules/actions/n/p/versions", "2021-06-08/d5", actions);
}

#[test]
fn similar_paths_are_not_replaced() {
    for (method, target) in [
        ("GET", "/api/v2/registry-modules/mod-1"),
        ("GET", "/api/v2/registry-modules/mod-1/tag-bindings"),
        ("GET", "/api/v2/registry-modules/o/n/p/commits"),
        ("POST", "/api/v2/registry-modules/o/n/p/resync"),
        ("GET", "/api/v2/registry-modules"),
        ("DELETE", "/api/v2/registry-modules/actions/delete/o/n"),
        ("POST", "/api/v2/registry-modules/"),
        ("POST", "/api/v2/registry-modules/actions/delete/o"),
        ("POST", "/api/v2/registry-modules/actions/delete/o/n/p/v/w"),
        ("POST", "/api/v2/registry-modules/actions/delete/o//n"),
        ("POST", "/api/v2//registry-modules/actions/delete/o/n"),
        ("POST", "/api/v2/registry-modules/actions/delete/o/n/"),
        ("POST", "/api/v2/registry-modules/actions/delete/../n"),
        ("POST", "/api/v2/registry-modules/actions/delete/%2e%2E/n"),
        ("POST", "/api/v2/registry%2Dmodules/actions/delete/o/n"),
        ("GET", "/api/v2/organizations/o/registry-modules/private/o/n/p"),
        ("GET", "/api/registry/v1/modules/o/n/p/versions"),
        ("POST", "/registry-modules"),
        ("POST", "/api/v22/registry-modules"),
    ] {
        assert_eq!(replaced(method, target), None, "{method} {target}");
    }
}

proptest! {
    #[test]
    fn a_replacement_has_the_same_segments(segments in prop::collection::vec("[^\u{0}-\u{1f}\u{7f}]{1,12}", 4), raw in any::<bool>()) {
        // An ambiguous name becomes no segment.
        let usable = |name: &String| Segment::encode(name).is_some() && (!raw || !name.contains(['/', '?', '#', '%']));
        prop_assume!(segments.iter().all(usable));
        prop_assume!(!(segments[0] == "actions" && segments[1] == "delete"));
        let written = segments.iter().map(|segment| match Segment::encode(segment) {
            Some(encoded) if !raw => encoded.as_str().to_owned(),
            _ => segment.clone(),
        });
        let [o, n, p, v] = &written.collect::<Vec<_>>()[..] else { unreachable!() };
        let old = [
            ("POST", format!("actions/delete/{o}/{n}/{p}/{v}"), 4),
            ("POST", format!("actions/delete/{o}/{n}/{p}"), 3),
            ("POST", format!("actions/delete/{o}/{n}"), 2),
            ("POST", format!("{o}/{n}/{p}/versions"), 3),
            ("GET", format!("show/{o}/{n}/{p}"), 3),
        ];
        for (method, path, count) in old {
            let known = assess_call(method, &format!("/api/v2/registry-modules/{path}"), &ServerInfo::default());
            let new = known.deprecated.unwrap().replacement(None).unwrap();
            let decode = |segment: &str| percent_decode_str(segment).decode_utf8().unwrap().into_owned();
            let mut decoded = new.path.split('/').map(decode);
            let head: Vec<String> = decoded.by_ref().take(7).collect();
            prop_assert_eq!(&head[..], ["", "api", "v2", "organizations", &segments[0], "registry-modules", "private"]);
            let rest: Vec<String> = decoded.take(count).collect();
            prop_assert_eq!(&rest[..], &segments[..count]);
        }
    }

    #[test]
    fn no_path_causes_a_panic(method in "GET|POST|DELETE|PATCH", path in "(/api/v2)?(/[a-z:%.-]{0,12}){0,9}", query in ".{0,20}") {
        let known = assess_call(&method, &format!("{path}?{query}"), &hosted());
        if let Some(new) = known.deprecated.and_then(|deprecated| deprecated.replacement(Some("o"))) {
            prop_assert!(new.path.starts_with("/api/v2/organizations/"));
        }
    }
}

#[test]
fn constants_of_the_replacement_can_be_configured() {
    let options =
        ActionOptions { registry_name: "own/one".into(), namespace: Some("n s".into()), ..ActionOptions::default() };
    let call = ApiCall { method: &Method::GET, path: "/api/v2/registry-modules/show/o/n/p", query: "a=b" };
    let known = actions(options).assess_call(call, &ServerInfo::default());
    let new = known.deprecated.unwrap().replacement(None).unwrap();
    assert_eq!(new.path, "/api/v2/organizations/o/registry-modules/own%2Fone/n%20s/n/p");
}

#[test]
fn a_call_without_organization_is_replaced_once_it_is_known() {
    let known = assess_call("POST", "/api/v2/registry-modules", &ServerInfo::default()).deprecated.unwrap();
    assert!(known.needs_organization() && known.replacement(None).is_none() && known.replacement(Some("..")).is_none());
    let new = known.replacement(Some("my org")).unwrap();
    let path = "/api/v2/organizations/my%20org/registry-modules/vcs".to_owned();
    assert_eq!(new, Replacement { method: Method::POST, path, drops_body: false });
    assert_eq!(known.headers(None).len(), 1);
    for clue in [organization::OrganizationHint::Missing, organization::OrganizationHint::InvalidName] {
        assert_eq!(said(&[known.unresolved_warning(&clue)]), "2021-06-08/d4");
    }
    assert_eq!(known.headers(Some("my org")).len(), 2);
}

#[test]
fn deprecated_calls_get_deprecation_and_link_headers() {
    let check = |method: &str, path: &str, expected: &[&str]| {
        let known = assess_call(method, path, &ServerInfo::default()).deprecated.unwrap();
        let found: Vec<String> =
            known.headers(None).iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        assert_eq!(found, expected, "{method} {path}");
    };
    let link = "link: </api/v2/organizations/o/registry-modules/private/o/n/%3Ep>; rel=\"successor-version\"";
    check("GET", "/api/v2/registry-modules/show/o/n/>p", &["deprecation: @1623110400", link]);
    for (method, path) in
        [("GET", "/runs/r/policy-checks"), ("GET", "/policy-checks/1"), ("POST", "/policy-checks/1/actions/override")]
    {
        check(method, &format!("/api/v2{path}"), &["deprecation: @1725235200"]);
    }
    let link = "link: </api/v2/admin/organizations/o/relationships/module-consumers>; rel=\"successor-version\"";
    check("PATCH", "/api/v2/admin/organizations/o/module-consumers", &["deprecation: @1616457600", link]);
    assert!(assess_call("GET", "/api/v2/admin/organizations/o/module-consumers", &hosted()).deprecated.is_none());
    // Of Terraform Enterprise only: HCP Terraform lacks the successor.
    let hosted_call = assess_call("PATCH", "/api/v2/admin/organizations/o/module-consumers", &hosted());
    assert!(hosted_call.deprecated.is_none());
}

#[test]
fn the_mode_decides_about_deprecated_calls() {
    let call = ApiCall { method: &Method::GET, path: "/api/v2/registry-modules/show/o/n/p", query: "" };
    for (mode, known, again) in [
        (DeprecatedCallMode::Off, false, false),
        (DeprecatedCallMode::Warn, true, false),
        (DeprecatedCallMode::Fallback, true, true),
        (DeprecatedCallMode::Always, true, false),
    ] {
        let actions = actions(ActionOptions { deprecated: mode, ..ActionOptions::default() });
        assert_eq!(actions.assess_call(call, &ServerInfo::default()).deprecated.is_some(), known, "{mode:?}");
        for (status, gone) in [(404, true), (405, true), (410, true), (200, false), (401, false), (500, false)] {
            assert_eq!(
                actions.is_fallback_status(StatusCode::from_u16(status).unwrap()),
                again && gone,
                "{mode:?} {status}"
            );
        }
    }
}

/// Ids of the findings' changes; those that strict mode refuses have `!` appended.
fn said(findings: &[Finding]) -> String {
    let name = |finding: &Finding| format!("{}{}", finding.change.id, if finding.blocking { "!" } else { "" });
    findings.iter().map(name).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_rule_about_calls_has_a_match_and_a_mismatch() {
    let pair = |server: &ServerInfo, expected: &str, acts: &str, does_not: &str| {
        for (call, expected) in [(acts, expected), (does_not, "")] {
            let (method, target) = call.split_once(' ').unwrap();
            let findings = assess_call(method, &format!("/api/v2{target}"), server).findings;
            assert_eq!(said(&findings), expected, "{call}");
            assert!(
                findings.iter().all(|finding| finding.to_header().to_str().unwrap().starts_with(&finding.change.id)),
                "{call}"
            );
        }
    };
    let unknown = ServerInfo::default();
    let old = released("v202012-1");
    let early = released("v202103-1");
    let new = released("1.0.3");
    let runs = "GET /organizations/o/runs";
    pair(&unknown, "2024-10-11/1", runs, &format!("{runs}?filter%5Btimeframe%5D=2024"));
    pair(&unknown, "2024-10-11/1", runs, "GET /workspaces/w/runs");
    let delete = "/workspaces/w/actions/safe-delete";
    pair(&unknown, "2022-12-22/1", &format!("DELETE {delete}"), &format!("POST {delete}"));
    let named = "/organizations/o/workspaces/w/actions/safe-delete";
    pair(&unknown, "2022-12-22/1", &format!("DELETE {named}"), "DELETE /organizations/o/workspaces/w");
    for (method, target) in [
        ("GET", "/admin/organizations/o/relationships/module-consumers"),
        ("PATCH", "/admin/organizations/o/relationships/module-consumers"),
    ] {
        let acts = format!("{method} {target}");
        pair(&hosted(), "2021-03-23/3!", &acts, &format!("DELETE {target}"));
        pair(&old, "2021-03-23/3!", &acts, "GET /admin/organizations");
        pair(&early, "", &acts, &acts);
    }
    let producers = "GET /organizations/o/relationships/module-producers";
    pair(&old, "2021-03-23/4!", producers, "GET /organizations/o");
    pair(&new, "", producers, producers);
    let providers = "/organizations/o/registry-providers";
    pair(&early, "2021-11-18/1!", &format!("POST {providers}"), &format!("DELETE {providers}"));
    pair(&hosted(), "", &format!("GET {providers}"), &format!("POST {providers}"));
    let module = "/organizations/o/registry-modules";
    let public = format!("GET {module}/public/n/m/p");
    pair(&early, "2021-06-08/4!", &public, &format!("GET {module}/private/n/m/p"));
    pair(&early, "2021-06-08/4!", &format!("DELETE {module}/public/n/m"), &format!("DELETE {module}/private/n/m"));
    pair(&early, "2021-05-27/1", "DELETE /agents/a", "GET /agents/a");
    let readme = "GET /workspaces/w?include=project,readme";
    pair(&old, "2021-03-18/2!", readme, "GET /workspaces/w?include=project");
    // HCP Terraform has them, and a Terraform Enterprise that is not older than their rows may have them.
    for server in [&hosted(), &new, &released("v202106-1"), &unknown] {
        for call in [public.as_str(), readme, "DELETE /agents/a"] {
            pair(server, "", call, call);
        }
    }
}

#[test]
fn a_row_later_than_the_release_is_no_reason_to_replace_warn_or_refuse_a_call() {
    let check = |release: &str, method: &str, target: &str, deprecated: &str, findings: &str| {
        let assessed = assess_call(method, &format!("/api/v2{target}"), &released(release));
        let found = assessed.deprecated.map_or("", |call| call.change.id.as_str());
        assert_eq!((found, said(&assessed.findings).as_str()), (deprecated, findings), "{release} {method} {target}");
    };
    for (release, deprecated) in
        [("v202012-1", ""), ("v202105-1", ""), ("v202106-1", "2021-06-08/d6"), ("1.0.3", "2021-06-08/d6")]
    {
        check(release, "GET", "/registry-modules/show/o/n/p", deprecated, "");
    }
    check("v202408-1", "GET", "/runs/r/policy-checks", "", "");
    check("v202409-1", "GET", "/runs/r/policy-checks", "2024-09-02/1", "");
    check("v202409-1", "GET", "/organizations/o/runs", "", "");
    check("v202410-1", "GET", "/organizations/o/runs", "", "2024-10-11/1");
    check("v202211-1", "DELETE", "/workspaces/w/actions/safe-delete", "", "");
    check("v202212-1", "DELETE", "/workspaces/w/actions/safe-delete", "", "2022-12-22/1");
    // A call that needs a later row is warned of, and never refused.
    check("v202312-1", "POST", "/oauth-clients/oc/relationships/projects", "", "2024-03-12/2");
    check("v202403-1", "POST", "/oauth-clients/oc/relationships/projects", "", "");
    check("v202204-1", "GET", "/organizations/o/agent-pools?q=x", "", "2022-06-09/1");
    check("v202204-1", "GET", "/organizations/o/agent-pools?page%5Bsize%5D=9", "", "");
    check("v202206-1", "GET", "/organizations/o/agent-pools?q=x", "", "");
    check("v202012-1", "GET", "/workspaces/w?include=locked_by", "", "2021-07-09/2");
    let late = assess_call("POST", "/api/v2/oauth-clients/oc/relationships/projects", &released("v202312-1"));
    assert_eq!(
        late.findings[0].text,
        "attach to project, detach from project (oauth-clients) is in the API since 2024-03-12; this server is v202312-1"
    );
    assert_eq!(
        late.findings[0].change.advice().unwrap(),
        "use it with HCP Terraform, or with a Terraform Enterprise of 2024-03 or later"
    );
}

#[test]
fn every_rule_is_covered_by_the_tables_above() {
    let mut acting: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for change in Changelog::get().changes() {
        let name = match change.gateway.action {
            GatewayAction::Warn => "warn",
            GatewayAction::Validate => "validate",
            GatewayAction::Rewrite if change.changelog.replacement.is_some() => "rewrite",
            _ => continue,
        };
        acting.entry(name).or_default().push(&change.id);
    }
    let tests = [include_str!("tests.rs"), include_str!("tests/bodies.rs")].concat();
    assert_eq!(acting.values().map(Vec::len).collect::<Vec<_>>(), [6, 2, 8]);
    // Two are covered by the tests of response headers above, by date.
    let named = |id: &&str| tests.contains(&format!("\"{id}")) || ["2024-09-02/1", "2021-03-23/5"].contains(id);
    assert!(acting.values().flatten().all(named), "{acting:?}");
}

#[test]
fn every_feature_check_can_match() {
    for change in Changelog::get().changes().filter(|change| change.gateway.action == GatewayAction::FeatureCheck) {
        let names: serde_json::Map<String, serde_json::Value> =
            change.spellings().map(|name| (name, "x".into())).collect();
        let parameters = change.spellings().map(|name| format!("{name}=x")).collect::<Vec<_>>().join("&");
        let included = "include=readme,locked_by,current_configuration_version&token=audit-trails";
        let query = format!("{included}&{parameters}");
        let body = serde_json::json!({"data": {"attributes": names}}).to_string();
        let acts = change.endpoints().filter_map(|endpoint| endpoint.route()).any(|route| {
            let path = format!("/api/v2{}", route.path.fill(|_| Some("x")).unwrap());
            let method = route.method().unwrap_or(&Method::GET);
            [hosted(), released("v202012-1")].iter().any(|server| {
                let call = ApiCall { method, path: &path, query: &query };
                let mut findings = actions(ActionOptions::default()).assess_call(call, server).findings;
                findings.extend(actions(ActionOptions::default()).assess_body(call, body.as_bytes(), server));
                findings.iter().any(|finding| finding.change.id == change.id)
            })
        });
        assert!(acts, "{}", change.id);
    }
}
