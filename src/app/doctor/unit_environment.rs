//! Folders and variables that systemd and a unit give to the service's process.

use std::path::{Path, PathBuf};

use keyward_config::Environment;
use keyward_config::systemd::split_unit_words;

use super::credentials;
use super::unit_files::UnitFiles;
use super::unit_parser::Unit;

/// Variable and base folder of each setting whose folders systemd makes (`systemd.exec(5)`).
const FOLDERS: [(&str, &str, &str); 5] = [
    ("RuntimeDirectory", "RUNTIME_DIRECTORY", "/run"),
    ("StateDirectory", "STATE_DIRECTORY", "/var/lib"),
    ("CacheDirectory", "CACHE_DIRECTORY", "/var/cache"),
    ("LogsDirectory", "LOGS_DIRECTORY", "/var/log"),
    ("ConfigurationDirectory", "CONFIGURATION_DIRECTORY", "/etc"),
];

/// Returns the folders that the service manager makes when the service starts, with the service's user as their owner.
pub(super) fn created_folders(unit: &Unit, files: &UnitFiles) -> Vec<PathBuf> {
    let owned = FOLDERS.iter().filter(|(key, ..)| *key != "ConfigurationDirectory");
    owned.flat_map(|(key, _, base)| unit_folders(unit, files, key, base)).collect()
}

/// Returns the folders of one setting.
fn unit_folders(unit: &Unit, files: &UnitFiles, key: &str, base: &str) -> Vec<PathBuf> {
    let folder = |word: &String| {
        let name = files.expand(word.split(':').next().unwrap_or_default());
        Path::new(base).join(name.trim_start_matches('/'))
    };
    unit.words(key).iter().map(folder).collect()
}

/// Returns the variables of the service: those of its unit before those of this process.
pub(super) fn unit_environment(environment: &Environment, unit: Option<&Unit>, files: &UnitFiles) -> Environment {
    let mut environment = environment.clone();
    let Some(unit) = unit else { return environment };
    let credentials = credentials::folder_of(&files.name);
    environment.variables.entry("CREDENTIALS_DIRECTORY".to_owned()).or_insert(credentials);
    for (key, variable, base) in FOLDERS {
        let folders = unit_folders(unit, files, key, base);
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        if !folders.is_empty() {
            environment.variables.insert(variable.to_owned(), folders.join(":"));
        }
    }
    let mut set = |assignment: &str| {
        if let Some((name, value)) = assignment.split_once('=') {
            environment.variables.insert(name.trim().to_owned(), value.to_owned());
        }
    };
    for assignment in unit.words("Environment") {
        set(&files.expand(&assignment));
    }
    for path in unit.values("EnvironmentFile") {
        let text = std::fs::read_to_string(files.expand(path.trim_start_matches('-'))).unwrap_or_default();
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
        lines.for_each(|line| set(&split_unit_words(line).join(" ")));
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_the_folders_of_its_unit_and_then_the_variables_of_its_settings() {
        let text = "[Service]\nRuntimeDirectory=keyward-%i keyward-%i/more\nStateDirectory=keyward-%i:alias\n\
                    LogsDirectory=a\nEnvironment=LOGS_DIRECTORY=/srv/%i B=2\n";
        let files = UnitFiles {
            name: "keyward@web.service".to_owned(),
            files: vec![("keyward@.service".into(), text.to_owned())],
            ..UnitFiles::default()
        };
        let variables = [("STATE_DIRECTORY", "/mine"), ("B", "1"), ("C", "3")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let environment = Environment { variables, user: 7 };
        let unit = Unit::parse("Service", files.texts());
        let found = unit_environment(&environment, Some(&unit), &files);
        let expected = [
            ("B", "2"),
            ("C", "3"),
            ("CREDENTIALS_DIRECTORY", "/run/credentials/keyward@web.service"),
            ("LOGS_DIRECTORY", "/srv/web"),
            ("RUNTIME_DIRECTORY", "/run/keyward-web:/run/keyward-web/more"),
            ("STATE_DIRECTORY", "/var/lib/keyward-web"),
        ];
        let variables: Vec<(&str, &str)> =
            found.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!((variables.as_slice(), found.user), (expected.as_slice(), 7));
        let created = ["/run/keyward-web", "/run/keyward-web/more", "/var/lib/keyward-web", "/var/log/a"];
        assert_eq!(created_folders(&unit, &files), created.map(PathBuf::from));
        assert_eq!(unit_environment(&environment, None, &files).variables, environment.variables);
    }
}
