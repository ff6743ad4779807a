//! Flags for the links of tokens and roles, and their use by updates.

use clap::Args;
use keyward_acl::client::{AclLink, AclLinks, NodeIdentity, Policy, Role, ServiceIdentity};

use super::connection::AclConnection;
use super::failure::CommandFailure;
use super::resolve;
use super::templated_policy_flags::TemplatedPolicies;

/// Flags for the links that tokens and roles have in common.
#[derive(Debug, Args)]
pub(super) struct LinkFlags {
    /// Link the policy with this id or prefix of an id; repeatable
    #[arg(long = "policy-id", value_name = "ID")]
    policy_ids: Vec<String>,
    /// Link the policy with this name; repeatable
    #[arg(long = "policy-name", value_name = "NAME")]
    policy_names: Vec<String>,
    /// Add the rights of a service over its own name, in all datacenters or in these; repeatable
    #[arg(long = "service-identity", value_name = "NAME[:DC,...]", value_parser = service)]
    services: Vec<ServiceIdentity>,
    /// Add the rights of a node over its own name; repeatable
    #[arg(long = "node-identity", value_name = "NAME:DC", value_parser = node)]
    nodes: Vec<NodeIdentity>,
    #[command(flatten)]
    templated: TemplatedPolicies,
}

/// Flags for the roles that a token links.
#[derive(Debug, Args)]
pub(super) struct RoleFlags {
    /// Link the role with this id or prefix of an id; repeatable
    #[arg(long = "role-id", value_name = "ID")]
    role_ids: Vec<String>,
    /// Link the role with this name; repeatable
    #[arg(long = "role-name", value_name = "NAME")]
    role_names: Vec<String>,
}

/// Flags that say how an update treats links. A kind of link without a flag stays as it is.
#[derive(Debug, Args)]
pub(super) struct MergeFlags {
    /// Add the given links to the existing ones instead of replacing those of the same kind
    #[arg(long)]
    pub(super) merge: bool,
    /// Remove all linked policies
    #[arg(long)]
    no_policies: bool,
    /// Remove all linked templated policies
    #[arg(long)]
    no_templated_policies: bool,
    /// Remove all service identities
    #[arg(long)]
    no_service_identities: bool,
    /// Remove all node identities
    #[arg(long)]
    no_node_identities: bool,
}

impl LinkFlags {
    pub(super) async fn resolve(self, service: &AclConnection) -> Result<AclLinks, CommandFailure> {
        Ok(AclLinks {
            policies: resolve::links::<Policy>(service, &self.policy_ids, &self.policy_names).await?,
            templated_policies: self.templated.0,
            service_identities: self.services,
            node_identities: self.nodes,
        })
    }
}

impl RoleFlags {
    pub(super) async fn resolve(&self, service: &AclConnection) -> Result<Vec<AclLink>, CommandFailure> {
        resolve::links::<Role>(service, &self.role_ids, &self.role_names).await
    }
}

impl MergeFlags {
    /// Returns the links after the update.
    pub(super) fn apply(&self, there: AclLinks, new_links: AclLinks) -> AclLinks {
        let merge = self.merge;
        AclLinks {
            policies: merge_links(there.policies, new_links.policies, merge, self.no_policies),
            templated_policies: merge_links(
                there.templated_policies,
                new_links.templated_policies,
                merge,
                self.no_templated_policies,
            ),
            service_identities: merge_links(
                there.service_identities,
                new_links.service_identities,
                merge,
                self.no_service_identities,
            ),
            node_identities: merge_links(
                there.node_identities,
                new_links.node_identities,
                merge,
                self.no_node_identities,
            ),
        }
    }
}

/// One kind of links after an update.
pub(super) fn merge_links<T: PartialEq>(there: Vec<T>, new_links: Vec<T>, merge: bool, drop: bool) -> Vec<T> {
    if drop || (!merge && !new_links.is_empty()) {
        return new_links;
    }
    let mut all = there;
    for link in new_links {
        if !all.contains(&link) {
            all.push(link);
        }
    }
    all
}

fn service(text: &str) -> Result<ServiceIdentity, String> {
    let (name, datacenters) = text.split_once(':').unwrap_or((text, ""));
    let datacenters: Vec<_> = datacenters.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if name.is_empty() || (text.contains(':') && datacenters.is_empty()) {
        return Err("write NAME, or NAME:DC,DC".to_owned());
    }
    Ok(ServiceIdentity { service_name: name.to_owned(), datacenters })
}

fn node(text: &str) -> Result<NodeIdentity, String> {
    match text.split_once(':') {
        Some((name, datacenter)) if !name.is_empty() && !datacenter.is_empty() => {
            Ok(NodeIdentity { node_name: name.to_owned(), datacenter: datacenter.to_owned() })
        }
        _ => Err("write NAME:DC".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_keeps_replaces_adds_or_drops_a_kind_of_links() {
        let check = |given: &[u8], merge: bool, drop: bool, expected: &[u8]| {
            assert_eq!(merge_links(vec![1, 2], given.to_vec(), merge, drop), expected, "{given:?} {merge} {drop}");
        };
        check(&[], false, false, &[1, 2]);
        check(&[], true, false, &[1, 2]);
        check(&[3], false, false, &[3]);
        check(&[2, 3], true, false, &[1, 2, 3]);
        check(&[], false, true, &[]);
        check(&[3], true, true, &[3]);
    }

    #[test]
    fn identities_are_written_with_their_datacenters() {
        let of = |name: &str, datacenters: &[&str]| {
            let datacenters = datacenters.iter().map(ToString::to_string).collect();
            Ok(ServiceIdentity { service_name: name.to_owned(), datacenters })
        };
        assert_eq!(service("web"), of("web", &[]));
        assert_eq!(service("web:dc1,dc2"), of("web", &["dc1", "dc2"]));
        assert!(["", ":dc1", "web:", "web:,"].iter().all(|text| service(text).is_err()));
        let expected = NodeIdentity { node_name: "n1".to_owned(), datacenter: "dc1".to_owned() };
        assert_eq!(node("n1:dc1"), Ok(expected));
        assert!(["", "n1", "n1:", ":dc1"].iter().all(|text| node(text).is_err()));
    }
}
