//! Variables of the environment that programs, commands and templates have in the other agents -> `pass_env`.

use std::collections::BTreeSet;
use std::path::Path;

use keyward_machine::command::is_reserved;

use super::input::InputValue;
use super::output::Section;
use crate::references::is_variable;

/// Report of a program.
pub(super) const PROGRAM_VARIABLES: &str =
    "the program gets few variables of the agent's environment: add others with pass_env = [\"NAME\"]";

/// Report of a template's command, for which the other agents also set variables of the server (manager/runner.go).
pub(super) const COMMAND_VARIABLES: &str = "the program gets few variables of the agent's environment, and no VAULT_ADDR, VAULT_CACERT, \
     VAULT_CAPATH, VAULT_CLIENT_CERT, VAULT_CLIENT_KEY, VAULT_SKIP_VERIFY or VAULT_TLS_SERVER_NAME: add others with pass_env = [\"NAME\"]";

/// Report of a template's file, which `migrate` does not read.
pub(super) const SOURCE_VARIABLES: &str = "source; if the file reads variables with env or mustEnv, list them: pass_env = [\"NAME\"]; if it calls writeToFile, list the \
     folders: write_folders = [\"/FOLDER\"]";

/// Reports a template's text, and writes `pass_env` with the variables that it reads.
pub(super) fn report_contents(contents: &InputValue<'_>, text: &str, section: &mut Section) {
    let (reserved, passed): (Vec<_>, Vec<_>) = variables(text).into_iter().partition(|name| is_reserved(name));
    if !reserved.is_empty() {
        contents
            .action(format!("no template can read {}: write each value in place of its variable", reserved.join(", ")));
    }
    let folders = written_folders(text);
    if !folders.is_empty() && section.is_template_file() {
        section.texts("write_folders", &folders);
        contents.record_kept("the folders of writeToFile: write_folders");
    }
    if passed.is_empty() {
        contents.record_kept("contents");
    } else {
        section.texts("pass_env", &passed);
        contents.record_changed(
            "contents, with its variables in pass_env; one that is not set is an error: read it with envOrDefault",
        );
    }
}

/// Returns the variables that a template reads by name: `env "NAME"`. Text outside of actions counts too.
fn variables(text: &str) -> BTreeSet<String> {
    let names = ["env", "envOrDefault", "mustEnv"].into_iter().flat_map(|function| first_arguments(text, function));
    names.filter(|name| is_variable(name)).map(str::to_owned).collect()
}

/// Returns the folders of the files that a template writes by name: `writeToFile "PATH"`.
fn written_folders(text: &str) -> Vec<String> {
    let folder =
        |path: &str| Path::new(path).parent()?.to_str().filter(|folder| folder.starts_with('/')).map(str::to_owned);
    let folders: BTreeSet<String> = first_arguments(text, "writeToFile").filter_map(folder).collect();
    folders.into_iter().collect()
}

/// Returns the literal first arguments of a function's calls.
fn first_arguments<'a>(text: &'a str, function: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(function).filter_map(move |(at, _)| {
        let is_part = text[..at].ends_with(|before: char| before.is_alphanumeric() || "_.$/-".contains(before));
        let argument = text[at + function.len()..].trim_start();
        let literal = ['"', '`'].iter().find_map(|quote| Some(argument.strip_prefix(*quote)?.split_once(*quote)?.0));
        literal.filter(|_| !is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_a_template_writes_to_are_found() {
        let text = r#"{{ .Cert | writeToFile "/etc/app/tls.crt" "" "" "0644" }}{{ .Key | writeToFile `/etc/app/tls.key` "a" "b" "0600" }}
                      {{ .CA | writeToFile "/srv/ca.pem" "" "" "0644" "append" }}{{ writeToFile $path }}{{ .x | writeToFile "ca.pem" }}"#;
        assert_eq!(written_folders(text), ["/etc/app", "/srv"]);
    }

    #[test]
    fn variables_that_a_template_names_are_found() {
        for (text, expected) in [
            (r#"{{ env "A" }}{{ mustEnv "B_2" }}{{ envOrDefault "C" "x" }}{{ env "A" }}"#, "A B_2 C"),
            (r#"{{ with secret (printf "secret/data/%s" (env "APP_ENV")) }}{{end}}"#, "APP_ENV"),
            ("{{env `A`}}{{ env\n\"B\" }}", "A B"),
            (r#"{{ .env "A" }}{{ $env "B" }}{{ myenv "C" }}{{ env $name }}{{ env "" }}"#, ""),
            (r#"run --env "A" /usr/bin/env "B" env"#, ""),
            (r#"{{ env "1A" }}{{ env "A B" }}{{ env "A"#, ""),
        ] {
            let names: Vec<_> = variables(text).into_iter().collect();
            assert_eq!(names.join(" "), expected, "{text}");
        }
    }
}
