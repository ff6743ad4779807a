//! Annotations: those that are taken, by both of their names, and those of the Vault Agent injector that are refused.

/// Prefix of keyward's annotations.
pub(crate) const KEYWARD: &str = "keyward.dev/";

/// Prefix of the annotations of the Vault Agent injector.
pub(crate) const VAULT: &str = "vault.hashicorp.com/";

/// Annotation that asks for keyward.
pub(crate) const INJECT: &str = "keyward.dev/inject";

/// Annotation that says that a pod has been injected; the webhook sets it.
pub(crate) const STATUS: &str = "keyward.dev/status";

/// The same of the Vault Agent injector. It injects no pod that has it.
pub(crate) const VAULT_STATUS: &str = "vault.hashicorp.com/agent-inject-status";

/// Value of both.
pub(crate) const INJECTED: &str = "injected";

/// An annotation that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Inject,
    Role,
    Address,
    Namespace,
    Method,
    Mount,
    AzureClientId,
    Secret,
    Template,
    File,
    Perms,
    LeftDelim,
    RightDelim,
    ErrorOnMissing,
    DefaultTemplate,
    Interval,
    Token,
    VolumePath,
    NamedVolumePath,
    PreserveCase,
    NamedPreserveCase,
    Containers,
    InitFirst,
    PrePopulate,
    PrePopulateOnly,
    RevokeOnShutdown,
    RunAsUser,
    RunAsGroup,
    RunAsSameUser,
    LimitsCpu,
    LimitsMemory,
    LimitsEphemeral,
    RequestsCpu,
    RequestsMemory,
    RequestsEphemeral,
    LogLevel,
    LogFormat,
    HealthPort,
    Image,
}

/// An annotation that is taken. With `is_named` its name continues with `-` and the name of a file.
pub(crate) struct Taken {
    pub(crate) key: Key,
    /// Name after `keyward.dev/`; empty for one that only pods of the Vault Agent injector need.
    pub(crate) keyward: &'static str,
    /// Name after `vault.hashicorp.com/`; empty for one that the Vault Agent injector does not have.
    pub(crate) vault: &'static str,
    pub(crate) is_named: bool,
    pub(crate) meaning: &'static str,
}

const fn one(key: Key, keyward: &'static str, vault: &'static str, meaning: &'static str) -> Taken {
    Taken { key, keyward, vault, is_named: false, meaning }
}

const fn named(key: Key, keyward: &'static str, vault: &'static str, meaning: &'static str) -> Taken {
    Taken { key, keyward, vault, is_named: true, meaning }
}

/// All annotations that are taken, in the order of the reference.
pub(crate) const TAKEN: &[Taken] = &[
    one(Key::Inject, "inject", "agent-inject", "`true`: add keyward to the pod; `false`: leave it as it is"),
    one(Key::Role, "role", "role", "role of the login; required unless the operator sets one"),
    one(Key::Address, "address", "service", "address of the server, if the operator allows it"),
    one(Key::Namespace, "namespace", "namespace", "namespace of the server, if the operator allows it"),
    one(Key::Method, "method", "auth-type", "`kubernetes`, `jwt` or `azure`, if the operator allows it"),
    one(
        Key::Mount,
        "mount",
        "auth-path",
        "mount of the auth method, with or without `auth/`, if the operator allows it",
    ),
    one(Key::AzureClientId, "azure-client-id", "", "client id of the Azure identity; required for the method `azure`"),
    named(Key::Secret, "secret", "agent-inject-secret", "path of a secret, rendered into the file of that name"),
    named(Key::Template, "template", "agent-inject-template", "template of the file, in place of the default one"),
    named(Key::File, "file", "agent-inject-file", "path of the file below the volume, in place of its name"),
    named(
        Key::Perms,
        "perms",
        "agent-inject-perms",
        "mode of the file, such as `0400`; default `0640` with an `fsGroup`, else `0644`",
    ),
    named(
        Key::LeftDelim,
        "left-delim",
        "agent-template-left-delim",
        "start of an action of the template; default `{{`",
    ),
    named(
        Key::RightDelim,
        "right-delim",
        "agent-template-right-delim",
        "end of an action of the template; default `}}`",
    ),
    named(
        Key::ErrorOnMissing,
        "error-on-missing-key",
        "error-on-missing-key",
        "`false`: a key that the secret lacks prints `<no value>`; default `true`, also for Vault's annotations",
    ),
    one(
        Key::DefaultTemplate,
        "default-template",
        "agent-inject-default-template",
        "`map` (lines `KEY: VALUE`, the default) or `json`",
    ),
    one(
        Key::Interval,
        "interval",
        "template-static-secret-render-interval",
        "interval at which secrets without a lease are read again; default `5m`",
    ),
    one(
        Key::Token,
        "token",
        "agent-inject-token",
        "`true`: write the token of the login to the file `token` of the volume",
    ),
    one(
        Key::VolumePath,
        "volume-path",
        "secret-volume-path",
        "folder of the files; default `/run/keyward`, with Vault's `agent-inject` `/vault/secrets`",
    ),
    named(Key::NamedVolumePath, "volume-path", "secret-volume-path", "folder of this file"),
    one(
        Key::PreserveCase,
        "",
        "preserve-secret-case",
        "`true`: names of files keep their capitals, as those of keyward.dev always do",
    ),
    named(Key::NamedPreserveCase, "", "preserve-secret-case", "the same for this file"),
    one(
        Key::Containers,
        "containers",
        "agent-inject-containers",
        "containers that get the files, separated by commas; default: all but init containers",
    ),
    one(
        Key::InitFirst,
        "init-first",
        "agent-init-first",
        "`true`: keyward is the first init container, and the others get the files too; default `false`: the last",
    ),
    one(
        Key::PrePopulate,
        "pre-populate",
        "agent-pre-populate",
        "`false`: the pod's containers do not wait for the first files",
    ),
    one(
        Key::PrePopulateOnly,
        "pre-populate-only",
        "agent-pre-populate-only",
        "`true`: write the files once before the containers start, and end",
    ),
    one(
        Key::RevokeOnShutdown,
        "revoke-on-shutdown",
        "agent-revoke-on-shutdown",
        "`true`: revoke the token when the pod ends",
    ),
    one(Key::RunAsUser, "run-as-user", "agent-run-as-user", "user of the container, a number above 0; default 65532"),
    one(
        Key::RunAsGroup,
        "run-as-group",
        "agent-run-as-group",
        "group of the container, a number above 0; default 65532",
    ),
    one(
        Key::RunAsSameUser,
        "run-as-same-user",
        "agent-run-as-same-user",
        "`true`: run as the `runAsUser` of the first container or of the pod",
    ),
    one(Key::LimitsCpu, "limits-cpu", "agent-limits-cpu", "limit of processor time; default: none"),
    one(Key::LimitsMemory, "limits-mem", "agent-limits-mem", "limit of memory; default `64Mi`"),
    one(
        Key::LimitsEphemeral,
        "limits-ephemeral",
        "agent-limits-ephemeral",
        "limit of ephemeral storage; default: none",
    ),
    one(Key::RequestsCpu, "requests-cpu", "agent-requests-cpu", "requested processor time; default `10m`"),
    one(Key::RequestsMemory, "requests-mem", "agent-requests-mem", "requested memory; default `16Mi`"),
    one(
        Key::RequestsEphemeral,
        "requests-ephemeral",
        "agent-requests-ephemeral",
        "requested ephemeral storage; default: none",
    ),
    one(Key::LogLevel, "log-level", "log-level", "`error`, `warn`, `info`, `debug` or `trace`; default `info`"),
    one(Key::LogFormat, "log-format", "log-format", "`json` (the default) or `text`; `standard` is `text`"),
    one(Key::HealthPort, "health-port", "", "port of the probes and of the metrics; default 8301"),
    one(Key::Image, "image", "agent-image", "image of keyward, if the operator allows it"),
];

/// An annotation of the Vault Agent injector that is refused.
pub(crate) struct Refused {
    /// Name after `vault.hashicorp.com/`.
    pub(crate) vault: &'static str,
    pub(crate) is_named: bool,
    /// Values that ask for nothing, with which it is ignored.
    pub(crate) neutral: &'static [&'static str],
    pub(crate) advice: &'static str,
}

const fn refuse(vault: &'static str, advice: &'static str) -> Refused {
    Refused { vault, is_named: false, neutral: &[], advice }
}

const fn refuse_unless(vault: &'static str, neutral: &'static [&'static str], advice: &'static str) -> Refused {
    Refused { vault, is_named: false, neutral, advice }
}

const fn refuse_named(vault: &'static str, advice: &'static str) -> Refused {
    Refused { vault, is_named: true, neutral: &[], advice }
}

const OFF: &[&str] = &["false", "0", ""];
const ON: &[&str] = &["true", "1", ""];
const OPERATORS: &str = "the operator of the webhook sets it; remove the annotation";
const OWN_CONFIG: &str = "write a sidecar with a configuration of your own (keyward init aks)";
const RETRIES: &str = "keyward's retries have a budget that no setting changes; remove it";

/// Annotations of the Vault Agent injector that are refused.
pub(crate) const REFUSED: &[Refused] = &[
    refuse_named(
        "agent-inject-command",
        "the image has no shell and no other program; let the application watch the file",
    ),
    refuse_named("agent-inject-template-file", "write the template into keyward.dev/template-NAME"),
    refuse("agent-configmap", OWN_CONFIG),
    refuse("agent-extra-secret", OWN_CONFIG),
    refuse("agent-copy-volume-mounts", OWN_CONFIG),
    refuse("agent-json-patch", OWN_CONFIG),
    refuse("agent-init-json-patch", OWN_CONFIG),
    refuse_unless("agent-cache-enable", OFF, "the API proxy needs a configuration of its own: keyward init aks"),
    refuse("agent-cache-use-auto-auth-token", "the API proxy needs a configuration of its own: keyward init aks"),
    refuse("agent-cache-listener-port", "the API proxy needs a configuration of its own: keyward init aks"),
    refuse_unless("agent-cache-exit-on-err", OFF, "the API proxy needs a configuration of its own: keyward init aks"),
    refuse_unless("agent-enable-quit", OFF, "a Job ends by itself: the container is a native sidecar; remove it"),
    refuse("agent-revoke-grace", "a revocation takes at most 5 s; remove it"),
    refuse_unless("agent-set-security-context", ON, "the container always has its security context; remove it"),
    refuse_unless(
        "agent-share-process-namespace",
        OFF,
        "set shareProcessNamespace in the pod if other containers need it",
    ),
    refuse("agent-service-account-token-volume-name", "keyward gets a projected token of its own; remove it"),
    refuse("agent-request-namespace", "the namespace is that of the pod; remove it"),
    refuse_named("agent-telemetry", "metrics are at /metrics of the health port; remove it"),
    refuse_named("auth-config", "the login has no other settings than role, mount and method; remove it"),
    refuse_unless("agent-auto-auth-exit-on-err", OFF, "keyward keeps trying, and is not ready meanwhile; remove it"),
    refuse_unless(
        "template-config-exit-on-retry-failure",
        OFF,
        "keyward keeps trying, and is not ready meanwhile; remove it",
    ),
    refuse("template-max-connections-per-host", RETRIES),
    refuse("template-lease-renewal-threshold", "leases are renewed at two thirds of their life; remove it"),
    refuse("auth-min-backoff", RETRIES),
    refuse("auth-max-backoff", RETRIES),
    refuse("client-max-retries", RETRIES),
    refuse("client-timeout", OPERATORS),
    refuse("go-max-procs", "keyward has one thread; remove it"),
    refuse("agent-disable-idle-connections", "keyward keeps no idle connections; remove it"),
    refuse("agent-disable-keep-alives", "keyward keeps no idle connections; remove it"),
    refuse("proxy-address", OPERATORS),
    refuse_unless("tls-skip-verify", OFF, "the server's certificate is always verified; the operator sets its CA"),
    refuse("tls-secret", OPERATORS),
    refuse("tls-server-name", OPERATORS),
    refuse("ca-cert", OPERATORS),
    refuse("ca-key", OPERATORS),
    refuse("client-cert", OPERATORS),
    refuse("client-key", OPERATORS),
];

/// An annotation, for the reference.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AnnotationRow {
    /// Name with keyward's prefix; empty if it has none.
    pub keyward: String,
    /// Name with the prefix of the Vault Agent injector; empty if it has none.
    pub vault: String,
    /// True if it is taken.
    pub is_taken: bool,
    /// Its meaning, or what to do instead.
    pub meaning: String,
}

/// Lists the annotations that are taken, and then those that are refused.
pub fn annotation_rows() -> Vec<AnnotationRow> {
    let full = |prefix: &str, name: &str, is_named: bool| match name {
        "" => String::new(),
        name if is_named => format!("{prefix}{name}-NAME"),
        name => format!("{prefix}{name}"),
    };
    let taken = TAKEN.iter().map(|row| AnnotationRow {
        keyward: full(KEYWARD, row.keyward, row.is_named),
        vault: full(VAULT, row.vault, row.is_named),
        is_taken: true,
        meaning: row.meaning.to_owned(),
    });
    let refused = REFUSED.iter().map(|row| {
        let ignored = match row.neutral.first() {
            Some(value) => format!("{}; with `{value}` it is ignored", row.advice),
            None => row.advice.to_owned(),
        };
        let vault = full(VAULT, row.vault, row.is_named);
        AnnotationRow { keyward: String::new(), vault, is_taken: false, meaning: ignored }
    });
    taken.chain(refused).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_annotation_stands_once() {
        let rows = annotation_rows();
        for name in [|row: &AnnotationRow| row.keyward.clone(), |row: &AnnotationRow| row.vault.clone()] {
            let names: Vec<String> = rows.iter().map(name).filter(|name| !name.is_empty()).collect();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
        }
    }
}
