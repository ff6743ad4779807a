//! Each identity source against the emulated Azure cloud.

mod aws;
mod ci_token;
mod gcp;
mod requests;
mod workload_api;
pub(crate) mod tls_front;
mod token_proxy;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use keyward_agent::identity::{
    CloudEndpoints, CloudIdentityOptions, IdentityError, IdentityErrorKind, IdentityOrigin, IdentityProof, LoginFields,
    ManagedIdentity, ProviderVariables, SignedToken,
};
use keyward_emulators::cloud::{self, Cloud, CloudIdentities, Failure, FaultTarget, MachineKind};
use keyward_machine::clock::{Clock, TestClock};
use keyward_machine::tasks::TaskGroup;
use serde_json::json;

use crate::harness::cloud::options_with_shared_keys;

pub(crate) use tls_front::TlsFront;

pub(crate) const ARM: &str = "https://management.azure.com/";

/// An emulated cloud and the options of a session that uses it.
pub(crate) struct Scene {
    pub(crate) cloud: Cloud,
    pub(crate) clock: Clock,
    pub(crate) driven: TestClock,
    pub(crate) options: CloudIdentityOptions,
    _tasks: TaskGroup,
    pub(crate) folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut cloud::CloudOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let driven = TestClock::starting_at(SystemTime::now());
        let clock = Clock::Test(driven.clone());
        let mut options = options_with_shared_keys(folder.path().join("cloud"));
        options.clock = clock.clone();
        change(&mut options);
        let mut tasks = TaskGroup::default();
        let cloud = Cloud::start(options, &mut tasks).unwrap();
        let options = CloudIdentityOptions {
            resource: ARM.to_owned(),
            scope: None,
            from: IdentityOrigin::Instance(ManagedIdentity::System),
            overrides: LoginFields::default(),
            variables: ProviderVariables::default(),
            endpoints: CloudEndpoints {
                metadata: cloud.metadata_url().clone(),
                arc: cloud.metadata_url().clone(),
                arc_tokens: cloud.arc_tokens().to_owned(),
                arc_agent: "/nonexistent".into(),
                authority_ca: Some(cloud.ca_file()),
                authority_is_local: false,
            },
        };
        Self { cloud, clock, driven, options, _tasks: tasks, folder }
    }

    pub(crate) fn environment(mut self, variables: impl FnOnce(&Cloud) -> BTreeMap<String, String>) -> Self {
        self.options.from = IdentityOrigin::Environment;
        self.options.variables = ProviderVariables::of_azure(variables(&self.cloud));
        self
    }

    pub(crate) async fn prove(&self) -> Result<SignedToken, IdentityError> {
        self.options.build(self.clock.clone())?.prove().await.map(signed)
    }

    /// Returns the error of a failed proof, and the seconds of driven time that it took.
    pub(crate) async fn failure(&self) -> (IdentityError, u64) {
        let start = self.clock.now();
        let error = self.prove().await.unwrap_err();
        (error, self.clock.now().since(start).as_secs())
    }
}

/// Returns the signed token of a proof.
pub(crate) fn signed(proof: IdentityProof) -> SignedToken {
    match proof {
        IdentityProof::Signed(signed) => *signed,
        other => panic!("{other:?}"),
    }
}

fn oid(proof: &SignedToken) -> &str {
    proof.claims.as_ref().unwrap().oid.as_deref().unwrap()
}

/// Azure identity: the instance's credentials prove it, and no secret is configured.
#[tokio::test]
async fn a_managed_identity_logs_in_without_a_configured_secret() {
    let scene = Scene::new();
    let proof = scene.prove().await.unwrap();
    assert_eq!(oid(&proof), scene.cloud.identities().system.object_id);
    // All fields of the configuration, none of which is secret.
    let CloudIdentityOptions { resource, scope, from, overrides, variables, endpoints: _ } = &scene.options;
    assert_eq!((resource.as_str(), scope, from), (ARM, &None, &IdentityOrigin::Instance(ManagedIdentity::System)));
    assert_eq!((overrides, variables), (&LoginFields::default(), &ProviderVariables::default()));
    let debug = format!("{:?} {proof:?}", scene.options);
    assert!(!debug.contains(proof.jwt.expose_secret()));
}

/// Azure identity: the instance gives identity information and tokens, or the environment does.
#[tokio::test]
async fn the_instance_or_the_environment_gives_the_identity() {
    let scene = Scene::new();
    assert_eq!(oid(&scene.prove().await.unwrap()), scene.cloud.identities().system.object_id);
    assert_eq!(scene.cloud.faults().requests(FaultTarget::Authority), 0);
    let scene = scene.environment(Cloud::variables_for_workload_identity);
    assert_eq!(oid(&scene.prove().await.unwrap()), scene.cloud.identities().workload.object_id);
    assert_eq!(scene.cloud.faults().requests(FaultTarget::Metadata), 1, "the instance was asked for the first only");
}

/// Azure identity, key `object_id`: the token is that identity's.
/// Azure identity, key `client_id`: the token is that identity's.
#[tokio::test]
async fn a_user_assigned_identity_is_requested_by_its_id() {
    let scene = Scene::new();
    let user = scene.cloud.identities().user.clone();
    for which in [ManagedIdentity::ClientId(user.client_id.clone()), ManagedIdentity::ObjectId(user.object_id.clone())]
    {
        let mut options = scene.options.clone();
        options.from = IdentityOrigin::Instance(which);
        let proof = signed(options.build(scene.clock.clone()).unwrap().prove().await.unwrap());
        assert_eq!(oid(&proof), user.object_id);
        assert_eq!(proof.fields.vm_name.as_deref(), Some(CloudIdentities::VM));
    }
}

#[tokio::test]
async fn claims_give_the_login_fields_without_a_request_for_the_instance_document() {
    let scene = Scene::new();
    let fields = scene.prove().await.unwrap().fields;
    let names = scene.cloud.identities();
    assert_eq!(fields.subscription_id.as_deref(), Some(names.subscription.as_str()));
    assert_eq!(fields.resource_group_name.as_deref(), Some(CloudIdentities::RESOURCE_GROUP));
    assert_eq!((fields.vm_name.as_deref(), fields.vmss_name.as_deref()), (Some(CloudIdentities::VM), None));
    assert_eq!(scene.cloud.faults().requests(FaultTarget::Instance), 0);

    let set = Scene::with(|options| options.machine = MachineKind::ScaleSet);
    let fields = set.prove().await.unwrap().fields;
    assert_eq!((fields.vm_name.as_deref(), fields.vmss_name.as_deref()), (None, Some(CloudIdentities::SCALE_SET)));
}

#[tokio::test]
async fn the_instance_document_gives_the_fields_that_a_custom_audience_lacks() {
    let mut scene = Scene::new();
    scene.options.resource = "https://secrets.example".to_owned();
    let source = scene.options.build(scene.clock.clone()).unwrap();
    let proof = signed(source.prove().await.unwrap());
    assert_eq!(proof.audience.as_deref(), Some("https://secrets.example"));
    assert_eq!(proof.fields.vm_name.as_deref(), Some(CloudIdentities::VM));
    source.prove().await.unwrap();
    assert_eq!(scene.cloud.faults().requests(FaultTarget::Instance), 1, "it is kept");

    scene.cloud.faults().block_instance(true);
    let proof = scene.prove().await.unwrap();
    assert_eq!(proof.fields, LoginFields::default(), "a help, not a need");
}

#[tokio::test]
async fn a_client_secret_logs_in() {
    let scene = Scene::new().environment(Cloud::variables_for_client_secret);
    let proof = scene.prove().await.unwrap();
    assert_eq!(oid(&proof), scene.cloud.identities().application.object_id);
    assert_eq!(proof.claims.as_ref().unwrap().aud, [ARM], "the scope's two slashes stay");
    assert_eq!(proof.audience.as_deref(), Some(ARM));
    assert_eq!(scene.cloud.faults().requests(FaultTarget::Instance), 0);
}

#[tokio::test]
async fn a_client_certificate_logs_in() {
    let scene = Scene::new().environment(Cloud::variables_for_client_certificate);
    let proof = scene.prove().await.unwrap();
    assert_eq!(oid(&proof), scene.cloud.identities().application.object_id);

    let path = scene.cloud.variables_for_client_certificate()["AZURE_CLIENT_CERTIFICATE_PATH"].clone();
    let pem = std::fs::read_to_string(&path).unwrap();
    let check = async |content: &str, expected: &str| {
        std::fs::write(&path, content).unwrap();
        let error = scene.prove().await.unwrap_err();
        assert_eq!(error.kind, IdentityErrorKind::Config);
        assert!(error.to_string().contains(expected), "{error}");
    };
    check("", "no PEM certificate").await;
    check("\u{30}\u{2}", "is not a PKCS#12 file with a private key, or is damaged").await;
    check(&pem[pem.find("-----BEGIN CERT").unwrap()..], "no PEM private key").await;
    let other = pem.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    check(&other, "needs a password").await;
}

/// Runs `openssl` with the password `PASSWORD`, named `env:PASSWORD` in the arguments.
fn openssl(args: &[&str], password: &str) {
    let output = std::process::Command::new("openssl").args(args).env("PASSWORD", password).output().unwrap();
    assert!(output.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn encrypted_keys_and_pkcs12_files_of_openssl_log_in_with_their_password_alone() {
    const PASSWORD: &str = "correct-horse-battery";
    const OLD: [&str; 6] = ["-keypbe", "PBE-SHA1-3DES", "-certpbe", "PBE-SHA1-3DES", "-macalg", "sha1"];
    let scene = Scene::new().environment(Cloud::variables_for_client_certificate);
    let pem = scene.cloud.variables_for_client_certificate()["AZURE_CLIENT_CERTIFICATE_PATH"].clone();
    let at = |name: &str| scene.folder.path().join(name).display().to_string();
    let prove = async |file: &str, password: Option<&str>| {
        let mut variables = scene.cloud.variables_for_client_certificate();
        variables.insert("AZURE_CLIENT_CERTIFICATE_PATH".to_owned(), file.to_owned());
        variables
            .extend(password.map(|password| ("AZURE_CLIENT_CERTIFICATE_PASSWORD".to_owned(), password.to_owned())));
        let options =
            CloudIdentityOptions { variables: ProviderVariables::of_azure(variables), ..scene.options.clone() };
        options.build(scene.clock.clone()).unwrap().prove().await
    };

    let export = |name: &str, extra: &[&str], password: &str| {
        let out = at(name);
        let args = ["pkcs12", "-export", "-in", &pem, "-out", &out, "-passout", "env:PASSWORD"];
        openssl(&[&args[..], extra].concat(), password);
        out
    };
    let (modern, old) = (export("modern.p12", &[], PASSWORD), export("old.p12", &OLD, PASSWORD));
    let open = export("open.p12", &[], "");
    let encrypted = |name: &str, command: &[&str]| {
        let out = at(name);
        openssl(&[command, &["-in", &pem, "-out", &out, "-passout", "env:PASSWORD"]].concat(), PASSWORD);
        let text = std::fs::read_to_string(&pem).unwrap();
        let certificate = &text[text.find("-----BEGIN CERT").unwrap()..];
        let key = std::fs::read_to_string(&out).unwrap();
        std::fs::write(&out, format!("{certificate}{key}")).unwrap();
        out
    };
    let pkcs8 = encrypted("pkcs8.pem", &["pkcs8", "-topk8"]);
    let traditional = encrypted("traditional.pem", &["rsa", "-aes256", "-traditional"]);

    let application = &scene.cloud.identities().application.object_id;
    for file in [&modern, &old, &pkcs8, &traditional] {
        assert_eq!(&oid(&signed(prove(file, Some(PASSWORD)).await.unwrap())), application, "{file}");
        for (password, reason) in
            [(Some("another"), "cannot be decrypted with the password"), (None, "needs a password")]
        {
            let error = prove(file, password).await.unwrap_err();
            assert_eq!(error.kind, IdentityErrorKind::Config);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }
    assert_eq!(&oid(&signed(prove(&open, None).await.unwrap())), application);

    // A truncated file, and files with one damaged byte each, are errors.
    let whole = std::fs::read(&modern).unwrap();
    for place in (0..whole.len()).step_by(whole.len() / 40) {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x55;
        for content in [&damaged[..], &whole[..place]] {
            std::fs::write(at("damaged.p12"), content).unwrap();
            let error = prove(&at("damaged.p12"), Some(PASSWORD)).await.unwrap_err();
            assert_eq!(error.kind, IdentityErrorKind::Config, "{place}: {error}");
            assert!(!error.to_string().contains(PASSWORD));
        }
    }
}

#[tokio::test]
async fn a_certificate_without_a_password_logs_in_despite_a_set_one_and_sends_its_chain_if_configured() {
    let scene = Scene::new().environment(|cloud| {
        let mut variables = cloud.variables_for_client_certificate();
        variables.insert("AZURE_CLIENT_CERTIFICATE_PASSWORD".to_owned(), "of-nothing".to_owned());
        variables.insert("AZURE_CLIENT_SEND_CERTIFICATE_CHAIN".to_owned(), "true".to_owned());
        variables
    });
    assert_eq!(oid(&scene.prove().await.unwrap()), scene.cloud.identities().application.object_id);
}

/// Azure identity, key `authenticate_from_environment`: works with workload identity.
#[tokio::test]
async fn a_pod_whose_metadata_service_is_blocked_logs_in() {
    let mut scene = Scene::new().environment(Cloud::variables_for_workload_identity);
    // Connections are refused there.
    scene.options.endpoints.metadata = "http://127.0.0.1:9/".parse().unwrap();
    let start = scene.clock.now();
    let proof = scene.prove().await.unwrap();
    assert_eq!(oid(&proof), scene.cloud.identities().workload.object_id);
    assert_eq!(proof.fields.resource_group_name.as_deref(), Some(CloudIdentities::RESOURCE_GROUP));
    assert_eq!((proof.fields.vm_name, proof.fields.resource_id), (None, None), "a pod is not its node");
    assert!(scene.clock.now().since(start) < Duration::from_secs(5));
}

#[tokio::test]
async fn app_service_gives_its_identity() {
    let mut scene = Scene::new();
    scene.options.variables = ProviderVariables::of_azure(scene.cloud.variables_for_app_service());
    assert_eq!(oid(&scene.prove().await.unwrap()), scene.cloud.identities().system.object_id);
    let object_id = scene.cloud.identities().user.object_id.clone();
    scene.options.from = IdentityOrigin::Instance(ManagedIdentity::ObjectId(object_id.clone()));
    assert_eq!(oid(&scene.prove().await.unwrap()), object_id);
    assert_eq!(scene.cloud.faults().requests(FaultTarget::AppService), 2);
    assert_eq!(scene.cloud.faults().requests(FaultTarget::Metadata), 0);
}

#[tokio::test]
async fn an_arc_machine_answers_its_agents_challenge() {
    let mut scene = Scene::new();
    scene.options.variables = ProviderVariables::of_azure(scene.cloud.variables_for_arc());
    assert_eq!(oid(&scene.prove().await.unwrap()), scene.cloud.identities().system.object_id);
    assert_eq!(scene.cloud.faults().requests(FaultTarget::Arc), 2);

    let elsewhere = scene.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    scene.options.endpoints.arc_tokens = elsewhere;
    let error = scene.prove().await.unwrap_err();
    assert_eq!(error.kind, IdentityErrorKind::Config);
    assert!(error.message.contains("not in its own folder"), "{error}");
}

#[tokio::test]
async fn partial_variables_fail_before_any_request() {
    let scene = Scene::new().environment(|cloud| {
        let mut variables = cloud.variables_for_workload_identity();
        variables.remove("AZURE_TENANT_ID");
        variables
    });
    let error = scene.options.build(scene.clock.clone()).unwrap_err();
    assert_eq!(error.kind, IdentityErrorKind::Config);
    assert!(error.message.contains("AZURE_FEDERATED_TOKEN_FILE is set, but AZURE_TENANT_ID is missing"), "{error}");
    assert!(scene.cloud.faults().counts().is_empty());
}

/// azure-sdk-for-net#19190: each failure of the metadata service needs its own wait.
#[tokio::test(start_paused = true)]
async fn temporary_failures_of_azure_are_retried() {
    let check = async |failures: usize, failure: Failure, expected: u64| {
        let scene = Scene::new();
        scene.cloud.faults().fail_next_tokens_with(failures, &failure);
        let start = scene.clock.now();
        scene.prove().await.unwrap();
        assert_eq!(scene.clock.now().since(start).as_secs(), expected, "{failure:?}");
    };
    let plain = |status| Failure { status, body: None, retry_after: None };
    check(3, plain(404), 1 + 2 + 4).await;
    check(7, plain(410), 70).await;
    check(2, plain(500), 1 + 2).await;
    check(3, plain(400), 2 + 4 + 8).await;
    check(2, Failure { retry_after: Some(9), ..plain(429) }, 18).await;
}

#[tokio::test(start_paused = true)]
async fn permanent_failures_are_reported_within_the_time_limit_with_their_cause() {
    let check = async |status: u16, kind: IdentityErrorKind, max: u64, cause: &str| {
        let scene = Scene::new();
        scene.cloud.faults().fail_next_tokens(100, status);
        let (error, seconds) = scene.failure().await;
        assert_eq!(error.kind, kind);
        assert!(seconds <= max, "{seconds} s");
        assert!(error.to_string().contains(cause), "{error}");
        assert_eq!(error.source_name, "metadata service");
    };
    check(400, IdentityErrorKind::Denied, 14, "400 invalid_request: Identity not found").await;
    check(401, IdentityErrorKind::Config, 0, "401 unauthorized_client").await;
    check(404, IdentityErrorKind::NotReady, 15, "404 not_found").await;
    check(410, IdentityErrorKind::NotReady, 80, "410 gone").await;
    check(429, IdentityErrorKind::Throttled, 30, "429 too_many_requests").await;
    check(500, IdentityErrorKind::Transient, 31, "Failed to retrieve token from the Active directory").await;
    check(502, IdentityErrorKind::Transient, 31, "a proxy seems to answer").await;
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_proof_each_further_one_is_a_single_attempt() {
    let scene = Scene::new();
    let source = scene.options.build(scene.clock.clone()).unwrap();
    scene.cloud.faults().fail_next_tokens(8, 500);
    source.prove().await.unwrap_err();
    assert_eq!(scene.cloud.faults().requests(FaultTarget::Metadata), 6);
    for attempts in 7..=8 {
        source.prove().await.unwrap_err();
        assert_eq!(scene.cloud.faults().requests(FaultTarget::Metadata), attempts);
    }
    source.prove().await.unwrap();
    scene.cloud.faults().fail_next_tokens(2, 500);
    source.prove().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_reported_within_seconds() {
    let mut scene = Scene::new();
    scene.options.endpoints.metadata = "http://127.0.0.1:9/".parse().unwrap();
    let (error, seconds) = scene.failure().await;
    assert_eq!((error.kind, seconds), (IdentityErrorKind::NotReady, 7));
    assert!(error.message.contains("cannot connect to http://127.0.0.1:9: "), "{error}");
    assert!(error.message.contains("refused"), "{error}");
    assert!(error.hint.unwrap().contains("workload identity"));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_responds_too_late_is_abandoned() {
    let scene = Scene::new();
    scene.cloud.faults().delay(Duration::from_mins(10));
    let (error, seconds) = scene.failure().await;
    assert_eq!(error.kind, IdentityErrorKind::Transient);
    assert!(error.message.contains("no response within 10 s"), "{error}");
    assert!(seconds <= 91, "{seconds}");
}

#[tokio::test]
async fn an_error_about_a_refused_secret_does_not_hold_it() {
    let scene = Scene::new().environment(|cloud| {
        let mut variables = cloud.variables_for_client_secret();
        variables.insert("AZURE_CLIENT_SECRET".to_owned(), "canary secret".to_owned());
        variables
    });
    let error = scene.prove().await.unwrap_err();
    assert_eq!(error.kind, IdentityErrorKind::Config);
    assert!(error.message.contains("AADSTS7000215"), "{error}");
    assert!(!format!("{error:?} {:?}", scene.options).contains("canary"));
}

#[tokio::test]
async fn an_untrusted_certificate_of_the_authority_fails_at_once() {
    let mut scene = Scene::new().environment(Cloud::variables_for_workload_identity);
    let other = scene.folder.path().join("other");
    let other = Cloud::start(cloud::CloudOptions::in_folder(other), &mut TaskGroup::default()).unwrap();
    scene.options.endpoints.authority_ca = Some(other.ca_file());
    let error = scene.prove().await.unwrap_err();
    assert_eq!(error.kind, IdentityErrorKind::Config);
    assert!(error.message.contains("TLS failed") && error.hint.unwrap().contains("not trusted"), "{error}");
    assert_eq!(scene.cloud.faults().requests(FaultTarget::Authority), 0);
}

#[tokio::test(start_paused = true)]
async fn an_expired_federated_token_is_read_again_at_once_and_its_age_reported() {
    let scene = Scene::new().environment(Cloud::variables_for_workload_identity);
    let source = scene.options.build(scene.clock.clone()).unwrap();
    source.prove().await.unwrap();
    scene.driven.set_wall_by(7200);
    let error = source.prove().await.unwrap_err();
    assert_eq!(error.kind, IdentityErrorKind::Transient);
    assert!(error.message.contains("azure-identity-token expired 360"), "{error}");
    assert_eq!(scene.cloud.faults().requests(FaultTarget::Authority), 1 + 3);

    tokio::time::sleep(Duration::from_mins(49)).await;
    source.prove().await.unwrap();
}

#[tokio::test]
async fn a_federated_token_swapped_by_symlink_is_the_one_that_is_sent() {
    let scene = Scene::new();
    let variables = scene.cloud.variables_for_workload_identity();
    let real = std::fs::read_to_string(&variables["AZURE_FEDERATED_TOKEN_FILE"]).unwrap();
    let folder = scene.folder.path().join("volume");
    let write = |round: &str, content: &str| {
        std::fs::create_dir_all(folder.join(round)).unwrap();
        std::fs::write(folder.join(round).join("token"), content).unwrap();
    };
    let swap = |round: &str| {
        std::os::unix::fs::symlink(round, folder.join("next")).unwrap();
        std::fs::rename(folder.join("next"), folder.join("..data")).unwrap();
    };
    write("one", "not.a.token");
    write("two", &format!("{real}\n"));
    swap("one");
    std::os::unix::fs::symlink(Path::new("..data/token"), folder.join("token")).unwrap();
    let scene = scene.environment(|_| {
        let mut variables = variables;
        let path = folder.join("token").display().to_string();
        variables.insert("AZURE_FEDERATED_TOKEN_FILE".to_owned(), path);
        variables
    });
    let source = scene.options.build(scene.clock.clone()).unwrap();
    let error = source.prove().await.unwrap_err();
    assert!(error.message.contains("AADSTS50027"), "{error}");
    swap("two");
    source.prove().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_federated_token_that_is_not_mounted_yet_is_waited_for() {
    let scene = Scene::new().environment(|cloud| {
        let mut variables = cloud.variables_for_workload_identity();
        variables.insert("AZURE_FEDERATED_TOKEN_FILE".to_owned(), "/nonexistent/token".to_owned());
        variables
    });
    let (error, seconds) = scene.failure().await;
    assert_eq!(error.kind, IdentityErrorKind::NotReady);
    assert!(error.message.contains("/nonexistent/token"), "{error}");
    assert!((2..=5).contains(&seconds), "{seconds}");
    assert_eq!(scene.cloud.faults().requests(FaultTarget::Authority), 0);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_about_to_expire_is_requested_again() {
    let scene = Scene::new();
    scene.cloud.faults().token_life(Duration::from_secs(30));
    let start = scene.clock.now();
    scene.prove().await.unwrap();
    assert_eq!(scene.clock.now().since(start).as_secs(), 15, "it is alive, and used after three more");
    scene.cloud.faults().skew(-3600);
    let (error, _) = scene.failure().await;
    assert_eq!(error.kind, IdentityErrorKind::NotReady);
    assert!(error.hint.unwrap().contains("clock is ahead"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_authoritys_refusals_are_retried_by_their_number() {
    let check = async |code: u32, kind: IdentityErrorKind, attempts: u64, (min, max): (u64, u64)| {
        let scene = Scene::new().environment(Cloud::variables_for_workload_identity);
        let text = format!("AADSTS{code}: no.");
        let body = json!({"error": "invalid_request", "error_description": text, "error_codes": [code]});
        scene.cloud.faults().fail_next_tokens_with(100, &Failure { status: 400, body: Some(body), retry_after: None });
        let (error, seconds) = scene.failure().await;
        assert_eq!((error.kind, scene.cloud.faults().requests(FaultTarget::Authority)), (kind, attempts), "{error}");
        assert!((min..=max).contains(&seconds), "{code}: {seconds} s");
        assert!(error.message.contains(&format!("AADSTS{code}")), "{error}");
    };
    check(700_024, IdentityErrorKind::Transient, 3, (2, 5)).await;
    check(70_021, IdentityErrorKind::Denied, 4, (35, 70)).await;
    check(700_213, IdentityErrorKind::Denied, 4, (35, 70)).await;
    check(90_061, IdentityErrorKind::Transient, 6, (15, 31)).await;
    check(700_016, IdentityErrorKind::Config, 1, (0, 0)).await;
    check(500_011, IdentityErrorKind::Config, 1, (0, 0)).await;
}

/// Collects the log of this thread.
#[derive(Clone, Default)]
struct Log(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn selected_and_skipped_sources_are_logged_once_without_secrets() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let scene = Scene::new().environment(Cloud::variables_for_workload_identity);
    let source = scene.options.build(scene.clock.clone()).unwrap();
    let mut jwts = Vec::new();
    for _ in 0..3 {
        jwts.push(signed(source.prove().await.unwrap()).jwt);
    }
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    let count = |expected: &str| text.matches(expected).count();
    assert_eq!(count("identity.source.chosen"), 1, "{text}");
    assert_eq!(count("identity.source.skipped"), 3);
    assert_eq!(count("AZURE_CLIENT_SECRET is not set"), 1);
    let assertion = &scene.cloud.variables_for_workload_identity()["AZURE_FEDERATED_TOKEN_FILE"];
    let assertion = std::fs::read_to_string(assertion).unwrap();
    for secret in
        jwts.iter().map(keyward_machine::secret_string::SecretString::expose_secret).chain([assertion.as_str()])
    {
        // Every part of a token is secret, including the signature.
        assert!(secret.split('.').skip(1).all(|part| !text.contains(part)));
    }
}
