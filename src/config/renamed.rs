//! Names of earlier releases, each with its name today. An old name is an error that names the new one, never an alias.

/// Configuration keys: the key from the top with `*` for names, the key's name today.
const KEYS: [(&str, &str); 15] = [
    ("access", "[acl]"),
    ("child", "[process]"),
    ("env_template.*.pass", "pass_env"),
    ("gateway.answer_timeout", "response_timeout"),
    ("gateway.child", "process_token"),
    ("gateway.drop_in", "[gateway.terraform_config_file]"),
    ("gateway.terraform_config_file.brings", "token_kind"),
    ("listener.*.answer_timeout", "response_timeout"),
    ("listener.*.child", "derived_token"),
    ("listener.*.lift", "exempt"),
    ("process.pass", "pass_env"),
    ("server.*.answer_timeout", "response_timeout"),
    ("session.*.first_login_splay", "login_jitter"),
    ("sink.*.child", "derived_token"),
    ("template.*.pass", "pass_env"),
];

/// Commands and flags, as they are typed after `keyward`, and their name today.
const ARGUMENTS: [(&str, &str); 2] = [("access", "keyward acl"), ("--pass", "--pass-env")];

/// The name today of a configuration key, by its pattern such as `session.*.login_jitter`.
pub(super) fn key(pattern: &str) -> Option<&'static str> {
    KEYS.iter().find(|(old, _)| *old == pattern).map(|(_, new)| *new)
}

/// The name today of a command or a flag of the command line.
pub fn argument(old: &str) -> Option<&'static str> {
    ARGUMENTS.iter().find(|(name, _)| *name == old).map(|(_, new)| *new)
}
