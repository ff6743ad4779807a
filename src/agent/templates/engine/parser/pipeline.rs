//! Pipelines, commands and their operands.

use super::{MAX_DEPTH, Parsed, Parser, constant};
use crate::templates::engine::lexer::Kind;
use crate::templates::engine::tree::{Expr, ExprKind, Pipe};

impl Parser<'_> {
    /// Reads a pipeline to this token.
    pub(super) fn pipeline(&mut self, place: &str, end: &Kind<'_>) -> Parsed<Pipe> {
        self.depth += 1;
        self.skip_space();
        let offset = self.peek().offset;
        if self.depth > MAX_DEPTH {
            return Self::fail(offset, format!("more than {MAX_DEPTH} actions within each other"));
        }
        let (names, is_assignment) = self.declaration(place)?;
        let mut commands: Vec<Vec<Expr>> = Vec::new();
        loop {
            let token = self.next_token();
            if token.kind == *end {
                break;
            }
            match token.kind {
                Kind::Word("break" | "continue" | "define" | "else" | "end" | "if" | "range" | "template" | "with") => {
                    return Self::unexpected(&token, place);
                }
                Kind::Word("block") => return Self::unexpected(&token, place),
                Kind::Dot
                | Kind::Field(_)
                | Kind::Variable(_)
                | Kind::Word(_)
                | Kind::Number(_)
                | Kind::Char(_)
                | Kind::Quoted(_)
                | Kind::Raw(_)
                | Kind::LeftParen => {
                    self.at -= 1;
                    commands.push(self.command()?);
                }
                _ => return Self::unexpected(&token, place),
            }
        }
        if commands.is_empty() {
            return Self::fail(offset, format!("a value is missing in {place}"));
        }
        for command in &commands[1..] {
            if let Some(first) = command.first()
                && matches!(
                    first.kind,
                    ExprKind::Bool(_)
                        | ExprKind::Dot
                        | ExprKind::Nil
                        | ExprKind::Int(_)
                        | ExprKind::Float(_)
                        | ExprKind::TooLarge
                        | ExprKind::Text(_)
                )
            {
                return Self::fail(first.offset, "this can take no value of a pipeline, as it is no function");
            }
        }
        self.depth -= 1;
        Ok(Pipe { offset, names, is_assignment, commands })
    }

    /// Reads the variables that get a pipeline's value, and returns true if they exist already.
    fn declaration(&mut self, place: &str) -> Parsed<(Vec<String>, bool)> {
        let mut names = Vec::new();
        loop {
            self.skip_space();
            let begin = self.at;
            let Kind::Variable(name) = self.peek().kind else { break };
            self.at += 1;
            let token = self.next_token();
            match token.kind {
                Kind::Declare | Kind::Assign => {
                    names.push(name.to_owned());
                    let is_assignment = token.kind == Kind::Assign;
                    if !is_assignment {
                        self.variables.extend(names.iter().cloned());
                    } else if let Some(unknown) = names.iter().find(|name| !self.variables.contains(name)) {
                        return Self::fail(token.offset, format!("undefined variable {unknown}"));
                    }
                    return Ok((names, is_assignment));
                }
                Kind::Other(',') if place == "range" && names.is_empty() => names.push(name.to_owned()),
                Kind::Other(',') if place == "range" => {
                    return Self::fail(token.offset, "range sets two variables at most");
                }
                _ => {
                    self.at = begin;
                    break;
                }
            }
        }
        if names.is_empty() { Ok((names, false)) } else { Self::fail(self.peek().offset, "expected a variable and :=") }
    }

    /// Reads a command, to the end of the pipeline or beyond the next bar.
    fn command(&mut self) -> Parsed<Vec<Expr>> {
        let mut operands = Vec::new();
        loop {
            self.skip_space();
            if let Some(operand) = self.operand()? {
                operands.push(operand);
            }
            let token = self.next();
            match token.kind {
                Kind::Space => {}
                Kind::Close | Kind::RightParen => {
                    self.at -= 1;
                    break;
                }
                Kind::Pipe => break,
                _ => return Self::unexpected(&token, "an operand"),
            }
        }
        if operands.is_empty() {
            return Self::fail(self.peek().offset, "a command is empty");
        }
        Ok(operands)
    }

    /// Reads a term with its fields.
    fn operand(&mut self) -> Parsed<Option<Expr>> {
        let Some(term) = self.term()? else { return Ok(None) };
        let offset = term.offset;
        let mut fields = Vec::new();
        while let Kind::Field(name) = self.peek().kind {
            fields.push(name.to_owned());
            self.at += 1;
        }
        if fields.is_empty() {
            return Ok(Some(term));
        }
        let kind = match term.kind {
            ExprKind::Fields(mut first) => {
                first.append(&mut fields);
                ExprKind::Fields(first)
            }
            ExprKind::Variable(name, mut first) => {
                first.append(&mut fields);
                ExprKind::Variable(name, first)
            }
            ExprKind::Function(_) | ExprKind::Pipe(_) | ExprKind::Chain(..) => ExprKind::Chain(Box::new(term), fields),
            _ => return Self::fail(offset, "this has no fields"),
        };
        Ok(Some(Expr { offset, kind }))
    }

    fn term(&mut self) -> Parsed<Option<Expr>> {
        self.skip_space();
        let token = self.peek().clone();
        let offset = token.offset;
        self.at += 1;
        let kind = match token.kind {
            Kind::Dot => ExprKind::Dot,
            Kind::Field(name) => ExprKind::Fields(vec![name.to_owned()]),
            Kind::Variable(name) => {
                if !self.variables.iter().any(|visible| visible == name) {
                    return Self::fail(offset, format!("undefined variable {name}"));
                }
                ExprKind::Variable(name.to_owned(), Vec::new())
            }
            Kind::Word("nil") => ExprKind::Nil,
            Kind::Word("true") => ExprKind::Bool(true),
            Kind::Word("false") => ExprKind::Bool(false),
            Kind::Word(
                word @ ("break" | "block" | "continue" | "define" | "else" | "end" | "if" | "range" | "template"
                | "with"),
            ) => return Self::fail(offset, format!("unexpected {word} in an operand")),
            Kind::Word(name) => ExprKind::Function(name.to_owned()),
            Kind::Number(number) => constant::number(number).map_err(|failure| failure.at(offset))?,
            Kind::Char(quoted) => constant::character(quoted).map_err(|failure| failure.at(offset))?,
            Kind::Quoted(quoted) => ExprKind::Text(constant::unquote(quoted).map_err(|failure| failure.at(offset))?),
            Kind::Raw(raw) => ExprKind::Text(raw.to_owned()),
            Kind::LeftParen => ExprKind::Pipe(Box::new(self.pipeline("parentheses", &Kind::RightParen)?)),
            _ => {
                self.at -= 1;
                return Ok(None);
            }
        };
        Ok(Some(Expr { offset, kind }))
    }
}
