use super::*;

fn found(pairs: &[(&str, &str)]) -> Vec<&'static str> {
    let mut filter = ChangeFilter::default();
    for (name, value) in pairs {
        filter.set(name, value, Changelog::get()).unwrap();
    }
    Changelog::get().rows().iter().filter(|row| filter.matches(row)).map(|row| row.id.as_str()).collect()
}

#[test]
fn rows_are_sorted_newest_first_with_unique_ids() {
    let all = Changelog::get();
    let count = |table| all.rows().iter().filter(|row| row.table == table).count();
    assert_eq!([count(Table::Entries), count(Table::Pages), count(Table::Replacements)], [97, 10, 6]);
    assert!(all.rows().is_sorted_by_key(|row| std::cmp::Reverse(row.date)));
    let ids: BTreeSet<&str> = all.rows().iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids.len(), 113);
    let ids: BTreeSet<&str> = all.changes().map(|change| change.id.as_str()).collect();
    assert_eq!(ids.len(), 165 + 16);
    for row in all.rows() {
        assert!(row.id.starts_with(&row.date.to_string()), "{}", row.id);
    }
}

#[test]
fn rows_without_a_body_are_found_by_date_only() {
    assert_eq!(found(&[("since", "2024-2-8"), ("until", "2024-02-08")]), ["2024-02-08"]);
    assert!(found(&[("text", "not shown")]).is_empty());
    assert!(!found(&[("kind", "added")]).contains(&"2024-02-08"));
    assert!(!found(&[("edition", "hosted")]).contains(&"2024-02-08"));
}

#[test]
fn one_change_must_match_all_filters() {
    // The row adds and deprecates registry modules; what is only for the hosted product is added.
    assert!(found(&[("kind", "deprecated"), ("edition", "enterprise")]).contains(&"2021-06-08"));
    // It names the release only for the admin organizations' part.
    let early = [("release", "v202206-1"), ("resource", "admin-organizations")];
    assert!(!found(&early).contains(&"2022-06-21"));
    assert!(found(&[("release", "v202206-1"), ("resource", "agent-pools")]).contains(&"2022-06-21"));
    // A row of a later month is in no release before it.
    assert!(!found(&[("release", "v202205-2"), ("resource", "agent-pools")]).contains(&"2022-06-21"));
    assert!(found(&[("release", "1.0.3"), ("resource", "admin-organizations")]).contains(&"2022-06-21"));
}

#[test]
fn incomparable_releases_are_ignored_with_a_remark() {
    let mut filter = ChangeFilter::default();
    filter.set("release", "latest", Changelog::get()).unwrap();
    assert_eq!(Changelog::get().find(&filter).count(), 113);
    assert!(filter.remark().is_some_and(|remark| remark.contains("\"latest\" is ignored")));
}

#[test]
fn filter_errors_suggest_valid_values() {
    let check = |name: &str, value: &str, expected: &str| {
        let error = ChangeFilter::default().set(name, value, Changelog::get()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("resource", "registry-module", "unknown value \"registry-module\"; did you mean registry-modules?");
    check("kind", "deprecatd", "did you mean deprecated?");
    check("kind", "x", "known are added, changed, deprecated, fixed, docs, breaking");
    check("gateway", "rewrites", "did you mean rewrite?");
    check("edition", "cloud", "known are all, hosted, enterprise, self-managed");
    check("since", "yesterday", "\"yesterday\" is not a date");
    check("resuorce", "x", "did you mean resource?");
}

#[test]
fn resources_are_found_in_any_spelling() {
    for name in ["registry-modules", "Registry modules", " registry_modules "] {
        assert_eq!(Changelog::get().resource(name), Ok("registry-modules"));
    }
}
