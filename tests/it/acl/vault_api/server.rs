//! ACL server on a socket, over HTTP.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;

use keyward_acl::AclOptions;
use keyward_acl::model::azure_identity::{BoundClaims, IssuerConfig};
use keyward_acl::service::issuer_keys::{self as keys, CaSource, KeyDocument};
use keyward_acl::service::login::{LoginRoleOptions, MethodOptions, TokenMethodOptions};
use keyward_machine::clock::Clock;
use serde_json::{Value, json};

use crate::harness::acl;
use crate::harness::issuer::{AUDIENCE, Issuer, PRINCIPAL};
use crate::harness::served::{Answer, Served};

/// Running ACL server for calls in Vault's wire format.
pub(super) struct Server(Served);

impl Deref for Server {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.0
    }
}

/// Options with one method, `cloud`, and roles for the cases.
pub(super) fn options(folder: &Path, issuer: &Issuer) -> AclOptions {
    let list = |entry: &str| vec![entry.to_owned()];
    let subscription = BoundClaims { subscriptions: list("SUB-1"), ..BoundClaims::default() };
    let roles = [
        ("principal", BoundClaims { principals: list(PRINCIPAL), ..BoundClaims::default() }),
        ("machine", BoundClaims { virtual_machines: list("web-1"), ..subscription.clone() }),
        ("set", BoundClaims { scale_sets: list("pool"), ..subscription.clone() }),
        ("group", BoundClaims { resource_groups: list("group-2"), ..subscription }),
        ("elsewhere", BoundClaims { subscriptions: list("sub-2"), ..BoundClaims::default() }),
    ];
    let role = |bounds| LoginRoleOptions {
        bounds,
        policies: vec!["web-read".to_owned(), "web-write".to_owned()],
        ttl: Duration::from_mins(10),
    };
    let method = MethodOptions::Azure(TokenMethodOptions {
        trust: IssuerConfig { issuer: issuer.url.clone(), audience: AUDIENCE.to_owned() },
        keys: keys::IssuerKeyOptions {
            source: KeyDocument::Discovery(format!("{}.well-known/openid-configuration", issuer.url).parse().unwrap()),
            ca_certificates: CaSource::System,
        },
        roles: roles.into_iter().map(|(name, bounds)| (name.to_owned(), role(bounds))).collect(),
    });
    AclOptions { methods: BTreeMap::from([("cloud".to_owned(), method)]), ..acl::options(folder) }
}

impl Server {
    pub(super) async fn start(options: &AclOptions, clock: Clock) -> Self {
        Self(Served::start(options, clock).await)
    }

    pub(super) async fn stop(self) {
        self.0.stop().await;
    }

    pub(super) async fn login(&self, role: &str, jwt: &str) -> Answer {
        self.login_stating(role, jwt, &json!({})).await
    }

    /// Logs in with additional fields.
    pub(super) async fn login_stating(&self, role: &str, jwt: &str, fields: &Value) -> Answer {
        let mut body = json!({"role": role, "jwt": jwt});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.send("POST", "/v1/auth/cloud/login", &[], body.to_string().as_bytes()).await
    }

    pub(super) async fn read_self(&self, secret: &str) -> Answer {
        self.send("GET", "/v1/acl/token/self", &[("X-Service-Token", secret)], b"").await
    }

    pub(super) async fn look_up(&self, secret: &str) -> Answer {
        self.send("GET", "/v1/auth/token/lookup-self", &[("X-Vault-Token", secret)], b"").await
    }
}
