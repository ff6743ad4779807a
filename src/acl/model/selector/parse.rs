//! Parser of selectors.

use regex_lite::RegexBuilder;

use super::scan::{Scan, Scanner};
use super::{Expression, MAX_SELECTOR, Pattern, Predicate, Scope, SelectorError, Test, VerifiedClaims};

/// Deepest nesting of parentheses and `not`.
const MAX_DEPTH: usize = 32;

/// Largest compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 64 * 1024;

const FIELD: &str = "\"value.NAME\" or \"list.NAME\"";

pub(super) fn expression(text: &str, claim_names: &VerifiedClaims) -> Result<Expression, SelectorError> {
    if text.len() > MAX_SELECTOR {
        return Err(SelectorError::TooLong);
    }
    let mut parser = Parser { scanner: Scanner::new(text), claim_names };
    let expression = parser.parse_or(0)?;
    if parser.scanner.is_at_end() { Ok(expression) } else { Err(parser.scanner.fail("\"and\", \"or\" or the end")) }
}

struct Parser<'a> {
    scanner: Scanner<'a>,
    claim_names: &'a VerifiedClaims,
}

/// Test of a comparison, before its field is known to have it.
struct Comparison {
    operator: &'static str,
    predicate: Predicate,
    negated: bool,
}

impl Parser<'_> {
    fn parse_or(&mut self, depth: usize) -> Scan<Expression> {
        let mut parts = vec![self.parse_and(depth)?];
        while self.scanner.accept_words(&["or"]) {
            parts.push(self.parse_and(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Any(parts) })
    }

    fn parse_and(&mut self, depth: usize) -> Scan<Expression> {
        let mut parts = vec![self.parse_not(depth)?];
        while self.scanner.accept_words(&["and"]) {
            parts.push(self.parse_not(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::All(parts) })
    }

    fn parse_not(&mut self, depth: usize) -> Scan<Expression> {
        if depth > MAX_DEPTH {
            return Err(SelectorError::TooDeep);
        }
        let begin = self.scanner.position();
        if self.scanner.accept_words(&["not"]) {
            return match self.parse_not(depth + 1) {
                Ok(inner) => Ok(Expression::Not(Box::new(inner))),
                // `not` is a value as any other word: `not in list.groups`.
                Err(error) => {
                    self.scanner.return_to(begin);
                    self.parse_comparison().map_err(|other| match other {
                        SelectorError::Syntax { .. } => error,
                        other => other,
                    })
                }
            };
        }
        if self.scanner.accept("(") {
            let inner = self.parse_or(depth + 1)?;
            return if self.scanner.accept(")") { Ok(inner) } else { Err(self.scanner.fail("\")\"")) };
        }
        self.parse_comparison()
    }

    fn parse_comparison(&mut self) -> Scan<Expression> {
        let begin = self.scanner.position();
        let field = self.scanner.accept_path()?;
        let expected = if field.is_some() { "an operator, such as \"==\" or \"in\"" } else { "\"in\" or \"not in\"" };
        if let Some(field) = field
            && let Some(comparison) = self.accept_comparison()?
        {
            return self.build_test(&field, comparison);
        }
        self.scanner.return_to(begin);
        let value = self.scanner.parse_value()?;
        let negated = self.scanner.accept_words(&["not"]);
        if !self.scanner.accept_words(&["in"]) {
            let expected = if negated { "\"in\", \"contains\" or \"matches\"" } else { expected };
            return Err(self.scanner.fail(expected));
        }
        let Some(field) = self.scanner.accept_path()? else { return Err(self.scanner.fail(FIELD)) };
        self.build_test(&field, Comparison { operator: "in", predicate: Predicate::Contains(value), negated })
    }

    /// Reads the operator that follows a field, and its value; `None` if the field is the value of an `in`.
    fn accept_comparison(&mut self) -> Scan<Option<Comparison>> {
        let scanner = &mut self.scanner;
        let (operator, negated) = if scanner.accept("==") {
            ("==", false)
        } else if scanner.accept("!=") {
            ("!=", true)
        } else if scanner.accept("=") || scanner.accept("!") {
            scanner.return_to(scanner.position() - 1);
            return Err(scanner.fail("\"==\" or \"!=\""));
        } else if scanner.accept_words(&["contains"]) {
            ("contains", false)
        } else if scanner.accept_words(&["not", "contains"]) {
            ("contains", true)
        } else if scanner.accept_words(&["matches"]) {
            ("matches", false)
        } else if scanner.accept_words(&["not", "matches"]) {
            ("matches", true)
        } else if scanner.accept_words(&["is", "not"]) {
            ("is", true)
        } else if scanner.accept_words(&["is"]) {
            ("is", false)
        } else {
            return Ok(None);
        };
        let predicate = match operator {
            "is" if scanner.accept_words(&["empty"]) => Predicate::Empty,
            "is" => return Err(scanner.fail("\"empty\"")),
            "contains" => Predicate::Contains(scanner.parse_value()?),
            "matches" => Predicate::Matches(parse_pattern(&scanner.parse_value()?)?),
            _ => Predicate::Equals(scanner.parse_value()?),
        };
        Ok(Some(Comparison { operator, predicate, negated }))
    }

    fn build_test(&self, path: &[Vec<u8>], comparison: Comparison) -> Scan<Expression> {
        let Comparison { operator, predicate, negated } = comparison;
        let path: Vec<_> = path.iter().map(|part| String::from_utf8_lossy(part)).collect();
        let unknown = |name: String| SelectorError::Unknown {
            name: name.chars().take(128).collect(),
            available: self.claim_names.describe_names(),
        };
        let is_mapped = |scope: Scope, name: &str| match scope {
            Scope::Value => self.claim_names.values.contains_key(name),
            Scope::List => self.claim_names.lists.contains_key(name),
        };
        let scope = path.first().and_then(|first| Scope::parse(first));
        let Some(scope) = scope.filter(|_| path.len() <= 2) else { return Err(unknown(path.join("."))) };
        let applies = match (scope, path.get(1), &predicate) {
            (Scope::Value, Some(_), _) | (_, _, Predicate::Contains(_) | Predicate::Empty) => true,
            (_, _, Predicate::Equals(_) | Predicate::Matches(_)) => false,
        };
        if !applies {
            return Err(SelectorError::Operator { name: path.join("."), operator });
        }
        let Some(name) = path.get(1) else {
            if let Predicate::Contains(name) = &predicate {
                let name = String::from_utf8_lossy(name);
                if !is_mapped(scope, &name) {
                    return Err(unknown(format!("{}.{name}", scope.as_str())));
                }
            }
            return Ok(Expression::Test(Test { scope, claim: None, predicate, negated }));
        };
        if !is_mapped(scope, name) {
            return Err(unknown(path.join(".")));
        }
        Ok(Expression::Test(Test { scope, claim: Some(name.clone().into_owned()), predicate, negated }))
    }
}

fn parse_pattern(pattern: &[u8]) -> Scan<Pattern> {
    let fail = |reason: &'static str| SelectorError::Pattern {
        pattern: String::from_utf8_lossy(pattern).chars().take(128).collect(),
        reason,
    };
    let text = std::str::from_utf8(pattern).map_err(|_| fail("it is not UTF-8"))?;
    let mut groups = text.split("(?").skip(1);
    let ignores_case = groups.any(|group| {
        let flags = group.split([')', ':']).next().unwrap_or_default();
        flags.split('-').next().is_some_and(|flags| flags.contains('i')) && flags.bytes().all(|flag| flag != b'<')
    });
    if ignores_case && (!text.is_ascii() || text.contains("\\x")) {
        return Err(fail("ignoring case is for ASCII letters only"));
    }
    match RegexBuilder::new(text).size_limit(MAX_PATTERN_BYTES).build() {
        Ok(regex) => Ok(Pattern { regex, ignores_case }),
        Err(_) => Err(fail("see the syntax of RE2, without classes of Unicode")),
    }
}
