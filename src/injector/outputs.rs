//! The files that a pod asks for: templates, and the token.

use std::collections::BTreeMap;

use super::annotations::Key;
use super::given::{Given, GivenAnnotations};
use super::problems::Problems;
use super::values;

/// Files of a pod, and the folders that they are in.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) files: Vec<SecretFile>,
    /// Path of the token's file.
    pub(crate) token: Option<String>,
    /// Folders that are volumes, each once.
    pub(crate) folders: Vec<String>,
}

/// A file that is rendered from secrets.
#[derive(Debug)]
pub(crate) struct SecretFile {
    pub(crate) template: String,
    pub(crate) destination: String,
    /// Mode of the file; `None` for the default of the pod.
    pub(crate) mode: Option<String>,
    pub(crate) left_delimiter: Option<String>,
    pub(crate) right_delimiter: Option<String>,
    pub(crate) error_on_missing_key: bool,
    /// Annotation that the template comes from, for messages.
    pub(crate) annotation: String,
}

/// Folder of the files where no annotation names one.
const FOLDER: &str = "/run/keyward";

/// The same for a pod with annotations of the Vault Agent injector.
const VAULT_FOLDER: &str = "/vault/secrets";

impl Outputs {
    pub(crate) fn read(given: &GivenAnnotations, problems: &mut Problems) -> Self {
        let is_vault = given.get(Key::Inject).is_some_and(Given::is_vault);
        let default = if is_vault { VAULT_FOLDER } else { FOLDER };
        let main = match given.get(Key::VolumePath) {
            Some(folder) => problems.parse(Some(folder), values::folder),
            None => Some(default.to_owned()),
        };
        let form = given.get(Key::DefaultTemplate);
        let is_json = match form.map(|form| form.value.to_lowercase()).as_deref() {
            None | Some("map") => false,
            Some("json") => true,
            Some(_) => {
                form.inspect(|form| problems.value(form, "expected \"map\" or \"json\""));
                false
            }
        };
        let mut outputs = Self::default();
        for (name, annotations) in given.files() {
            let folder = match annotations.get(&Key::NamedVolumePath) {
                Some(folder) => problems.parse(Some(folder), values::folder),
                None => main.clone(),
            };
            let file = SecretFile::read(name, annotations, folder.as_deref(), is_json, problems);
            if let (Some(file), Some(folder)) = (file, folder) {
                outputs.add_folder(&folder);
                outputs.files.push(file);
            }
        }
        let writes_token = problems.parse(given.get(Key::Token), values::boolean).unwrap_or_default();
        if let (true, Some(folder)) = (writes_token, &main) {
            outputs.add_folder(folder);
            outputs.token = Some(format!("{folder}/token"));
        }
        outputs.check(problems);
        outputs
    }

    fn add_folder(&mut self, folder: &str) {
        if !self.folders.iter().any(|known| known == folder) {
            self.folders.push(folder.to_owned());
        }
    }

    fn check(&self, problems: &mut Problems) {
        if self.files.is_empty() && self.token.is_none() && problems.is_empty() {
            problems.add(
                "no annotation asks for a file; add keyward.dev/secret-NAME with the path of a secret, or keyward.dev/token: \"true\"",
            );
        }
        let mut destinations: Vec<&String> =
            self.files.iter().map(|file| &file.destination).chain(&self.token).collect();
        destinations.sort();
        for pair in destinations.windows(2).filter(|pair| pair[0] == pair[1]) {
            problems.add(format!("two annotations ask for the file {}; give one of them another name", pair[0]));
        }
        for folder in &self.folders {
            if self.folders.iter().any(|other| other.starts_with(&format!("{folder}/"))) {
                problems.add(format!(
                    "the folder {folder} of files holds the folder of others; give them one, or two beside each other"
                ));
            }
        }
    }
}

impl SecretFile {
    /// Reads the annotations of one file; `None` if it is asked for by none of them, or if `folder` is unknown.
    fn read(
        name: &str,
        annotations: &BTreeMap<Key, Given>,
        folder: Option<&str>,
        is_json: bool,
        problems: &mut Problems,
    ) -> Option<Self> {
        let given = |key: Key| annotations.get(&key).filter(|given| !given.value.trim().is_empty());
        let Some(source) = given(Key::Template).or_else(|| given(Key::Secret)) else {
            if let Some(other) = annotations.values().next() {
                problems.add(format!(
                    "annotation {} is about no file: add the path of its secret, keyward.dev/secret-{name}",
                    other.annotation
                ));
            }
            return None;
        };
        let left_delimiter = problems.parse(given(Key::LeftDelim), values::line);
        let right_delimiter = problems.parse(given(Key::RightDelim), values::line);
        let path = match given(Key::File) {
            Some(path) => problems.parse(Some(path), values::file)?,
            // The API server checks names of annotations after this.
            None => match values::file(name) {
                Ok(path) if !path.contains('/') => path,
                _ => {
                    problems.add(format!("annotation {} ends with no name of a file", source.annotation));
                    return None;
                }
            },
        };
        let template = if let Some(template) = given(Key::Template) {
            template.value.clone()
        } else {
            let path = problems.parse(Some(source), values::line)?;
            let delimiters = (left_delimiter.as_deref(), right_delimiter.as_deref());
            default_template(&path, is_json, delimiters)
        };
        Some(Self {
            template,
            destination: format!("{}/{path}", folder?),
            mode: problems.parse(given(Key::Perms), values::mode),
            left_delimiter,
            right_delimiter,
            error_on_missing_key: problems.parse(given(Key::ErrorOnMissing), values::boolean).unwrap_or(true),
            annotation: source.annotation.clone(),
        })
    }
}

/// Template of a secret for which the pod has none: all its fields.
fn default_template(path: &str, is_json: bool, delimiters: (Option<&str>, Option<&str>)) -> String {
    let (left, right) = (delimiters.0.unwrap_or("{{"), delimiters.1.unwrap_or("}}"));
    let path = path.replace('\\', r"\\").replace('"', "\\\"");
    let action = |text: &str| format!("{left} {text} {right}");
    let body = if is_json {
        format!("{}\n", action("toJSON .Data"))
    } else {
        let line = format!("{}: {}\n", action("$key"), action("$value"));
        format!("{}{line}{}", action("range $key, $value := .Data"), action("end"))
    };
    format!("{}{body}{}", action(&format!("with secret \"{path}\"")), action("end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_template_has_all_fields_of_the_secret() {
        assert_eq!(
            default_template("a/\"b\\", false, (None, None)),
            "{{ with secret \"a/\\\"b\\\\\" }}{{ range $key, $value := .Data }}{{ $key }}: {{ $value }}\n{{ end }}{{ end }}"
        );
        assert_eq!(
            default_template("a", true, (Some("[["), Some("]]"))),
            "[[ with secret \"a\" ]][[ toJSON .Data ]]\n[[ end ]]"
        );
    }
}
