//! `--help` of every command, found by the help of the command above it.

use super::Transcript;
use super::redact::Redactions;
use crate::harness::binary::run;

/// The commands that a help text lists: each on a separate line with its description, which may start on the next line.
fn subcommands(help: &str) -> Vec<String> {
    let name = |line: &str| {
        let entry = line.strip_prefix("  ")?;
        let name = entry.split("  ").next()?;
        let valid = name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '-');
        (valid && name != "help").then(|| name.to_owned())
    };
    help.lines().filter_map(name).collect()
}

#[test]
fn help_of_every_command() {
    let mut transcript = Transcript::new(Redactions::default());
    let mut paths = vec![Vec::<String>::new()];
    let mut commands = 0;
    while let Some(path) = paths.pop() {
        let args: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let (code, help, error) = run(&args, &[]);
        let title = format!("keyward {}", args.join(" "));
        assert_eq!((code, error.as_str()), (0, ""), "{title}");
        transcript.add(&title, &help);
        commands += 1;
        let below = subcommands(&help).into_iter().map(|name| path.iter().cloned().chain([name]).collect());
        // The stack gives them in the order of the help text.
        let mut below: Vec<Vec<String>> = below.collect();
        below.reverse();
        paths.extend(below);
    }
    assert!(commands > 50, "{commands} commands were found");
    transcript.compare("help");
}

#[test]
fn commands_are_found_in_help_texts() {
    let help = "Does a thing\n\nUsage: x [OPTIONS]\n\nCommands:\n  run          Run it\n  dry-run\n          Try it\n  help  Print\n\n\
                Arguments:\n  <FILE>  A file\n\nOptions:\n  -h, --help   Print help\n      --a      b\n\nExample:\n  x run a\n";
    assert_eq!(subcommands(help), ["run", "dry-run"]);
}
