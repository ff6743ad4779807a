//! Splits shell lines and unit-file lines into words: the only code that interprets quotes and backslashes.

/// Rules by which a line is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordSyntax {
    /// `sh(1)`: operators end a command, redirections and comments are omitted, and a backslash in single quotes is a character.
    Shell,
    /// `systemd.syntax(7)`: one command, and a backslash escapes everywhere.
    UnitFile,
}

/// Splits a line of a unit file into its words.
pub fn split_unit_words(line: &str) -> Vec<String> {
    split_commands(line, WordSyntax::UnitFile).into_iter().flatten().collect()
}

/// Splits a line into commands, and each into words without their quotes. Text that the shell replaces stays as it is.
pub(super) fn split_commands(line: &str, syntax: WordSyntax) -> Vec<Vec<String>> {
    let is_shell = syntax == WordSyntax::Shell;
    let mut commands = Vec::new();
    let mut words = Vec::new();
    let mut word = None::<String>;
    let mut quote = None;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, '\\') if !(is_shell && quote == Some('\'')) => word.get_or_insert_default().extend(characters.next()),
            (None, ';' | '|' | '&' | '\n' | '(' | ')') if is_shell => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            (None, '>' | '<') if is_shell => {
                // A number before it names a descriptor; the word after it is a file.
                words.extend(word.take().filter(|word| !word.bytes().all(|byte| byte.is_ascii_digit())));
                while characters.next_if(|next| matches!(next, '>' | '<' | '&' | ' ')).is_some() {}
                while characters.next_if(|next| !next.is_whitespace() && !";|&()".contains(*next)).is_some() {}
            }
            (None, '#') if is_shell && word.is_none() => while characters.next_if(|next| *next != '\n').is_some() {},
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_of_a_unit_file_are_split_as_systemd_does() {
        let check = |text: &str, expected: &[&str]| assert_eq!(split_unit_words(text), expected, "{text}");
        check("", &[]);
        check("  a\tb ", &["a", "b"]);
        check(r#"a" b"c '' "x""#, &["a bc", "", "x"]);
        check(r"a\ b \\", &["a b", r"\"]);
        check("\"open", &["open"]);
        check("a;b #c >d", &["a;b", "#c", ">d"]);
    }

    #[test]
    fn a_shells_line_is_split_at_its_operators() {
        let check = |line: &str, expected: &[&str]| {
            let found: Vec<String> =
                split_commands(line, WordSyntax::Shell).iter().map(|words| words.join(" ")).collect();
            assert_eq!(found, expected, "{line}");
        };
        check("a 'b c' && d || e | f & g; h\ni", &["a b c", "d", "e", "f", "g", "h", "i"]);
        check(r#"a 'b\' "c\"d" e\ f"#, &[r#"a b\ c"d e f"#]);
        check("(cd /x; make)", &["cd /x", "make"]);
        check("a >/dev/null 2>&1 | b < /in >> out c", &["a", "b c"]);
        check("a b>c d", &["a b d"]);
        check("a # b; c\nd x#y", &["a", "d x#y"]);
        check("", &[]);
    }

    proptest! {
        #[test]
        fn any_text_is_split(text in "(\\\\|\"|'|\n| |;|>|<|&|#|\\(|.){0,60}") {
            for syntax in [WordSyntax::Shell, WordSyntax::UnitFile] {
                prop_assert!(split_commands(&text, syntax).iter().all(|words| !words.is_empty()));
            }
        }
    }
}
