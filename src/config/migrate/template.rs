//! `template {}`, `template_config {}`, `env_template "NAME" {}`, `exec {}` -> `[template.NAME]` and so on.

use std::time::Duration;

use keyward_hcl::Value;

use super::command;
use super::consul_template::{self, debounce};
use super::environment::{PROGRAM_VARIABLES, SOURCE_VARIABLES, report_contents};
use super::exec;
use super::input::{Block, InputValue, NO_FLAG, format_span, span};
use super::output::{Document, Outcome, Section};
use super::sink;

pub(super) fn read(top: &mut Block<'_>, document: &mut Document) {
    if let Some(mut config) = top.block("template_config") {
        config.record(Outcome::Kept, "[templates]");
        if let Some(interval) = config.take("static_secret_render_interval") {
            match interval.span() {
                Some(Duration::ZERO) => interval.record_kept("zero: the default, 5m"),
                Some(span) => {
                    let min = Duration::from_secs(10);
                    let max = Duration::from_hours(24);
                    let new_interval = span.clamp(min, max);
                    document.section("templates").at(interval.origin()).text("interval", &format_span(new_interval));
                    if new_interval == span {
                        interval.record_kept("templates.interval; secrets with a lease have their own schedule");
                    } else {
                        let detail = "templates.interval, which is from 10s to 24h; secrets with a lease have their own schedule";
                        interval.record_changed(detail);
                    }
                }
                None => interval.not_supported("not a duration"),
            }
        }
        config.drop_keys(&["exit_on_retry_failure"], "a failed template is retried, and readiness reports it");
        config.drop_keys(&["lease_renewal_threshold"], "a lease is replaced after two thirds of its duration");
        config.drop_keys(&["max_connections_per_host"], "connections are reused");
        config.finish();
    }
    let defaults = consul_template::defaults(top);
    for (number, mut template) in top.blocks("template").into_iter().enumerate() {
        let name = format!("template.file-{}", number + 1);
        template.record(Outcome::Kept, format!("[{name}]; `keyward check` reports unsupported functions by line"));
        let section = document.section(&name).begin(template.origin());
        file(&mut template, section);
        defaults.apply(document.section(&name));
        template.finish();
    }
    for block in top.blocks("env_template") {
        variables(block, document);
    }
    process(top, document);
}

/// Reads the program, which Vault Agent and consul-template write alike.
fn process(top: &mut Block<'_>, document: &mut Document) {
    let Some(mut exec) = top.block("exec") else { return };
    let is_consul_template = !top.has("auto_auth");
    // Vault Agent, which `auto_auth {}` is for, does not start with `exec {}` beside `template {}`.
    if is_consul_template && document.has_below("template") {
        let detail = "consul-template restarts or signals the program when any template changes; [process] does so when a variable \
                     changes: give each [template.NAME] a command that reloads the program, or write [env_template.NAME] of its secrets";
        exec.record(Outcome::Action, detail);
    }
    let section = document.section("process").begin(exec.origin());
    child(&mut exec, section);
    let is_enabled = is_enabled(&mut exec, document.section("process"));
    for (name, value) in exec::read(&mut exec, document.section("process"), is_consul_template) {
        let name = format!("env_template.{name}");
        if document.has(&name) {
            continue;
        }
        let section = document.section(&name);
        section.begin(exec.origin());
        // Only an action can produce the characters that open an action.
        section.contents(&value.replace("{{", "{{ \"{{\" }}"));
        if !is_enabled {
            section.disable();
        }
    }
    exec.finish();
}

/// Reads `enabled`; false if the program, which the file declares disabled, is written commented out.
fn is_enabled(exec: &mut Block<'_>, section: &mut Section) -> bool {
    let Some(enabled) = exec.take("enabled") else { return true };
    match enabled.flag() {
        Some(true) => enabled.record_kept("the section enables it"),
        Some(false) => {
            section.disable();
            // Its runner asks for the command alone (manager/runner.go).
            enabled.action("consul-template runs the program in spite of it: [process] is written commented out; remove the # to run it");
            return false;
        }
        None => enabled.not_supported(NO_FLAG),
    }
    true
}

/// The text and how it is read, which both kinds have.
fn text(template: &mut Block<'_>, section: &mut Section) {
    for (source_key, key) in
        [("source", "source"), ("left_delimiter", "left_delimiter"), ("right_delimiter", "right_delimiter")]
    {
        if let Some(input) = template.take(source_key)
            && let Some(text) = input.required_text()
        {
            section.at(input.origin()).text(key, text);
            if key == "source" {
                input.record_changed(SOURCE_VARIABLES);
            } else {
                input.record_kept(key);
            }
        }
    }
    let contents = template.take("contents");
    if section.has("source") {
        if let Some(contents) = contents {
            contents.not_supported("source takes precedence");
        }
    } else if let Some(contents) = contents
        && let Some(text) = contents.required_text()
    {
        section.at(contents.origin()).contents(text);
        report_contents(&contents, text, section);
    }
    missing_keys(template, section);
    for key in ["function_denylist", "function_blacklist"] {
        if let Some(denied) = template.take(key) {
            denied.record_changed("no function runs programs, and writeToFile writes below write_folders alone");
        }
    }
    template.drop_keys(&["error_fatal"], "a failed template is retried, and readiness reports it");
    if let Some(sandbox) = template.take("sandbox_path")
        && let Some(path) = sandbox.required_text()
    {
        section.at(sandbox.origin()).texts("read_folders", &[path.to_owned()]);
        sandbox.record_kept("read_folders");
    }
}

/// Reads `error_on_missing_key`, which is false by default in the other agents (config/template.go).
fn missing_keys(template: &mut Block<'_>, section: &mut Section) {
    let Some(missing) = template.take("error_on_missing_key") else {
        section.flag("error_on_missing_key", false);
        template.record(
            Outcome::Kept,
            "error_on_missing_key = false, the default there: a missing key is printed as <no value>",
        );
        return;
    };
    match missing.flag() {
        Some(true) => missing.record_kept("a missing key is an error"),
        Some(false) => {
            section.at(missing.origin()).flag("error_on_missing_key", false);
            missing.record_kept("error_on_missing_key");
        }
        None => missing.not_supported(NO_FLAG),
    }
}

fn file(template: &mut Block<'_>, section: &mut Section) {
    text(template, section);
    if let Some(destination) = template.take("destination")
        && let Some(path) = destination.required_text()
    {
        section.at(destination.origin()).text("destination", path);
        if path.starts_with("/dev/") {
            destination.action("keyward writes regular files only: name one, or remove the template");
        } else {
            destination.record_kept("destination");
        }
    }
    let create = template.take("create_dest_dirs");
    if create.as_ref().and_then(InputValue::flag).unwrap_or(true) {
        section.flag("create_folders", true);
    }
    match &create {
        Some(create) if create.flag().is_none() => create.not_supported(format!("{NO_FLAG}: folders are created")),
        Some(create) => create.record_kept("create_folders"),
        None => {}
    }
    let perms = template.take("perms");
    match &perms {
        Some(perms) if is_zero(perms.value) => perms.record_changed(format!("zero is no mode: {DEFAULT_MODE}")),
        Some(perms) => sink::mode(perms, section),
        None => template.record(Outcome::Changed, DEFAULT_MODE),
    }
    for (source_key, key) in [("user", "owner"), ("group", "group"), ("uid", "owner"), ("gid", "group")] {
        let Some(input) = template.take(source_key) else { continue };
        match input.value {
            Value::Text(text) if text.is_empty() => input.record_kept("empty: no effect"),
            Value::Text(text) | Value::Number(text) if !text.starts_with('-') => {
                section.at(input.origin()).text(key, text);
                input.record_kept(key);
            }
            _ => input.not_supported("not a name or an id"),
        }
    }
    if let Some(backup) = template.take("backup") {
        match backup.flag() {
            Some(flag) => {
                if flag {
                    section.flag("backup", true);
                }
                backup.record_kept("backup");
            }
            None => backup.not_supported(format!("{NO_FLAG}: no copy is kept")),
        }
    }
    wait(template, section);
    command::read(template, section);
}

/// Report of a template without `perms`.
const DEFAULT_MODE: &str = "mode 0640; the default in Vault Agent is the mode of the existing file, or 0644";

/// True for a number of zeros, which consul-template and Vault Agent treat as a missing mode (renderer/renderer.go).
fn is_zero(value: &Value) -> bool {
    matches!(value, Value::Text(text) | Value::Number(text) if !text.is_empty() && text.bytes().all(|byte| byte == b'0'))
}

/// `wait { min = "2s" max = "10s" }`, also written `wait = "2s:10s"`.
fn wait(template: &mut Block<'_>, section: &mut Section) {
    if let Some(input) = template.take_if("wait", |value| matches!(value, Value::Text(_))) {
        let min = input.text().and_then(|text| span(text.split(':').next().unwrap_or_default()));
        return put_debounce(section, debounce(&input, min));
    }
    let Some(mut wait) = template.block("wait") else { return };
    if let Some(min) = wait.take("min") {
        put_debounce(section, debounce(&min, min.span()));
    }
    wait.drop_keys(&["max"], "changes are collected for at most four times debounce");
    wait.finish();
}

fn put_debounce(section: &mut Section, debounce: Option<String>) {
    if let Some(debounce) = debounce {
        section.text("debounce", &debounce);
    }
}

fn variables(mut block: Block<'_>, document: &mut Document) {
    // A label is the variable's name; a block with only settings has none.
    for name in block.names() {
        let section = format!("env_template.{name}");
        for mut template in block.blocks(&name) {
            if document.has(&section) {
                template.drop_all(
                    Outcome::NotSupported,
                    "a variable has one template: set above, and the first one is written",
                );
                continue;
            }
            template.record(Outcome::Kept, format!("[env_template.{name}]"));
            let section = document.section(&section).begin(template.origin());
            text(&mut template, section);
            template.drop_keys(&FILE_KEYS, "only for files, and this is a variable");
            template.finish();
        }
    }
    block.finish();
}

/// Keys of a file's template that an environment template lacks.
const FILE_KEYS: [&str; 7] =
    ["destination", "create_dest_dirs", "perms", "backup", "command", "command_timeout", "wait"];

fn child(exec: &mut Block<'_>, section: &mut Section) {
    exec.record(Outcome::Kept, "[process]");
    if let Some(input) = exec.take("command") {
        match input.texts().as_deref() {
            Some([line]) if command::is_shell_line(line) => {
                let argv = ["/bin/sh", "-c", line].map(str::to_owned);
                section.at(input.origin()).texts("command", &argv);
                command::report(&input, &argv, "a shell line, written as /bin/sh -c", PROGRAM_VARIABLES);
            }
            Some(arguments) if !arguments.is_empty() => {
                section.at(input.origin()).texts("command", arguments);
                input.record_kept("process.command");
            }
            _ => input.not_supported("not a command"),
        }
    }
    if let Some(restart) = exec.take("restart_on_secret_changes") {
        match restart.text() {
            Some("always") => {
                section.text("on_change", "restart");
                restart.record_kept("process.on_change = \"restart\"");
            }
            Some("never") => {
                section.text("on_change", "ignore");
                restart.record_kept("process.on_change = \"ignore\"");
            }
            _ => restart.not_supported("expected \"always\" or \"never\""),
        }
    }
    if let Some(signal) = exec.take("restart_stop_signal")
        && let Some(text) = signal.required_text()
    {
        section.at(signal.origin()).text("stop_signal", text);
        signal.record_kept("process.stop_signal");
    }
    exec.drop_keys(
        &["child_process_stdout", "child_process_stderr"],
        "the program inherits the agent's standard output and error",
    );
    section.comment("Variables of the agent's environment that the program needs: pass_env = [\"NAME\"]");
    exec.record(Outcome::Changed, PROGRAM_VARIABLES);
}
