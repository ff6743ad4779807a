//! Lists that are merged into one document: their links lead to the gateway, and no list is cut short.

use http::Response;
use serde_json::{Value, json};

use crate::harness::front::Front;
use crate::harness::scripted::{Seen, reply};

const JSON: [(&str, &str); 1] = [("content-type", "application/vnd.api+json")];
const LIST: &str = "/api/v2/organizations/o/ssh-keys";

/// A page with one entry, whose own link begins with the platform's origin.
fn page(origin: &str, id: u32, beside: &Value) -> String {
    let links = json!({"self": format!("{origin}/api/v2/ssh-keys/{id}")});
    let mut page = json!({"data": [{"id": id, "type": "ssh-keys", "links": links}]});
    page.as_object_mut().unwrap().extend(beside.as_object().unwrap().clone());
    page.to_string()
}

async fn merged(front: &Front) -> (u16, Value) {
    let response = front.request("GET", LIST).header("keyward-merge-pages", "true").send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// The ids of a document's entries.
fn ids(document: &Value) -> Vec<u64> {
    document["data"].as_array().unwrap().iter().map(|entry| entry["id"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn the_links_of_merged_pages_lead_to_the_gateway() {
    let front = Front::start();
    let origin = front.upstream.clone();
    front.platform.answers(move |request| {
        let (id, next) = if request.target.contains("page%5Bnumber%5D=2") { (2, None) } else { (1, Some(2)) };
        let pagination = json!({"current-page": id, "next-page": next});
        reply(200, &JSON, page(&origin, id, &json!({"meta": {"pagination": pagination}})))
    });
    let (status, document) = merged(&front).await;
    assert_eq!((status, ids(&document)), (200, vec![1, 2]));
    for entry in document["data"].as_array().unwrap() {
        assert_eq!(entry["links"]["self"], format!("{}/api/v2/ssh-keys/{}", front.url, entry["id"]));
    }
    assert_eq!(document["links"]["self"], format!("{}{LIST}", front.url));
}

#[tokio::test]
async fn a_list_without_page_numbers_is_followed_by_its_links_to_its_end() {
    for absolute in [true, false] {
        let front = Front::start();
        let origin = front.upstream.clone();
        front.platform.answers(move |request| {
            let start = if absolute { origin.as_str() } else { "" };
            let next = |id: u32| json!({"links": {"next": format!("{start}{LIST}?page%5Bafter%5D={id}")}});
            let (id, links) = match request.target.split_once("page%5Bafter%5D=") {
                None => (1, next(1)),
                Some((_, "1")) => (2, next(2)),
                Some(_) => (3, json!({"links": {"next": null}})),
            };
            reply(200, &JSON, page(&origin, id, &links))
        });
        let (status, document) = merged(&front).await;
        assert_eq!((status, ids(&document)), (200, vec![1, 2, 3]), "{document}");
        assert_eq!(document["links"]["next"], Value::Null);
        let targets: Vec<String> = front.platform.requests().into_iter().map(|request| request.target).collect();
        assert_eq!(targets[1..], [format!("{LIST}?page%5Bafter%5D=1"), format!("{LIST}?page%5Bafter%5D=2")]);
    }
}

#[tokio::test]
async fn a_list_whose_next_page_cannot_be_followed_is_refused_and_never_cut_short() {
    let elsewhere = |_: &Seen| {
        let links = json!({"links": {"next": "https://tfe.example.com/api/v2/other?page%5Bafter%5D=1"}});
        reply(200, &JSON, page("https://tfe.example.com", 1, &links))
    };
    let circle = |_: &Seen| {
        reply(200, &JSON, page("https://tfe.example.com", 1, &json!({"links": {"next": "?page%5Bafter%5D=1"}})))
    };
    let check = async |script: fn(&Seen) -> Response<bytes::Bytes>, expected: &str, calls: usize| {
        let front = Front::start();
        front.platform.answers(script);
        let (status, document) = merged(&front).await;
        let detail = document["errors"][0]["detail"].as_str().unwrap_or_default().to_owned();
        assert!(status == 502 && detail.contains(expected), "{status} {document}");
        assert_eq!(front.platform.requests().len(), calls);
    };
    check(elsewhere, "request its pages one by one", 1).await;
    check(circle, "form a loop before the list is complete", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_merged_lists_at_once_share_one_memory_and_none_is_cut_short() {
    let front = Front::with(|options, _| options.response_timeout = std::time::Duration::from_mins(5));
    // Two pages of 8 MiB each: a list has twice that.
    let entry = "x".repeat(8 * 1024 * 1024);
    front.platform.answers(move |request| {
        let (id, next) = if request.target.contains("page%5Bnumber%5D=2") { (2, None) } else { (1, Some(2)) };
        let pagination = json!({"current-page": id, "next-page": next});
        let document = json!({"data": [{"id": id, "text": entry}], "meta": {"pagination": pagination}});
        reply(200, &JSON, document.to_string())
    });
    let call = async || front.request("GET", LIST).header("keyward-merge-pages", "true").send().await.unwrap();
    // A document is counted until its caller has read it.
    let mut unread = Vec::new();
    let refused = loop {
        let response = call().await;
        if response.status() != 200 {
            break response;
        }
        unread.push(response);
        assert!(unread.len() < 24, "they would take all memory");
    };
    assert!(unread.len() > 1, "some fit at once: {}", unread.len());
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (503, true));
    let document: Value = refused.json().await.unwrap();
    let detail = document["errors"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("merges too many lists at once"), "{detail}");
    for response in unread {
        assert!(response.bytes().await.unwrap().len() > 16 * 1024 * 1024);
    }
    assert_eq!(call().await.status(), 200, "the memory is free again");
}
