//! Help of `keyward` itself: its commands by group, and the exit codes.

use std::fmt::Write as _;

use clap::Command;

/// Commands by group, in the order of the help text.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Run", &["run", "exec", "dev"]),
    (
        "Ask the agent",
        &[
            "status",
            "token",
            "kube-token",
            "aws-credentials",
            "wait",
            "retry",
            "refresh",
            "rotate",
            "reload",
            "healthcheck",
            "audit",
        ],
    ),
    (
        "Set up",
        &[
            "init",
            "check",
            "config",
            "doctor",
            "login",
            "template",
            "migrate",
            "policy",
            "explain",
            "completions",
            "man",
        ],
    ),
    ("ACL", &["acl"]),
    ("Terraform", &["gateway", "changes"]),
    ("Kubernetes", &["kubernetes"]),
];

pub(super) const EXIT_CODES: &str = "Exit codes:
  0   done
  1   wrong command line, or a failure on this machine
  2   the identity source or the server refused or failed
  3   the configuration has errors
  4   the agent is not ready
  5   timed out
  6   refused by the agent, or the token lacks a right
  7   no agent or server answers
  8   the named object does not exist
  9   the name or id is taken
  10  actions are required (migrate)
  11  something is about to fail (status --exit-status)
  75  try again later
  78  the configuration has errors (run)

`exec`, and `run` with [process], end with the exit code of their program.

`keyward help COMMAND` shows the help of a command.";

/// Lists the commands by group: clap itself lists them in one.
pub(super) fn group_commands(command: Command) -> Command {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in GROUPS {
        let commands: Vec<&Command> = names.iter().filter_map(|name| command.find_subcommand(name)).collect();
        if commands.is_empty() {
            continue;
        }
        let _ = write!(template, "\n{header}{heading}:{header:#}\n");
        for it in commands {
            let about = it.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {literal}{:<11}{literal:#}  {about}", it.get_name());
        }
    }
    let _ = write!(template, "\n{header}Global options:{header:#}\n{{options}}{{after-help}}");
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_stands_in_one_group_on_a_line_of_at_most_80_columns() {
        let command = crate::cli::Cli::<crate::cli::Command>::command();
        for it in command.get_subcommands() {
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&it.get_name())).count();
            assert_eq!(groups, 1, "{}", it.get_name());
            let about = it.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(15 + about.chars().count() <= 80 && !about.contains('{'), "{}: {about}", it.get_name());
        }
    }
}
