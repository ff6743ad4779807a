//! The emulated Vault, as the agent's own client sees it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keyward_agent::identity::LoginFields;
use keyward_agent::login;
use keyward_agent::login::{Login, LoginError};
use keyward_agent::server_client::{CallError, LoginRequest, ServerClient, TokenVerdict};
use keyward_agent::token::TokenKind;
use keyward_credentials::jwt::UnverifiedClaims;
use keyward_emulators::cloud::Cloud;
use keyward_emulators::secrets::{
    Bounds, CannedResponse, FaultListener, Operation, Role, Secrets, SecretsOptions, TokenType, Verification,
};
use keyward_machine::clock::Clock;
use keyward_machine::secret_string::SecretString;
use keyward_machine::tasks::TaskGroup;

use crate::harness::cloud::options_with_shared_keys;
use crate::harness::secrets::{Bench, login_options, options as options_of, proof};

#[tokio::test(start_paused = true)]
async fn tokens_are_issued_looked_up_renewed_to_their_maximum_and_revoked() {
    let role = Role { ttl: Duration::from_mins(10), max_ttl: Some(Duration::from_mins(15)), ..Role::default() };
    let bench = Bench::new(role);
    let token = bench.login().login(&proof("a.b.c"), &bench.clock).await.unwrap();
    assert_eq!(
        (token.lease.ttl, token.lease.renewable, token.kind),
        (Duration::from_mins(10), true, TokenKind::Service)
    );
    tokio::time::advance(Duration::from_mins(8)).await;
    let lookup = bench.upstream.lookup_self(&token.secret, None).await.unwrap();
    assert_eq!((lookup.lease.ttl, lookup.accessor), (Duration::from_mins(2), token.accessor));
    let renewed = bench.upstream.renew_self(&token.secret, None).await.unwrap();
    assert_eq!(renewed.lease.ttl, Duration::from_mins(7), "the maximum of fifteen minutes shortens the lease");
    bench.upstream.revoke_self(&token.secret, None).await.unwrap();
    let error = bench.upstream.lookup_self(&token.secret, None).await.unwrap_err();
    assert_eq!(error.verdict(), TokenVerdict::Dead, "{error}");
    let counts = bench.secrets.faults().counts();
    assert_eq!((counts.get(Operation::Login), counts.get(Operation::Lookup), counts.total()), (1, 2, 5));
}

#[tokio::test]
async fn no_other_program_gets_the_port_while_the_server_is_away() {
    let bench = Bench::new(Role::default());
    bench.secrets.faults().go_away().await;
    let address = bench.secrets.url().strip_prefix("http://").unwrap().parse().unwrap();
    let error = tokio::net::TcpSocket::new_v4().unwrap().bind(address).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    bench.secrets.faults().come_back().await;
    bench.login().login(&proof("a.b.c"), &bench.clock).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_when_its_lease_does() {
    let bench = Bench::new(Role { ttl: Duration::from_mins(10), ..Role::default() });
    let token = bench.login().login(&proof("a.b.c"), &bench.clock).await.unwrap();
    tokio::time::advance(Duration::from_mins(10)).await;
    assert!(bench.upstream.renew_self(&token.secret, None).await.unwrap_err().is_token_dead());
}

#[tokio::test(start_paused = true)]
async fn roles_decide_the_token_type() {
    let batch = Bench::new(Role { token_type: TokenType::Batch, ..Role::default() });
    let token = batch.login().login(&proof("a.b.c"), &batch.clock).await.unwrap();
    assert_eq!((&token.kind, token.lease.renewable), (&TokenKind::Batch, false));
    assert!(batch.upstream.lookup_self(&token.secret, None).await.unwrap().batch);
    assert_eq!(batch.upstream.renew_self(&token.secret, None).await.unwrap_err().verdict(), TokenVerdict::Refused);

    let limited = Bench::new(Role { num_uses: 3, ..Role::default() });
    let error = limited.login().login(&proof("a.b.c"), &limited.clock).await.unwrap_err();
    assert!(error.to_string().contains("token_num_uses = 0"), "{error}");
    assert_eq!(limited.secrets.faults().tokens(), 0, "it is revoked");
}

#[tokio::test(start_paused = true)]
async fn a_wrapped_login_gives_a_token_that_unwraps_once() {
    let bench = Bench::new(Role::default());
    let options = login::LoginOptions { wrap_ttl: Some(Duration::from_mins(2)), ..login_options() };
    let token = Login::new(bench.upstream.clone(), options).login(&proof("a.b.c"), &bench.clock).await.unwrap();
    let TokenKind::Wrapping { creation_path, creation_time } = &token.kind else { panic!("{token:?}") };
    assert_eq!(creation_path, "auth/azure/login");
    assert!(creation_time.starts_with("2027-"), "{creation_time}");
    assert_eq!((token.lease.ttl, token.lease.renewable), (Duration::from_mins(2), false));
}

#[tokio::test(start_paused = true)]
async fn fault_injection_covers_every_kind_of_failure() {
    let bench = Bench::new(Role::default());
    let (faults, login) = (bench.secrets.faults(), bench.login());
    let try_once = async || login.login(&proof("a.b.c"), &bench.clock).await;

    faults.fail_next_login(2);
    assert!(matches!(try_once().await, Err(LoginError::Unavailable { .. })));
    assert!(try_once().await.is_err());
    let token = try_once().await.unwrap();

    faults.respond_next(Operation::Login, CannedResponse::error(429, "quota").retry_after("7"));
    assert_eq!(try_once().await.unwrap_err().retry_after(), Some(Duration::from_secs(7)));

    faults.go_away().await;
    let error = bench.upstream.lookup_self(&token.secret, None).await.unwrap_err();
    assert!(matches!(&error, CallError::Unreachable { cause } if cause.contains("refused")), "{error}");
    faults.come_back().await;
    bench.upstream.lookup_self(&token.secret, None).await.unwrap();

    faults.set_unresponsive(true);
    let start = tokio::time::Instant::now();
    assert!(matches!(bench.upstream.lookup_self(&token.secret, None).await, Err(CallError::TimedOut { .. })));
    assert_eq!(start.elapsed().as_secs(), 10);
    assert!(matches!(try_once().await, Err(LoginError::Unavailable { .. })));
    assert_eq!(start.elapsed().as_secs(), 100, "a login's answer may take 90 s");
    faults.set_unresponsive(false);

    faults.garbage(true);
    assert!(matches!(bench.upstream.lookup_self(&token.secret, None).await, Err(CallError::InvalidResponse { .. })));
    faults.garbage(false);

    faults.refuse_renewals(true);
    assert_eq!(bench.upstream.renew_self(&token.secret, None).await.unwrap_err().verdict(), TokenVerdict::Denied);
    bench.upstream.lookup_self(&token.secret, None).await.unwrap();
    faults.lose_state();
    assert!(bench.upstream.lookup_self(&token.secret, None).await.unwrap_err().is_token_dead());
}

/// The emulated cloud, and an emulated Vault that believes only it.
struct Pair {
    cloud: Cloud,
    secrets: Secrets,
    upstream: ServerClient,
    _folder: tempfile::TempDir,
    _tasks: TaskGroup,
}

const ARM: &str = "https://management.azure.com/";

impl Pair {
    /// With one role for each kind of bound.
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut tasks = TaskGroup::default();
        let cloud = Cloud::start(options_with_shared_keys(folder.path().join("cloud")), &mut tasks).unwrap();
        let us =
            Bounds { service_principal_ids: vec![cloud.identities().system.object_id.clone()], ..Bounds::default() };
        let group = machine(&cloud).resource_group_name.unwrap().to_uppercase();
        let one = |name: &str| vec![name.to_owned()];
        let roles = [
            ("open", Bounds::default()),
            ("other", Bounds { service_principal_ids: one("other"), ..Bounds::default() }),
            ("groups", Bounds { group_ids: one("admins"), ..Bounds::default() }),
            ("group", Bounds { resource_groups: vec![group], ..us.clone() }),
            ("elsewhere", Bounds { resource_groups: one("x"), ..us.clone() }),
            ("set", Bounds { scale_sets: one("set"), ..us.clone() }),
            ("dev", us),
        ];
        let roles = roles.map(|(name, bounds)| (name.to_owned(), Role { bounds, ..Role::default() }));
        let verification = Verification::Cloud {
            discovery: format!("{}.well-known/openid-configuration", cloud.issuer()).parse().unwrap(),
            ca_file: cloud.ca_file(),
            audience: ARM.to_owned(),
        };
        let roles = roles.into_iter().collect();
        let options =
            SecretsOptions { verification, roles, ..SecretsOptions::for_anyone(Clock::System, "dev", Role::default()) };
        let secrets = Secrets::start(options, &mut tasks).unwrap();
        let upstream = ServerClient::build(&options_of(secrets.url())).unwrap();
        Self { cloud, secrets, upstream, _folder: folder, _tasks: tasks }
    }

    async fn jwt(&self, resource: &str) -> String {
        let base = self.cloud.metadata_url();
        let url = format!("{base}metadata/identity/oauth2/token?api-version=2018-02-01&resource={resource}");
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let response = http.get(url).header("metadata", "true").send().await.unwrap();
        let response: serde_json::Value = response.json().await.unwrap();
        response["access_token"].as_str().unwrap().to_owned()
    }

    /// Logs in with a proof and fields; gives the server's own words if it refuses.
    async fn try_with(&self, role: &str, jwt: &str, fields: LoginFields) -> Result<(), String> {
        let jwt = SecretString::from(jwt);
        let body = LoginRequest {
            role,
            jwt: &jwt,
            subscription_id: fields.subscription_id.as_deref(),
            resource_group_name: fields.resource_group_name.as_deref(),
            vm_name: fields.vm_name.as_deref(),
            vmss_name: fields.vmss_name.as_deref(),
            resource_id: fields.resource_id.as_deref(),
        };
        match self.upstream.login("azure", None, None, &body).await {
            Ok(_) => Ok(()),
            Err(CallError::Status { status, errors, .. }) => Err(format!("{status} {}", errors.join(""))),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Login fields of the emulated machine: subscription, group, name.
fn machine(cloud: &Cloud) -> LoginFields {
    let id = cloud.machine_id();
    let parts: Vec<&str> = id.split('/').collect();
    LoginFields {
        subscription_id: Some(parts[2].to_owned()),
        resource_group_name: Some(parts[4].to_owned()),
        vm_name: Some(parts[8].to_owned()),
        ..LoginFields::default()
    }
}

fn refused(found: Result<(), String>, expected: &str) {
    let error = found.expect_err(expected);
    assert!(error.contains(expected), "{error} instead of {expected}");
}

#[tokio::test]
async fn a_proof_is_checked_as_the_real_auth_method_checks_it() {
    let pair = Pair::start();
    let none = LoginFields::default;
    let jwt = pair.jwt(ARM).await;
    pair.try_with("dev", &jwt, none()).await.unwrap();

    let bare = pair.jwt("https://management.azure.com").await;
    refused(
        pair.try_with("dev", &bare, none()).await,
        "500 oidc: expected audience \"https://management.azure.com/\" got [",
    );
    refused(pair.try_with("dev", "abc", none()).await, "500 oidc: malformed jwt");
    refused(pair.try_with("dev", "", none()).await, "400 jwt is required");

    let (head, rest) = jwt.split_once('.').unwrap();
    let (claims, signature) = rest.split_once('.').unwrap();
    let other = pair.jwt(ARM).await;
    let other = other.rsplit_once('.').unwrap().1;
    assert_ne!(signature, other);
    refused(pair.try_with("dev", &format!("{head}.{claims}.{other}"), none()).await, "500 failed to verify signature");

    let unsigned = "eyJhbGciOiJub25lIn0";
    refused(pair.try_with("dev", &format!("{unsigned}.{claims}."), none()).await, "500 oidc: ");
    let foreign = URL_SAFE_NO_PAD.encode(format!(r#"{{"iss": "https://sts.windows.net/x/", "aud": "{ARM}"}}"#));
    let expected = "500 oidc: id token issued by a different provider, expected";
    refused(pair.try_with("dev", &format!("{head}.{foreign}.{signature}"), none()).await, expected);
}

#[tokio::test]
async fn a_proof_is_good_from_nbf_to_exp_without_leeway() {
    let pair = Pair::start();
    let jwt = pair.jwt(ARM).await;
    let claims = UnverifiedClaims::decode(&jwt).unwrap();
    let now = Clock::System.now().wall;
    let to_end = claims.exp.unwrap().duration_since(now).unwrap().as_secs();
    let since_start = now.duration_since(claims.nbf.unwrap()).unwrap().as_secs();
    let at = async |skew: i64| {
        pair.secrets.faults().skew(skew);
        pair.try_with("dev", &jwt, LoginFields::default()).await
    };
    let (to_end, since_start) = (i64::try_from(to_end).unwrap(), i64::try_from(since_start).unwrap());
    at(to_end - 5).await.unwrap();
    refused(at(to_end + 5).await, "500 oidc: token is expired (Token Expiry: ");
    at(5 - since_start).await.unwrap();
    refused(at(-since_start - 15).await, "500 token is not yet valid (Token Not Before: ");
    refused(at(-since_start - 400).await, "500 oidc: current time ");
}

#[tokio::test]
async fn roles_admit_bound_identities() {
    let pair = Pair::start();
    let jwt = pair.jwt(ARM).await;
    let check = async |role: &str, expected: &str| {
        refused(pair.try_with(role, &jwt, LoginFields::default()).await, expected);
    };
    check("open", "500 expected specific bound_group_ids or bound_service_principal_ids; both cannot be empty").await;
    check("other", "500 service principal not authorized: ").await;
    check("groups", "500 groups not authorized: []").await;
    check("none", "400 invalid role name \"none\"").await;
    pair.try_with("DEV", &jwt, LoginFields::default()).await.unwrap();
}

#[tokio::test]
async fn machine_bounds_require_fields_that_match_the_claims() {
    let pair = Pair::start();
    let jwt = pair.jwt(ARM).await;
    let good = machine(&pair.cloud);
    let with = |change: &dyn Fn(&mut LoginFields)| {
        let mut fields = good.clone();
        change(&mut fields);
        fields
    };
    pair.try_with("group", &jwt, good.clone()).await.unwrap();
    let check = async |change: &dyn Fn(&mut LoginFields), expected: &str| {
        refused(pair.try_with("group", &jwt, with(change)).await, expected);
    };
    check(&|fields| fields.subscription_id = None, "500 subscription_id and resource_group_name are required").await;
    check(&|fields| fields.subscription_id = Some("x".into()), "400 invalid subscription id \"x\"").await;
    check(&|fields| fields.resource_group_name = Some("x.".into()), "400 invalid resource group name \"x.\"").await;
    check(&|fields| fields.vm_name = Some("0vm".into()), "400 invalid vm name \"0vm\"").await;
    check(&|fields| fields.vm_name = Some("other".into()), "500 xms_az_rid token claim does not match vm_name").await;
    check(&|fields| fields.vmss_name = Some("set".into()), "500 failed to verify flexible vmss claim").await;
    check(&|fields| fields.vm_name = None, "500 provided resource_id does not match resource_group_name").await;
    check(&|fields| fields.resource_group_name = Some("other".into()), "does not match resource_group_name").await;
    let zero = "00000000-0000-0000-0000-000000000000";
    check(&|fields| fields.subscription_id = Some(zero.into()), "500 unable to retrieve virtual machine metadata")
        .await;
    let resource = pair.cloud.machine_id();
    let by_id = with(&|fields| (fields.vm_name, fields.resource_id) = (None, Some(resource.clone())));
    pair.try_with("group", &jwt, by_id).await.unwrap();

    refused(pair.try_with("elsewhere", &jwt, good.clone()).await, "500 resource group not authorized");
    refused(pair.try_with("set", &jwt, good).await, "500 bound scale set defined but this vm isn't in a scale set");
}

#[tokio::test]
async fn a_token_reads_a_secret_and_a_dead_one_does_not() {
    let pair = Pair::start();
    let (client, url) = (reqwest::Client::builder().no_proxy().build().unwrap(), pair.secrets.url());
    let login = client
        .post(format!("{url}/v1/auth/azure/login"))
        .header("x-vault-wrap-ttl", "2m")
        .json(&serde_json::json!({ "role": "dev", "jwt": pair.jwt(ARM).await }));
    let wrapped: serde_json::Value = login.send().await.unwrap().json().await.unwrap();
    let unwrap = || client.post(format!("{url}/v1/sys/wrapping/unwrap")).json(&wrapped["wrap_info"]);
    let response: serde_json::Value = unwrap().send().await.unwrap().json().await.unwrap();
    assert_eq!(response["auth"]["metadata"]["role"], "dev");
    assert_eq!(unwrap().send().await.unwrap().status(), 400, "a wrapping token is good once");
    let token = response["auth"]["client_token"].as_str().unwrap();
    let read = || client.get(format!("{url}/v1/secret/data/example")).header("x-vault-token", token);
    let secret: serde_json::Value = read().send().await.unwrap().json().await.unwrap();
    assert!(secret["data"]["data"]["greeting"].is_string());
    assert_eq!(read().header("x-vault-namespace", "other").send().await.unwrap().status(), 403);
    pair.secrets.faults().revoke_all();
    assert_eq!(read().send().await.unwrap().status(), 403);
}

#[tokio::test]
async fn invalid_tokens_get_the_error_of_vault_or_openbao() {
    let mut tasks = TaskGroup::default();
    let secrets =
        Secrets::start(SecretsOptions::for_anyone(Clock::System, "dev", Role::default()), &mut tasks).unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (openbao, expected) in
        [(false, "2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n"), (true, "permission denied")]
    {
        secrets.faults().respond_as_openbao(openbao);
        for path in ["secret/data/example", "auth/token/lookup-self"] {
            let read = client.get(format!("{}/v1/{path}", secrets.url())).header("x-vault-token", "hvs.gone");
            let response = read.send().await.unwrap();
            assert_eq!(response.status(), 403);
            let body: serde_json::Value = response.json().await.unwrap();
            assert_eq!(body, serde_json::json!({ "errors": [expected] }), "{path}");
        }
    }
}

#[tokio::test]
async fn fault_injection_over_http_requires_the_key() {
    let mut tasks = TaskGroup::default();
    let faults_listener = FaultListener { address: "127.0.0.1:0".parse().unwrap(), key: SecretString::from("key") };
    let options = SecretsOptions {
        faults: Some(faults_listener),
        ..SecretsOptions::for_anyone(Clock::System, "dev", Role::default())
    };
    let secrets = Secrets::start(options, &mut tasks).unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = secrets.faults_url().unwrap();
    let turn = async |fault: &str, key: &str| {
        let request = client.post(url).header("x-faults-key", key).body(fault.to_owned());
        request.send().await.unwrap().status().as_u16()
    };
    let health = async || client.get(format!("{}/v1/sys/health", secrets.url())).send().await.is_ok();
    assert_eq!(client.get(url).send().await.unwrap().status(), 403);
    assert_eq!(turn(r#"{"away":true}"#, "other").await, 403);
    assert!(health().await);
    assert_eq!(turn(r#"{"away":true}"#, "key").await, 200);
    assert!(!health().await);
    assert_eq!(turn(r#"{"away":false}"#, "key").await, 200);
    assert!(health().await);
    for wrong in ["", "{}", r#"{"away":1}"#, r#""unknown""#] {
        assert_eq!(turn(wrong, "key").await, 400, "{wrong}");
    }
    assert_eq!(turn(r#"{"fail-next-logins":{"count":1,"status":503,"retry_after":9}}"#, "key").await, 200);
    let login = client.post(format!("{}/v1/auth/azure/login", secrets.url())).send().await.unwrap();
    assert_eq!((login.status().as_u16(), &login.headers()["retry-after"]), (503, &"9".parse().unwrap()));
}
