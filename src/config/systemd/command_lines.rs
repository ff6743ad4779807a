//! Programs in the command of a template or a child process, also where a shell parses it, and the units that they control.

use super::word_split::{WordSyntax, split_commands};

/// An operation on another unit, as systemd asks polkit for it (action `org.freedesktop.systemd1.manage-units`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitAction {
    /// The verb, such as `reload`.
    pub verb: &'static str,
    /// Full name of the unit, such as `nginx.service`.
    pub unit: String,
}

/// Deepest nesting of shells and substitutions that is read.
const MAX_NESTING: usize = 4;

/// Splits an argument vector into the command lines that run: itself, and for `sh -c LINE` those of the line.
///
/// The shell's line is read as far as a simple reader can: a program that a variable names is not found.
pub fn command_lines(argv: &[String]) -> Vec<Vec<String>> {
    expand(argv, 0)
}

fn expand(argv: &[String], depth: usize) -> Vec<Vec<String>> {
    match (argv, shell_line(argv)) {
        ([], _) => Vec::new(),
        ([shell, ..], Some(line)) if depth < MAX_NESTING => {
            let mut lines = vec![vec![shell.clone()]];
            lines.extend(commands_of_line(line, depth));
            lines
        }
        _ => vec![argv.to_vec()],
    }
}

/// Returns the commands of a shell's line, those of its quoted substitutions last.
fn commands_of_line(line: &str, depth: usize) -> Vec<Vec<String>> {
    let commands = split_commands(line, WordSyntax::Shell).into_iter().filter_map(program);
    let mut lines: Vec<_> = commands.flat_map(|command| expand(&command, depth + 1)).collect();
    if depth < MAX_NESTING {
        lines.extend(quoted_substitutions(line).iter().flat_map(|line| commands_of_line(line, depth + 1)));
    }
    lines
}

/// Returns the line of `sh -c LINE`; options may stand around the `-c`, as in `bash -euo pipefail -c LINE`.
fn shell_line(argv: &[String]) -> Option<&str> {
    let (shell, arguments) = argv.split_first()?;
    if !SHELLS.contains(&file_name(shell)) {
        return None;
    }
    let mut is_line = false;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix(['-', '+']) {
            Some(long) if long.starts_with('-') => {}
            Some(letters) => {
                is_line |= word.starts_with('-') && letters.contains('c');
                if letters.ends_with('o') {
                    words.next();
                }
            }
            None => return is_line.then_some(word.as_str()),
        }
    }
    None
}

/// Returns the commands in backquotes, and those of `$(...)` in double quotes, which are no words of the line itself.
fn quoted_substitutions(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut is_single, mut is_double) = (false, false);
    let mut rest = line;
    while let Some(character) = rest.chars().next() {
        let after = &rest[character.len_utf8()..];
        rest = after;
        match character {
            '\'' if !is_double => is_single = !is_single,
            _ if is_single => {}
            '"' => is_double = !is_double,
            '\\' => rest = after.chars().next().map_or("", |escaped| &after[escaped.len_utf8()..]),
            '`' => {
                let Some((inside, behind)) = after.split_once('`') else { break };
                found.push(inside.to_owned());
                rest = behind;
            }
            '$' if is_double && after.starts_with('(') && !after.starts_with("((") => {
                let Some(end) = closing_parenthesis(after) else { break };
                found.push(after[1..end].to_owned());
                rest = &after[end + 1..];
            }
            _ => {}
        }
    }
    found
}

/// Returns the index of the parenthesis that closes the one that the text begins with.
fn closing_parenthesis(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    text.char_indices().find_map(|(index, character)| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0).then_some(index)
    })
}

/// Returns a simple command of a shell without assignments and keywords; `None` for a builtin.
fn program(words: Vec<String>) -> Option<Vec<String>> {
    let is_prefix = |word: &String| {
        PREFIXES.contains(&word.as_str()) || word.split_once('=').is_some_and(|(name, _)| is_variable(name))
    };
    let command: Vec<String> = words.into_iter().skip_while(is_prefix).collect();
    let program = command.first()?;
    let is_path = program.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte));
    (is_path && !BUILTINS.contains(&program.as_str())).then_some(command)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the operations on units of this machine that a command asks for by `systemctl`, and polkit decides on.
pub fn unit_actions(command: &[String]) -> Vec<UnitAction> {
    let Some((program, arguments)) = command.split_first() else { return Vec::new() };
    let is_elsewhere = |word: &String| ELSEWHERE.contains(&word.split('=').next().unwrap_or_default());
    if file_name(program) != "systemctl" || arguments.iter().any(is_elsewhere) {
        return Vec::new();
    }
    let mut words = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        if WITH_VALUE.contains(&word.as_str()) {
            arguments.next();
        } else if !word.starts_with('-') {
            words.push(word);
        }
    }
    let Some((word, units)) = words.split_first() else { return Vec::new() };
    let Some((_, verb)) = VERBS.iter().find(|(name, _)| name == word) else { return Vec::new() };
    units.iter().filter_map(|name| Some(UnitAction { verb, unit: unit_name(name)? })).collect()
}

/// Completes a unit's name as `systemctl` does. `None` for a pattern or another string that is not a name.
fn unit_name(name: &str) -> Option<String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let has_suffix = name.rsplit_once('.').is_some_and(|(start, end)| !start.is_empty() && SUFFIXES.contains(&end));
    Some(if has_suffix { name.to_owned() } else { format!("{name}.service") })
}

/// Returns true for a program that takes the rights of another user.
pub fn raises_rights(program: &str) -> bool {
    ["sudo", "su", "doas", "pkexec", "runuser"].contains(&file_name(program))
}

fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

const SHELLS: [&str; 3] = ["sh", "bash", "dash"];

/// Words before a command that are not a program.
const PREFIXES: [&str; 11] = ["!", "{", "}", "if", "then", "elif", "else", "while", "until", "do", "exec"];

/// Commands of dash itself (`dash(1)`), and keywords that end a command.
const BUILTINS: [&str; 30] = [
    ".", ":", "[", "alias", "break", "cd", "command", "continue", "done", "echo", "esac", "eval", "exit", "export",
    "fi", "for", "case", "kill", "printf", "pwd", "read", "return", "set", "shift", "test", "trap", "true", "false",
    "umask", "wait",
];

/// Options of `systemctl(1)` by which it is about other units than this machine's.
const ELSEWHERE: [&str; 6] = ["--user", "-H", "--host", "-M", "--machine", "--root"];

/// Options of `systemctl(1)` whose value is the next word.
const WITH_VALUE: [&str; 8] = ["-s", "--signal", "--kill-whom", "--kill-who", "-t", "--type", "--job-mode", "-n"];

/// Verbs of `systemctl(1)`, and the verb that systemd names to polkit (`bus_unit_method_start_generic` in systemd).
const VERBS: [(&str, &str); 10] = [
    ("start", "start"),
    ("stop", "stop"),
    ("kill", "kill"),
    ("reload", "reload"),
    ("restart", "restart"),
    ("try-restart", "try-restart"),
    ("reload-or-restart", "reload-or-restart"),
    ("try-reload-or-restart", "reload-or-try-restart"),
    ("reload-or-try-restart", "reload-or-try-restart"),
    ("force-reload", "reload-or-try-restart"),
];

/// Suffixes of units; other names get `.service`.
const SUFFIXES: [&str; 11] =
    ["service", "socket", "target", "timer", "path", "mount", "automount", "swap", "slice", "scope", "device"];

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_programs_of_a_shell_line_are_found() {
        let check = |line: &str, expected: &[&str]| {
            for shell in ["/bin/sh", "bash"] {
                let argv = [shell, "-c", line].map(str::to_owned);
                let found: Vec<String> = command_lines(&argv).iter().map(|words| words.join(" ")).collect();
                let expected: Vec<&str> = [shell].iter().chain(expected).copied().collect();
                assert_eq!(found, expected, "{line}");
            }
        };
        check("systemctl reload nginx", &["systemctl reload nginx"]);
        check(
            "LC_ALL=C nginx -t && systemctl reload nginx || logger 'did not; work'",
            &["nginx -t", "systemctl reload nginx", "logger did not; work"],
        );
        check("if test -e /x; then /usr/local/bin/run \"a b\" | tee /y; fi", &["/usr/local/bin/run a b", "tee /y"]);
        check("if [ -f /x ]; then nginx -t >/dev/null 2>&1 | grep ok; fi", &["nginx -t", "grep ok"]);
        check("exec $PROGRAM; echo done; (cd /x; make)", &["make"]);
        check("{ /usr/bin/x; } & kill -HUP 1 # /usr/bin/y", &["/usr/bin/x"]);
        check("", &[]);
        // A shell in a shell, as a command of one string becomes that is itself `sh -c`.
        check("sh -c 'nginx -t && systemctl reload nginx'", &["sh", "nginx -t", "systemctl reload nginx"]);
        check("bash -euo pipefail -c 'a | b'", &["bash", "a", "b"]);
        check("kill -HUP \"$(cat /run/a.pid)\" && kill `pidof b`", &["cat /run/a.pid", "pidof b"]);
        check("echo '$(a) `b`' \"$((1 + 2))\" \"$(c", &[]);
    }

    #[test]
    fn options_of_a_shell_stand_around_its_line() {
        for (argv, expected) in [
            (&["sh", "-lc", "a b"][..], &["sh", "a b"][..]),
            (&["/bin/sh", "-e", "-c", "a"], &["/bin/sh", "a"]),
            (&["bash", "--login", "-o", "pipefail", "-ec", "a"], &["bash", "a"]),
            (&["sh", "/etc/app/reload", "-c", "a"], &["sh /etc/app/reload -c a"]),
            (&["sh", "-c"], &["sh -c"]),
        ] {
            let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
            let found: Vec<String> = command_lines(&argv).iter().map(|words| words.join(" ")).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_command_without_a_shell_is_one_line() {
        for line in ["systemctl reload a;b", "/usr/bin/x -c y"] {
            assert_eq!(command_lines(&words(line)), [words(line)]);
        }
        assert!(command_lines(&[]).is_empty());
    }

    #[test]
    fn systemctl_is_understood_as_it_understands_itself() {
        let check = |line: &str, expected: &[&str]| {
            let found: Vec<_> =
                unit_actions(&words(line)).iter().map(|action| format!("{} {}", action.verb, action.unit)).collect();
            assert_eq!(found, expected, "{line}");
        };
        check("systemctl reload nginx", &["reload nginx.service"]);
        check(
            "/usr/bin/systemctl --no-block try-reload-or-restart a.socket b@1",
            &["reload-or-try-restart a.socket", "reload-or-try-restart b@1.service"],
        );
        check("systemctl restart my.app", &["restart my.app.service"]);
        check("systemctl kill -s HUP --kill-whom main app", &["kill app.service"]);
        check("systemctl reload nginx*", &[]);
        check("systemctl --user reload nginx", &[]);
        check("systemctl --host=web reload nginx", &[]);
        check("systemctl daemon-reload", &[]);
        check("systemctl status nginx", &[]);
        check("nginx -s reload", &[]);
    }

    #[test]
    fn programs_that_raise_rights_are_known_by_their_name() {
        assert!(raises_rights("/usr/bin/sudo") && !raises_rights("sudoku"));
    }
}
