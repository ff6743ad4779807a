//! Tokens as trees.

mod constant;
mod pipeline;

use super::lexer::{Kind, Token, split};
use super::tree::{Branch, Node, Trees};
use super::value::Failure;

type Parsed<T> = Result<T, Failure>;

/// Parses a template with these delimiters, and the templates that it defines. Functions and the names of called templates are
/// not checked.
pub(in crate::templates) fn parse(text: &str, left: &str, right: &str) -> Parsed<Trees> {
    let mut parser = Parser {
        tokens: split(text, left, right),
        at: 0,
        variables: vec!["$".to_owned()],
        trees: Trees::new(),
        loops: 0,
        depth: 0,
    };
    let body = parser.document()?;
    parser.trees.insert(String::new(), body);
    Ok(parser.trees)
}

/// Deepest action within actions.
const MAX_DEPTH: usize = 100;

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    /// Variables that are visible.
    variables: Vec<String>,
    trees: Trees,
    /// Loops around the current action.
    loops: usize,
    depth: usize,
}

/// Next part of a list of nodes.
enum Step {
    Node(Node),
    End,
    Else,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &Token<'a> {
        // The last token ends every list.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn skip_space(&mut self) {
        while self.peek().kind == Kind::Space {
            self.at += 1;
        }
    }

    fn next_token(&mut self) -> Token<'a> {
        self.skip_space();
        self.next()
    }

    fn fail<T>(offset: usize, message: impl Into<String>) -> Parsed<T> {
        Err(Failure::new(message).at(offset))
    }

    /// Builds the error for a token that does not belong there.
    fn unexpected<T>(token: &Token<'_>, place: &str) -> Parsed<T> {
        let found = match &token.kind {
            Kind::Error(message) => return Self::fail(token.offset, message.clone()),
            Kind::End => "end of the text",
            Kind::Text(_) => "text",
            Kind::Open => "left delimiter",
            Kind::Close => "right delimiter",
            Kind::Space => "space",
            Kind::Dot => ".",
            Kind::Field(_) => "field",
            Kind::Variable(_) => "variable",
            Kind::Word(word) => word,
            Kind::Number(_) => "number",
            Kind::Char(_) => "character",
            Kind::Quoted(_) | Kind::Raw(_) => "string",
            Kind::Assign => "=",
            Kind::Declare => ":=",
            Kind::Pipe => "|",
            Kind::LeftParen => "(",
            Kind::RightParen => ")",
            Kind::Other(c) => return Self::fail(token.offset, format!("unexpected {c} in {place}")),
        };
        Self::fail(token.offset, format!("unexpected {found} in {place}"))
    }

    fn close(&mut self, place: &str) -> Parsed<()> {
        let token = self.next_token();
        if token.kind == Kind::Close { Ok(()) } else { Self::unexpected(&token, place) }
    }

    /// Reads the whole text.
    fn document(&mut self) -> Parsed<Vec<Node>> {
        let mut nodes = Vec::new();
        loop {
            let token = self.peek().clone();
            if token.kind == Kind::End {
                return Ok(nodes);
            }
            if token.kind == Kind::Open {
                let begin = self.at;
                self.at += 1;
                let word = self.next_token();
                if word.kind == Kind::Word("define") {
                    self.definition(word.offset)?;
                    continue;
                }
                self.at = begin;
            }
            match self.step()? {
                Step::Node(node) => nodes.push(node),
                Step::End => return Self::fail(token.offset, "unexpected {{ end }}"),
                Step::Else => return Self::fail(token.offset, "unexpected {{ else }}"),
            }
        }
    }

    /// Reads nodes to an `end`, or to an `else`, for which it returns true. `offset` is that of the action that they belong to.
    fn list(&mut self, offset: usize) -> Parsed<(Vec<Node>, bool)> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Self::fail(offset, format!("more than {MAX_DEPTH} actions within each other"));
        }
        let mut nodes = Vec::new();
        loop {
            if self.peek().kind == Kind::End {
                return Self::fail(offset, "this has no {{ end }}");
            }
            match self.step()? {
                Step::Node(node) => nodes.push(node),
                step => {
                    self.depth -= 1;
                    return Ok((nodes, matches!(step, Step::Else)));
                }
            }
        }
    }

    /// Reads a text or an action.
    fn step(&mut self) -> Parsed<Step> {
        let token = self.next_token();
        match token.kind {
            Kind::Text(text) => return Ok(Step::Node(Node::Text(text.to_owned()))),
            Kind::Open => {}
            _ => return Self::unexpected(&token, "the template"),
        }
        self.skip_space();
        let word = self.peek().clone();
        let Kind::Word(name) = word.kind else { return self.plain_action() };
        let begin = self.at;
        self.at += 1;
        let node = match name {
            "if" => Node::If(self.branch("if", word.offset)?),
            "with" => Node::With(self.branch("with", word.offset)?),
            "range" => Node::Range(self.branch("range", word.offset)?),
            "template" => self.template_call(word.offset)?,
            "block" => self.block(word.offset)?,
            "break" | "continue" => {
                if self.loops == 0 {
                    return Self::fail(word.offset, format!("{{{{ {name} }}}} outside of {{{{ range }}}}"));
                }
                self.close(name)?;
                if name == "break" { Node::Break } else { Node::Continue }
            }
            "end" => {
                self.close("end")?;
                return Ok(Step::End);
            }
            "else" => {
                self.skip_space();
                // `else if` and `else with` begin an action in the place of the else.
                if !matches!(self.peek().kind, Kind::Word("if" | "with")) {
                    self.close("else")?;
                }
                return Ok(Step::Else);
            }
            _ => {
                self.at = begin;
                return self.plain_action();
            }
        };
        Ok(Step::Node(node))
    }

    fn plain_action(&mut self) -> Parsed<Step> {
        let pipe = self.pipeline("an action", &Kind::Close)?;
        Ok(Step::Node(Node::Action(pipe)))
    }

    /// Reads `if`, `with` or `range` after their word.
    fn branch(&mut self, word: &str, offset: usize) -> Parsed<Branch> {
        let visible = self.variables.len();
        let pipe = self.pipeline(word, &Kind::Close)?;
        self.loops += usize::from(word == "range");
        let (body, has_else) = self.list(offset)?;
        self.loops -= usize::from(word == "range");
        let mut otherwise = Vec::new();
        if has_else {
            self.variables.truncate(visible + pipe.names.len());
            self.skip_space();
            let next = self.peek().clone();
            match next.kind {
                // The `end` of the inner action is that of this one.
                Kind::Word(inner @ ("if" | "with")) if inner == word => {
                    self.at += 1;
                    self.depth += 1;
                    if self.depth > MAX_DEPTH {
                        return Self::fail(offset, format!("more than {MAX_DEPTH} actions within each other"));
                    }
                    let branch = self.branch(word, next.offset)?;
                    self.depth -= 1;
                    otherwise.push(if word == "if" { Node::If(branch) } else { Node::With(branch) });
                }
                _ => {
                    let (nodes, has_second) = self.list(offset)?;
                    if has_second {
                        return Self::fail(offset, "this has two {{ else }}");
                    }
                    otherwise = nodes;
                }
            }
        }
        self.variables.truncate(visible);
        Ok(Branch { pipe, body, otherwise })
    }

    /// Reads a string that is a template's name.
    fn name(&mut self, place: &str) -> Parsed<String> {
        let token = self.next_token();
        let name = match token.kind {
            Kind::Quoted(quoted) => constant::unquote(quoted).map_err(|failure| failure.at(token.offset))?,
            Kind::Raw(raw) => raw.to_owned(),
            _ => return Self::unexpected(&token, place),
        };
        if name.is_empty() {
            return Self::fail(token.offset, "the name of a template is empty");
        }
        Ok(name)
    }

    fn template_call(&mut self, offset: usize) -> Parsed<Node> {
        let name = self.name("a call of a template")?;
        self.skip_space();
        let pipe = if self.peek().kind == Kind::Close {
            self.at += 1;
            None
        } else {
            Some(self.pipeline("a call of a template", &Kind::Close)?)
        };
        Ok(Node::Template { offset, name, pipe })
    }

    fn definition(&mut self, offset: usize) -> Parsed<()> {
        let name = self.name("a definition")?;
        self.close("a definition")?;
        self.separate(name, offset)
    }

    fn block(&mut self, offset: usize) -> Parsed<Node> {
        let name = self.name("a block")?;
        let pipe = self.pipeline("a block", &Kind::Close)?;
        self.separate(name.clone(), offset)?;
        Ok(Node::Template { offset, name, pipe: Some(pipe) })
    }

    /// Reads the body of a template of its own, which sees no variables and no loop of the outer one.
    fn separate(&mut self, name: String, offset: usize) -> Parsed<()> {
        let variables = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let loops = std::mem::take(&mut self.loops);
        let (body, has_else) = self.list(offset)?;
        if has_else {
            return Self::fail(offset, "unexpected {{ else }}");
        }
        (self.variables, self.loops) = (variables, loops);
        let is_empty =
            |nodes: &[Node]| nodes.iter().all(|node| matches!(node, Node::Text(text) if text.trim().is_empty()));
        match self.trees.get(&name) {
            Some(first) if !is_empty(first) && !is_empty(&body) => {
                Self::fail(offset, format!("the template {name:?} is defined twice"))
            }
            Some(first) if !is_empty(first) => Ok(()),
            _ => {
                self.trees.insert(name, body);
                Ok(())
            }
        }
    }
}
