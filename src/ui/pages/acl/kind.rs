//! Kinds of records: their paths in the API, their fields in lists, and the lists of what depends on one.

use serde_json::Value;

/// Kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AclKind {
    Token,
    Policy,
    Role,
    Namespace,
    AuthMethod,
    BindingRule,
}

/// A list of records that depend on another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependents {
    pub kind: AclKind,
    /// Path and query of the list in the API.
    pub api_path: String,
    /// The list holds others too: only records with this text in this field depend.
    pub matching: Option<(&'static str, String)>,
}

impl AclKind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Token, Self::Policy, Self::Role, Self::Namespace, Self::AuthMethod, Self::BindingRule];

    /// Finds a kind by its segment in paths of the pages.
    pub(crate) fn parse(segment: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.segment() == segment)
    }

    /// Title of the list.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Token => "Tokens",
            Self::Policy => "Policies",
            Self::Role => "Roles",
            Self::Namespace => "Namespaces",
            Self::AuthMethod => "Auth methods",
            Self::BindingRule => "Binding rules",
        }
    }

    /// Title of one record.
    pub(super) const fn singular(self) -> &'static str {
        match self {
            Self::Token => "Token",
            Self::Policy => "Policy",
            Self::Role => "Role",
            Self::Namespace => "Namespace",
            Self::AuthMethod => "Auth method",
            Self::BindingRule => "Binding rule",
        }
    }

    const fn segment(self) -> &'static str {
        match self {
            Self::Token => "tokens",
            Self::Policy => "policies",
            Self::Role => "roles",
            Self::Namespace => "namespaces",
            Self::AuthMethod => "auth-methods",
            Self::BindingRule => "binding-rules",
        }
    }

    /// Field that identifies a record in paths.
    pub(crate) const fn id_field(self) -> &'static str {
        match self {
            Self::Token => "AccessorID",
            Self::Policy | Self::Role | Self::BindingRule => "ID",
            Self::Namespace | Self::AuthMethod => "Name",
        }
    }

    /// Field by which people know a record; its id stands below.
    pub(super) const fn name_field(self) -> &'static str {
        match self {
            Self::Token | Self::BindingRule => "Description",
            Self::Policy | Self::Role | Self::Namespace | Self::AuthMethod => "Name",
        }
    }

    /// Fields of the list's columns after the name.
    pub(super) const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Token => &["Policies", "Roles", "AuthMethod", "ExpirationTime"],
            Self::Policy => &["Description", "Datacenters"],
            Self::Role => &["Description", "Policies"],
            Self::Namespace => &["Description", "DeletedAt"],
            Self::AuthMethod => &["Type", "DisplayName", "Description", "MaxTokenTTL"],
            Self::BindingRule => &["AuthMethod", "BindType", "BindName", "Selector"],
        }
    }

    /// Path of the list in the API.
    pub(crate) fn api_list(self, namespace: &str) -> String {
        let path = match self {
            Self::Namespace => return "/v1/namespaces".to_owned(),
            other => other.segment(),
        };
        let configured = if self == Self::AuthMethod { "true" } else { "" };
        with_query(&format!("/v1/acl/{path}"), &[("configured", configured), ("ns", namespace)])
    }

    /// Path of a record in the API.
    pub(crate) fn api_read(self, id: &str, namespace: &str) -> String {
        let id = encode(id);
        let (path, expanded) = match self {
            Self::Token => (format!("/v1/acl/token/{id}"), "true"),
            Self::Policy => (format!("/v1/acl/policy/{id}"), ""),
            Self::Role => (format!("/v1/acl/role/{id}"), ""),
            Self::Namespace => return format!("/v1/namespace/{id}"),
            Self::AuthMethod => (format!("/v1/acl/auth-method/{id}"), ""),
            Self::BindingRule => (format!("/v1/acl/binding-rule/{id}"), ""),
        };
        with_query(&path, &[("expanded", expanded), ("ns", namespace)])
    }

    /// Lists of the records that depend on one of this kind.
    pub(crate) fn dependents(self, id: &str, record: &Value, namespace: &str) -> Vec<Dependents> {
        let list = |kind: Self, query: &[(&str, &str)]| Dependents {
            kind,
            api_path: with_query(&format!("/v1/acl/{}", kind.segment()), &[query, &[("ns", namespace)]].concat()),
            matching: None,
        };
        let name = record["Name"].as_str().unwrap_or_default().to_owned();
        let bound = Dependents { matching: Some(("BindName", name)), ..list(Self::BindingRule, &[]) };
        match self {
            Self::Policy => vec![list(Self::Token, &[("policy", id)]), list(Self::Role, &[("policy", id)]), bound],
            Self::Role => vec![list(Self::Token, &[("role", id)]), bound],
            Self::AuthMethod => {
                vec![list(Self::Token, &[("authmethod", id)]), list(Self::BindingRule, &[("authmethod", id)])]
            }
            Self::Token | Self::Namespace | Self::BindingRule => Vec::new(),
        }
    }

    /// Link to the list.
    pub(super) fn list_link(self, namespace: &str) -> String {
        with_query(&format!("/acl/{}", self.segment()), &[("ns", namespace)])
    }

    /// Link to the records of all namespaces that a search finds.
    pub(crate) fn search_link(self, search: &str) -> String {
        let namespace = if self == Self::Namespace { "" } else { "*" };
        with_query(&format!("/acl/{}", self.segment()), &[("q", search), ("ns", namespace)])
    }

    /// Link to a record.
    pub(crate) fn link(self, id: &str, namespace: &str) -> String {
        with_query(&format!("/acl/{}/{}", self.segment(), encode(id)), &[("ns", namespace)])
    }
}

/// Names of fields for people, in the order of a record's page. Other fields are shown below, by their names in the API.
pub(super) const FIELDS: [(&str, &str); 21] = [
    ("Name", "Name"),
    ("Description", "Description"),
    ("AccessorID", "Accessor"),
    ("ID", "Id"),
    ("Type", "Type"),
    ("DisplayName", "Display name"),
    ("Policies", "Policies"),
    ("Roles", "Roles"),
    ("ServiceIdentities", "Service identities"),
    ("NodeIdentities", "Node identities"),
    ("TemplatedPolicies", "Templated policies"),
    ("AuthMethod", "Auth method"),
    ("BindType", "Binds to a"),
    ("BindName", "Bound name"),
    ("Selector", "Selector"),
    ("Datacenters", "Datacenters"),
    ("MaxTokenTTL", "Longest token life"),
    ("Namespace", "Namespace"),
    ("CreateTime", "Created"),
    ("ExpirationTime", "Expires"),
    ("DeletedAt", "Deletion began"),
];

/// Name of a field for people; its name in the API if there is none.
pub(super) fn label(field: &'static str) -> &'static str {
    FIELDS.iter().find(|(name, _)| *name == field).map_or(field, |(_, label)| label)
}

/// Appends a query to a path; empty values are left out.
pub(super) fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let mut pairs = url::form_urlencoded::Serializer::new(String::new());
    pairs.extend_pairs(query.iter().filter(|(_, value)| !value.is_empty()));
    let query = pairs.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// Percent-encodes a segment of a path.
pub(super) fn encode(segment: &str) -> String {
    percent_encoding::utf8_percent_encode(segment, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded_and_empty_values_left_out() {
        assert_eq!(AclKind::Token.api_read("a/b", ""), "/v1/acl/token/a%2Fb?expanded=true");
        assert_eq!(AclKind::Policy.api_list("team x"), "/v1/acl/policies?ns=team+x");
        assert_eq!(AclKind::Namespace.api_list("team"), "/v1/namespaces");
        assert_eq!(AclKind::AuthMethod.api_list(""), "/v1/acl/auth-methods?configured=true");
        assert_eq!(AclKind::AuthMethod.link("a?b", "team"), "/acl/auth-methods/a%3Fb?ns=team");
        for kind in AclKind::ALL {
            assert_eq!(AclKind::parse(kind.segment()), Some(kind));
        }
    }

    #[test]
    fn a_policy_is_used_by_tokens_roles_and_binding_rules() {
        let record = serde_json::json!({ "Name": "web" });
        let paths: Vec<String> =
            AclKind::Policy.dependents("1", &record, "team").into_iter().map(|list| list.api_path).collect();
        let expected =
            ["/v1/acl/tokens?policy=1&ns=team", "/v1/acl/roles?policy=1&ns=team", "/v1/acl/binding-rules?ns=team"];
        assert_eq!(paths, expected);
    }
}
