//! The reference of commands, which is generated from the definitions of the command line; command lines of other documents.

use std::fmt::Write as _;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command, Id};

use super::{read, texts};

const DOCUMENT: &str = "docs/reference/commands.md";

const HEAD: &str = "# Reference: commands

Every command with its arguments and flags, as `--help` has them. [Exit codes](exit-codes.md) are the same for all.
";

/// An argument as a list item: how it is written, its meaning, and its default.
fn item(argument: &Arg) -> String {
    let value = || {
        let names = argument.get_value_names().unwrap_or_default();
        names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let takes_value = argument.get_action().takes_values();
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    let written = match (flags.is_empty(), takes_value) {
        (true, _) => value(),
        (false, true) => format!("{} {}", flags.join(", "), value()),
        (false, false) => flags.join(", "),
    };
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut notes = Vec::new();
    if argument.is_required_set() {
        notes.push("required".to_owned());
    }
    if matches!(argument.get_action(), ArgAction::Append)
        && !help.contains("repeat")
        && !help.contains("more than once")
    {
        notes.push("repeatable".to_owned());
    }
    let values: Vec<String> =
        argument.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if takes_value && !values.is_empty() {
        notes.push(format!("one of {}", values.join(", ")));
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| format!("`{}`", value.display())).collect();
    if takes_value && !defaults.is_empty() {
        notes.push(format!("default {}", defaults.join(" ")));
    }
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    format!("- `{written}`{notes}: {}\n", help.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Adds a command and those below it. Flags that all commands below a group take stand at the group.
fn describe(command: &mut Command, path: &str, inherited: &[Id], text: &mut String) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let level = if path.split(' ').count() > 2 { "###" } else { "##" };
    writeln!(text, "\n{level} `{path}`\n\n{}", about.trim()).unwrap();
    if !command.has_subcommands() {
        let usage = command.render_usage().to_string();
        writeln!(text, "\n    {}", usage.trim_start_matches("Usage: ").replace('\n', "\n    ")).unwrap();
    }
    let is_shown = |argument: &&Arg| {
        let id = argument.get_id();
        !["help", "version"].contains(&id.as_str()) && !argument.is_hide_set() && !inherited.contains(id)
    };
    let arguments: Vec<&Arg> = command.get_arguments().filter(is_shown).collect();
    if !arguments.is_empty() {
        // A group that is a command too has flags of its own.
        let is_shared = command.has_subcommands() && command.get_arguments().filter(is_shown).all(Arg::is_global_set);
        let heading = if is_shared { "\nFor each of its commands:\n" } else { "" };
        let items: String = arguments.into_iter().map(item).collect();
        writeln!(text, "{heading}\n{}", items.trim_end()).unwrap();
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if path != "keyward" && !after.is_empty() {
        writeln!(text, "\n```text\n{}\n```", after.trim()).unwrap();
    }
    let globals = command.get_arguments().filter(|argument| argument.is_global_set()).map(|it| it.get_id().clone());
    let inherited: Vec<Id> = globals.chain(inherited.iter().cloned()).collect();
    for command in command.get_subcommands_mut().filter(|command| command.get_name() != "help") {
        let path = format!("{path} {}", command.get_name());
        describe(command, &path, &inherited, text);
    }
}

#[test]
fn the_reference_has_every_command_with_its_flags() {
    let mut command = keyward::cli::command();
    command.build();
    let mut text = HEAD.to_owned();
    describe(&mut command, "keyward", &[], &mut text);
    if text != read(DOCUMENT) {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("commands.md");
        std::fs::write(&file, &text).unwrap();
        panic!("{DOCUMENT} is out of date; copy {} over it", file.display());
    }
}

/// Words of a shell's command line, up to an operator that ends or redirects it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '|' | '&' | ';' | '>' | '<' | ')' | '`') => break,
            (None, '#') if word.is_none() => break,
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// Command lines of `keyward` in code of a document, with the numbers of their lines.
fn command_lines(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    let joined = text.replace("\\\n", "  ");
    for (number, line) in joined.lines().enumerate() {
        for (at, start) in line.match_indices("keyward ") {
            let before = line[..at].trim();
            let in_span = line[..at].ends_with('`');
            let leads = ["sudo", "-u keyward", "&&", "$("].iter().any(|word| before.ends_with(word));
            let in_block = line.starts_with("    ") && (before.is_empty() || leads);
            let words = words(&line[at + start.len()..]);
            // In capitals it is a text's form, such as the description of a token.
            let is_command =
                words.first().is_some_and(|word| !word.starts_with(|character: char| character.is_ascii_uppercase()));
            if is_command && (in_span || in_block) {
                found.push((number + 1, words));
            }
        }
    }
    found
}

#[test]
fn every_command_line_of_the_documents_is_valid() {
    let mut documents = [texts("docs", ".md"), texts("config", ".toml"), texts("packaging", ".md")].concat();
    documents.push(("README.md".to_owned(), read("README.md")));
    documents.retain(|(path, _)| path != DOCUMENT);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (path, text) in &documents {
        for (number, words) in command_lines(text) {
            count += 1;
            let arguments = std::iter::once("keyward").chain(words.iter().map(String::as_str));
            let kind = keyward::cli::command().try_get_matches_from(arguments).err().map(|error| error.kind());
            let refused = [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand, ErrorKind::ArgumentConflict];
            if kind.is_some_and(|kind| refused.contains(&kind)) {
                wrong.push(format!("{path}:{number}: keyward {}", words.join(" ")));
            }
        }
    }
    assert!(count > 100, "the command lines were not found: {count}");
    assert!(wrong.is_empty(), "command lines with an unknown command or flag: {wrong:#?}");
}

#[test]
fn command_lines_are_found_and_split_as_a_shell_does() {
    let text = "    sudo keyward wait && sudo keyward token   # keyward nothing\ntext `keyward retry web` keyward text\n    \
                    export T=$(keyward token --session 'a b')\n    keyward check \\\n        --online > file\n";
    let found: Vec<String> = command_lines(text).into_iter().map(|(_, words)| words.join("|")).collect();
    assert_eq!(found, ["wait", "token", "retry|web", "token|--session|a b", "check|--online"]);
}
