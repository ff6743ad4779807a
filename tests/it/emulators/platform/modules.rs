//! The emulated platform's registry modules, by the routes of 2021-06-8 and by those that they replaced.

use http::Method;
use keyward_emulators::platform::{Edition, NEW_REGISTRY_ROUTES, OLD_REGISTRY_ROUTES};
use serde_json::{Value, json};

use crate::harness::platform::{Emulated, text};

const ORG: &str = "/api/v2/organizations/example";
const OLD: &str = "/api/v2/registry-modules";

async fn module(it: &Emulated, name: &str) -> String {
    let path = format!("{ORG}/registry-modules");
    it.make(&path, json!({"name": name, "provider": "aws"})).await;
    format!("{path}/private/example/{name}/aws")
}

/// A token for reading repositories, and the attributes of a module that is read from one.
async fn repository(it: &Emulated, name: &str) -> Value {
    let client =
        json!({"service-provider": "github", "http-url": "https://github.com", "api-url": "https://api.github.com"});
    let client = it.post(&format!("{ORG}/oauth-clients"), client).await.with(201);
    let token = text(&client["data"]["relationships"]["oauth-tokens"]["data"][0]["id"]);
    let response = it.get(&format!("/api/v2/oauth-tokens/{token}")).await.with(200);
    let client = text(&response["data"]["relationships"]["oauth-client"]["data"]["id"]);
    let response = it.get(&format!("/api/v2/oauth-clients/{client}")).await.with(200);
    assert_eq!(response["data"]["relationships"]["organization"]["data"]["id"], "example");
    let identifier = format!("acme/terraform-aws-{name}");
    json!({"vcs-repo": {"identifier": identifier, "display-identifier": identifier, "oauth-token-id": token}})
}

#[tokio::test]
async fn a_module_is_uploaded_and_downloaded_as_terraform_does() {
    let it = Emulated::start();
    let path = module(&it, "vpc").await;
    for version in ["1.2.0", "1.10.0"] {
        let made = it.post(&format!("{path}/versions"), json!({"version": version})).await.with(201);
        let upload = text(&made["data"]["links"]["upload"]);
        it.send(Method::PUT, &upload, None, Some(version.as_bytes().to_vec())).await.with(200);
        let response = it.get(&format!("{path}/{version}")).await.with(200);
        assert_eq!(response["data"]["attributes"]["status"], "ok");
        assert_eq!(it.get(&format!("{path}/version?module_version={version}")).await.with(200), response);
        assert!(response["data"]["links"]["upload"].is_null(), "only the first answer has it: {response}");
    }
    assert!(it.post(&format!("{path}/versions"), json!({"version": "1.2.0"})).await.refused(422).contains("taken"));
    it.post(&format!("{path}/versions"), json!({"version": "2.0.0"})).await.with(201);
    let registry = "/api/registry/v1/modules/example/vpc/aws";
    let versions = it.get(&format!("{registry}/versions")).await.with(200);
    assert_eq!(
        versions["modules"][0]["versions"],
        json!([{"version": "1.2.0"}, {"version": "1.10.0"}]),
        "2.0.0 has no archive"
    );
    assert_eq!(it.get(registry).await.with(200)["version"], "1.10.0");
    let newest = it.get(&format!("{registry}/download")).await;
    assert_eq!(
        (newest.status.as_u16(), newest.header("location")),
        (302, "/api/registry/v1/modules/example/vpc/aws/1.10.0/download")
    );
    let lead = it.get(&format!("{registry}/1.2.0/download")).await;
    let archive = lead.header("x-terraform-get").to_owned();
    assert!(lead.status.as_u16() == 204 && archive.starts_with(it.platform.url()), "{archive}");
    it.platform.faults().relative_downloads(true);
    let relative = it.get(&format!("{registry}/1.2.0/download")).await.header("x-terraform-get").to_owned();
    assert_eq!(format!("{}{relative}", it.platform.url()), archive);
    let got = it.send(Method::GET, &archive, None, None).await.with(200);
    assert_eq!(got, "1.2.0");
    it.platform.faults().blob_mib(Some(1));
    assert_eq!(it.send(Method::GET, &archive, None, None).await.with(200).as_str().unwrap().len(), 1024 * 1024);
    let found = it.get("/api/registry/v1/modules/search?q=vp").await.with(200);
    assert_eq!(found["modules"][0]["id"], "example/vpc/aws/1.10.0");
    it.send(Method::GET, &format!("{registry}/versions"), None, None).await.with(401);
}

#[tokio::test]
async fn each_old_route_does_what_its_replacement_does() {
    let it = Emulated::start();
    it.platform.faults().limit(None);
    let post = async |path: String| it.post(&path, json!({})).await.status.as_u16();
    let path = module(&it, "vpc").await;

    let old = it.get(&format!("{OLD}/show/example/vpc/aws")).await.with(200)["data"].take();
    let new = it.get(&path).await.with(200)["data"].take();
    assert_eq!(old["id"], new["id"]);
    assert!(old["attributes"]["namespace"].is_null() && old["attributes"]["registry-name"].is_null(), "{old}");
    assert_eq!(
        (&new["attributes"]["namespace"], &new["attributes"]["registry-name"]),
        (&json!("example"), &json!("private"))
    );
    assert!(text(&old["relationships"]["organization"]["data"]["id"]).starts_with("org-"), "{old}");
    assert_eq!(new["relationships"]["organization"]["data"]["id"], "example");

    for version in ["1.0.0", "1.1.0"] {
        it.post(&format!("{OLD}/example/vpc/aws/versions"), json!({"version": version})).await.with(201);
    }
    assert_eq!(post(format!("{OLD}/actions/delete/example/vpc/aws/1.0.0")).await, 204);
    it.get(&format!("{path}/1.0.0")).await.with(404);
    it.get(&format!("{path}/1.1.0")).await.with(200);
    assert_eq!(post(format!("{OLD}/actions/delete/example/vpc/aws")).await, 204);
    it.get(&path).await.with(404);
    module(&it, "vpc").await;
    assert_eq!(post(format!("{OLD}/actions/delete/example/vpc")).await, 204);
    assert_eq!(post(format!("{OLD}/actions/delete/example/vpc")).await, 404);

    let made = it.post(OLD, repository(&it, "net").await).await.with(201);
    let attributes = &made["data"]["attributes"];
    assert_eq!(
        (&attributes["name"], &attributes["provider"], &attributes["namespace"]),
        (&json!("net"), &json!("aws"), &json!("example"))
    );
    it.post(&format!("{ORG}/registry-modules/vcs"), repository(&it, "dns").await).await.with(201);
    let mut unusual = repository(&it, "new").await;
    unusual["vcs-repo"]["oauth-token-id"] = "ot-none".into();
    assert!(it.post(OLD, unusual).await.refused(422).contains("does not exist"));
    for name in ["net", "dns"] {
        it.delete(&format!("{ORG}/registry-modules/private/example/{name}/aws")).await.with(204);
    }
}

#[tokio::test]
async fn either_set_of_routes_can_be_removed_and_similar_routes_remain() {
    let it = Emulated::start();
    it.platform.faults().limit(None);
    module(&it, "vpc").await;
    let id = text(&it.get(&format!("{ORG}/registry-modules")).await.with(200)["data"][0]["id"]);
    let body = repository(&it, "net").await;
    let faults = it.platform.faults();
    let fill = |route: &str| {
        let mut path = route.split_once(' ').unwrap().1.to_owned();
        for (name, value) in [
            ("organization", "example"),
            ("registry", "private"),
            ("namespace", "example"),
            ("name", "vpc"),
            ("provider", "aws"),
            ("version", "1.0.0"),
        ] {
            path = path.replace(&format!("{{{name}}}"), value);
        }
        path
    };
    let there = async |route: &str| {
        let method: Method = route.split_once(' ').unwrap().0.parse().unwrap();
        faults.forget_calls();
        let sent = json!({"data": {"attributes": body}}).to_string().into_bytes();
        it.send(method, &fill(route), Some(it.token()), Some(sent)).await;
        let call = faults.calls().pop().unwrap();
        assert_eq!(format!("{} {}", call.method, call.route), route, "each is a route of its own");
        call.status
    };
    for (removed, left) in [(OLD_REGISTRY_ROUTES, NEW_REGISTRY_ROUTES), (NEW_REGISTRY_ROUTES, OLD_REGISTRY_ROUTES)] {
        faults.routes(removed, false);
        for route in removed {
            assert_eq!(there(route).await, 404, "{route}");
        }
        for looks_alike in [format!("{OLD}/{id}"), format!("{OLD}/example/vpc/aws/commits")] {
            it.get(&looks_alike).await.with(200);
        }
        // Nothing is removed before the list is read.
        assert_eq!(there(left[5]).await, 200);
        faults.routes(removed, true);
    }
}

#[tokio::test]
async fn names_survive_percent_signs_and_public_modules_are_hosted_only() {
    let it = Emulated::start();
    it.make(&format!("{ORG}/registry-modules"), json!({"name": "a b/c", "provider": "p%q"})).await;
    let response = it.get(&format!("{OLD}/show/example/a%20b%2Fc/p%25q")).await.with(200);
    assert_eq!(response["data"]["attributes"]["name"], "a b/c");
    // One client leaves a slash between where a segment was.
    it.delete(&format!("{ORG}/registry-modules/private/example/a%20b%2Fc//p%25q")).await.with(204);

    let public = json!({"name": "vpc", "provider": "aws", "namespace": "acme", "registry-name": "public"});
    it.make(&format!("{ORG}/registry-modules"), public.clone()).await;
    let path = format!("{ORG}/registry-modules/public/acme/vpc/aws");
    it.get(&path).await.with(200);
    it.platform.faults().edition(Edition::SelfManaged { release: "v202207-1".to_owned() });
    it.get(&path).await.with(404);
    it.post(&format!("{ORG}/registry-modules"), public).await.with(404);
}
