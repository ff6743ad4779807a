//! Table of the API's operations by method and path, and their properties.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

/// Operation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    TokenCreate,
    TokenSelf,
    TokenRead,
    TokenUpdate,
    TokenDelete,
    TokenClone,
    TokenExplain,
    TokenList,
    RoleCreate,
    RoleRead,
    RoleReadByName,
    RoleUpdate,
    RoleDelete,
    RoleList,
    PolicyCreate,
    PolicyRead,
    PolicyReadByName,
    PolicyUpdate,
    PolicyDelete,
    PolicyList,
    NamespaceCreate,
    NamespaceRead,
    NamespaceUpdate,
    NamespaceDelete,
    NamespaceList,
    Authorize,
    TemplateList,
    TemplateRead,
    TemplatePreview,
    MethodCreate,
    MethodRead,
    MethodUpdate,
    MethodDelete,
    MethodList,
    RuleCreate,
    RuleRead,
    RuleUpdate,
    RuleDelete,
    RuleList,
    Login,
    Logout,
    Bootstrap,
    Rekey,
    Verify,
    SnapshotTake,
    SnapshotRestore,
    VaultLogin,
    VaultLookup,
    VaultRevoke,
    VaultRenew,
    VaultHealth,
}

use Operation as Op;

/// Paths below `/v1/`: `:` matches one segment, `*` the rest. The first match wins.
const TABLE: &[(&str, &[(Method, Operation)])] = &[
    ("acl/token", &[(Method::PUT, Op::TokenCreate)]),
    ("acl/token/self", &[(Method::GET, Op::TokenSelf)]),
    ("acl/token/:", &[(Method::GET, Op::TokenRead), (Method::PUT, Op::TokenUpdate), (Method::DELETE, Op::TokenDelete)]),
    ("acl/token/:/clone", &[(Method::PUT, Op::TokenClone)]),
    ("acl/token/:/explain", &[(Method::POST, Op::TokenExplain)]),
    ("acl/tokens", &[(Method::GET, Op::TokenList)]),
    ("acl/role", &[(Method::PUT, Op::RoleCreate)]),
    ("acl/role/name/:", &[(Method::GET, Op::RoleReadByName)]),
    ("acl/role/:", &[(Method::GET, Op::RoleRead), (Method::PUT, Op::RoleUpdate), (Method::DELETE, Op::RoleDelete)]),
    ("acl/roles", &[(Method::GET, Op::RoleList)]),
    ("acl/policy", &[(Method::PUT, Op::PolicyCreate)]),
    // Names of built-in policies contain a slash.
    ("acl/policy/name/*", &[(Method::GET, Op::PolicyReadByName)]),
    (
        "acl/policy/:",
        &[(Method::GET, Op::PolicyRead), (Method::PUT, Op::PolicyUpdate), (Method::DELETE, Op::PolicyDelete)],
    ),
    ("acl/policies", &[(Method::GET, Op::PolicyList)]),
    ("acl/auth-method", &[(Method::PUT, Op::MethodCreate)]),
    (
        "acl/auth-method/:",
        &[(Method::GET, Op::MethodRead), (Method::PUT, Op::MethodUpdate), (Method::DELETE, Op::MethodDelete)],
    ),
    ("acl/auth-methods", &[(Method::GET, Op::MethodList)]),
    ("acl/binding-rule", &[(Method::PUT, Op::RuleCreate)]),
    (
        "acl/binding-rule/:",
        &[(Method::GET, Op::RuleRead), (Method::PUT, Op::RuleUpdate), (Method::DELETE, Op::RuleDelete)],
    ),
    ("acl/binding-rules", &[(Method::GET, Op::RuleList)]),
    ("acl/login", &[(Method::POST, Op::Login)]),
    ("acl/logout", &[(Method::POST, Op::Logout)]),
    ("acl/bootstrap", &[(Method::PUT, Op::Bootstrap)]),
    ("snapshot", &[(Method::GET, Op::SnapshotTake), (Method::PUT, Op::SnapshotRestore)]),
    ("namespace", &[(Method::PUT, Op::NamespaceCreate)]),
    (
        "namespace/:",
        &[(Method::GET, Op::NamespaceRead), (Method::PUT, Op::NamespaceUpdate), (Method::DELETE, Op::NamespaceDelete)],
    ),
    ("namespaces", &[(Method::GET, Op::NamespaceList)]),
    ("acl/templated-policies", &[(Method::GET, Op::TemplateList)]),
    // Names of templates contain a slash.
    ("acl/templated-policy/name/*", &[(Method::GET, Op::TemplateRead)]),
    ("acl/templated-policy/preview/*", &[(Method::POST, Op::TemplatePreview)]),
    ("operator/rekey", &[(Method::PUT, Op::Rekey)]),
    ("operator/verify", &[(Method::GET, Op::Verify)]),
    ("internal/acl/authorize", &[(Method::POST, Op::Authorize)]),
    ("auth/token/lookup-self", &[(Method::GET, Op::VaultLookup)]),
    ("auth/token/revoke-self", &[(Method::PUT, Op::VaultRevoke), (Method::POST, Op::VaultRevoke)]),
    ("auth/token/renew-self", &[(Method::PUT, Op::VaultRenew), (Method::POST, Op::VaultRenew)]),
    ("auth/:/login", &[(Method::PUT, Op::VaultLogin), (Method::POST, Op::VaultLogin)]),
    ("sys/health", &[(Method::GET, Op::VaultHealth), (Method::HEAD, Op::VaultHealth)]),
];

impl Operation {
    /// Length of an array indexed by operation, enough for all operations in the table.
    pub(super) const COUNT: usize = {
        let mut count = 0;
        let mut row = 0;
        while row < TABLE.len() {
            let methods = TABLE[row].1;
            let mut at = 0;
            while at < methods.len() {
                let length = methods[at].1 as usize + 1;
                count = if length > count { length } else { count };
                at += 1;
            }
            row += 1;
        }
        count
    };

    /// Name of the operation in logs and metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Op::TokenCreate => "token.create",
            Op::TokenSelf | Op::VaultLookup => "token.self",
            Op::TokenRead => "token.read",
            Op::TokenUpdate => "token.update",
            Op::TokenDelete => "token.delete",
            Op::TokenClone => "token.clone",
            Op::TokenExplain => "token.explain",
            Op::TokenList => "token.list",
            Op::RoleCreate => "role.create",
            Op::RoleRead | Op::RoleReadByName => "role.read",
            Op::RoleUpdate => "role.update",
            Op::RoleDelete => "role.delete",
            Op::RoleList => "role.list",
            Op::PolicyCreate => "policy.create",
            Op::PolicyRead | Op::PolicyReadByName => "policy.read",
            Op::PolicyUpdate => "policy.update",
            Op::PolicyDelete => "policy.delete",
            Op::PolicyList => "policy.list",
            Op::NamespaceCreate => "namespace.create",
            Op::NamespaceRead => "namespace.read",
            Op::NamespaceUpdate => "namespace.update",
            Op::NamespaceDelete => "namespace.delete",
            Op::NamespaceList => "namespace.list",
            Op::Authorize => "authorize",
            Op::TemplateList => "template.list",
            Op::TemplateRead => "template.read",
            Op::TemplatePreview => "template.preview",
            Op::MethodCreate => "auth_method.create",
            Op::MethodRead => "auth_method.read",
            Op::MethodUpdate => "auth_method.update",
            Op::MethodDelete => "auth_method.delete",
            Op::MethodList => "auth_method.list",
            Op::RuleCreate => "binding_rule.create",
            Op::RuleRead => "binding_rule.read",
            Op::RuleUpdate => "binding_rule.update",
            Op::RuleDelete => "binding_rule.delete",
            Op::RuleList => "binding_rule.list",
            Op::Login | Op::VaultLogin => "login",
            Op::Logout => "logout",
            Op::Bootstrap => "bootstrap",
            Op::Rekey => "rekey",
            Op::Verify => "verify",
            Op::SnapshotTake => "snapshot.take",
            Op::SnapshotRestore => "snapshot.restore",
            Op::VaultRevoke => "token.revoke",
            Op::VaultRenew => "token.renew",
            Op::VaultHealth => "health",
        }
    }

    /// True for reads: only they support blocking queries and consistency modes.
    pub(super) const fn is_read(self) -> bool {
        matches!(
            self,
            Op::TokenSelf
                | Op::TokenRead
                | Op::TokenList
                | Op::RoleRead
                | Op::RoleReadByName
                | Op::RoleList
                | Op::PolicyRead
                | Op::PolicyReadByName
                | Op::PolicyList
                | Op::NamespaceRead
                | Op::NamespaceList
                | Op::MethodRead
                | Op::MethodList
                | Op::RuleRead
                | Op::RuleList
        )
    }

    /// True if the operation checks for a running restore itself: reads before each store access, and restores, which may
    /// continue an interrupted one.
    pub(super) const fn checks_restore_itself(self) -> bool {
        self.is_read() || matches!(self, Op::SnapshotRestore)
    }

    /// True if the operation issues a token to a caller without one.
    pub(super) const fn is_login(self) -> bool {
        matches!(self, Op::Login | Op::VaultLogin)
    }
}

/// Match of a request line in the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// An operation, and the variable part of its path, decoded.
    Operation(Operation, String),
    /// An `OPTIONS` request; holds the methods of the path in the form of `Allow`.
    Options(String),
    /// The path has other methods only, listed in the form of `Allow`.
    MethodNotAllowed(String),
    /// The path is not in the table.
    NotFound,
}

/// Finds the operation at `path`, the part after `/v1/`, still percent-encoded.
pub(super) fn route(method: &Method, path: &str) -> Route {
    let matching = TABLE.iter().find_map(|(pattern, methods)| Some((match_pattern(pattern, path)?, methods)));
    let Some((subject, methods)) = matching else { return Route::NotFound };
    if let Some((_, operation)) = methods.iter().find(|(offered, _)| offered == method) {
        if !subject.contains('%') {
            return Route::Operation(*operation, subject.to_owned());
        }
        return match percent_decode_str(subject).decode_utf8() {
            Ok(subject) => Route::Operation(*operation, subject.into_owned()),
            Err(_) => Route::NotFound,
        };
    }
    let names = methods.iter().map(|(method, _)| Cow::from(method.as_str().to_owned()));
    let allow = ["OPTIONS".into()].into_iter().chain(names).collect::<Vec<_>>().join(",");
    if method == Method::OPTIONS { Route::Options(allow) } else { Route::MethodNotAllowed(allow) }
}

/// Matches a path against a pattern, and returns the part for the variable; empty if the pattern has none.
fn match_pattern<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    if let Some(start) = pattern.strip_suffix('*') {
        return path.strip_prefix(start);
    }
    let Some((start, end)) = pattern.split_once(':') else { return (pattern == path).then_some("") };
    let subject = path.strip_prefix(start)?.strip_suffix(end)?;
    (!subject.contains('/')).then_some(subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines_map_to_operations() {
        let check = |method: &str, path: &str, expected: Route| {
            assert_eq!(route(&method.parse().unwrap(), path), expected, "{method} {path}");
        };
        let to = |operation, subject: &str| Route::Operation(operation, subject.to_owned());
        check("PUT", "acl/token", to(Op::TokenCreate, ""));
        check("GET", "acl/token/self", to(Op::TokenSelf, ""));
        check("PUT", "acl/token/self", Route::MethodNotAllowed("OPTIONS,GET".into()));
        check("OPTIONS", "acl/token/x", Route::Options("OPTIONS,GET,PUT,DELETE".into()));
        check("POST", "acl/token", Route::MethodNotAllowed("OPTIONS,PUT".into()));
        check("GET", "acl/token/", to(Op::TokenRead, ""));
        check("GET", "acl/token/a%20b", to(Op::TokenRead, "a b"));
        check("GET", "acl/token/a%2Fb", to(Op::TokenRead, "a/b"));
        check("GET", "acl/token/%ff", Route::NotFound);
        check("PUT", "acl/token/x/clone", to(Op::TokenClone, "x"));
        check("GET", "acl/token/x/y", Route::NotFound);
        check("GET", "acl/role/name/web", to(Op::RoleReadByName, "web"));
        check("GET", "acl/role/name", to(Op::RoleRead, "name"));
        check("GET", "acl/policy/name/builtin/global-read-only", to(Op::PolicyReadByName, "builtin/global-read-only"));
        check("GET", "acl/tokens", to(Op::TokenList, ""));
        check("GET", "acl/tokens/", Route::NotFound);
        check("POST", "auth/azure/login", to(Op::VaultLogin, "azure"));
        check("GET", "nope", Route::NotFound);
        check("GET", "", Route::NotFound);
    }
}
