//! Files that keyward writes in the pod: the token, and templates whose text goes into the `ConfigMap`.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use keyward_agent::secrets::{SecretOp, SecretRequest};
use keyward_agent::templates::{Template, TemplateSource};
use keyward_config::kubernetes::RUN_FOLDER;
use keyward_config::systemd::is_system_folder;

use crate::cli::init::local_file;

/// The files of a pod.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pub(super) templates: Vec<PodTemplate>,
    pub(super) token_file: Option<String>,
    /// Folders of these files besides [`RUN_FOLDER`], none below another.
    pub(super) folders: Vec<String>,
}

/// A template of the pod.
#[derive(Debug)]
pub(super) struct PodTemplate {
    /// Name of its section.
    pub(super) name: String,
    /// Text of the template.
    pub(super) text: String,
    /// Paths on the server that it needs, with one capability each.
    pub(super) rights: BTreeSet<(String, &'static str)>,
    /// File in the pod.
    pub(super) destination: String,
}

impl PodTemplate {
    /// Name of its file in the `ConfigMap`.
    pub(super) fn key(&self) -> String {
        format!("{}.tmpl", self.name)
    }
}

/// Folders of keyward and of the kubelet, and those that a program writes by itself: a volume there would break the container.
const OTHERS: [&str; 6] = ["/etc/keyward", "/var/lib/keyward", "/var/run", "/run/secrets", "/tmp", "/var/tmp"];

impl Outputs {
    /// Reads the templates of this machine, and checks where they go.
    ///
    /// # Errors
    /// All that is wrong, each with its flag.
    pub(super) fn read(
        templates: &[String],
        destinations: &[String],
        token_file: Option<&str>,
    ) -> Result<Self, Vec<String>> {
        if templates.len() != destinations.len() {
            let [templates, destinations] = [templates.len(), destinations.len()];
            return Err(vec![format!(
                "--template is given {templates} times and --destination {destinations} times; give each template its destination"
            )]);
        }
        let mut errors = Vec::new();
        let mut outputs = Self::default();
        let default_token = if templates.is_empty() { Some("token") } else { None };
        if let Some(text) = token_file.or(default_token) {
            match pod_path(text) {
                Ok(path) => outputs.token_file = Some(path),
                Err(why) => errors.push(format!("--token-file {text}: {why}")),
            }
        }
        for (file, destination) in templates.iter().zip(destinations) {
            match (read_template(file), pod_path(destination)) {
                (Ok(template), Ok(path)) => outputs.add(&template, path, &mut errors),
                (template, path) => {
                    errors.extend(template.err());
                    errors.extend(path.err().map(|why| format!("--destination {destination}: {why}")));
                }
            }
        }
        outputs.folders = outer_folders(outputs.paths());
        if errors.is_empty() { Ok(outputs) } else { Err(errors) }
    }

    fn add(&mut self, template: &Template, destination: String, errors: &mut Vec<String>) {
        if self.paths().any(|path| path == destination) {
            errors.push(format!("--destination {destination}: another file of the pod is written there"));
            return;
        }
        let name = section_name(&destination, |name| self.templates.iter().any(|other| other.name == name));
        let (text, rights) = (template.text().to_owned(), rights(template));
        self.templates.push(PodTemplate { name, text, rights, destination });
    }

    /// Paths of all files.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        let templates = self.templates.iter().map(|template| template.destination.as_str());
        self.token_file.as_deref().into_iter().chain(templates)
    }

    /// True if the folder of a file is no volume itself, so that it has to be created.
    pub(super) fn has_inner_folder(&self, path: &str) -> bool {
        let folder = folder_of(path);
        folder != RUN_FOLDER && self.folders.iter().all(|outer| outer != folder)
    }
}

/// Reads a template, and reports its errors.
fn read_template(file: &str) -> Result<Template, String> {
    let text = local_file::read("--template", file)?;
    let source = TemplateSource {
        name: file.to_owned(),
        file: None,
        text,
        left: "{{".to_owned(),
        right: "}}".to_owned(),
        variables: keyward_machine::command::EnvVars::default(),
        folders: Vec::new(),
        write_folders: Vec::new(),
        allows_missing_keys: false,
    };
    Template::compile(source).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(|error| format!("--template {file}: {error}")).collect();
        errors.join("\nerror: ")
    })
}

/// Returns what a policy must allow for a template, as far as its paths do not come from secrets.
fn rights(template: &Template) -> BTreeSet<(String, &'static str)> {
    let right = |request: SecretRequest| {
        let path = request.path.split_once('?').map_or(&*request.path, |(path, _)| path).trim_matches('/');
        match request.op {
            SecretOp::Read => (path.to_owned(), "read"),
            // The server judges the path of a list with a slash.
            SecretOp::List => (format!("{path}/"), "list"),
            SecretOp::Write(_) | SecretOp::WriteObject(_) => (path.to_owned(), "update"),
        }
    };
    template.first_requests(std::time::SystemTime::now()).into_iter().map(right).collect()
}

/// The path of a file in the pod: absolute, or a name below [`RUN_FOLDER`].
fn pod_path(text: &str) -> Result<String, String> {
    let path = if text.starts_with('/') { text.to_owned() } else { format!("{RUN_FOLDER}/{text}") };
    let is_file = !path.ends_with('/')
        && !path.contains("//")
        && Path::new(&path).components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        && path.split('/').all(|part| part != ".")
        && !path.contains(|character: char| character.is_control() || character == ':');
    if !is_file {
        return Err(format!("name a file by its path, such as app.conf, which is {RUN_FOLDER}/app.conf"));
    }
    let folder = folder_of(&path);
    let is_others = OTHERS.iter().any(|other| Path::new(folder).starts_with(other));
    if is_others || is_system_folder(Path::new(folder)) {
        return Err(format!(
            "a volume would hide the folder {folder} of the application's image; name a file in a folder of its own, such as {RUN_FOLDER} or /etc/app"
        ));
    }
    Ok(path)
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The folders of files outside of [`RUN_FOLDER`] that are below no other.
fn outer_folders<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<String> {
    // In this order a folder comes before those below it.
    let folders: BTreeSet<&Path> = paths.map(|path| Path::new(folder_of(path))).collect();
    let mut outer: Vec<&Path> = vec![Path::new(RUN_FOLDER)];
    for folder in folders {
        if !outer.iter().any(|other| folder.starts_with(other)) {
            outer.push(folder);
        }
    }
    outer.iter().skip(1).map(|folder| folder.display().to_string()).collect()
}

/// A name of a section and of a key for a file, that no other file has.
fn section_name(destination: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let file = destination.rsplit('/').next().unwrap_or_default();
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    let name: String = file.chars().map(plain).take(60).collect();
    let name = name.trim_matches('-');
    let name = if name.is_empty() { "template" } else { name };
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_owned()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_below_the_shared_folder_or_in_a_folder_of_its_own() {
        for (text, expected) in [
            ("app.conf", "/run/keyward/app.conf"),
            ("db/app.conf", "/run/keyward/db/app.conf"),
            ("/run/keyward/.env", "/run/keyward/.env"),
            ("/etc/app/app.conf", "/etc/app/app.conf"),
            ("/vault/secrets/db", "/vault/secrets/db"),
        ] {
            assert_eq!(pod_path(text).as_deref(), Ok(expected));
        }
        for text in [
            "",
            "/",
            "a/",
            "/etc/app.conf",
            "../a",
            "/run/keyward/../a",
            "a//b",
            "./a",
            "/etc/keyward/a",
            "/tmp/a",
            "/run/a",
            "a\nb",
        ] {
            assert!(pod_path(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn folders_below_another_are_no_volumes() {
        let paths = ["/run/keyward/a/b", "/etc/app/sub/c", "/etc/app/d", "/srv/x/e", "/etc/app2/f"];
        assert_eq!(outer_folders(paths.into_iter()), ["/etc/app", "/etc/app2", "/srv/x"]);
    }

    #[test]
    fn names_of_sections_are_plain_and_differ() {
        let name = |path: &str, taken: &[&str]| section_name(path, |name| taken.contains(&name));
        assert_eq!(name("/run/keyward/app.conf", &[]), "app-conf");
        assert_eq!(name("/etc/app/app.conf", &["app-conf"]), "app-conf-2");
        assert_eq!(name("/run/keyward/.env", &[]), "env");
        assert_eq!(name("/run/keyward/ü", &[]), "template");
    }
}
