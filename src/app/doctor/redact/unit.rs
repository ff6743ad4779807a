//! Unit files of systemd in a bundle.

use keyward_config::systemd::split_unit_words;

use super::REDACTED;

/// Rewrites a unit file: of variables and credentials only the names are shown, of commands that are not keyward's only the
/// program.
pub(crate) fn redact_unit(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    // Comments may be next to a secret that was commented out.
    for line in crate::doctor::unit_parser::logical_lines(text) {
        let line = line.trim();
        match line.split_once('=') {
            Some((key, value)) => {
                let value = redact_setting(key.trim(), value.trim());
                output.extend([key.trim(), "=", &value, "\n"]);
            }
            None => output.extend([line, "\n"]),
        }
    }
    output
}

fn redact_setting(key: &str, value: &str) -> String {
    match key {
        "Environment" => {
            let names = split_unit_words(value);
            let names = names.iter().map(|word| word.split_once('=').map_or(word.as_str(), |(name, _)| name));
            names.map(|name| format!("{name}={REDACTED}")).collect::<Vec<_>>().join(" ")
        }
        "SetCredential" | "SetCredentialEncrypted" => {
            format!("{}:{REDACTED}", value.split_once(':').map_or("", |(name, _)| name))
        }
        key if key.starts_with("Exec") && key.len() > "Exec".len() && key != "ExecPaths" => {
            let words = split_unit_words(value);
            let program = words.first().map_or("", String::as_str);
            let is_known = program.ends_with("/keyward") || program.ends_with("/kill");
            if is_known || words.len() < 2 { value.to_owned() } else { format!("{program} {REDACTED}") }
        }
        // Variables may have values here too.
        "UnsetEnvironment" => {
            let names = split_unit_words(value);
            let names = names.iter().map(|word| word.split_once('=').map_or(word.as_str(), |(name, _)| name));
            names.collect::<Vec<_>>().join(" ")
        }
        key if is_shown(key) => value.to_owned(),
        _ => REDACTED.to_owned(),
    }
}

fn is_shown(key: &str) -> bool {
    SHOWN.contains(&key) || SHOWN_STARTS.iter().any(|start| key.starts_with(start))
}

/// First letters of settings that are shown.
const SHOWN_STARTS: [&str; 30] = [
    "Bind",
    "CPU",
    "CacheDirectory",
    "Capability",
    "ConditionPath",
    "ConfigurationDirectory",
    "IO",
    "IPAddress",
    "Kill",
    "Limit",
    "Listen",
    "LoadCredential",
    "LogsDirectory",
    "Memory",
    "OOM",
    "Private",
    "Protect",
    "ReadOnly",
    "ReadWrite",
    "Restart",
    "Restrict",
    "Root",
    "RuntimeDirectory",
    "Socket",
    "StartLimit",
    "StateDirectory",
    "SystemCall",
    "Tasks",
    "Timeout",
    "Watchdog",
];

/// Other settings that are shown. Free texts, and settings that a later systemd may have, are not.
const SHOWN: [&str; 53] = [
    "Accept",
    "After",
    "Alias",
    "Also",
    "AmbientCapabilities",
    "Backlog",
    "Before",
    "BindsTo",
    "Conflicts",
    "DefaultDependencies",
    "Delegate",
    "DevicePolicy",
    "DynamicUser",
    "EnvironmentFile",
    "ExecPaths",
    "FileDescriptorName",
    "FileDescriptorStoreMax",
    "Group",
    "IgnoreSIGPIPE",
    "ImportCredential",
    "InaccessiblePaths",
    "JoinsNamespaceOf",
    "KeyringMode",
    "LockPersonality",
    "LogLevelMax",
    "MountAPIVFS",
    "NetworkNamespacePath",
    "Nice",
    "NoExecPaths",
    "NoNewPrivileges",
    "NotifyAccess",
    "PartOf",
    "PassEnvironment",
    "ProcSubset",
    "RemainAfterExit",
    "RemoveIPC",
    "RemoveOnStop",
    "RequiredBy",
    "Requires",
    "SecureBits",
    "SendSIGKILL",
    "Service",
    "Slice",
    "StandardError",
    "StandardOutput",
    "SupplementaryGroups",
    "SuccessExitStatus",
    "TemporaryFileSystem",
    "Type",
    "UMask",
    "User",
    "WantedBy",
    "Wants",
];
