//! Checks of credentials of systemd: those that the agent's unit passes, and the units that load credentials from the agent.

use std::collections::BTreeMap;
use std::path::Path;

use keyward_config::references::find_references;
use keyward_config::systemd::split_unit_words;
use keyward_config::{Config, CredentialGrant};
use keyward_http::server::Endpoint;
use keyward_telemetry::error_code::ErrorCode;

use super::unit_files::UnitFiles;
use super::unit_parser::Unit;
use crate::check_result::{CheckResult, Problem, Progress, StepResult, Steps};

/// Folder in which systemd puts the credentials of a unit, below a folder of its name.
const FOLDER: &str = "/run/credentials";

/// Packaged socket unit from which units load credentials.
const SOCKET_UNIT: &str = "keyward-credentials.socket";

/// Returns true if a unit passes a credential of this id to its processes (`systemd.exec(5)`).
pub(super) fn passes(unit: &Unit, files: &UnitFiles, id: &str) -> bool {
    let keys = ["LoadCredential", "LoadCredentialEncrypted", "SetCredential", "SetCredentialEncrypted"];
    let is_id = |value: &&str| files.expand(value.split(':').next().unwrap_or_default()) == id;
    // The part after a `*` is not compared: a glob that begins as the id does may be for it.
    let imports = |glob: &&str| glob.split_once('*').map_or(*glob == id, |(start, _)| id.starts_with(start));
    keys.iter().any(|key| unit.values(key).iter().any(is_id)) || unit.values("ImportCredential").iter().any(imports)
}

/// Returns the folder of the credentials that a unit passes to its processes.
pub(super) fn folder_of(unit: &str) -> String {
    format!("{FOLDER}/{unit}")
}

/// Returns the ids that a key's value names by `${credential:ID}`; `references` has the values as written.
pub(super) fn find_credential_ids<'a>(references: &'a BTreeMap<String, String>, key: &str) -> Vec<&'a str> {
    let written = references.get(key).map(String::as_str).unwrap_or_default();
    find_references(written).into_iter().filter_map(|reference| reference.strip_prefix("credential:")).collect()
}

/// Checks that the units of each listener for systemd load what is granted to them, from its socket.
pub(super) fn check_units(config: &Config, progress: &Progress) -> Vec<CheckResult> {
    let mut results = Vec::new();
    for listener in config.listeners.iter().filter(|listener| !listener.systemd_credentials().is_empty()) {
        let mut steps = Steps::new("listener", Some(&listener.name), progress);
        for grant in listener.systemd_credentials() {
            for unit in &grant.rule.units {
                let files = UnitFiles::read(&unit.to_string());
                steps.record(format!("credential {}", grant.name), check_grant(grant, &files, &listener.endpoint));
            }
        }
        results.extend(steps.into_results());
    }
    results
}

/// Checks one unit.
fn check_grant(grant: &CredentialGrant, files: &UnitFiles, socket: &Endpoint) -> StepResult {
    let id = &grant.rule.id;
    let name = &files.name;
    if files.files.is_empty() {
        return Err(Problem::skipped(format!("this machine has no {name}, which may load {id}")));
    }
    let path = match socket {
        Endpoint::Unix(socket) => Some(socket.path.display().to_string()),
        Endpoint::Tcp(_) | Endpoint::Activated(_) => None,
    };
    let socket_path = path.as_deref().unwrap_or("/run/keyward/credentials.sock");
    let fix = format!("systemctl edit {name}, and add under [Service]: LoadCredential={id}:{socket_path}");
    let unit = Unit::parse(section(name), files.texts());
    let values = unit.values("LoadCredential");
    let mut loaded = values
        .iter()
        .filter_map(|value| value.split_once(':'))
        .map(|(id, path)| (files.expand(id), files.expand(path)));
    match loaded.rfind(|(loaded_id, _)| loaded_id == id) {
        None => {
            let message = format!("{name} has no LoadCredential= of {id}, which it may load");
            Err(Problem::new(ErrorCode::UnitSettings, message).warning().with_remedy(fix))
        }
        Some((_, from)) if path.as_ref().is_some_and(|path| *path != from) => {
            let message = format!("{name} loads {id} from {from}, not from {socket_path}");
            Err(Problem::new(ErrorCode::UnitSettings, message).warning().with_remedy(fix))
        }
        Some((_, from)) => match find_socket_dependency(files) {
            Some((file, key)) => {
                let message =
                    format!("{name} has {key}={SOCKET_UNIT}, so that it stops and restarts whenever the socket does");
                let fix =
                    format!("write Wants= in place of {key}= in {}, then systemctl daemon-reload", file.display());
                Err(Problem::new(ErrorCode::UnitSettings, message).warning().with_remedy(fix))
            }
            None => Ok(format!("{name} loads {id} from {from}")),
        },
    }
}

/// Returns the setting that stops and restarts a unit with the packaged socket unit (`systemd.unit(5)`), and its file.
fn find_socket_dependency(files: &UnitFiles) -> Option<(&Path, &'static str)> {
    files.files.iter().find_map(|(path, text)| {
        let unit = Unit::parse("Unit", [text.as_str()]);
        // All assignments: an empty one discards no dependency.
        let names_socket = |key: &str| {
            unit.assignments(key).into_iter().flat_map(split_unit_words).any(|name| files.expand(&name) == SOCKET_UNIT)
        };
        let key = ["Requires", "BindsTo", "PartOf"].into_iter().find(|key| names_socket(key))?;
        Some((path.as_path(), key))
    })
}

/// Section of a unit's settings for its processes.
fn section(unit: &str) -> &'static str {
    match unit.rsplit_once('.').map(|(_, kind)| kind) {
        Some("socket") => "Socket",
        Some("mount") => "Mount",
        Some("swap") => "Swap",
        _ => "Service",
    }
}

#[cfg(test)]
mod tests {
    use keyward_agent::systemd_credentials::{GrantRule, UnitPattern};
    use keyward_config::CredentialContent;
    use keyward_http::server::UnixSocket;

    use super::*;
    use crate::check_result::CheckStatus;

    fn unit(text: &str) -> UnitFiles {
        UnitFiles {
            name: "app.service".to_owned(),
            files: vec![("app.service".into(), text.to_owned())],
            ..UnitFiles::default()
        }
    }

    #[test]
    fn a_unit_passes_a_credential_that_it_loads_sets_or_imports() {
        let check = |settings: &str, expected: bool| {
            let files = unit(&format!("[Service]\n{settings}\n"));
            assert_eq!(passes(&Unit::parse("Service", files.texts()), &files, "seal.key"), expected, "{settings}");
        };
        check("LoadCredential=seal.key:/etc/seal.key", true);
        check("LoadCredential=seal.key", true);
        check("LoadCredentialEncrypted=seal.key:/etc/seal.key", true);
        check("SetCredential=seal.key:abc", true);
        check("ImportCredential=seal.*", true);
        check("ImportCredential=seal.key", true);
        check("ImportCredential=other.*", false);
        check("LoadCredential=other:/etc/seal.key", false);
        check("LoadCredential=seal.key:/etc/seal.key\nLoadCredential=", false);
        check("", false);
    }

    #[test]
    fn a_reference_to_a_credential_is_found_in_a_value() {
        let references = [
            ("a.key_file".to_owned(), "${credential:seal.key}$${credential:escaped}".to_owned()),
            ("b".to_owned(), "${env:A}".to_owned()),
        ];
        assert_eq!(find_credential_ids(&references.clone().into(), "a.key_file"), ["seal.key"]);
        assert!(
            find_credential_ids(&references.clone().into(), "b").is_empty()
                && find_credential_ids(&references.into(), "c").is_empty()
        );
    }

    #[test]
    fn a_unit_loads_what_it_may_from_the_listeners_socket() {
        let rule = GrantRule { units: vec![UnitPattern::parse("app.service").unwrap()], id: "db".to_owned() };
        let name = "db".to_owned();
        let session = "web".to_owned();
        let grant = CredentialGrant { name, rule, session, content: CredentialContent::Token };
        let socket = UnixSocket { path: "/run/keyward/c.sock".into(), mode: 0o600, owner: None, group: None };
        let unix = Endpoint::Unix(socket);
        let passed = Endpoint::Activated("credentials".to_owned());
        let status = |files: &UnitFiles, socket: &Endpoint| {
            let mut steps = Steps::new("listener", None, &Progress::default());
            steps.record("credential db", check_grant(&grant, files, socket));
            steps.into_results()[0].status
        };
        let loads = unit("[Service]\nLoadCredential=db:%t/keyward/c.sock\n");
        assert_eq!(status(&loads, &unix), CheckStatus::Ok);
        assert_eq!(status(&loads, &passed), CheckStatus::Ok, "its path is only in the socket unit");
        assert_eq!(status(&unit("[Service]\nLoadCredential=db:/etc/db\n"), &unix), CheckStatus::Warning);
        assert_eq!(status(&unit("[Service]\nLoadCredential=key:/run/keyward/c.sock\n"), &unix), CheckStatus::Warning);
        assert_eq!(status(&UnitFiles::default(), &unix), CheckStatus::Skipped);
        let depends = |key: &str| {
            unit(&format!("[Unit]\n{key}={SOCKET_UNIT}\n[Service]\nLoadCredential=db:/run/keyward/c.sock\n"))
        };
        assert_eq!(status(&depends("Requires"), &passed), CheckStatus::Warning);
        assert_eq!(status(&depends("Wants"), &passed), CheckStatus::Ok);
    }

    #[test]
    fn a_setting_that_stops_a_unit_with_the_socket_is_found_with_its_file() {
        let check = |settings: &str, expected: Option<&'static str>| {
            let mut files =
                unit("[Unit]\nAfter=keyward-credentials.socket\n[Service]\nRequires=keyward-credentials.socket\n");
            files.files.push(("drop-in.conf".into(), format!("[Unit]\n{settings}\n")));
            let expected = expected.map(|key| (Path::new("drop-in.conf"), key));
            assert_eq!(find_socket_dependency(&files), expected, "{settings}");
        };
        check("Requires=keyward-credentials.socket", Some("Requires"));
        check("BindsTo=network.target keyward-credentials.socket", Some("BindsTo"));
        check("Requires=keyward-credentials.socket\nRequires=", Some("Requires"));
        check("Wants=keyward-credentials.socket", None);
        check("Requires=keyward.socket", None);
        check("", None);
    }
}
