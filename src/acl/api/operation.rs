//! The table of operations: what is at which path, and what each supports.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

/// What may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    TokenCreate,
    TokenSelf,
    TokenRead,
    TokenUpdate,
    TokenDelete,
    TokenClone,
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

use Operation as Do;

/// Paths below `/v1/`: `:` is one segment, `*` is the rest. The first that fits counts.
const TABLE: &[(&str, &[(Method, Operation)])] = &[
    ("acl/token", &[(Method::PUT, Do::TokenCreate)]),
    ("acl/token/self", &[(Method::GET, Do::TokenSelf)]),
    ("acl/token/:", &[(Method::GET, Do::TokenRead), (Method::PUT, Do::TokenUpdate), (Method::DELETE, Do::TokenDelete)]),
    ("acl/token/:/clone", &[(Method::PUT, Do::TokenClone)]),
    ("acl/tokens", &[(Method::GET, Do::TokenList)]),
    ("acl/role", &[(Method::PUT, Do::RoleCreate)]),
    ("acl/role/name/:", &[(Method::GET, Do::RoleReadByName)]),
    ("acl/role/:", &[(Method::GET, Do::RoleRead), (Method::PUT, Do::RoleUpdate), (Method::DELETE, Do::RoleDelete)]),
    ("acl/roles", &[(Method::GET, Do::RoleList)]),
    ("acl/policy", &[(Method::PUT, Do::PolicyCreate)]),
    // Names of built-in policies hold a slash.
    ("acl/policy/name/*", &[(Method::GET, Do::PolicyReadByName)]),
    (
        "acl/policy/:",
        &[(Method::GET, Do::PolicyRead), (Method::PUT, Do::PolicyUpdate), (Method::DELETE, Do::PolicyDelete)],
    ),
    ("acl/policies", &[(Method::GET, Do::PolicyList)]),
    ("acl/auth-method", &[(Method::PUT, Do::MethodCreate)]),
    (
        "acl/auth-method/:",
        &[(Method::GET, Do::MethodRead), (Method::PUT, Do::MethodUpdate), (Method::DELETE, Do::MethodDelete)],
    ),
    ("acl/auth-methods", &[(Method::GET, Do::MethodList)]),
    ("acl/binding-rule", &[(Method::PUT, Do::RuleCreate)]),
    (
        "acl/binding-rule/:",
        &[(Method::GET, Do::RuleRead), (Method::PUT, Do::RuleUpdate), (Method::DELETE, Do::RuleDelete)],
    ),
    ("acl/binding-rules", &[(Method::GET, Do::RuleList)]),
    ("acl/login", &[(Method::POST, Do::Login)]),
    ("acl/logout", &[(Method::POST, Do::Logout)]),
    ("acl/bootstrap", &[(Method::PUT, Do::Bootstrap)]),
    ("snapshot", &[(Method::GET, Do::SnapshotTake), (Method::PUT, Do::SnapshotRestore)]),
    ("namespace", &[(Method::PUT, Do::NamespaceCreate)]),
    (
        "namespace/:",
        &[(Method::GET, Do::NamespaceRead), (Method::PUT, Do::NamespaceUpdate), (Method::DELETE, Do::NamespaceDelete)],
    ),
    ("namespaces", &[(Method::GET, Do::NamespaceList)]),
    ("acl/templated-policies", &[(Method::GET, Do::TemplateList)]),
    // Names of templates hold a slash.
    ("acl/templated-policy/name/*", &[(Method::GET, Do::TemplateRead)]),
    ("acl/templated-policy/preview/*", &[(Method::POST, Do::TemplatePreview)]),
    ("operator/rekey", &[(Method::PUT, Do::Rekey)]),
    ("operator/verify", &[(Method::GET, Do::Verify)]),
    ("internal/acl/authorize", &[(Method::POST, Do::Authorize)]),
    ("auth/token/lookup-self", &[(Method::GET, Do::VaultLookup)]),
    ("auth/token/revoke-self", &[(Method::PUT, Do::VaultRevoke), (Method::POST, Do::VaultRevoke)]),
    ("auth/token/renew-self", &[(Method::PUT, Do::VaultRenew), (Method::POST, Do::VaultRenew)]),
    ("auth/:/login", &[(Method::PUT, Do::VaultLogin), (Method::POST, Do::VaultLogin)]),
    ("sys/health", &[(Method::GET, Do::VaultHealth), (Method::HEAD, Do::VaultHealth)]),
];

impl Operation {
    /// How many places a list has that is indexed by operation: enough for each that the table leads to.
    pub(super) const COUNT: usize = {
        let (mut count, mut row) = (0, 0);
        while row < TABLE.len() {
            let (methods, mut at) = (TABLE[row].1, 0);
            while at < methods.len() {
                let place = methods[at].1 as usize + 1;
                count = if place > count { place } else { count };
                at += 1;
            }
            row += 1;
        }
        count
    };

    /// Its name in logs and metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Do::TokenCreate => "token.create",
            Do::TokenSelf | Do::VaultLookup => "token.self",
            Do::TokenRead => "token.read",
            Do::TokenUpdate => "token.update",
            Do::TokenDelete => "token.delete",
            Do::TokenClone => "token.clone",
            Do::TokenList => "token.list",
            Do::RoleCreate => "role.create",
            Do::RoleRead | Do::RoleReadByName => "role.read",
            Do::RoleUpdate => "role.update",
            Do::RoleDelete => "role.delete",
            Do::RoleList => "role.list",
            Do::PolicyCreate => "policy.create",
            Do::PolicyRead | Do::PolicyReadByName => "policy.read",
            Do::PolicyUpdate => "policy.update",
            Do::PolicyDelete => "policy.delete",
            Do::PolicyList => "policy.list",
            Do::NamespaceCreate => "namespace.create",
            Do::NamespaceRead => "namespace.read",
            Do::NamespaceUpdate => "namespace.update",
            Do::NamespaceDelete => "namespace.delete",
            Do::NamespaceList => "namespace.list",
            Do::Authorize => "authorize",
            Do::TemplateList => "template.list",
            Do::TemplateRead => "template.read",
            Do::TemplatePreview => "template.preview",
            Do::MethodCreate => "auth_method.create",
            Do::MethodRead => "auth_method.read",
            Do::MethodUpdate => "auth_method.update",
            Do::MethodDelete => "auth_method.delete",
            Do::MethodList => "auth_method.list",
            Do::RuleCreate => "binding_rule.create",
            Do::RuleRead => "binding_rule.read",
            Do::RuleUpdate => "binding_rule.update",
            Do::RuleDelete => "binding_rule.delete",
            Do::RuleList => "binding_rule.list",
            Do::Login | Do::VaultLogin => "login",
            Do::Logout => "logout",
            Do::Bootstrap => "bootstrap",
            Do::Rekey => "rekey",
            Do::Verify => "verify",
            Do::SnapshotTake => "snapshot.take",
            Do::SnapshotRestore => "snapshot.restore",
            Do::VaultRevoke => "token.revoke",
            Do::VaultRenew => "token.renew",
            Do::VaultHealth => "health",
        }
    }

    /// Whether it supports blocking queries and the consistency modes: all reads do, and nothing else does.
    pub(super) const fn reads(self) -> bool {
        matches!(
            self,
            Do::TokenSelf
                | Do::TokenRead
                | Do::TokenList
                | Do::RoleRead
                | Do::RoleReadByName
                | Do::RoleList
                | Do::PolicyRead
                | Do::PolicyReadByName
                | Do::PolicyList
                | Do::NamespaceRead
                | Do::NamespaceList
                | Do::MethodRead
                | Do::MethodList
                | Do::RuleRead
                | Do::RuleList
        )
    }

    /// Whether it looks itself whether the store is being restored: reads do each time that they look at all, and a
    /// restore goes on with one that did not end.
    pub(super) const fn looks_itself(self) -> bool {
        self.reads() || matches!(self, Do::SnapshotRestore)
    }

    /// Whether it gives a token to one who has none.
    pub(super) const fn is_login(self) -> bool {
        matches!(self, Do::Login | Do::VaultLogin)
    }
}

/// What a request line leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// An operation, and the variable part of its path, decoded.
    To(Operation, String),
    /// The methods that the path has, as `Allow` lists them: asked for by OPTIONS.
    Options(String),
    /// The path has other methods.
    NoMethod(String),
    /// Nothing is there.
    Nothing,
}

/// Finds what is at `path`, which is what follows `/v1/`, still encoded.
pub(super) fn route(method: &Method, path: &str) -> Route {
    let fitting = TABLE.iter().find_map(|(pattern, methods)| Some((variable(pattern, path)?, methods)));
    let Some((subject, methods)) = fitting else { return Route::Nothing };
    if let Some((_, operation)) = methods.iter().find(|(offered, _)| offered == method) {
        if !subject.contains('%') {
            return Route::To(*operation, subject.to_owned());
        }
        return match percent_decode_str(subject).decode_utf8() {
            Ok(subject) => Route::To(*operation, subject.into_owned()),
            Err(_) => Route::Nothing,
        };
    }
    let names = methods.iter().map(|(method, _)| Cow::from(method.as_str().to_owned()));
    let allow = ["OPTIONS".into()].into_iter().chain(names).collect::<Vec<_>>().join(",");
    if method == Method::OPTIONS { Route::Options(allow) } else { Route::NoMethod(allow) }
}

/// The part of a path that fits the pattern's variable; empty if it has none.
fn variable<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
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
    fn each_request_line_leads_to_one_thing() {
        let check = |method: &str, path: &str, wanted: Route| {
            assert_eq!(route(&method.parse().unwrap(), path), wanted, "{method} {path}");
        };
        let to = |operation, subject: &str| Route::To(operation, subject.to_owned());
        check("PUT", "acl/token", to(Do::TokenCreate, ""));
        check("GET", "acl/token/self", to(Do::TokenSelf, ""));
        check("PUT", "acl/token/self", Route::NoMethod("OPTIONS,GET".into()));
        check("OPTIONS", "acl/token/x", Route::Options("OPTIONS,GET,PUT,DELETE".into()));
        check("POST", "acl/token", Route::NoMethod("OPTIONS,PUT".into()));
        check("GET", "acl/token/", to(Do::TokenRead, ""));
        check("GET", "acl/token/a%20b", to(Do::TokenRead, "a b"));
        check("GET", "acl/token/a%2Fb", to(Do::TokenRead, "a/b"));
        check("GET", "acl/token/%ff", Route::Nothing);
        check("PUT", "acl/token/x/clone", to(Do::TokenClone, "x"));
        check("GET", "acl/token/x/y", Route::Nothing);
        check("GET", "acl/role/name/web", to(Do::RoleReadByName, "web"));
        check("GET", "acl/role/name", to(Do::RoleRead, "name"));
        check("GET", "acl/policy/name/builtin/global-read-only", to(Do::PolicyReadByName, "builtin/global-read-only"));
        check("GET", "acl/tokens", to(Do::TokenList, ""));
        check("GET", "acl/tokens/", Route::Nothing);
        check("POST", "auth/azure/login", to(Do::VaultLogin, "azure"));
        check("GET", "nope", Route::Nothing);
        check("GET", "", Route::Nothing);
    }
}
