//! Texts of a request on a page: any bytes, and never as markup.

use super::{KEY, Pages};
use crate::harness::rng::TestRng;

/// Marks around the text of a request, by which it is found on a page.
const MARKS: (&str, &str) = ("zq7", "7qz");

/// Bytes that mean something in HTML, in attributes or to readers of UTF-8, and any others.
fn random_text(random: &mut TestRng) -> Vec<u8> {
    const PIECES: [&[u8]; 16] = [
        b"<",
        b">",
        b"\"",
        b"'",
        b"&",
        b"<script>",
        b"</title>",
        b"-->",
        b"&lt;",
        b"&#34;",
        b"\xff",
        b"\xc3\xa9",
        b"\0",
        b"\r\n",
        b"`",
        b"KW-1201",
    ];
    let mut bytes = Vec::new();
    for _ in 0..=random.below(5) {
        match random.below(4) {
            0 => bytes.push(u8::try_from(random.below(256)).unwrap()),
            _ => bytes.extend_from_slice(PIECES[random.below(PIECES.len())]),
        }
    }
    bytes
}

/// Texts between the marks on a page.
fn echoes(page: &str) -> Vec<&str> {
    page.split(MARKS.0).skip(1).filter_map(|rest| rest.split_once(MARKS.1)).map(|(text, _)| text).collect()
}

/// Returns true if a text has no character that begins markup or ends an attribute.
fn is_escaped(text: &str) -> bool {
    let entities = ["&amp;", "&lt;", "&gt;", "&quot;"];
    !text.contains(['<', '>', '"'])
        && text.match_indices('&').all(|(at, _)| entities.iter().any(|entity| text[at..].starts_with(entity)))
}

#[tokio::test]
async fn no_text_of_a_request_becomes_markup() {
    let pages = Pages::start();
    let acl = pages.fill_acl();
    let cookie = pages.browser.sign_in("/sign-in", KEY, None).await;
    let cookie = pages.browser.sign_in("/acl/sign-in", &acl.root, Some(&cookie)).await;
    let explain = format!("/acl/tokens/{}/explain?resource=key&segment=", acl.accessor);
    // Pages that repeat the text, and others that may.
    let repeating = [
        "/search?q=",
        "/history?text=",
        "/history?path=",
        "/history?kind=",
        "/history?since=",
        "/acl/tokens?q=",
        "/acl/policies?q=x&ns=",
        "/sign-in?next=/",
        &explain,
    ];
    let others = [
        "/agent?session=",
        "/agent?level=",
        "/agent/live?session=",
        "/codes/",
        "/acl/",
        "/acl/tokens/",
        "/acl/policies/",
        "/history?page=",
        "/history?resource=",
        "/acl/sign-in?next=",
        "/",
    ];
    let mut random = TestRng(39);
    for _ in 0..60 {
        let bytes = [MARKS.0.as_bytes(), &random_text(&mut random), MARKS.1.as_bytes()].concat();
        let encoded = percent_encoding::percent_encode(&bytes, percent_encoding::NON_ALPHANUMERIC).to_string();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        for path in repeating.iter().chain(&others) {
            let response =
                pages.browser.get(&format!("{path}{encoded}")).header("cookie", &cookie).send().await.unwrap();
            let page = response.text().await.unwrap();
            for echo in echoes(&page) {
                assert!(is_escaped(echo), "{path}{encoded} shows {echo:?}");
            }
            assert!(page.starts_with("<!DOCTYPE html>") || page.starts_with("<div") || page.is_empty(), "{page}");
        }
        // The check sees the text that it looks for.
        let page = pages.browser.get(&format!("/search?q={encoded}")).header("cookie", &cookie).send().await.unwrap();
        let page = page.text().await.unwrap();
        let field = page.split_once("name=\"q\" value=\"").unwrap().1.split_once('"').unwrap().0;
        let shown = field.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
        assert_eq!(shown, text);
    }
    for path in repeating {
        let request = pages.browser.get(&format!("{path}{}x{}", MARKS.0, MARKS.1)).header("cookie", &cookie);
        let page = request.send().await.unwrap().text().await.unwrap();
        assert!(!echoes(&page).is_empty(), "{path} does not repeat its text: {page}");
    }
}

#[test]
fn a_text_that_is_not_escaped_is_seen() {
    for text in ["<", "a>b", "\"", "&", "&lt", "&#34;", "&amp;&"] {
        assert!(!is_escaped(text), "{text}");
    }
    assert!(is_escaped("&lt;b&gt; &quot;&amp;amp;&quot; 'é"));
    assert_eq!(echoes("<p>zq7a7qz and zq7b7qz, zq7c"), ["a", "b"]);
}
