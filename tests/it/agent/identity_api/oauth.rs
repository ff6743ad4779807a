//! The token endpoint of OAuth, with the library for Go.

use std::time::Duration;

use super::{ARM, KEY, Scene};
use crate::harness::world::run_in_network_namespace;

#[test]
fn the_library_of_oauth_gets_no_expired_token_in_three_hours_and_each_life_costs_one_call() {
    run_in_network_namespace(|| {
        // An hour is eight seconds here.
        let scene = Scene::start(Duration::from_secs(8), "", "");
        let url = scene.url("azure", "oauth");
        scene.assert_one_call_a_life(2, Scene::upstream_calls, |scene| {
            [scene.go_sdk(&["oauth", &url, &format!("{ARM}.default"), KEY, "25"], &[])]
        });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let ask = |key: &str, form: &[(&str, &str)]| {
            let request = client.post(&url).basic_auth("any", Some(key)).form(form);
            scene.world.block_on(async {
                let response = request.send().await.unwrap();
                (response.status().as_u16(), response.text().await.unwrap())
            })
        };
        let grant = ("grant_type", "client_credentials");
        let check = |key: &str, form: &[(&str, &str)], expected: (u16, &str)| {
            let (status, text) = ask(key, form);
            assert!(status == expected.0 && text.contains(expected.1), "{form:?}: {status} {text}");
        };
        check(KEY, &[grant, ("resource", ARM)], (200, "expires_in"));
        check(KEY, &[grant, ("scope", "https://graph.microsoft.com/.default")], (403, "invalid_scope"));
        check(KEY, &[grant], (400, "invalid_request"));
        check(KEY, &[("grant_type", "password"), ("resource", ARM)], (400, "must be client_credentials"));
        check("wrong", &[grant, ("resource", ARM)], (403, "wrong key"));
        assert_eq!(scene.ask(&url, &[("X-Keyward-Key", KEY)]).status, 405);
    });
}
