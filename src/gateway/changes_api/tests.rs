use super::*;

fn ask(query: &str) -> (u16, Value) {
    let respond = respond("http://127.0.0.1:8123", query);
    (respond.status.as_u16(), serde_json::from_slice(&respond.body).unwrap())
}

#[test]
fn pages_follow_the_platforms_format() {
    let (status, page) = ask("");
    assert_eq!((status, page["data"].as_array().unwrap().len()), (200, 20));
    let first = json!({"current-page": 1, "prev-page": null, "next-page": 2, "total-pages": 6, "total-count": 113});
    let span = json!({"since": "2021-03-08", "until": "2024-10-14"});
    assert_eq!(page["meta"], json!({ "pagination": first, "history": span }));
    let next = "http://127.0.0.1:8123/v1/platform/changes?page%5Bnumber%5D=2&page%5Bsize%5D=20";
    assert_eq!(page["links"]["next"], next);
    assert_eq!((&page["links"]["prev"], &page["data"][0]["id"]), (&Value::Null, &json!("2024-10-14")));
    let words = json!({"date": "2024-10-11", "text": "Runs list endpoints: new timeframe filter."});
    assert_eq!(page["data"][1]["attributes"]["changelog"], words);
}

#[test]
fn following_the_links_returns_every_row_once() {
    let mut ids = Vec::new();
    let mut query = "kind=added&page[size]=7".to_owned();
    loop {
        let (status, page) = ask(&query);
        assert_eq!(status, 200);
        ids.extend(page["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["links"]["next"].as_str() else { break };
        query = next.split_once('?').unwrap().1.to_owned();
    }
    assert_eq!((ids.len(), ids.iter().collect::<std::collections::BTreeSet<_>>().len()), (89, 89));
    assert!(query.starts_with("kind=added&page%5Bnumber%5D=13&page%5Bsize%5D=7"), "{query}");
}

#[test]
fn filters_combine_with_pages() {
    let check = |query: &str, parse_number: usize, shown: usize| {
        let (status, page) = ask(query);
        let found = (status, &page["meta"]["pagination"]["total-count"], page["data"].as_array().unwrap().len());
        assert_eq!(found, (200, &json!(parse_number), shown), "{query}");
    };
    check("since=2024-2-8&until=2024-02-08", 1, 1);
    check("resource=registry-modules&kind=deprecated", 7, 7);
    check("edition=enterprise&release=v202112-1&resource=admin-organizations", 1, 1);
    check("edition=enterprise&release=v202207-1&resource=admin-organizations", 2, 2);
    check("edition=enterprise&release=1.0.3&resource=admin-organizations", 3, 3);
    check("text=run+task&page%5Bsize%5D=100", 14, 14);
    check("page[number]=6", 113, 13);
    check("page[number]=7", 113, 0);
    check("since=2025-01-01", 0, 0);
    let (_, page) = ask("release=latest");
    assert!(page["meta"]["remark"].as_str().unwrap().starts_with("release \"latest\" is ignored"));
    assert_eq!(
        page["links"]["last"].as_str().unwrap().split_once('?').unwrap().1.split('&').next(),
        Some("release=latest")
    );
    assert_eq!(ask("page[number]=9").1["links"]["prev"].as_str().map(|link| link.contains("%5D=6&")), Some(true));
}

#[test]
fn all_errors_of_a_query_are_reported_at_once() {
    let check = |query: &str, status: u16, expected: &[(&str, &str, &str)]| {
        let (found, document) = ask(query);
        assert_eq!(found, status, "{query}");
        let errors = document["errors"].as_array().unwrap();
        assert_eq!(errors.len(), expected.len(), "{query}: {errors:?}");
        for (error, (status, parameter, detail)) in errors.iter().zip(expected) {
            assert_eq!((&error["status"], &error["source"]["parameter"]), (&json!(status), &json!(parameter)));
            assert!(error["detail"].as_str().unwrap().contains(detail), "{error}");
        }
    };
    check("kind=aded", 422, &[("422", "kind", "did you mean added?")]);
    check("resource=x&since=y", 422, &[("422", "resource", "known are account, "), ("422", "since", "is not a date")]);
    check("page[size]=%2B5", 422, &[("422", "page[size]", "from 1 to 100")]);
    check("page[size]=101", 422, &[("422", "page[size]", "from 1 to 100")]);
    check("page[number]=0&q=x", 400, &[("422", "page[number]", "from 1"), ("400", "q", "text, page[number]")]);
    check("kind=added&kind=added", 400, &[("400", "kind", "twice")]);
    check("page[size]=99999999999999999999999&kind=%FF", 422, &[("422", "page[size]", ""), ("422", "kind", "known")]);
}
