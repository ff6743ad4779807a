//! `exec {}`: signals, times and variables of the program, which consul-template has in addition to the agent's keys.

use super::input::{Block, InputValue, format_span};
use super::output::{Outcome, Section};

/// Reads the keys; returns the variables with a fixed value.
pub(super) fn read(exec: &mut Block<'_>, section: &mut Section, is_consul_template: bool) -> Vec<(String, String)> {
    stop(exec, section);
    // There the program is stopped with SIGINT, and here with SIGTERM.
    if is_consul_template && !section.has("stop_signal") {
        section.text("stop_signal", "SIGINT");
        exec.record(Outcome::Kept, "process.stop_signal = \"SIGINT\", the default of consul-template");
    }
    reload_signal(exec, section);
    exec.drop_keys(&["splay"], "debounce spaces restarts");
    exec.drop_keys(&["timeout"], "the program runs until it exits or is stopped");
    let Some(mut env) = exec.block("env") else { return Vec::new() };
    passed_variables(&mut env, section);
    let variables = custom_variables(&mut env);
    env.drop_keys(&DENIED_LISTS, FEW_VARIABLES);
    env.finish();
    variables
}

fn stop(exec: &mut Block<'_>, section: &mut Section) {
    if let Some(signal) = exec.take("kill_signal")
        && let Some(text) = signal.required_text()
    {
        section.at(signal.origin()).text("stop_signal", text);
        signal.record_kept("process.stop_signal");
    }
    if let Some(timeout) = exec.take("kill_timeout") {
        match timeout.span() {
            Some(span) => {
                section.at(timeout.origin()).text("stop_timeout", &format_span(span));
                timeout.record_kept("process.stop_timeout");
            }
            None => timeout.not_supported("not a duration"),
        }
    }
}

fn reload_signal(exec: &mut Block<'_>, section: &mut Section) {
    let Some(signal) = exec.take("reload_signal") else { return };
    match signal.text() {
        Some(text) => {
            section.text("on_change", "signal").at(signal.origin()).text("change_signal", text);
            signal.record_changed(
                "process.change_signal: the signal is sent when a variable has changed; a file template has its own command",
            );
        }
        None => signal.record_kept("empty: no effect"),
    }
}

const FEW_VARIABLES: &str = "the program gets few variables, and those of pass_env";

/// Lists of variables that the program does not get, even if an allowlist names them.
const DENIED_LISTS: [&str; 2] = ["denylist", "blacklist"];

/// Variables of keyward's own environment that the program gets too.
fn passed_variables(env: &mut Block<'_>, section: &mut Section) {
    let pristine = env.take("pristine");
    let is_pristine = pristine.as_ref().and_then(InputValue::flag) == Some(true);
    if let Some(pristine) = pristine {
        pristine.not_supported(FEW_VARIABLES);
    }
    let has_denied = DENIED_LISTS.iter().any(|key| env.has(key));
    let mut names = Vec::new();
    for key in ["allowlist", "whitelist"] {
        let Some(input) = env.take(key) else { continue };
        match input.texts() {
            Some(_) if is_pristine => input.not_supported("has no effect beside pristine"),
            Some(_) if has_denied => input.action(
                "not written, as pass_env cannot leave out what denylist names: list each variable in process.pass_env",
            ),
            Some(listed) => {
                names.extend(listed);
                input.record_kept("process.pass_env");
            }
            None => input.not_supported("not a list of names"),
        }
    }
    if !names.is_empty() {
        section.texts("pass_env", &names);
    }
}

fn custom_variables(env: &mut Block<'_>) -> Vec<(String, String)> {
    let Some(input) = env.take("custom") else { return Vec::new() };
    let texts = input.texts().unwrap_or_default();
    let pairs = texts.iter().filter_map(|text| text.split_once('='));
    let variables: Vec<_> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let secrets: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).filter(|name| is_secret(name)).collect();
    if !secrets.is_empty() {
        let names = secrets.join(", ");
        input.action(format!(
            "everyone who may read the configuration sees the value of {names}: read it from the server, in its [env_template.NAME]"
        ));
    }
    if variables.len() == texts.len() {
        input.record_changed("[env_template.NAME] for each");
    } else {
        input.action("only strings such as \"NAME=VALUE\" are migrated: write [env_template.NAME] for the others");
    }
    variables
}

/// True for the name of a variable that usually holds a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["CREDENTIAL", "PASSWD", "PASSWORD", "SECRET", "TOKEN"].iter().any(|word| name.contains(word))
        || name.ends_with("_KEY")
}
