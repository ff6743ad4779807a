//! Programs that command lines of a configuration run, and the units that they control.

/// A program with its arguments.
pub(crate) type CommandLine = Vec<String>;

/// Request of `systemctl` to change a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnitControl {
    /// Operation, such as `reload`.
    pub verb: String,
    /// Unit with its suffix, such as `nginx.service`.
    pub unit: String,
}

/// Verbs of `systemctl(1)` that change a unit, and the verb that systemd tells polkit (`bus_unit_method_start_generic`).
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

/// Returns the commands that a command line runs: itself, and for `sh -c LINE` those of the line. Words that a shell replaces
/// stay as they are.
pub(crate) fn command_lines(argv: &[String]) -> Vec<CommandLine> {
    let mut found = vec![argv.to_vec()];
    if let [shell, flag, line, ..] = argv
        && flag == "-c"
        && ["sh", "bash", "dash"].contains(&file_name(shell))
    {
        found.extend(shell_commands(line));
    }
    found
}

/// Splits a shell's line at its operators. Variables before a command, redirections and words of the shell itself are left out.
fn shell_commands(line: &str) -> Vec<CommandLine> {
    let (mut commands, mut words, mut word, mut quote) = (Vec::new(), Vec::new(), None::<String>, None);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '\\') => word.get_or_insert_default().extend(letters.next()),
            (None, ';' | '|' | '&' | '\n' | '(' | ')' | '{' | '}') => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            (None, '>' | '<') => {
                // A number before it names a descriptor; the word after it is a file.
                word.take();
                while letters.next_if(|next| matches!(next, '>' | '<' | '&' | ' ')).is_some() {}
                while letters.next_if(|next| !next.is_whitespace() && !matches!(next, ';' | '|' | '&')).is_some() {}
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    commands.push(words);
    let program = |words: Vec<String>| {
        let skipped = words.into_iter().skip_while(|word| is_assignment(word) || SHELL_WORDS.contains(&word.as_str()));
        let words: Vec<String> = skipped.collect();
        (!words.is_empty()).then_some(words)
    };
    commands.into_iter().filter_map(program).collect()
}

/// Words before which no program stands, and commands of the shell itself.
const SHELL_WORDS: [&str; 22] = [
    "if", "then", "else", "elif", "fi", "while", "until", "do", "done", "for", "case", "esac", "!", "exec", "true",
    "false", ":", "[", "test", "echo", "cd", "exit",
];

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the units of this machine that a command controls by `systemctl`.
pub(crate) fn unit_controls(command: &[String]) -> Vec<UnitControl> {
    let Some((program, arguments)) = command.split_first() else { return Vec::new() };
    let elsewhere = ["--user", "-H", "--host", "-M", "--machine", "--root"];
    let is_elsewhere = |word: &String| elsewhere.contains(&word.split('=').next().unwrap_or_default());
    if file_name(program) != "systemctl" || arguments.iter().any(is_elsewhere) {
        return Vec::new();
    }
    let mut words = arguments.iter().filter(|word| !word.starts_with('-'));
    let Some((_, verb)) = words.next().and_then(|word| VERBS.iter().find(|(its, _)| its == word)) else {
        return Vec::new();
    };
    words.map(|unit| UnitControl { verb: (*verb).to_owned(), unit: unit_name(unit) }).collect()
}

fn unit_name(name: &str) -> String {
    let has_suffix = name.rsplit_once('.').is_some_and(|(_, suffix)| SUFFIXES.contains(&suffix));
    if has_suffix { name.to_owned() } else { format!("{name}.service") }
}

/// Returns true for a program that takes the rights of another user.
pub(crate) fn raises_rights(program: &str) -> bool {
    ["sudo", "su", "doas", "pkexec", "runuser"].contains(&file_name(program))
}

fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_shells_line_is_split_into_its_commands() {
        let check = |line: &str, wanted: &[&str]| {
            let found = command_lines(&["/bin/sh".to_owned(), "-c".to_owned(), line.to_owned()]);
            let found: Vec<String> = found[1..].iter().map(|words| words.join(" ")).collect();
            assert_eq!(found, wanted, "{line}");
        };
        check("systemctl reload nginx", &["systemctl reload nginx"]);
        check("A=1 B=2 /usr/bin/x 'a b' && y || z", &["/usr/bin/x a b", "y", "z"]);
        check("if [ -f /x ]; then nginx -t >/dev/null 2>&1 | grep ok; fi", &["-f /x ]", "nginx -t", "grep ok"]);
        check("(cd /srv; ./run) & exec kill -HUP 1", &["/srv", "./run", "kill -HUP 1"]);
        check("", &[]);
        assert_eq!(command_lines(&words("/usr/bin/x -c y")), [words("/usr/bin/x -c y")]);
    }

    #[test]
    fn the_units_that_systemctl_changes_are_named_in_full() {
        let check = |line: &str, wanted: &[(&str, &str)]| {
            let found = unit_controls(&words(line));
            let found: Vec<_> = found.iter().map(|it| (it.verb.as_str(), it.unit.as_str())).collect();
            assert_eq!(found, wanted, "{line}");
        };
        check("systemctl reload nginx", &[("reload", "nginx.service")]);
        check("/usr/bin/systemctl --no-block restart a.socket b", &[("restart", "a.socket"), ("restart", "b.service")]);
        check("systemctl try-reload-or-restart my.app", &[("reload-or-try-restart", "my.app.service")]);
        check("systemctl --host=web reload nginx", &[]);
        check("systemctl status nginx", &[]);
        check("systemctl --user restart x", &[]);
        check("nginx -s reload", &[]);
        assert!(raises_rights("/usr/bin/sudo") && !raises_rights("sudoku"));
    }
}
