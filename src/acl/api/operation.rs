//! Table of the API's operations: method and path, name, guard and handler of each.
//!
//! To add an operation, write its handler, add one row here, and describe it in `docs/reference/acl-api.md`, which a test
//! compares with this table. A row that lacks a part does not compile:
//!
//! ```text
//! Variant: METHOD|METHOD "path" "name" Guard handler;
//! ```
//!
//! The path is below `/v1/`: `:` matches one segment, `*` the rest. The name is that of logs and metrics. The [`Guard`] runs before
//! the handler, whose parameters stand at the head of its section. The first path that matches wins, in the order of
//! the sections: a path stands before a pattern that matches it too.

use http::{Method, Response};
use percent_encoding::percent_decode_str;

use super::error::ApiError;
use super::request::ApiRequest;
use super::response::{ReadResult, ResponseBody, WriteResult};
use super::state::ApiState;
use super::vault::{self, VaultRequest};
use super::{
    auth_methods, authorize, bootstrap, explain, login, namespaces, oidc, records, rekey, snapshot, templated_policies,
    tokens, verify,
};
use crate::model::auth_method::AuthMethodRecord;
use crate::model::binding_rule::BindingRuleRecord;
use crate::model::policy::PolicyRecord;
use crate::model::role::RoleRecord;
use crate::store::Freshness;

/// Row of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    path: &'static str,
    methods: &'static [Method],
    /// Name in logs and metrics. Operations that do the same share one.
    pub(super) name: &'static str,
    pub(super) guard: Guard,
    pub(super) operation: Operation,
}

/// Check that runs before the handler of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// Refuses the operation during a restore of a snapshot.
    Restore,
    /// Limits the rate of one source, and then refuses like [`Guard::Restore`]. For callers without a token.
    Login,
    /// Checks nothing. The handler checks for a restore itself: reads before each store access, and a restore because it
    /// may continue an interrupted one.
    Handler,
    /// Refuses during a restore that this server knows of. A health probe must not wait for a store that is unreachable.
    Health,
}

/// Operation of the API, by the kind of its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Read(ReadOperation),
    Write(WriteOperation),
    Vault(VaultOperation),
}

/// Defines one section of the table: the enum of its operations, their rows, and `call`, which calls the handler.
macro_rules! operations {
    (
        $(#[$attribute:meta])*
        $section:ident($kind:ident): handler $arguments:tt -> $result:ident where $($parameter:ident: $type:ty),+;
        $($operation:ident: $($method:ident)|+ $path:literal $name:literal $guard:ident $handler:path;)+
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum $kind {
            $($operation,)+
        }

        impl $kind {
            const ROWS: &[Row] = &[$(Row {
                path: $path,
                methods: &[$(Method::$method),+],
                name: $name,
                guard: Guard::$guard,
                operation: Operation::$section(Self::$operation),
            }),+];

            /// Calls the handler. Its future is part of this one: a box for each would cost an allocation a request.
            pub(super) async fn call(self, $($parameter: $type),+) -> Result<$result, ApiError> {
                match self {
                    $(Self::$operation => $handler $arguments.await.map($result::from),)+
                }
            }
        }
    };
}

operations! {
    /// Reads of records. They support blocking queries and consistency modes, and their responses are cached.
    Read(ReadOperation): handler(state, request, freshness) -> ReadResult
    where state: &ApiState, request: &ApiRequest, freshness: Freshness;

    TokenSelf:        GET "acl/token/self"     "token.self"        Handler tokens::read_self;
    TokenRead:        GET "acl/token/:"        "token.read"        Handler tokens::read;
    TokenList:        GET "acl/tokens"         "token.list"        Handler tokens::list;
    RoleReadByName:   GET "acl/role/name/:"    "role.read"         Handler records::read_by_name::<RoleRecord>;
    RoleRead:         GET "acl/role/:"         "role.read"         Handler records::read::<RoleRecord>;
    RoleList:         GET "acl/roles"          "role.list"         Handler records::list::<RoleRecord>;
    // Names of built-in policies contain a slash.
    PolicyReadByName: GET "acl/policy/name/*"  "policy.read"       Handler records::read_by_name::<PolicyRecord>;
    PolicyRead:       GET "acl/policy/:"       "policy.read"       Handler records::read::<PolicyRecord>;
    PolicyList:       GET "acl/policies"       "policy.list"       Handler records::list::<PolicyRecord>;
    MethodRead:       GET "acl/auth-method/:"  "auth_method.read"  Handler records::read::<AuthMethodRecord>;
    MethodList:       GET "acl/auth-methods"   "auth_method.list"  Handler records::list::<AuthMethodRecord>;
    RuleRead:         GET "acl/binding-rule/:" "binding_rule.read" Handler records::read::<BindingRuleRecord>;
    RuleList:         GET "acl/binding-rules"  "binding_rule.list" Handler records::list::<BindingRuleRecord>;
    NamespaceRead:    GET "namespace/:"        "namespace.read"    Handler namespaces::read;
    NamespaceList:    GET "namespaces"         "namespace.list"    Handler namespaces::list;
}

operations! {
    /// Operations that run once: all that may write, and queries that do not wait for a change.
    Write(WriteOperation): handler(state, request) -> WriteResult
    where state: &ApiState, request: &mut ApiRequest;

    TokenCreate:     PUT    "acl/token"                      "token.create"        Restore tokens::create;
    TokenUpdate:     PUT    "acl/token/:"                    "token.update"        Restore tokens::update;
    TokenDelete:     DELETE "acl/token/:"                    "token.delete"        Restore tokens::delete;
    TokenClone:      PUT    "acl/token/:/clone"              "token.clone"         Restore tokens::clone;
    TokenExplain:    POST   "acl/token/:/explain"            "token.explain"       Restore explain::explain;
    RoleCreate:      PUT    "acl/role"                       "role.create"         Restore records::create::<RoleRecord>;
    RoleUpdate:      PUT    "acl/role/:"                     "role.update"         Restore records::update::<RoleRecord>;
    RoleDelete:      DELETE "acl/role/:"                     "role.delete"         Restore records::delete::<RoleRecord>;
    PolicyCreate:    PUT    "acl/policy"                     "policy.create"       Restore records::create::<PolicyRecord>;
    PolicyUpdate:    PUT    "acl/policy/:"                   "policy.update"       Restore records::update::<PolicyRecord>;
    PolicyDelete:    DELETE "acl/policy/:"                   "policy.delete"       Restore records::delete::<PolicyRecord>;
    MethodCreate:    PUT    "acl/auth-method"                "auth_method.create"  Restore records::create::<AuthMethodRecord>;
    MethodUpdate:    PUT    "acl/auth-method/:"              "auth_method.update"  Restore records::update::<AuthMethodRecord>;
    MethodDelete:    DELETE "acl/auth-method/:"              "auth_method.delete"  Restore auth_methods::delete;
    RuleCreate:      PUT    "acl/binding-rule"               "binding_rule.create" Restore records::create::<BindingRuleRecord>;
    RuleUpdate:      PUT    "acl/binding-rule/:"             "binding_rule.update" Restore records::update::<BindingRuleRecord>;
    RuleDelete:      DELETE "acl/binding-rule/:"             "binding_rule.delete" Restore records::delete::<BindingRuleRecord>;
    Login:           POST   "acl/login"                      "login"               Login   login::log_in;
    OidcAuthUrl:     POST   "acl/oidc/auth-url"              "login.oidc_begin"    Login   oidc::begin;
    OidcCallback:    POST   "acl/oidc/callback"              "login.oidc"          Login   oidc::finish;
    Logout:          POST   "acl/logout"                     "logout"              Restore login::log_out;
    Bootstrap:       PUT    "acl/bootstrap"                  "bootstrap"           Restore bootstrap::bootstrap;
    SnapshotTake:    GET    "snapshot"                       "snapshot.take"       Restore snapshot::export;
    SnapshotRestore: PUT    "snapshot"                       "snapshot.restore"    Handler snapshot::restore;
    NamespaceCreate: PUT    "namespace"                      "namespace.create"    Restore namespaces::create;
    NamespaceUpdate: PUT    "namespace/:"                    "namespace.update"    Restore namespaces::update;
    NamespaceDelete: DELETE "namespace/:"                    "namespace.delete"    Restore namespaces::delete;
    TemplateList:    GET    "acl/templated-policies"         "template.list"       Restore templated_policies::list;
    // Names of templates contain a slash.
    TemplateRead:    GET    "acl/templated-policy/name/*"    "template.read"       Restore templated_policies::read;
    TemplatePreview: POST   "acl/templated-policy/preview/*" "template.preview"    Restore templated_policies::preview;
    Rekey:           PUT    "operator/rekey"                 "rekey"               Restore rekey::rekey;
    Verify:          GET    "operator/verify"                "verify"              Restore verify::verify;
    Authorize:       POST   "internal/acl/authorize"         "authorize"           Restore authorize::authorize;
}

operations! {
    /// Operations in Vault's wire format.
    Vault(VaultOperation): handler(state, request) -> VaultResponse
    where state: &ApiState, request: VaultRequest;

    Lookup: GET      "auth/token/lookup-self" "token.self"   Restore vault::look_up;
    Revoke: PUT|POST "auth/token/revoke-self" "token.revoke" Restore vault::revoke;
    Renew:  PUT|POST "auth/token/renew-self"  "token.renew"  Restore vault::renew;
    Login:  PUT|POST "auth/:/login"           "login"        Login   vault::log_in;
    Health: GET|HEAD "sys/health"             "health"       Health  vault::health;
}

/// All rows.
const TABLE: [&[Row]; 3] = [ReadOperation::ROWS, WriteOperation::ROWS, VaultOperation::ROWS];

/// Response of a handler of Vault's API.
type VaultResponse = Response<ResponseBody>;

impl Operation {
    /// Number of operations.
    pub(super) const COUNT: usize = ReadOperation::ROWS.len() + WriteOperation::ROWS.len() + VaultOperation::ROWS.len();

    /// Index of the operation, below [`Operation::COUNT`].
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Read(read) => read as usize,
            Self::Write(write) => ReadOperation::ROWS.len() + write as usize,
            Self::Vault(vault) => ReadOperation::ROWS.len() + WriteOperation::ROWS.len() + vault as usize,
        }
    }
}

/// Match of a request line in the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The row of an operation, and the variable part of its path, decoded.
    Operation(&'static Row, String),
    /// An `OPTIONS` request; holds the methods of the path in the form of `Allow`.
    Options(String),
    /// The path has other methods only, listed in the form of `Allow`.
    MethodNotAllowed(String),
    /// The path is not in the table.
    NotFound,
}

fn rows() -> impl Iterator<Item = &'static Row> + Clone {
    TABLE.into_iter().flatten()
}

/// Finds the operation at `path`, the part after `/v1/`, still percent-encoded.
pub(super) fn route(method: &Method, path: &str) -> Route {
    let matching = rows().find_map(|row| Some((row.path, match_pattern(row.path, path)?)));
    let Some((pattern, subject)) = matching else { return Route::NotFound };
    let same_path = rows().filter(|row| row.path == pattern);
    if let Some(row) = same_path.clone().find(|row| row.methods.contains(method)) {
        if !subject.contains('%') {
            return Route::Operation(row, subject.to_owned());
        }
        return match percent_decode_str(subject).decode_utf8() {
            Ok(subject) => Route::Operation(row, subject.into_owned()),
            Err(_) => Route::NotFound,
        };
    }
    let names = same_path.flat_map(|row| row.methods).map(Method::as_str);
    let allow = ["OPTIONS"].into_iter().chain(names).collect::<Vec<_>>().join(",");
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
    fn no_row_stands_behind_a_pattern_that_matches_its_path() {
        for row in rows() {
            let path = row.path.replace([':', '*'], "x");
            for method in row.methods {
                let Route::Operation(found, _) = route(method, &path) else { panic!("{method} {path} is not found") };
                assert_eq!(found.operation, row.operation, "{method} {path}");
            }
        }
    }

    #[test]
    fn request_lines_map_to_operations() {
        let check = |method: &str, path: &str, expected: Route| {
            assert_eq!(route(&method.parse().unwrap(), path), expected, "{method} {path}");
        };
        let to = |operation: Operation, subject: &str| {
            Route::Operation(rows().find(|row| row.operation == operation).unwrap(), subject.to_owned())
        };
        check("PUT", "acl/token", to(Operation::Write(WriteOperation::TokenCreate), ""));
        check("GET", "acl/token/self", to(Operation::Read(ReadOperation::TokenSelf), ""));
        check("PUT", "acl/token/self", Route::MethodNotAllowed("OPTIONS,GET".into()));
        check("OPTIONS", "acl/token/x", Route::Options("OPTIONS,GET,PUT,DELETE".into()));
        check("POST", "acl/token", Route::MethodNotAllowed("OPTIONS,PUT".into()));
        check("GET", "acl/token/", to(Operation::Read(ReadOperation::TokenRead), ""));
        check("GET", "acl/token/a%20b", to(Operation::Read(ReadOperation::TokenRead), "a b"));
        check("GET", "acl/token/a%2Fb", to(Operation::Read(ReadOperation::TokenRead), "a/b"));
        check("GET", "acl/token/%ff", Route::NotFound);
        check("PUT", "acl/token/x/clone", to(Operation::Write(WriteOperation::TokenClone), "x"));
        check("GET", "acl/token/x/y", Route::NotFound);
        check("GET", "acl/role/name/web", to(Operation::Read(ReadOperation::RoleReadByName), "web"));
        check("GET", "acl/role/name", to(Operation::Read(ReadOperation::RoleRead), "name"));
        check(
            "GET",
            "acl/policy/name/builtin/global-read-only",
            to(Operation::Read(ReadOperation::PolicyReadByName), "builtin/global-read-only"),
        );
        check("GET", "acl/tokens", to(Operation::Read(ReadOperation::TokenList), ""));
        check("GET", "acl/tokens/", Route::NotFound);
        check("POST", "auth/azure/login", to(Operation::Vault(VaultOperation::Login), "azure"));
        check("GET", "nope", Route::NotFound);
        check("GET", "", Route::NotFound);
    }

    #[test]
    fn each_request_line_is_in_the_table_once() {
        let lines: Vec<_> = rows().flat_map(|row| row.methods.iter().map(|method| (method, row.path))).collect();
        for (at, line) in lines.iter().enumerate() {
            assert!(!lines[..at].contains(line), "{line:?}");
        }
    }

    #[test]
    fn each_operation_has_an_index() {
        let indexes: Vec<usize> = rows().map(|row| row.operation.index()).collect();
        assert_eq!(indexes, (0..Operation::COUNT).collect::<Vec<_>>());
    }
}
