//! Inputs of `keyward init`: values of flags, or answers on a terminal.

use std::io::{BufRead, Write};

use anyhow::Context as _;

/// Source of the values that a plan needs.
pub(super) struct PlanInputs<'a> {
    terminal: Option<Terminal<'a>>,
    /// Flags that are needed and were not given, each with its meaning.
    pub(super) missing: Vec<(&'static str, &'static str)>,
    /// Flags whose value no plan can hold, each with the reason.
    pub(super) invalid: Vec<String>,
    /// First error while asking; the plan is not used then.
    pub(super) failure: Option<anyhow::Error>,
}

/// A person who answers.
pub(super) struct Terminal<'a> {
    pub(super) input: &'a mut dyn BufRead,
    pub(super) output: &'a mut dyn Write,
}

/// A value that is taken from a flag or asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question {
    /// The flag, with its dashes.
    pub(super) flag: &'static str,
    /// Meaning of the value.
    pub(super) text: &'static str,
    /// Rejects a wrong value with its error.
    pub(super) check: fn(&str) -> Result<(), String>,
}

impl Question {
    /// A question that takes any string.
    pub(super) const fn new(flag: &'static str, text: &'static str) -> Self {
        Self { flag, text, check: |_| Ok(()) }
    }
}

impl<'a> PlanInputs<'a> {
    /// Takes values only from flags.
    pub(super) const fn from_flags() -> Self {
        Self { terminal: None, missing: Vec::new(), invalid: Vec::new(), failure: None }
    }

    /// Asks for values that no flag sets.
    pub(super) const fn interactive(terminal: Terminal<'a>) -> Self {
        Self { terminal: Some(terminal), missing: Vec::new(), invalid: Vec::new(), failure: None }
    }

    /// A value without which there is no plan.
    pub(super) fn ask_required(&mut self, question: Question, preset: Option<&String>) -> String {
        if preset.is_none() && self.terminal.is_none() {
            self.missing.push((question.flag, question.text));
        }
        self.take(question, preset, None, true).unwrap_or_default()
    }

    /// A value that may be left out.
    pub(super) fn ask_optional(&mut self, question: Question, preset: Option<&String>) -> Option<String> {
        self.take(question, preset, None, false)
    }

    /// A value with a default.
    pub(super) fn ask_with_default(&mut self, question: Question, preset: Option<&String>, default: &str) -> String {
        self.take(question, preset, Some(default), false).unwrap_or_else(|| default.to_owned())
    }

    fn take(
        &mut self,
        question: Question,
        preset: Option<&String>,
        default: Option<&str>,
        must: bool,
    ) -> Option<String> {
        if preset.is_some() || self.failure.is_some() {
            return preset.cloned();
        }
        let terminal = self.terminal.as_mut()?;
        match terminal.ask(question, default, must) {
            Ok(answer) => answer,
            Err(error) => {
                self.failure = Some(error);
                None
            }
        }
    }
}

impl Terminal<'_> {
    fn ask(&mut self, question: Question, default: Option<&str>, must: bool) -> anyhow::Result<Option<String>> {
        let Question { flag, text, check } = question;
        let hint = match (default, must) {
            (Some(default), _) => format!(" [{default}]"),
            (None, true) => String::new(),
            (None, false) => " [none]".to_owned(),
        };
        loop {
            write!(self.output, "{text} ({flag}){hint}: ")?;
            self.output.flush()?;
            let mut line = String::new();
            let read = self.input.read_line(&mut line).context("cannot read the answer")?;
            anyhow::ensure!(read > 0, "input ended");
            let answer = line.trim();
            if answer.is_empty() {
                if !must {
                    return Ok(default.map(str::to_owned));
                }
                writeln!(self.output, "  it is needed")?;
                continue;
            }
            match check(answer) {
                Ok(()) => return Ok(Some(answer.to_owned())),
                Err(reason) => writeln!(self.output, "  {reason}")?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: Question = Question {
        flag: "--role",
        text: "role to log in as",
        check: |text| if text.contains(' ') { Err("a role has no spaces".to_owned()) } else { Ok(()) },
    };

    #[test]
    fn without_a_terminal_missing_values_are_named_and_defaults_hold() {
        let mut answers = PlanInputs::from_flags();
        assert_eq!(answers.ask_required(ROLE, Some(&"web".to_owned())), "web");
        assert_eq!(answers.ask_optional(ROLE, None), None);
        assert_eq!(answers.ask_with_default(ROLE, None, "batch"), "batch");
        assert!(answers.missing.is_empty());
        answers.ask_required(ROLE, None);
        assert_eq!(answers.missing, [("--role", "role to log in as")]);
    }

    #[test]
    fn on_a_terminal_a_question_is_asked_until_its_answer_is_good() {
        let mut input = "\na b\nweb\n\n\n".as_bytes();
        let mut output = Vec::new();
        let mut answers = PlanInputs::interactive(Terminal { input: &mut input, output: &mut output });
        assert_eq!(answers.ask_required(ROLE, None), "web");
        assert_eq!(answers.ask_optional(ROLE, None), None);
        assert_eq!(answers.ask_with_default(ROLE, None, "batch"), "batch");
        assert_eq!(answers.ask_optional(ROLE, Some(&"flag".to_owned())), Some("flag".to_owned()));
        assert!(answers.failure.is_none());
        answers.ask_required(ROLE, None);
        assert!(answers.failure.is_some(), "input ended");
        let printed = String::from_utf8(output).unwrap();
        let expected = "role to log in as (--role): \
                        it is needed\nrole to log in as (--role): \
                        a role has no spaces\nrole to log in as (--role): role to log in as (--role) [none]: \
                      role to log in as (--role) [batch]: role to log in as (--role): ";
        assert_eq!(printed.replace("  ", ""), expected);
    }
}
