//! The endpoint of App Service, with the SDKs of Azure for Go and Python.

use std::time::Duration;

use serde_json::json;

use super::{ARM, KEY, Scene, reload};
use crate::harness::binary::{eventually, run};
use crate::harness::not_run::is_root;
use crate::harness::world::run_in_network_namespace;

const FORM: &str = "app-service";
const VERSION: &str = "api-version=2019-08-01";
const HEADER: &str = "X-IDENTITY-HEADER";

fn url(scene: &Scene, resource: &str) -> String {
    format!("{}?resource={resource}&{VERSION}", scene.url("azure", FORM))
}

#[test]
fn the_sdk_of_azure_gets_no_expired_token_in_three_hours_and_each_life_costs_one_call() {
    run_in_network_namespace(|| {
        // An hour is eight seconds here.
        let scene = Scene::start(Duration::from_secs(8), "", "");
        scene.assert_one_call_a_life(2, Scene::upstream_calls, |scene| {
            let endpoint = scene.url("azure", FORM);
            let resource = ARM.trim_end_matches('/');
            let variables = [("IDENTITY_ENDPOINT", endpoint.as_str()), ("IDENTITY_HEADER", KEY)];
            std::thread::scope(|scope| {
                let javascript = scope.spawn(|| scene.javascript_sdk(resource, &variables));
                let [go, python] = scene.sdks(&[FORM, resource, "25"], &variables);
                [go, python, javascript.join().unwrap()]
            })
        });
    });
}

#[test]
fn t40_only_listed_resources_and_the_identity_itself_are_given_to_whoever_has_the_key() {
    run_in_network_namespace(|| {
        let scene = Scene::start(Duration::from_hours(1), "", "");
        let key = (HEADER, KEY);
        let answer = scene.ask(&url(&scene, "https://vault.azure.net"), &[key]);
        assert_eq!(answer.status, 200, "{answer:?}");
        let identity = &scene.world.cloud.identities().system;
        let (client_id, object_id) = (identity.client_id.clone(), identity.object_id.clone());
        assert_eq!(
            (&answer.body["resource"], &answer.body["token_type"], &answer.body["client_id"]),
            (&json!("https://vault.azure.net"), &json!("Bearer"), &json!(client_id))
        );
        assert!(answer.body["expires_on"].as_str().unwrap().parse::<u64>().unwrap() > 1_700_000_000);

        let check = |query: &str, headers: &[(&str, &str)], expected: (u16, &str)| {
            let answer = scene.ask(&format!("{}?{query}", scene.url("azure", FORM)), headers);
            let text = answer.body.to_string();
            assert!(answer.status == expected.0 && text.contains(expected.1), "{query} {headers:?}: {answer:?}");
            assert!(!text.contains("eyJ") || answer.status == 200, "{text}");
        };
        let good = format!("resource={ARM}&{VERSION}");
        check(&good, &[key], (200, "Bearer"));
        check(&format!("{good}&client_id={}", client_id.to_uppercase()), &[key], (200, "Bearer"));
        check(&format!("{good}&principal_id={object_id}"), &[key], (200, "Bearer"));
        check(&format!("{good}&client_id=00000000-0000-0000-0000-000000000000"), &[key], (400, "is another one"));
        check(&format!("{good}&mi_res_id=/subscriptions/x"), &[key], (400, "is another one"));
        check(&format!("{good}&resource={ARM}"), &[key], (400, "given twice"));
        check(&format!("resource=https://graph.microsoft.com&{VERSION}"), &[key], (403, "is not listed: add it"));
        check(&format!("resource=https://vault.azure.net%0aX&{VERSION}"), &[key], (403, "net\\\\nX is not listed"));
        check(VERSION, &[key], (400, "resource is missing"));
        check(&format!("resource={ARM}&api-version=2017-09-01"), &[key], (400, "must be 2019-08-01"));
        check(&good, &[], (401, "errors"));
        check(&good, &[(HEADER, "wrong")], (403, "wrong key"));
        check(&good, &[("X-Vault-Request", "true")], (401, "errors"));
        check(&good, &[("Authorization", KEY)], (200, "Bearer"));
        check(&good, &[key, ("Origin", "https://evil.example")], (403, "web pages"));
        check(&good, &[key, ("X-Forwarded-For", "10.0.0.1")], (400, "proxy"));
        check(&good, &[key, ("Host", "evil.example")], (421, "Host"));
        for other in ["other", "azure/x", ""] {
            let answer = scene.ask(&format!("{}?{good}", scene.url(other, FORM)), &[key]);
            assert_eq!(answer.status, 404, "{other}: {answer:?}");
        }
        assert_eq!(scene.upstream_calls(), 2, "one for each resource, none for a request");
        scene.agent.logs("is not listed: add it to resources of [identity.azure]");
        assert_eq!(scene.agent.metric(&counter("not_listed")), 2);
        let (status, log) = scene.agent.binary.stop();
        assert!(status.success() && !log.contains("eyJ") && !log.contains("canary"), "{log}");
    });
}

fn counter(outcome: &str) -> String {
    format!("keyward_identity_requests_total{{identity=\"azure\",form=\"{FORM}\",outcome=\"{outcome}\"}}")
}

#[test]
fn callers_get_the_identities_of_their_rules_and_must_still_send_a_header() {
    run_in_network_namespace(|| {
        if !is_root() {
            return;
        }
        let callers = "[identity.other]\nresources = [\"https://vault.azure.net\"]\n[identity.other.cloud]\n\
            [caller.tools]\nuid = \"0\"\nroutes = [\"identity\", \"health\", \"status\"]\nidentities = [\"azure\"]\n";
        let scene = Scene::start(Duration::from_hours(1), "", callers);
        let any = (HEADER, "any");
        assert_eq!(scene.ask(&url(&scene, ARM), &[any]).status, 200);
        assert_eq!(scene.ask(&url(&scene, ARM), &[]).status, 401);
        // So does a client that fetches a URL with a user and a password.
        assert_eq!(scene.ask(&url(&scene, ARM), &[("Authorization", "Basic eDp5")]).status, 401);
        assert_eq!(scene.ask(&url(&scene, ARM), &[("Authorization", "any")]).status, 200);
        let other = scene.url("other", FORM);
        let answer = scene.ask(&format!("{other}?resource=https://vault.azure.net&{VERSION}"), &[any]);
        assert_eq!((answer.status, &answer.body["message"]), (403, &json!("caller tools may not use that identity")));
        scene.agent.edit(|text| text.replace("routes = [\"identity\", ", "routes = ["));
        scene.agent.reload("ok");
        eventually(Duration::from_secs(10), || match scene.ask(&url(&scene, ARM), &[any]) {
            answer if answer.status == 403 => Ok(()),
            answer => Err(format!("{answer:?}")),
        });
    });
}

#[test]
fn an_outage_of_the_identity_shows_and_its_token_is_given_to_its_end_alone() {
    run_in_network_namespace(|| {
        let scene = Scene::start(Duration::from_secs(6), "", "");
        scene.world.cloud.faults().refuse(true);
        let ask = || scene.ask(&url(&scene, ARM), &[(HEADER, KEY)]);
        assert_eq!(ask().status, 200);
        let answer = eventually(Duration::from_secs(15), || match ask() {
            answer if answer.status == 503 => Ok(answer),
            answer => Err(format!("{answer:?}")),
        });
        assert!(
            answer.retry_after.is_some() && answer.body["message"].as_str().unwrap().contains("expired"),
            "{answer:?}"
        );
        scene.agent.logs("identity.tool_token.expired");
        let component = scene.agent.components()["identity/azure"].clone();
        assert_eq!(component["ready"], json!(false), "{component}");
        scene.world.cloud.faults().refuse(false);
        eventually(Duration::from_secs(30), || match ask() {
            answer if answer.status == 200 => Ok(()),
            answer => Err(format!("{answer:?}")),
        });
        scene.agent.logs("identity.tool_token.recovered");
    });
}

#[test]
fn a_reload_changes_the_listed_resources_and_keeps_the_tokens_of_an_unchanged_identity() {
    run_in_network_namespace(|| {
        let scene = Scene::start(Duration::from_hours(1), "", "");
        let graph = "https://graph.microsoft.com";
        let status = |resource: &str| scene.ask(&url(&scene, resource), &[(HEADER, KEY)]).status;
        reload(&scene, |text| text.replace("[listener.local]\n", "[listener.local]\nmode = \"0600\"\n"));
        assert_eq!((status(graph), scene.upstream_calls()), (403, 2));
        reload(&scene, |text| text.replace("\"https://vault.azure.net\"]", &format!("\"{graph}\"]")));
        eventually(Duration::from_secs(10), || match (status(graph), status("https://vault.azure.net"), status(ARM)) {
            (200, 403, 200) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        assert_eq!(scene.upstream_calls(), 4);
    });
}

#[test]
fn check_online_tries_a_token_for_each_resource() {
    run_in_network_namespace(|| {
        let scene = Scene::start(Duration::from_hours(1), "", "");
        let config = scene.agent.config.display().to_string();
        let (code, out, error) = run(&["check", "--online", "--config", &config], &[]);
        let expected = format!("token for {ARM}");
        assert!(code == 0 && out.contains(&expected) && out.contains("a token until "), "{code} {out} {error}");
        scene.world.cloud.faults().refuse(true);
        let (code, out, error) = run(&["check", "--online", "--config", &config], &[]);
        assert!(code != 0 && out.contains("KW-1122"), "{code} {out} {error}");
    });
}
