//! Table of the plain lists.

/// A list and the paths of its entries.
#[derive(Debug)]
pub(super) struct List {
    pub(super) path: &'static str,
    /// Path of one entry; empty if entries are not shown one by one.
    pub(super) entry: &'static str,
    pub(super) kind: &'static str,
    pub(super) prefix: &'static str,
    pub(super) pages: Pages,
    /// Required attributes of a new entry; empty if clients create none.
    pub(super) needs: &'static [&'static str],
    /// Attributes that are accepted and never shown.
    pub(super) hidden: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pages {
    /// One of the ten: as configured by fault injection.
    Configured,
    Always,
    Never,
}

/// Kinds of the ten lists of 2021-11-17, with the prefix of their ids.
pub(super) const TEN: [(&str, &str); 8] = [
    ("feature-sets", "fs"),
    ("notification-configurations", "nc"),
    ("oauth-clients", "oc"),
    ("oauth-tokens", "ot"),
    ("organizations", "org"),
    ("policy-checks", "polchk"),
    ("vars", "var"),
    ("ssh-keys", "sshkey"),
];

pub(super) static LISTS: [List; 16] = [
    list("/feature-sets", "", "feature-sets", "fs", Pages::Configured, &[]),
    list("/organizations/{parent}/feature-sets", "", "feature-sets", "fs", Pages::Configured, &[]),
    list(
        "/workspaces/{parent}/notification-configurations",
        "/notification-configurations/{entry}",
        "notification-configurations",
        "nc",
        Pages::Configured,
        &["name", "destination-type"],
    )
    .hiding(&["token"]),
    list(
        "/organizations/{parent}/oauth-clients",
        "/oauth-clients/{entry}",
        "oauth-clients",
        "oc",
        Pages::Configured,
        &["service-provider", "http-url", "api-url"],
    )
    .hiding(&["oauth-token-string", "secret", "private-key", "key"]),
    list("/oauth-clients/{parent}/oauth-tokens", "/oauth-tokens/{entry}", "oauth-tokens", "ot", Pages::Configured, &[]),
    list("/runs/{parent}/policy-checks", "/policy-checks/{entry}", "policy-checks", "polchk", Pages::Configured, &[]),
    list(
        "/policy-sets/{parent}/parameters",
        "/policy-sets/{parent}/parameters/{entry}",
        "vars",
        "var",
        Pages::Configured,
        &["key"],
    ),
    list(
        "/organizations/{parent}/ssh-keys",
        "/ssh-keys/{entry}",
        "ssh-keys",
        "sshkey",
        Pages::Configured,
        &["name", "value"],
    )
    .hiding(&["value"]),
    list("/workspaces/{parent}/runs", "", "runs", "run", Pages::Always, &[]),
    list("/organizations/{parent}/runs", "", "runs", "run", Pages::Always, &[]),
    list(
        "/organizations/{parent}/policy-sets",
        "/policy-sets/{entry}",
        "policy-sets",
        "polset",
        Pages::Always,
        &["name"],
    ),
    list("/organizations/{parent}/teams", "/teams/{entry}", "teams", "team", Pages::Always, &["name"]),
    list("/organizations/{parent}/projects", "/projects/{entry}", "projects", "prj", Pages::Always, &["name"]),
    list("/organizations/{parent}/varsets", "/varsets/{entry}", "varsets", "varset", Pages::Always, &["name"]),
    list(
        "/organizations/{parent}/agent-pools",
        "/agent-pools/{entry}",
        "agent-pools",
        "apool",
        Pages::Always,
        &["name"],
    ),
    // No paging at all: on such lists a pager must notice the end by itself.
    list("/workspaces/{parent}/vars", "/workspaces/{parent}/vars/{entry}", "vars", "var", Pages::Never, &["key"]),
];

const fn list(
    path: &'static str,
    entry: &'static str,
    kind: &'static str,
    prefix: &'static str,
    pages: Pages,
    needs: &'static [&'static str],
) -> List {
    List { path, entry, kind, prefix, pages, needs, hidden: &[] }
}

impl List {
    const fn hiding(mut self, hidden: &'static [&'static str]) -> Self {
        self.hidden = hidden;
        self
    }
}
