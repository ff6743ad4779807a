//! AWS: roles of the type `iam`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use keyward_agent::identity::{
    AwsCredentialOrigin, AwsEndpoints, AwsIdentityOptions, IdentityProof, ProviderVariables,
};
use keyward_emulators::cloud::{AwsNames, CloudProvider};
use keyward_emulators::secrets::{AwsMethod, AwsRole, CloudMethod, Role};
use keyward_machine::clock::Clock;
use serde_json::{Value, json};

use super::Scene;

const SERVER_ID: &str = "vault.example.com";

impl Scene {
    fn aws() -> Self {
        let role = |arn: String| AwsRole {
            bound_iam_principal_arns: vec![arn],
            role: Role { policies: vec!["machines".to_owned()], ..Role::default() },
        };
        let other = AwsNames::role_arn().replace(AwsNames::ROLE, "another");
        let roles = BTreeMap::from([("web".to_owned(), role(AwsNames::role_arn())), ("other".to_owned(), role(other))]);
        let real_roles = roles.clone();
        let method = |sts| ("aws", CloudMethod::Aws(AwsMethod { sts, server_id: Some(SERVER_ID.to_owned()), roles }));
        let scene = Self::start(CloudProvider::Aws, method);
        scene
            .configure("auth/aws/config/client", &json!({ "iam_server_id_header_value": SERVER_ID, "max_retries": 0 }));
        for (name, role) in real_roles {
            // Otherwise the server asks IAM for the unique id of the principal.
            let body = json!({
                "auth_type": "iam", "bound_iam_principal_arn": role.bound_iam_principal_arns,
                "resolve_aws_unique_ids": false, "token_policies": role.role.policies, "token_ttl": 3600,
            });
            scene.configure(&format!("auth/aws/role/{name}"), &body);
        }
        scene
    }
}

#[test]
fn the_methods_of_vault_admit_a_role_of_aws_by_its_signed_request() {
    let scene = Scene::aws();
    let web = "aws]\nrole = \"web\"\nserver_id = \"vault.example.com\"";
    for server in scene.servers() {
        scene.admits(server, web, "machines");
        scene.admits(server, &format!("{web}\ncredentials = \"instance\""), "machines");
    }
    // With another endpoint, a request for the global one has the signature of another host.
    let endpoint = format!("https://sts.{}.amazonaws.com", AwsNames::REGION);
    scene.configure("auth/aws/config/client", &json!({ "sts_endpoint": endpoint, "sts_region": AwsNames::REGION }));
    scene.admits(&scene.real.url, &format!("{web}\nregion = \"{}\"", AwsNames::REGION), "machines");
    let asked = |host: &str| scene.tunnel.heads().iter().any(|head| head.starts_with(&format!("CONNECT {host}:443 ")));
    assert!(asked("sts.amazonaws.com") && asked("sts.eu-west-1.amazonaws.com"), "{:?}", scene.tunnel.heads());
}

#[test]
fn the_methods_of_vault_refuse_other_servers_principals_and_times_of_aws() {
    let scene = Scene::aws();
    let web = "aws]\nrole = \"web\"\nserver_id = \"vault.example.com\"";
    for server in scene.servers() {
        scene.refuses(server, "aws]\nrole = \"web\"", "missing header");
        scene.refuses(
            server,
            "aws]\nrole = \"web\"\nserver_id = \"other.example.com\"",
            "expected \"vault.example.com\"",
        );
        scene.refuses(server, &web.replace("web", "other"), "does not belong to the role");
        scene.refuses(server, &web.replace("web", "missing"), "entry for role missing not found");
        // The emulated STS stands for the endpoints of all regions; a server whose own is in another region would refuse this.
        scene.admits(server, &format!("{web}\nregion = \"eu-west-1\""), "machines");
        let faults = scene.cloud.faults();
        faults.skew(3600);
        scene.refuses(server, web, "Signature expired");
        faults.reset();
        faults.skew(-3600);
        scene.refuses(server, web, "Signature not yet current");
        faults.reset();
        scene.admits(server, web, "machines");
    }
}

#[test]
fn a_changed_request_of_aws_is_refused() {
    let scene = Scene::aws();
    let metadata = ("AWS_EC2_METADATA_SERVICE_ENDPOINT".to_owned(), scene.cloud.metadata_url().to_string());
    let options = AwsIdentityOptions {
        origin: AwsCredentialOrigin::Automatic,
        server_id: Some(SERVER_ID.to_owned()),
        region: None,
        variables: ProviderVariables::of_aws([metadata]),
        endpoints: AwsEndpoints::provider(),
    };
    let proof = scene.runtime.block_on(async { options.build(Clock::System).unwrap().prove().await.unwrap() });
    let IdentityProof::CallerIdentity(signed) = proof else { panic!("{proof:?}") };
    let headers: Value = serde_json::from_str(signed.headers.expose_secret()).unwrap();
    let encode = |text: &str| BASE64_STANDARD.encode(text);
    for server in scene.servers() {
        let log_in = |url: &str, body: &str, headers: &Value| {
            let login = json!({
                "role": "web", "iam_http_request_method": "POST", "iam_request_url": encode(url),
                "iam_request_body": encode(body), "iam_request_headers": encode(&headers.to_string()),
            });
            scene.post(server, "auth/aws/login", &login)
        };
        let check = |(status, text): (u16, String), expected: &str| {
            assert!(status == 400 && text.contains(expected), "{server}: {status} {text}");
        };
        let (status, text) = log_in(&signed.url, signed.body, &headers);
        assert_eq!(status, 200, "{text}");
        let mismatch = "SignatureDoesNotMatch";
        // Sent to STS all the same, where the signature is of another host.
        check(log_in("https://evil.example.com/", signed.body, &headers), mismatch);
        check(log_in("https://sts.eu-west-1.amazonaws.com/", signed.body, &headers), mismatch);
        check(log_in(&signed.url, "Action=GetCallerIdentity&Version=2012-01-01", &headers), mismatch);
        check(log_in(&signed.url, "Action=AssumeRole&Version=2011-06-15", &headers), "iam request body is invalid");
        check(log_in("https://sts.amazonaws.com/?Action=AssumeRole", signed.body, &headers), "invalid request");
        for (name, value, expected) in [
            ("X-Amz-Date", "20260101T000000Z", mismatch),
            ("X-Amz-Security-Token", "another", mismatch),
            ("X-Vault-AWS-IAM-Server-ID", "other", "expected"),
            ("X-Amz-Target", "other", "invalid request header"),
        ] {
            let mut changed = headers.clone();
            changed[name] = json!([value]);
            check(log_in(&signed.url, signed.body, &changed), expected);
        }
    }
}
