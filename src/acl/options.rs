//! Options of the ACL server and their validation.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::api::ApiOptions;
use super::model::authorize::DefaultPolicy;
use super::model::aws_identity::is_region;
use super::model::names::{is_name, is_policy_or_builtin_name};
use super::model::token::{MAX_TTL, MIN_TTL};
use super::service::login::{AwsMethodOptions, KubernetesMethodOptions, MethodOptions, TokenMethodOptions};
use super::store::StoreOptions;

/// Options of the ACL server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclOptions {
    /// Store of the records.
    pub store: StoreOptions,
    /// File of the keys that encrypt tokens. By default `seal.key` beside an embedded store, created at the first start.
    pub key_file: Option<PathBuf>,
    /// Name of the datacenter. The store records it and opens for no other.
    pub datacenter: String,
    /// Decision where no rule matches.
    pub default_policy: DefaultPolicy,
    /// Options of the HTTP API.
    pub api: ApiOptions,
    /// Auth methods by name, which is a segment of the path of their login.
    pub methods: BTreeMap<String, MethodOptions>,
}

impl AclOptions {
    /// Validates the options; returns each error as the path of the option and a message.
    pub fn validation_errors(&self) -> Vec<(String, String)> {
        let mut errors = Vec::new();
        let mut check = |holds: bool, path: String, text: &str| {
            if !holds {
                errors.push((path, text.to_owned()));
            }
        };
        let limit = self.api.login_limit;
        check(limit.burst > 0, "login_burst".into(), "must be at least 1, or nobody can log in");
        check(limit.per_second > 0, "login_rate".into(), "must be at least 1, or nobody can log in");
        let name_form = "must be 1 to 128 letters, digits, \"-\" and \"_\"";
        check(is_name(&self.datacenter), "datacenter".into(), name_form);
        for (name, method) in &self.methods {
            let path = format!("method.{name}");
            check(is_name(name), path.clone(), name_form);
            check(name != "token", path.clone(), "\"token\" is the path of the calls for tokens; use another name");
            match method {
                MethodOptions::Azure(TokenMethodOptions { trust, .. })
                | MethodOptions::Google(TokenMethodOptions { trust, .. }) => {
                    check(!trust.issuer.is_empty(), format!("{path}.issuer"), "must not be empty");
                    check(!trust.audience.is_empty(), format!("{path}.audience"), "must not be empty");
                }
                MethodOptions::Aws(AwsMethodOptions { trust, .. }) => {
                    check(!trust.server_id.is_empty(), format!("{path}.server_id"), "must not be empty");
                    let regions = trust.regions.iter().all(|region| is_region(region));
                    check(regions, format!("{path}.regions"), "must be names of regions, such as \"eu-west-1\"");
                }
                MethodOptions::Kubernetes(KubernetesMethodOptions { api, .. }) => {
                    check(!api.audience.is_empty(), format!("{path}.audience"), "must not be empty");
                }
            }
            for role in method.roles() {
                let path = format!("{path}.role.{}", role.name);
                check(is_name(role.name), path.clone(), name_form);
                check(
                    role.policies.iter().all(|policy| is_policy_or_builtin_name(policy)),
                    format!("{path}.policies"),
                    name_form,
                );
                let ttl = (MIN_TTL..=MAX_TTL).contains(&role.ttl);
                check(ttl, format!("{path}.ttl"), "must be 1 minute to 24 hours");
                check(role.bounds_error.is_none(), path, role.bounds_error.unwrap_or_default());
            }
        }
        #[cfg(feature = "etcd")]
        if let StoreOptions::Etcd(options) = &self.store {
            for (name, text) in options.validation_errors() {
                check(false, format!("etcd.{name}"), text);
            }
        }
        check(self.key_file().is_some(), "key_file".into(), "missing; a store on etcd has no folder for a default one");
        errors
    }

    /// Returns the key file, or its default beside an embedded store.
    pub(super) fn key_file(&self) -> Option<PathBuf> {
        self.key_file.clone().or_else(|| Some(self.store.folder()?.join("seal.key")))
    }
}
