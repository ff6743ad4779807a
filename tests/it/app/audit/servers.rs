//! Records of the ACL server and the gateway.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::{FILE, responses, with_audit};
use crate::harness::agent::Agent;
use crate::harness::binary::eventually;
use crate::harness::issuer::Key;
use crate::harness::world::{World, run_in_network_namespace};

/// Waits until this many responses of a path are recorded: those that no request waits for are collected first.
fn recorded<const N: usize>(agent: &Agent, path: &str) -> [Value; N] {
    eventually(Duration::from_secs(10), || responses(agent, path).try_into().map_err(|found| format!("{found:#?}")))
}

/// A request with these headers and this body: status and body.
fn call(socket: &Path, request: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n");
    stream.write_all(format!("{head}{headers}\r\n{body}").as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{response:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn the_acl_server_records_who_changed_what_and_the_gateway_who_wrote_what() {
    run_in_network_namespace(|| {
        let world = World::start();
        let platform = world.platform.faults().mint("first").token;
        let url = world.platform.url().to_owned();
        let agent = Agent::ready(&world, &[], move |text| {
            let text = with_audit(FILE)(text);
            let folder = &text[text.find("unix://").unwrap() + 7..text.find("/api.sock").unwrap()];
            std::fs::write(format!("{folder}/platform"), platform.expose_secret()).unwrap();
            format!(
                "{text}[acl]\nlisten = \"unix://FOLDER/acl.sock\"\ndata_dir = \"FOLDER/acl\"\n[gateway]\nupstream = \"{url}\"\n\
                 listen = \"unix://FOLDER/gateway.sock\"\ntoken_file = \"FOLDER/platform\"\nlocal_token_file = \"FOLDER/local\"\n"
            )
        });
        let (acl, gateway) = (agent.path("acl.sock"), agent.path("gateway.sock"));
        let (status, body) = call(&acl, "PUT /v1/acl/bootstrap", "", "");
        assert_eq!(status, 200, "{body}");
        let made: Value = serde_json::from_str(&body).unwrap();
        let secret = made["SecretID"].as_str().unwrap().to_owned();
        let token = format!("X-Consul-Token: {secret}\r\n");
        let (status, body) = call(
            &acl,
            "PUT /v1/acl/policy",
            &token,
            r#"{"Name": "p", "Rules": "key \"canary\" { policy = \"read\" }"}"#,
        );
        assert_eq!(status, 200, "{body}");
        let policy: Value = serde_json::from_str(&body).unwrap();
        let stranger = "X-Consul-Token: 11111111-2222-3333-4444-555555555555\r\n";
        assert_eq!(call(&acl, "GET /v1/acl/tokens", stranger, "").0, 403);
        let local = std::fs::read_to_string(agent.path("local")).unwrap();
        let bearer = format!("Authorization: Bearer {}\r\n", local.trim());
        let (status, body) = call(&gateway, "GET /api/v2/organizations", &bearer, "");
        assert_eq!(status, 200, "{body}");
        assert_eq!(call(&gateway, "GET /api/v2/organizations", "Authorization: Bearer canary\r\n", "").0, 401);

        let [create] = recorded(&agent, "/v1/acl/policy");
        let expected = ("acl", "policy.create", policy["ID"].as_str().unwrap(), "granted");
        let text = |record: &Value, key: &str| record[key].as_str().unwrap_or_default().to_owned();
        let found = ["part", "operation", "subject", "decision"].map(|key| text(&create, key));
        assert_eq!(found, [expected.0, expected.1, expected.2, expected.3].map(str::to_owned), "{create:#}");
        assert!(text(&create, "accessor").starts_with("hmac-sha256:"), "{create:#}");
        let [refused] = recorded(&agent, "/v1/acl/tokens");
        assert_eq!((&refused["decision"], &refused["status"]), (&"refused".into(), &403.into()), "{refused:#}");
        let [served, stopped] = recorded(&agent, "/api/v2/organizations");
        assert_eq!((&served["part"], &served["upstream_status"]), (&"gateway".into(), &200.into()), "{served:#}");
        assert_eq!((&stopped["decision"], &stopped["status"]), (&"refused".into(), &401.into()), "{stopped:#}");
        let all = std::fs::read_to_string(agent.path("audit/audit.jsonl")).unwrap();
        for secret_text in [&secret, local.trim(), "canary"] {
            assert!(!all.contains(secret_text), "the audit holds a secret");
        }
        let (status, _) = agent.binary.stop();
        assert!(status.success());
    });
}

#[test]
fn the_acl_server_records_the_accessor_of_cached_reads_logins_logouts_and_restores() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], move |text| {
            format!("{}[acl]\nlisten = \"unix://FOLDER/acl.sock\"\ndata_dir = \"FOLDER/acl\"\n", with_audit(FILE)(text))
        });
        let acl = agent.path("acl.sock");
        let ok = |request: &str, token: &str, body: Value| -> Value {
            let header = if token.is_empty() { String::new() } else { format!("X-Consul-Token: {token}\r\n") };
            let (status, text) = call(&acl, request, &header, &body.to_string());
            assert_eq!(status, 200, "{request}: {text}");
            serde_json::from_str(&text).unwrap()
        };
        let made = ok("PUT /v1/acl/bootstrap", "", json!({}));
        let root = made["SecretID"].as_str().unwrap();
        let key = Key::shared("one");
        let method = json!({"Name": "fleet", "Type": "jwt", "Config": {"JWTValidationPubKeys": [key.pem()]}});
        ok("PUT /v1/acl/auth-method", root, method);
        let rule = json!({"AuthMethod": "fleet", "BindType": "service", "BindName": "web"});
        ok("PUT /v1/acl/binding-rule", root, rule);
        // The second read and the third come from the cache of responses.
        for _ in 0..3 {
            ok("GET /v1/acl/policies", root, Value::Null);
        }
        assert_eq!(call(&acl, "GET /v1/acl/roles", "", "").0, 403);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let proof = key.sign(&json!({"exp": now + 3600, "iat": now - 60}));
        let login = ok("POST /v1/acl/login", "", json!({"AuthMethod": "fleet", "BearerToken": proof}));
        let own = login["SecretID"].as_str().unwrap();
        for _ in 0..2 {
            ok("GET /v1/acl/token/self", own, Value::Null);
        }
        ok("POST /v1/acl/logout", own, Value::Null);
        let answer = json!({"AuthMethod": "fleet", "State": "state-canary", "Code": "code-canary", "ClientNonce": "nonce-canary"});
        let callback = "POST /v1/acl/oidc/callback";
        assert_eq!(
            call(&acl, &format!("{callback}?code=code-canary&state=state-canary"), "", &answer.to_string()).0,
            400
        );
        assert_eq!(call(&acl, "PUT /v1/snapshot", &format!("X-Consul-Token: {root}\r\n"), "no snapshot").0, 400);

        let [callback] = recorded(&agent, "/v1/acl/oidc/callback");
        assert_eq!((&callback["operation"], &callback["status"]), (&"login.oidc".into(), &400.into()), "{callback:#}");
        let all = std::fs::read_to_string(agent.path("audit/audit.jsonl")).unwrap() + &agent.binary.output();
        assert!(!all.contains("-canary"), "a record or the log has a code, a state or a nonce");
        let accessor = |record: &Value| record["accessor"].as_str().unwrap_or_default().to_owned();
        let reads: [Value; 3] = recorded(&agent, "/v1/acl/policies");
        let [create] = recorded(&agent, "/v1/acl/auth-method");
        assert!(accessor(&create).starts_with("hmac-sha256:"), "{create:#}");
        assert!(reads.iter().all(|read| accessor(read) == accessor(&create)), "{reads:#?}");
        let [bootstrap] = recorded(&agent, "/v1/acl/bootstrap");
        assert_eq!(accessor(&bootstrap), accessor(&create), "{bootstrap:#}");
        let [restore] = recorded(&agent, "/v1/snapshot");
        assert_eq!(accessor(&restore), accessor(&create), "{restore:#}");
        let [anonymous] = recorded(&agent, "/v1/acl/roles");
        assert_eq!(accessor(&anonymous), "", "{anonymous:#}");
        let [login] = recorded(&agent, "/v1/acl/login");
        assert!(accessor(&login).starts_with("hmac-sha256:") && accessor(&login) != accessor(&create), "{login:#}");
        let own: [Value; 2] = recorded(&agent, "/v1/acl/token/self");
        let [logout] = recorded(&agent, "/v1/acl/logout");
        for record in own.iter().chain([&logout]) {
            assert_eq!(accessor(record), accessor(&login), "{record:#}");
        }
        let (status, _) = agent.binary.stop();
        assert!(status.success());
    });
}

#[test]
fn a_request_to_the_acl_server_whose_path_only_ends_like_a_probe_is_recorded() {
    run_in_network_namespace(|| {
        let world = World::start();
        let agent = Agent::ready(&world, &[], move |text| {
            format!("{}[acl]\nlisten = \"unix://FOLDER/acl.sock\"\ndata_dir = \"FOLDER/acl\"\n", with_audit(FILE)(text))
        });
        let acl = agent.path("acl.sock");
        let (status, body) = call(&acl, "PUT /v1/acl/bootstrap", "", "");
        assert_eq!(status, 200, "{body}");
        let made: Value = serde_json::from_str(&body).unwrap();
        let root = format!("X-Consul-Token: {}\r\n", made["SecretID"].as_str().unwrap());
        let stranger = "X-Consul-Token: 11111111-2222-3333-4444-555555555555\r\n";
        // The name of a policy.
        let path = "/v1/acl/policy/name/sys/health";
        assert_eq!(call(&acl, "PUT /v1/acl/policy", &root, r#"{"Name": "sys/health"}"#).0, 200);
        assert_eq!(call(&acl, &format!("GET {path}"), &root, "").0, 200);
        assert_eq!(call(&acl, &format!("GET {path}"), stranger, "").0, 403);
        assert_eq!(call(&acl, "GET /v1/sys/health", "", "").0, 200);
        let [own, guessed] = recorded(&agent, path);
        assert_eq!((&own["operation"], &own["status"]), (&"policy.read".into(), &200.into()), "{own:#}");
        assert_eq!((&guessed["decision"], &guessed["status"]), (&"refused".into(), &403.into()), "{guessed:#}");
        assert!(responses(&agent, "/v1/sys/health").is_empty(), "a probe is recorded only where it is refused");
        let (status, _) = agent.binary.stop();
        assert!(status.success());
    });
}
