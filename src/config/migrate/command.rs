//! `command` and `exec {}` of a template -> its `command`, with what its programs need beside the packaged unit.

use super::environment::COMMAND_VARIABLES;
use super::input::{Block, InputValue, format_span};
use super::output::{Outcome, Section};
use crate::systemd::{command_lines, raises_rights, unit_actions};

/// Reads `exec`, and the older `command`.
pub(super) fn read(template: &mut Block<'_>, section: &mut Section) {
    let exec = template.block("exec").map(|mut exec| {
        let inputs = (exec.take("command"), exec.take("timeout"));
        exec.drop_keys(
            &["enabled", "splay", "kill_signal", "kill_timeout", "reload_signal"],
            "a command runs once per change",
        );
        if let Some(env) = exec.block("env") {
            env.drop_all(Outcome::Action, "list the variables that the command needs: pass_env = [\"NAME\"]");
        }
        exec.finish();
        inputs
    });
    let mut line = template.take("command");
    let mut timeout = template.take("command_timeout");
    if let Some((exec_command, exec_timeout)) = exec {
        for (replaced, exec_value) in [(&mut line, exec_command), (&mut timeout, exec_timeout)] {
            if let Some(exec_value) = exec_value
                && let Some(replaced) = replaced.replace(exec_value)
            {
                replaced.not_supported("exec takes precedence");
            }
        }
    }
    command(line.as_ref(), timeout.as_ref(), section);
}

/// True for a command of one string that consul-template and Vault Agent give to a shell (child/command-prep.go).
pub(super) fn is_shell_line(line: &str) -> bool {
    line.split_whitespace().nth(1).is_some()
}

fn command(input: Option<&InputValue<'_>>, timeout: Option<&InputValue<'_>>, section: &mut Section) {
    let Some(input) = input else {
        if let Some(timeout) = timeout {
            timeout.not_supported("has no effect without command");
        }
        return;
    };
    match input.texts().as_deref() {
        Some([line]) if is_shell_line(line) => {
            section.at(input.origin()).texts("command", std::slice::from_ref(line)).flag("shell", true);
            report(input, &["/bin/sh", "-c", line].map(str::to_owned), "command, with shell = true", COMMAND_VARIABLES);
        }
        Some(arguments) if !arguments.is_empty() && !arguments[0].is_empty() => {
            section.at(input.origin()).texts("command", arguments);
            report(input, arguments, "command", COMMAND_VARIABLES);
        }
        _ => input.not_supported("not a command"),
    }
    if let Some(timeout) = timeout {
        match timeout.span() {
            Some(span) => {
                section.at(timeout.origin()).text("command_timeout", &format_span(span));
                timeout.record_kept("command_timeout");
            }
            None => timeout.not_supported("not a duration"),
        }
    }
}

/// Reports a command. One that controls a unit, or needs the rights of another user, needs an action: programs run as user keyward.
pub(super) fn report(input: &InputValue<'_>, argv: &[String], written: &str, variables: &str) {
    let lines = command_lines(argv);
    let programs = lines.iter().filter_map(|line| Some(line.first()?.as_str()));
    let raising: Vec<&str> = programs.filter(|program| raises_rights(program)).collect();
    let mut detail = written.to_owned();
    if lines.iter().any(|line| !unit_actions(line).is_empty()) {
        detail
            .push_str("; as user keyward, systemctl needs the polkit rule of `keyward migrate --systemd-drop-in DIR`");
    }
    if !raising.is_empty() {
        let raising = raising.join(", ");
        let cannot = " cannot raise rights in the packaged unit: let polkit, a group or a path unit do it";
        detail.extend(["; ", &raising, cannot]);
    }
    if detail == written {
        return input.record_changed(format!("{written}; {variables}"));
    }
    input.action(format!("{detail}; {variables}"));
}
