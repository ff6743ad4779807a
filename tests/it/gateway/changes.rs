//! `keyward changes` as people run it: every row of the changelog word for word, each filter, the days.

use std::path::Path;

use serde_json::Value;

use crate::harness::binary::run;

/// Runs `keyward changes ARGS --format json`.
fn rows(args: &[&str]) -> Vec<Value> {
    let (code, out, error) = run(&[&["changes"], args, &["--format", "json"]].concat(), &[]);
    assert_eq!((code, error.as_str()), (0, ""), "{args:?}");
    let Value::Array(rows) = serde_json::from_str(&out).unwrap() else { panic!("no array: {out}") };
    rows
}

/// The cells of the table of the changelog whose head begins so.
fn table(head: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/provisioning-changelog.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with(&format!("| {head} |"))).skip(2);
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    lines.take_while(|line| line.starts_with('|')).map(cells).collect()
}

#[test]
fn the_changelog_has_exactly_the_documented_rows() {
    let all = rows(&[]);
    let of = |name: &str| all.iter().filter(|row| row["table"] == name).collect::<Vec<_>>();
    let text = |row: &Value, key: &str| row["changelog"][key].as_str().unwrap().to_owned();
    let entries: Vec<_> = of("entries").into_iter().map(|row| vec![text(row, "date"), text(row, "text")]).collect();
    assert_eq!(entries, table("Date"));
    let pages: Vec<_> = of("pages").into_iter().map(|row| vec![text(row, "text")]).collect();
    assert_eq!(pages, table("Path"));
    let split = |row: &Value| text(row, "text").split(" | ").map(str::to_owned).collect::<Vec<_>>();
    let replacements: Vec<_> = of("replacements").into_iter().map(split).collect();
    assert_eq!(replacements, table("Old"));
    assert_eq!([entries.len(), pages.len(), replacements.len(), all.len()], [97, 10, 6, 113]);
}

#[test]
fn endpoints_and_releases_that_are_called_the_changelogs_stand_in_its_text() {
    for row in rows(&[]) {
        let text = row["changelog"]["text"].as_str().unwrap().to_owned();
        for change in row["changes"].as_array().unwrap() {
            let marks = &change["changelog"];
            let endpoints = marks["endpoints"].as_array().into_iter().flatten().chain(marks.get("replacement"));
            for path in endpoints.map(|endpoint| endpoint.as_str().unwrap().split_once(' ').unwrap().1) {
                assert!(text.contains(path), "{}: {path}", row["id"]);
            }
            if let Some(release) = marks["release"].as_str() {
                assert!(text.contains(release), "{}: {release}", row["id"]);
            }
            let plain = text.to_lowercase();
            match marks["edition"].as_str().unwrap() {
                "hosted" => assert!(plain.contains("hosted"), "{}", row["id"]),
                "enterprise" => {
                    assert!(plain.contains("enterprise") || plain.contains("self-managed"), "{}", row["id"]);
                }
                other => assert_eq!(other, "all"),
            }
        }
    }
}

#[test]
fn each_filter_matches_its_rows() {
    let check = |args: &[&str], expected: usize| assert_eq!(rows(args).len(), expected, "{args:?}");
    for (year, expected) in [("2021", 36), ("2022", 21), ("2023", 29), ("2024", 27)] {
        check(&["--since", &format!("{year}-1-1"), "--until", &format!("{year}-12-31")], expected);
    }
    for (kind, expected) in
        [("added", 89), ("changed", 19), ("deprecated", 11), ("fixed", 4), ("docs", 7), ("breaking", 1)]
    {
        check(&["--kind", kind], expected);
    }
    let actions = [
        ("feature-check", 55),
        ("none", 54),
        ("paginate", 12),
        ("rewrite", 7),
        ("warn", 7),
        ("redact", 3),
        ("validate", 2),
    ];
    for (action, expected) in actions {
        check(&["--gateway", action], expected);
    }
    for (edition, expected) in [("all", 108), ("hosted", 110), ("enterprise", 110), ("self-managed", 110)] {
        check(&["--edition", edition], expected);
    }
    for (release, expected, enterprise) in
        [("v202012-1", 0, 0), ("v202103-1", 4, 3), ("v202112-1", 36, 34), ("v202206-1", 49, 47), ("1.0.3", 112, 110)]
    {
        check(&["--release", release], expected);
        check(&["--release", release, "--edition", "enterprise"], enterprise);
    }
    for (text, expected) in
        [("run task", 14), ("POLICY", 19), ("registry-modules", 9), ("Entry body", 0), ("oauth-clients", 4)]
    {
        check(&["--text", text], expected);
    }
    check(&["--text", "speculative-plan-management-enabled"], 1);
    check(&["--text", "/policy-checks/:id/output"], 1);
    check(&["--kind", "deprecated", "--resource", "registry-modules"], 7);
    check(&["--kind", "deprecated", "--edition", "hosted"], 9);
    check(&["--kind", "deprecated", "--gateway", "rewrite"], 7);
    check(&["--kind", "added", "--resource", "workspaces", "--since", "2023-01-01", "--edition", "hosted"], 7);
    check(&["--since", "2025-01-01"], 0);
}

#[test]
fn every_resource_is_found_by_its_name() {
    let counts = "account 1, admin-module-sharing 1, admin-organizations 3, admin-policy-engine-versions 1, \
        admin-settings 2, agent-pools 2, agents 1, applies 1, assessments 1, audit-trail-tokens 3, audit-trails 1, \
        configuration-versions 4, data-retention-policies 3, feature-entitlements 3, feature-sets 3, \
        notification-configurations 4, oauth-clients 3, oauth-tokens 1, organization-memberships 1, \
        organization-tags 1, organizations 6, pagination 1, policies 3, policy-checks 5, policy-evaluations 1, \
        policy-set-outcomes 1, policy-set-parameters 1, policy-sets 5, project-team-access 3, projects 4, \
        registry-modules 9, registry-providers 2, run-task-integration 6, run-task-stages 3, run-tasks 7, runs 11, \
        ssh-keys 1, state-version-outputs 2, state-versions 4, team-access 1, team-members 1, team-tokens 2, teams 10, \
        user-tokens 1, variable-sets 4, vcs-events 1, vcs-provider-app-installations 1, workspace-run-tasks 1, \
        workspace-variables 1, workspaces 18";
    let all = rows(&[]);
    let changes = all.iter().flat_map(|row| row["changes"].as_array().unwrap());
    let known: std::collections::BTreeSet<_> = changes.map(|change| change["resource"].as_str().unwrap()).collect();
    assert_eq!(known.len(), counts.split(", ").count());
    for (resource, expected) in counts.split(", ").map(|pair| pair.split_once(' ').unwrap()) {
        assert_eq!(rows(&["--resource", resource]).len().to_string(), expected, "{resource}");
    }
}

#[test]
fn a_date_shows_all_its_rows_in_any_spelling() {
    let show = |date: &str| run(&["changes", "show", date], &[]);
    let (code, out, _) = show("2024-2-8");
    assert_eq!(code, 0);
    assert!(out.starts_with("2024-02-08 (written 2024-2-8)\n  entry body: not shown\n"), "{out}");
    assert_eq!(show("2024-02-08").1, out);
    let (_, out, _) = show("2021-6-8");
    assert_eq!(out.matches("(written 2021-06-8)").count(), 7, "{out}");
    assert!(out.contains("replaced by: POST /organizations/:organization_name/registry-modules/vcs"), "{out}");
    let (code, out, _) = run(&["changes", "show", "2021-11-17", "--format", "json"], &[]);
    assert_eq!((code, serde_json::from_str::<Vec<Value>>(&out).unwrap().len()), (0, 11));
    let (code, out, error) = show("2024-02-09");
    assert_eq!((code, out.as_str()), (8, ""));
    assert_eq!(error, "error: no change has the date 2024-02-09; the nearest dates are 2024-02-08 and 2024-02-20\n");
}

#[test]
fn the_list_is_a_table_newest_first() {
    let (code, out, error) = run(&["changes", "--kind", "deprecated", "--since", "2024-01-01"], &[]);
    assert_eq!(
        (code, error.as_str()),
        (0, "note: the history ends on 2024-10-14; later changes of the API are not in it\n")
    );
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 6, "{out}");
    assert!(lines[0].starts_with("Date        Kind ") && lines[0].ends_with("Text"), "{out}");
    assert!(lines[1].starts_with("2024-09-02  deprecated         policy-checks "), "{out}");
    assert!(lines[2].starts_with("2024-08-01  deprecated, added  admin-settings, admin-organizations  Ent"), "{out}");
    assert!(lines[3].starts_with("do this: use policy evaluations: "), "{out}");
    assert_eq!(lines[5], "do this: use plan-timeout and apply-timeout (2024-08-01/2)", "{out}");
    let (code, out, error) = run(&["changes", "--since", "2025-1-1"], &[]);
    let end = "note: the history ends on 2024-10-14; later changes of the API are not in it\n";
    assert_eq!(
        (code, out, error),
        (0, String::new(), format!("note: no change in the history matches these filters\n{end}"))
    );
    let (_, help, _) = run(&["changes", "--help"], &[]);
    for edge in ["the first is 2021-03-08", "the history ends on 2024-10-14"] {
        assert!(help.contains(edge), "{help}");
    }
}

#[test]
fn unknown_values_are_reported_with_suggestions() {
    let check = |args: &[&str], code: i32, expected: &str| {
        let (found, _, error) = run(&[&["changes"], args].concat(), &[]);
        assert_eq!((found, error.lines().next().unwrap_or_default()), (code, expected), "{args:?}");
    };
    check(&["--resource", "polices"], 1, "error: --resource: unknown value \"polices\"; did you mean policies?");
    check(&["--kind", "aded"], 1, "error: --kind: unknown value \"aded\"; did you mean added?");
    let date = "error: --until: \"2024-02-30\" is not a date; write it as 2024-02-08";
    check(&["--until", "2024-02-30"], 1, date);
    check(&["show", "now"], 1, "error: \"now\" is not a date; write it as 2024-02-08");
    let method = "error: --method: \"FETCH\" is not a method of the API; write GET, HEAD, POST, PUT, PATCH or DELETE";
    check(&["--method", "FETCH"], 1, method);
    let path = "error: --path: \"runs\" is not a path of the API; write one such as /runs/run-1/policy-checks";
    check(&["--path", "runs"], 1, path);
    let one = "error: there is no change 2024-09-02/7; there are 2024-09-02/1";
    check(&["show", "2024-09-02/7"], 8, one);
    let release = "note: release \"x\" is ignored: it is not a release such as v202207-1 or 1.0.3";
    check(&["--release", "x"], 0, release);
}

#[test]
fn a_call_is_found_by_its_method_and_path_however_they_are_written() {
    let ids = |args: &[&str]| -> Vec<String> {
        rows(args).iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    for path in [
        "/policy-checks/polchk-1/output",
        "/policy-checks/:id/output",
        "/api/v2/policy-checks/polchk-1/output",
        "https://app.terraform.io/api/v2/policy-checks/polchk-1/output",
    ] {
        assert_eq!(ids(&["--method", "get", "--path", path]), ["2024-09-02"], "{path}");
        assert_eq!(ids(&["--method", "POST", "--path", path]), [""; 0], "{path}");
    }
    let deprecated = ids(&["--path", "/api/v2/registry-modules/o/n/p/versions", "--kind", "deprecated"]);
    assert_eq!(deprecated, ["2021-06-08/d5"]);
    // Attributes are found by the calls that set or show them.
    let created = ids(&["--method", "POST", "--path", "/organizations/x/workspaces"]);
    let expected = ["2023-11-07", "2023-10-31", "2023-09-15", "2023-09-08", "2023-03-08", "2021-07-30", "2021-04-16"];
    assert!(expected.iter().all(|id| created.contains(&(*id).to_owned())), "{created:?}");
    let state = ids(&["--method", "GET", "--path", "/state-versions/sv-1"]);
    assert_eq!(state, ["2023-09-25", "2022-09-21", "2021-07-09"]);
    // A given query must match too.
    let workspace = "/workspaces/ws-1";
    assert!(ids(&["--path", workspace]).contains(&"2021-03-08".to_owned()));
    assert!(!ids(&["--path", &format!("{workspace}?include=readme")]).contains(&"2021-03-08".to_owned()));
    assert!(ids(&["--path", &format!("{workspace}?include=readme")]).contains(&"2021-03-18".to_owned()));
}

#[test]
fn every_change_of_a_call_names_its_endpoints() {
    // Rows about receivers of run tasks, and rows that do not say which calls they mean.
    let without = "2024-07-24/1 2024-07-12/1 2024-01-24/1 2023-10-04/1 2023-09-29/1 2023-05-25/1 2022-07-26/3 2022-05-11/1 \
        2022-05-03/1 2022-04-29/1 2021-11-17/1 2021-07-30/4 2021-06-08/5";
    let all = rows(&[]);
    let changes = all.iter().flat_map(|row| row["changes"].as_array().unwrap());
    let is_bare = |change: &&Value| {
        let count = |part: &str| change[part]["endpoints"].as_array().map_or(0, Vec::len);
        count("changelog") + count("documentation") == 0
    };
    let bare: Vec<&str> = changes.filter(is_bare).map(|change| change["id"].as_str().unwrap()).collect();
    assert_eq!(bare, without.split_whitespace().collect::<Vec<_>>());
}

#[test]
fn every_id_that_is_printed_anywhere_is_shown_by_it() {
    let all = rows(&[]);
    let changes = all.iter().flat_map(|row| row["changes"].as_array().unwrap().clone());
    // One process for each would take long: the ids of each form, and all those of the documents.
    let mut ids: Vec<String> =
        changes.map(|change| change["id"].as_str().unwrap().to_owned()).filter(|id| id.contains("/p1")).collect();
    ids.extend(["2021-6-8/d4".to_owned(), "2024-08-01/3".to_owned()]);
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/platform-changes.md");
    let text = std::fs::read_to_string(document).unwrap();
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-/".contains(c);
    let words = text.split(|other: char| !is_part(other)).filter(|word| word.starts_with("202") && word.contains('/'));
    ids.extend(words.map(str::to_owned));
    assert!(ids.len() > 20, "{ids:?}");
    for id in ids {
        let (code, out, error) = run(&["changes", "show", &id], &[]);
        assert_eq!((code, error.as_str()), (0, ""), "{id}");
        let id = id.replace("2021-6-8/", "2021-06-08/");
        assert_eq!(out.lines().filter(|line| line.starts_with(&format!("  {id}: "))).count(), 1, "{id}: {out}");
        assert_eq!(out.matches("    edition: ").count(), 1, "{id} alone: {out}");
    }
    assert!(!text.contains(", /") && !text.contains(", d6"), "ids are written in full");
    let (_, out, _) = run(&["changes", "show", "2023-05-25/3"], &[]);
    assert!(out.contains("\n    do this: use enforcement-level\n"), "{out}");
    let (_, out, _) = run(&["changes", "show", "2023-05-25/3", "--format", "json"], &[]);
    let output: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(output[0]["changes"][0]["gateway"]["advice"], "use enforcement-level");
    assert_eq!(output[0]["changes"].as_array().unwrap().len(), 1);
}

#[test]
fn every_row_with_an_action_has_advice() {
    for row in rows(&[]) {
        for change in row["changes"].as_array().unwrap() {
            let does = change["gateway"]["does"].as_str().unwrap();
            // An unmarked feature has the same advice for each row, computed from its date.
            let is_marked = change["changelog"]["edition"] != "all" || change["changelog"]["release"].is_string();
            let acts = matches!(does, "warn" | "validate" | "paginate") || (does == "feature-check" && is_marked);
            let expected = acts || matches!(change["kind"].as_str().unwrap(), "deprecated" | "breaking");
            let has_advice = change["gateway"]["advice"].is_string();
            assert!(has_advice == expected || (has_advice && does == "rewrite"), "{change}");
        }
    }
}
