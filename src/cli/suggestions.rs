//! Errors about commands and flags as other programs spell them: HashiCorp's CLIs take `-name`, keyward `--name`.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands of other programs, and keyward's for the same.
const COMMANDS: [(&str, &str); 4] =
    [("start", "run"), ("agent", "run"), ("validate", "check"), ("version", "--version")];

/// Returns the error for a long flag with one dash, such as `-config=FILE`, which would be read as `-c onfig=FILE`.
pub(super) fn find_single_dash(command: &Command, args: &[String]) -> Option<String> {
    let (command, args) = descend(command, args);
    // The words of another program are its own.
    if command.get_arguments().any(|argument| argument.is_trailing_var_arg_set() || argument.is_last_set()) {
        return None;
    }
    args.iter().take_while(|word| *word != "--").find_map(|word| {
        let flag = word.strip_prefix('-').filter(|rest| rest.len() > 1 && !rest.starts_with('-'))?;
        let name = flag_name(flag);
        Some(format!("-{name} is no flag: write {}", find_flag(command, name)?))
    })
}

/// Returns the error for an unknown command or flag for which another name is known.
pub(super) fn find(error: &clap::Error, command: &Command, args: &[String]) -> Option<String> {
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) {
        let (_, known) = COMMANDS.iter().find(|(other, _)| other == name)?;
        // Only at the top: `acl start` is none of those.
        return (args.first() == Some(name)).then(|| format!("{name} is no command: write keyward {known}"));
    }
    // A known flag is in errors of other kinds too, such as that of two flags that exclude each other.
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    if let Some(long) = flag.strip_prefix("--") {
        let name = flag_name(long);
        return Some(format!("--{name} is no flag: write {}", find_flag(descend(command, args).0, name)?));
    }
    let word = args.iter().find(|word| word.starts_with(flag.as_str()) && word.len() > flag.len())?;
    let name = flag_name(word);
    Some(format!("{name} is no flag: keyward's long flags have two dashes; --help lists them"))
}

/// Returns the flag or argument of a command that another program calls `name`.
fn find_flag(command: &Command, name: &str) -> Option<String> {
    let has = |long: &str| {
        command.get_arguments().any(|argument| {
            argument.get_long() == Some(long) || argument.get_all_aliases().is_some_and(|all| all.contains(&long))
        })
    };
    let long = format!("{name}-name");
    if has(name) {
        Some(format!("--{name}, with two dashes"))
    } else if has(&long) {
        Some(format!("--{long}"))
    } else {
        let mut positionals = command.get_positionals();
        positionals.any(|argument| argument.get_id() == name).then(|| format!("the {name} alone, without a flag"))
    }
}

fn flag_name(flag: &str) -> &str {
    flag.split('=').next().unwrap_or(flag)
}

/// Returns the command that the arguments name, and those behind its name.
fn descend<'a>(mut command: &'a Command, mut args: &'a [String]) -> (&'a Command, &'a [String]) {
    while let Some((word, rest)) = args.split_first() {
        let Some(below) = command.find_subcommand(word) else { break };
        (command, args) = (below, rest);
    }
    (command, args)
}
