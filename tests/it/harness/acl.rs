//! ACL server on a socket, over HTTP, with its first token created.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use keyward_acl::model::authorize::DefaultPolicy;
use keyward_acl::store::{self, Store, StoreOptions};
use keyward_acl::{AclOptions, api};
use keyward_machine::clock::{Clock, TestClock};
use serde_json::{Value, json};

use super::issuer::Key;
use super::served::{Answer, Served, free};

/// Running ACL server; stops on drop.
pub(crate) struct Acl {
    served: Served,
    /// Secret of the first token, which has all rights.
    pub(crate) root: String,
    pub(crate) clock: TestClock,
    pub(crate) options: AclOptions,
    folder: tempfile::TempDir,
}

impl Deref for Acl {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.served
    }
}

/// Options of a server with its store in the folder and defaults otherwise.
pub(crate) fn options(folder: &Path) -> AclOptions {
    AclOptions {
        store: StoreOptions::Embedded { data_dir: folder.join("acl") },
        key_file: None,
        datacenter: "dc1".to_owned(),
        default_policy: DefaultPolicy::Deny,
        api: api::ApiOptions::default(),
        methods: BTreeMap::new(),
    }
}

impl Acl {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    /// Starts a server with changed options.
    pub(crate) async fn start_with(change: impl FnOnce(&mut AclOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = options(folder.path());
        change(&mut options);
        let clock = TestClock::starting_at(SystemTime::now());
        let mut acl = Self::serve(options, clock, folder).await;
        let first = acl.call("PUT", "/v1/acl/bootstrap", None, None).await;
        first.json()["SecretID"].as_str().unwrap().clone_into(&mut acl.root);
        acl
    }

    async fn serve(options: AclOptions, clock: TestClock, folder: tempfile::TempDir) -> Self {
        let served = Served::start(&options, Clock::Test(clock.clone())).await;
        Self { served, root: String::new(), clock, options, folder }
    }

    /// Starts another server on the same store, which the store must allow.
    #[cfg(feature = "etcd")]
    pub(crate) async fn start_second(&self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { root: self.root.clone(), ..Self::serve(self.options.clone(), self.clock.clone(), folder).await }
    }

    /// Stops the server, and starts it again on the same store.
    pub(crate) async fn restarted(self) -> Self {
        self.restarted_with(async |_| ()).await
    }

    /// Restarts the server, and changes its store in between.
    pub(crate) async fn restarted_with(self, change: impl AsyncFnOnce(Arc<dyn Store>)) -> Self {
        self.served.stop().await;
        let opened = async || store::open(&self.options.store, &self.options.datacenter).await;
        change(free(opened, |error| matches!(error, store::OpenError::InUse { .. })).await).await;
        Self { root: self.root, ..Self::serve(self.options, self.clock, self.folder).await }
    }

    /// Takes a snapshot as the first token.
    pub(crate) async fn snapshot(&self) -> Vec<u8> {
        let request = self.http.get(format!("{}/v1/snapshot", self.url)).header("X-Service-Token", &self.root);
        let response = request.send().await.unwrap().error_for_status().unwrap();
        response.bytes().await.unwrap().to_vec()
    }

    /// Restores a snapshot with a token.
    pub(crate) async fn restore(&self, token: &str, snapshot: &[u8]) -> Answer {
        self.send("PUT", "/v1/snapshot", &[("X-Service-Token", token)], snapshot).await
    }

    /// As the first token.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, Some(&self.root), None).await
    }

    /// As the first token.
    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.call("PUT", path, Some(&self.root), Some(body)).await
    }

    /// As the first token.
    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, Some(&self.root), None).await
    }

    /// Creates a record as the first token; must succeed.
    pub(crate) async fn make(&self, path: &str, body: Value) -> Value {
        let response = self.put(path, body).await;
        assert_eq!(response.status, 200, "{response:?}");
        response.json()
    }

    /// Creates a `jwt` auth method that trusts the key, with a binding rule that gives each login the service
    /// `web`.
    pub(crate) async fn jwt_method(&self, name: &str, key: &Key) {
        let config = json!({"JWTValidationPubKeys": [key.pem()]});
        self.make("/v1/acl/auth-method", json!({"Name": name, "Type": "jwt", "Config": config})).await;
        let rule = json!({"AuthMethod": name, "BindType": "service", "BindName": "web"});
        self.make("/v1/acl/binding-rule", rule).await;
    }

    /// Logs in by an auth method.
    pub(crate) async fn log_in(&self, method: &str, jwt: &str) -> Answer {
        let body = json!({"AuthMethod": method, "BearerToken": jwt});
        self.call("POST", "/v1/acl/login", None, Some(body)).await
    }

    /// Signs a JWT for [`Acl::jwt_method`], valid for an hour.
    pub(crate) fn proof(&self, key: &Key) -> String {
        let now = self.now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        key.sign(&json!({"exp": now + 3600, "iat": now}))
    }

    /// Creates a token with these rules in `default`; returns its secret.
    pub(crate) async fn token_with(&self, rules: &str) -> String {
        self.token_in("default", rules).await
    }

    /// Creates a token with these rules in a namespace; returns its secret.
    pub(crate) async fn token_in(&self, namespace: &str, rules: &str) -> String {
        let name = format!("p-{}", uuid::Uuid::new_v4());
        let body = json!({"Name": name, "Rules": rules, "Namespace": namespace});
        let policy = self.make("/v1/acl/policy", body).await;
        let body = json!({"Policies": [{"ID": policy["ID"]}], "Namespace": namespace});
        let token = self.make("/v1/acl/token", body).await;
        token["SecretID"].as_str().unwrap().to_owned()
    }
}
