use bytes::Bytes;
use keyward_http::body_buffer::BufferBudget;
use serde_json::{Value, json};

use super::*;

fn call<'a>(method: &'a Method, path: &'a str, query: &'a str) -> ApiCall<'a> {
    ApiCall { method, path, query }
}

#[test]
fn only_lists_of_the_history_are_merged() {
    let lists = [
        "/feature-sets",
        "/workspaces/w/notification-configurations",
        "/organizations/o/oauth-clients",
        "/oauth-clients/c/oauth-tokens",
        "/organizations/o/feature-sets",
        "/organizations",
        "/runs/r/policy-checks",
        "/policy-sets/p/parameters",
        "/organizations/o/ssh-keys",
        "/users/u/authentication-tokens",
        "/team-workspaces",
    ];
    assert_eq!(LISTS.len(), lists.len());
    for list in lists {
        let path = format!("/api/v2{list}");
        assert!(is_mergeable(call(&Method::GET, &path, "q=x")), "{list}");
        assert!(!is_mergeable(call(&Method::POST, &path, "")), "{list}");
        assert!(!is_mergeable(call(&Method::GET, &path, "page%5Bnumber%5D=2")), "{list}");
        assert!(!is_mergeable(call(&Method::GET, &path, "page[size]=5")), "{list}");
        assert!(!is_mergeable(call(&Method::GET, list, "")), "{list}");
        assert!(!is_mergeable(call(&Method::GET, &format!("{path}/x"), "")), "{list}");
    }
}

#[test]
fn page_parameters_are_added_to_the_query() {
    assert_eq!(page_query(call(&Method::GET, "/", ""), 1), "page%5Bnumber%5D=1&page%5Bsize%5D=100");
    assert_eq!(page_query(call(&Method::GET, "/", "q=a%20b"), 2), "q=a%20b&page%5Bnumber%5D=2&page%5Bsize%5D=100");
}

fn page(items: &[u32], current: u32, next: impl Into<Value>) -> Vec<u8> {
    let data: Vec<Value> = items.iter().map(|id| json!({"id": id.to_string(), "type": "x"})).collect();
    let pagination = json!({"current-page": current, "next-page": next.into(), "total-count": 99});
    let included = [json!({"id": "1", "type": "y"})];
    let meta = json!({"pagination": pagination, "other": 7});
    json!({"data": data, "links": {"next": "x"}, "meta": meta, "included": included}).to_string().into_bytes()
}

fn merger() -> PageMerger {
    PageMerger::new(&BufferBudget::new(MERGE_BUDGET))
}

fn document(merger: PageMerger, address: &str) -> Bytes {
    merger.into_document(address).unwrap()
}

#[test]
fn all_calls_share_one_budget_and_return_it() {
    let budget = BufferBudget::new(300_000);
    let entry = "x".repeat(100_000);
    let page = json!({"data": [entry], "included": [{"type": "a", "id": "1", "x": "y".repeat(20_000)}]}).to_string();
    let mut merge = PageMerger::new(&budget);
    assert_eq!(merge.add_page(page.as_bytes()), Ok(NextPage::Done));
    let mut other = PageMerger::new(&budget);
    assert_eq!(other.add_page(page.as_bytes()), Ok(NextPage::Done));
    assert_eq!(PageMerger::new(&budget).add_page(page.as_bytes()), Err(MergeError::Busy));
    // A document is counted until it is sent.
    drop(other);
    let document = document(merge, "/x");
    assert_eq!(serde_json::from_slice::<Value>(&document).unwrap()["included"][0]["id"], "1");
    let mut next = PageMerger::new(&budget);
    assert_eq!(next.add_page(page.as_bytes()), Ok(NextPage::Done));
    assert_eq!(PageMerger::new(&budget).add_page(page.as_bytes()), Err(MergeError::Busy));
    drop((document, next));
    assert_eq!(PageMerger::new(&budget).add_page(page.as_bytes()), Ok(NextPage::Done));
}

#[test]
fn entries_stay_as_they_are_written() {
    let mut merge = merger();
    assert_eq!(
        merge.add_page(br#"{"data":[ {"id": 1.50, "b":"\u00e9", "a":null} ,2],"links":{"next":"?b"}}"#),
        Ok(NextPage::Link("?b".to_owned()))
    );
    assert_eq!(
        merge.add_page(br#"{"data":["x"],"included":[{"type":"t","id":"1"},{"type":"t","id":"1"},7,7]}"#),
        Ok(NextPage::Done)
    );
    let found = document(merge, "/x");
    let found = std::str::from_utf8(&found).unwrap();
    let start =
        r#"{"data":[{"id": 1.50, "b":"\u00e9", "a":null},2,"x"],"included":[{"type":"t","id":"1"},7],"links":{"#;
    assert!(found.starts_with(start), "{found}");
}

#[test]
fn pages_become_one_document() {
    let mut merge = merger();
    assert_eq!(merge.add_page(&page(&[1, 2], 1, 2)), Ok(NextPage::Number(2)));
    assert_eq!(merge.add_page(&page(&[3], 2, Value::Null)), Ok(NextPage::Done));
    let document: Value = serde_json::from_slice(&document(merge, "/api/v2/organizations")).unwrap();
    assert_eq!(document["data"].as_array().unwrap().len(), 3);
    let expected = json!({"current-page": 1, "prev-page": null, "next-page": null, "total-pages": 1, "total-count": 3});
    assert_eq!(document["meta"], json!({"pagination": expected, "other": 7}));
    assert_eq!(
        (&document["links"]["next"], &document["links"]["self"]),
        (&Value::Null, &json!("/api/v2/organizations"))
    );
    assert_eq!(document["included"].as_array().unwrap().len(), 1);
}

#[test]
fn merging_ends_on_loops_and_missing_pagination() {
    let ends = |body: &[u8]| assert_eq!(merger().add_page(body), Ok(NextPage::Done));
    let looped = |body: &[u8]| assert_eq!(merger().add_page(body), Err(MergeError::Loop));
    // The pagination counts 99.
    looped(&page(&[1], 2, 2));
    looped(&page(&[1], 2, 1));
    let all: Vec<u32> = (0..99).collect();
    ends(&page(&all, 1, 1));
    ends(&page(&[], 1, 2));
    ends(br#"{"data":[]}"#);
    let mut complete = merger();
    assert_eq!(complete.add_page(br#"{"data":[{"id":"1"}]}"#), Ok(NextPage::Done));
    assert_eq!(&document(complete, "/x")[..], br#"{"data":[{"id":"1"}]}"#);
}

#[test]
fn a_list_without_page_numbers_is_followed_by_its_links() {
    for next in [json!("/x?page%5Bafter%5D=7"), json!({"href": "/x?page%5Bafter%5D=7"})] {
        let first = json!({"data": [{"id": "1"}], "links": {"next": next, "prev": null}}).to_string();
        let mut merge = merger();
        assert_eq!(merge.add_page(first.as_bytes()), Ok(NextPage::Link("/x?page%5Bafter%5D=7".to_owned())));
        assert_eq!(merge.add_page(br#"{"data":[],"links":{"next":null}}"#), Ok(NextPage::Done));
        let document: Value = serde_json::from_slice(&document(merge, "/list")).unwrap();
        let links = json!({"self": "/list", "first": "/list", "prev": null, "next": null, "last": "/list"});
        assert_eq!(document, json!({"data": [{"id": "1"}], "links": links}));
    }
    // `next-page` may be absent although page numbers are present.
    let next_page = br#"{"data":[{"id":"1"}],"meta":{"pagination":{"current-page":1}},"links":{"next":"?b"}}"#;
    let mut merge = merger();
    assert_eq!(merge.add_page(next_page), Ok(NextPage::Link("?b".to_owned())));
    assert_eq!(merge.add_page(next_page), Err(MergeError::Loop));
    for next in ["7", "[]", "{}", "true"] {
        let page = format!(r#"{{"data":[{{"id":"1"}}],"links":{{"next":{next}}}}}"#);
        assert_eq!(merger().add_page(page.as_bytes()), Err(MergeError::NoNextPage), "{next}");
    }
    let list = Url::parse("https://tfe.example.com/api/v2/a%20b?q=1").unwrap();
    let check =
        |link: &str, expected: Option<&str>| assert_eq!(query_from_link(link, &list).as_deref(), expected, "{link}");
    check("https://tfe.example.com/api/v2/a%20b?page=2&x=%2F", Some("page=2&x=%2F"));
    check("http://other.example/api/v2/a%20b?page=2", Some("page=2"));
    check("?page=2", Some("page=2"));
    check("a%20b?page=2#x", Some("page=2"));
    for link in ["https://tfe.example.com/api/v2/c?page=2", "/api/v2/a%20b/c", "https://[", ".."] {
        check(link, None);
    }
}

#[test]
fn lists_are_never_shortened() {
    for next in [json!("2"), json!(2.0), json!(-1), json!([2])] {
        assert_eq!(merger().add_page(&page(&[1], 1, next)), Err(MergeError::NoNextPage));
    }
    for body in [&b"{}"[..], b"", b"[]", br#"{"data":{}}"#, br#"{"errors":[]}"#] {
        assert_eq!(merger().add_page(body), Err(MergeError::NotAList));
    }
    let mut merge = merger();
    for number in 1..MAX_PAGES {
        assert_eq!(merge.add_page(&page(&[number], number, number + 1)), Ok(NextPage::Number(number + 1)));
    }
    assert_eq!(merge.add_page(&page(&[1], MAX_PAGES, MAX_PAGES + 1)), Err(MergeError::TooLarge));
    assert_eq!(merger().add_page(&vec![b' '; MAX_BYTES + 1]), Err(MergeError::TooLarge));
}
