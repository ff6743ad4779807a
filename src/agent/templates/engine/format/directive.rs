//! Formats with verbs: flags, widths, precisions and numbers of arguments.

use super::format_by_verb;
use crate::templates::engine::output::Buffer;
use crate::templates::engine::value::Value;

/// Flags of a verb.
#[derive(Debug, Clone, Default)]
pub(super) struct Flags {
    pub(super) plus: bool,
    pub(super) minus: bool,
    pub(super) sharp: bool,
    pub(super) space: bool,
    pub(super) zero: bool,
    /// `%#v`.
    pub(super) is_go_syntax: bool,
    pub(super) width: Option<usize>,
    pub(super) precision: Option<usize>,
}

impl Flags {
    /// Writes a text, padded to the width with spaces or zeros.
    pub(super) fn pad(&self, out: &mut Buffer, text: &str) {
        let padding = self.width.unwrap_or_default().saturating_sub(text.chars().count());
        if self.minus {
            out.push(text);
            out.repeat(" ", padding);
        } else {
            out.repeat(if self.zero { "0" } else { " " }, padding);
            out.push(text);
        }
    }

    /// Cuts a text to the characters of the precision.
    pub(super) fn cut<'a>(&self, text: &'a str) -> &'a str {
        let end = self.precision.and_then(|precision| text.char_indices().nth(precision));
        end.map_or(text, |(end, _)| &text[..end])
    }
}

/// Largest width and precision; Go refuses more.
const MAX_WIDTH: usize = 1_000_000;

struct Reader<'a> {
    rest: &'a str,
    args: &'a [Value],
    /// Number of the next argument.
    next: usize,
    /// An argument was chosen by its number.
    is_reordered: bool,
    /// The number of the argument was valid.
    is_good: bool,
}

/// Formats all arguments.
pub(super) fn format_all(out: &mut Buffer, format: &str, args: &[Value]) {
    let mut reader = Reader { rest: format, args, next: 0, is_reordered: false, is_good: true };
    let mut was_reordered = false;
    while let Some(at) = reader.rest.find('%') {
        if out.is_full() {
            return;
        }
        out.push(&reader.rest[..at]);
        reader.rest = &reader.rest[at + 1..];
        reader.is_reordered = was_reordered;
        reader.directive(out);
        was_reordered = reader.is_reordered;
    }
    out.push(reader.rest);
    if !reader.is_reordered && reader.next < args.len() {
        out.push("%!(EXTRA ");
        for (at, arg) in args[reader.next..].iter().enumerate() {
            if at > 0 {
                out.push(", ");
            }
            if arg.is_nil() {
                out.push("<nil>");
            } else {
                out.push(arg.type_name());
                out.push("=");
                format_by_verb(out, &Flags::default(), arg, 'v', 0);
            }
        }
        out.push(")");
    }
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip(&mut self, c: char) {
        self.rest = &self.rest[c.len_utf8()..];
    }

    fn directive(&mut self, out: &mut Buffer) {
        let mut flags = Flags::default();
        self.is_good = true;
        while let Some(c) = self.peek() {
            match c {
                '#' => flags.sharp = true,
                '0' => flags.zero = true,
                '+' => flags.plus = true,
                '-' => flags.minus = true,
                ' ' => flags.space = true,
                _ => break,
            }
            self.skip(c);
        }
        let mut is_after_index = self.argument_number();
        if self.peek() == Some('*') {
            self.skip('*');
            match self.take_integer() {
                Some(width) => {
                    flags.minus |= width < 0;
                    flags.width = usize::try_from(width.unsigned_abs()).ok();
                }
                None => out.push("%!(BADWIDTH)"),
            }
            is_after_index = false;
        } else {
            flags.width = self.number();
            if is_after_index && flags.width.is_some() {
                self.is_good = false;
            }
        }
        if self.peek() == Some('.') {
            self.skip('.');
            if is_after_index {
                self.is_good = false;
            }
            is_after_index = self.argument_number();
            if self.peek() == Some('*') {
                self.skip('*');
                match self.take_integer() {
                    Some(precision) => flags.precision = usize::try_from(precision).ok(),
                    None => out.push("%!(BADPREC)"),
                }
                is_after_index = false;
            } else {
                flags.precision = Some(self.number().unwrap_or_default());
            }
        }
        if !is_after_index {
            self.argument_number();
        }
        flags.zero &= !flags.minus;
        let Some(verb) = self.peek() else {
            out.push("%!(NOVERB)");
            return;
        };
        self.skip(verb);
        let problem = match self.args.get(self.next) {
            _ if verb == '%' => return out.push("%"),
            _ if !self.is_good => "(BADINDEX)",
            None => "(MISSING)",
            Some(arg) => {
                self.next += 1;
                if verb == 'v' && flags.sharp {
                    (flags.sharp, flags.is_go_syntax) = (false, true);
                }
                if verb == 'v' && flags.plus {
                    flags.plus = false;
                }
                return format_by_verb(out, &flags, arg, verb, 0);
            }
        };
        out.push("%!");
        out.push_char(verb);
        out.push(problem);
    }

    /// Reads the number of an argument, `[2]`; returns true if there is one.
    fn argument_number(&mut self) -> bool {
        let Some(inner) = self.rest.strip_prefix('[') else { return false };
        self.is_reordered = true;
        let Some((number, rest)) = inner.split_once(']') else {
            self.rest = inner;
            self.is_good = false;
            return false;
        };
        self.rest = rest;
        match number.parse::<usize>().ok().and_then(|number| number.checked_sub(1)) {
            Some(number) if number < self.args.len() => {
                self.next = number;
                true
            }
            _ => {
                self.is_good = false;
                true
            }
        }
    }

    fn number(&mut self) -> Option<usize> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        digits.parse().ok().filter(|number| *number <= MAX_WIDTH)
    }

    /// Takes an argument that is a width or a precision.
    fn take_integer(&mut self) -> Option<i64> {
        let arg = self.args.get(self.next)?;
        self.next += 1;
        match arg {
            Value::Int(number) | Value::Int64(number) => Some(*number),
            Value::Uint64(number) => i64::try_from(*number).ok(),
            _ => None,
        }
        .filter(|number| number.unsigned_abs() <= MAX_WIDTH as u64)
    }
}
