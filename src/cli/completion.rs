//! `keyward completions`: the script of a shell, which asks `keyward __complete` for names that only a configuration knows.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Arg, Command};
use clap_complete::Shell;
use keyward_config::{self as config, Environment};
use keyward_telemetry::error_code::ErrorCode;

use super::{Exit, default_config, print, print_line};

/// Word of the invocation by the scripts. No command: nobody types it.
const REQUEST: &str = "__complete";

/// Prints the script of a shell.
pub(super) fn print_script(shell: Shell, mut command: Command) -> Exit {
    // It panics where its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "keyward", &mut script);
    let script = String::from_utf8_lossy(&script);
    print(add_names(shell, &script, &command).as_bytes());
    Exit::Ok
}

/// Returns the words before the cursor and the one at it, if a script asks for names.
pub(super) fn parse_request(arguments: impl Iterator<Item = OsString>) -> Option<Vec<String>> {
    let mut words = arguments.skip(1).map(|word| word.to_string_lossy().into_owned());
    (words.next().as_deref() == Some(REQUEST)).then(|| words.collect())
}

/// Prints the names that may stand at the cursor, a line each; nothing where the script knows the words itself.
pub(super) fn respond(words: &[String], command: &Command) -> Exit {
    for name in find_names(words, command) {
        print_line(&name);
    }
    Exit::Ok
}

/// Kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    Session,
    Section,
    Certificate,
    Code,
}

impl NameKind {
    /// Returns the kind of an argument's values; `None` for values of another kind.
    fn of(argument: &Arg) -> Option<Self> {
        match argument.get_id().as_str() {
            "session" => Some(Self::Session),
            "sections" => Some(Self::Section),
            "certificate" => Some(Self::Certificate),
            "code" => Some(Self::Code),
            _ => None,
        }
    }
}

fn find_names(words: &[String], command: &Command) -> Vec<String> {
    let Some((_, before)) = words.split_last() else { return Vec::new() };
    match find_argument(words, command).and_then(NameKind::of) {
        Some(NameKind::Code) => ErrorCode::ALL.iter().map(|code| code.as_str().to_owned()).collect(),
        Some(NameKind::Session) => names_of("session.", before),
        Some(NameKind::Certificate) => names_of("certificate.", before),
        Some(NameKind::Section) => sections(before).into_iter().collect(),
        None => Vec::new(),
    }
}

/// Returns the names of the sections that begin so.
fn names_of(kind: &str, words: &[String]) -> Vec<String> {
    let sections = sections(words);
    let names = sections.iter().filter_map(|section| Some(section.strip_prefix(kind)?.split('.').next()?.to_owned()));
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the sections of the configuration that the words name, also of one with errors.
fn sections(words: &[String]) -> BTreeSet<String> {
    let mut files = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = match word.as_str() {
            "-c" | "--config" => words.next().map(String::as_str),
            _ => word.strip_prefix("--config="),
        };
        files.extend(value.map(PathBuf::from));
    }
    if files.is_empty() {
        files.push(default_config());
    }
    config::settings(&files, &Environment::current()).into_iter().map(|setting| setting.section).collect()
}

/// Returns the argument whose value is at the cursor, which is at the last word.
fn find_argument<'a>(words: &[String], command: &'a Command) -> Option<&'a Arg> {
    let (last, before) = words.split_last()?;
    let mut command = command;
    let mut positionals = 0;
    let mut awaited = None;
    for word in before {
        if awaited.take().is_some() {
            continue;
        }
        if word.starts_with('-') && word.len() > 1 {
            awaited = find_flag(command, word);
        } else if let Some(below) = command.find_subcommand(word).filter(|_| positionals == 0) {
            command = below;
        } else {
            positionals += 1;
        }
    }
    if awaited.is_some() || last.starts_with('-') {
        return awaited;
    }
    // The last one may take several values.
    let all: Vec<&Arg> = command.get_positionals().collect();
    all.get(positionals).or_else(|| all.last().filter(|last| last.get_action().takes_values())).copied()
}

/// Returns the flag of a word that takes the next word as its value.
fn find_flag<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let long = word.strip_prefix("--");
    let short = word.strip_prefix('-').and_then(|flags| flags.chars().next_back());
    let is_named = |argument: &&Arg| match long {
        Some(long) => argument.get_long() == Some(long),
        None => short.is_some() && argument.get_short() == short,
    };
    command.get_arguments().find(is_named).filter(|argument| argument.get_action().takes_values())
}

/// Adds to a script that it asks for names.
fn add_names(shell: Shell, script: &str, command: &Command) -> String {
    match shell {
        Shell::Bash => format!("{script}\n{BASH}"),
        Shell::Zsh => script.replacen("\n_keyward() {\n", &format!("\n{ZSH}\n_keyward_words() {{\n"), 1),
        Shell::Fish => {
            let commands: Vec<&str> =
                command.get_subcommands().filter(|command| takes_session(command)).map(Command::get_name).collect();
            let names = FISH.replace("COMMANDS", &commands.join(" "));
            format!("{script}{names}{}", fish_values(command, ""))
        }
        _ => script.to_owned(),
    }
}

/// Returns the lines of Fish that complete positional arguments of listed values, for all commands below one: `clap_complete` has none.
fn fish_values(command: &Command, condition: &str) -> String {
    let mut lines = String::new();
    for below in command.get_subcommands() {
        let condition = format!("{condition}__fish_seen_subcommand_from {}", below.get_name());
        for argument in below.get_positionals().filter(|argument| !argument.is_hide_set()) {
            let values: Vec<String> = argument.get_possible_values().iter().map(fish_value).collect();
            if !values.is_empty() {
                let values = values.join(" ");
                // Writing to a String does not fail.
                let _ = writeln!(lines, "complete -c keyward -n \"{condition}\" -f -a \"{values}\"");
            }
        }
        lines.push_str(&fish_values(below, &format!("{condition}; and ")));
    }
    lines
}

/// Returns a value and its help as a word of Fish, within double quotes.
fn fish_value(value: &PossibleValue) -> String {
    let help = value.get_help().map(ToString::to_string).unwrap_or_default();
    let help: String = help.chars().filter(|c| !matches!(c, '\'' | '"' | '$' | '\\')).collect();
    format!("{}\\t'{help}'", value.get_name())
}

/// Returns true for a command with `--session`, or with such a command below it.
fn takes_session(command: &Command) -> bool {
    command.get_arguments().any(|argument| argument.get_long() == Some("session"))
        || command.get_subcommands().any(takes_session)
}

const BASH: &str = r#"_keyward_names() {
    local names
    names=$(keyward __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
    if [[ -n "$names" ]]; then
        COMPREPLY=($(compgen -W "$names" -- "${COMP_WORDS[COMP_CWORD]}"))
        return 0
    fi
    _keyward "$@"
}
complete -F _keyward_names -o bashdefault -o default keyward
"#;

const ZSH: &str = r#"_keyward() {
    local -a names
    names=(${(f)"$(keyward __complete "${(@)words[2,CURRENT]}" 2> /dev/null)"})
    if (( ${#names} )); then
        compadd -a names
        return
    fi
    _keyward_words "$@"
}
"#;

const FISH: &str = r#"
function __keyward_names
    set -l words (commandline -opc) (commandline -ct)
    keyward __complete $words[2..] 2> /dev/null
end
complete -c keyward -n "__fish_seen_subcommand_from COMMANDS" -s s -l session -x -a "(__keyward_names)"
complete -c keyward -n "__fish_seen_subcommand_from retry rotate explain" -f -a "(__keyward_names)"
complete -c keyward -n "__fish_seen_subcommand_from show" -f -a "(__keyward_names)"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_at_the_cursor_belongs_to_the_argument_that_takes_it() {
        let command = crate::cli::command();
        let check = |line: &str, expected: Option<&str>| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = find_argument(&words, &command).map(|argument| argument.get_id().as_str());
            assert_eq!(found, expected, "{line}");
        };
        check("token --session ", Some("session"));
        check("token -s we", Some("session"));
        check("token -c FILE -s ", Some("session"));
        check("--log-level info token --session ", Some("session"));
        check("retry ", Some("session"));
        check("retry web ", Some("session"));
        check("rotate ", Some("certificate"));
        check("explain KW-1", Some("code"));
        check("config show ", Some("sections"));
        check("config show agent l", Some("sections"));
        check("template try FILE --session ", Some("session"));
        check("token -", None);
        check("tok", None);
        check("status ", None);
    }

    #[cfg(feature = "dev")]
    #[test]
    fn fish_completes_the_faults_of_the_demonstration_with_their_help() {
        let lines = fish_values(&crate::cli::command(), "");
        let wanted =
            "complete -c keyward -n \"__fish_seen_subcommand_from dev; and __fish_seen_subcommand_from break\" ";
        assert!(lines.lines().any(|line| line.starts_with(wanted) && line.contains("server\\t'")), "{lines}");
    }
}
