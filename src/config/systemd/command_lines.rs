//! Programs in the command of a template or a child process, also where a shell parses it.

/// Splits an argument vector into the command lines that run: one, or those in a line for `/bin/sh -c`.
///
/// The shell's line is read as far as a simple reader can: a program that a variable or a substitution names is not found.
pub(super) fn command_lines(argv: &[String]) -> Vec<Vec<String>> {
    match argv {
        [shell, flag, line] if shell.ends_with("/sh") && flag == "-c" => {
            let mut lines = vec![vec![shell.clone()]];
            lines.extend(shell_lines(line));
            lines
        }
        [] => Vec::new(),
        _ => vec![argv.to_vec()],
    }
}

/// Returns the simple commands of a shell's line that are programs: no builtins, no assignments, no keywords.
fn shell_lines(line: &str) -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    for words in split(line) {
        let is_prefix = |word: &&String| {
            PREFIXES.contains(&word.as_str()) || word.split_once('=').is_some_and(|(name, _)| is_variable(name))
        };
        let command: Vec<String> = words.iter().skip_while(is_prefix).cloned().collect();
        let Some(program) = command.first() else { continue };
        let is_path = program.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte));
        if is_path && !BUILTINS.contains(&program.as_str()) {
            commands.push(command);
        }
    }
    commands
}

/// Words of each simple command. Quotes are removed; `;`, `|`, `&`, parentheses and a new line end a command.
fn split(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word, mut quote) = (Vec::new(), Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, ';' | '|' | '&' | '\n' | '(' | ')') => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    commands.push(words);
    commands
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Words before a command that are no program.
const PREFIXES: [&str; 11] = ["!", "{", "}", "if", "then", "elif", "else", "while", "until", "do", "exec"];

/// Commands of dash itself (`dash(1)`), and keywords that end a command.
const BUILTINS: [&str; 30] = [
    ".", ":", "[", "alias", "break", "cd", "command", "continue", "done", "echo", "esac", "eval", "exit", "export",
    "fi", "for", "case", "kill", "printf", "pwd", "read", "return", "set", "shift", "test", "trap", "true", "false",
    "umask", "wait",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_of_a_shell_line_are_found() {
        let check = |line: &str, wanted: &[&str]| {
            let argv = ["/bin/sh", "-c", line].map(str::to_owned);
            let found: Vec<String> = command_lines(&argv).iter().map(|words| words.join(" ")).collect();
            let wanted: Vec<&str> = ["/bin/sh"].iter().chain(wanted).copied().collect();
            assert_eq!(found, wanted, "{line}");
        };
        check("systemctl reload nginx", &["systemctl reload nginx"]);
        check(
            "LC_ALL=C nginx -t && systemctl reload nginx || logger 'did not; work'",
            &["nginx -t", "systemctl reload nginx", "logger did not; work"],
        );
        check("if test -e /x; then /usr/local/bin/run \"a b\" | tee /y; fi", &["/usr/local/bin/run a b", "tee /y"]);
        check("exec $PROGRAM; echo done; (cd /x; make)", &["make"]);
        check("", &[]);
    }

    #[test]
    fn a_command_without_a_shell_is_one_line() {
        let argv = ["systemctl", "reload", "a; b"].map(str::to_owned);
        assert_eq!(command_lines(&argv), [argv.to_vec()]);
        assert!(command_lines(&[]).is_empty());
    }
}
