//! A template's text, taken apart and checked: its syntax, and that what it calls is there.

use std::collections::BTreeMap;

use gotmpl::parse::{ActionNode, CommandNode, DefineNode, Expr, ListNode, Node, Number, Parser, PipeNode, Pos};

use super::TemplateSource;
use super::error::{TemplateError, line_and_column};
use super::functions::{self, CHECK_PRINTED, MARK_POSITION, UnavailableFunction};
use crate::suggest::did_you_mean;

/// A template that is ready to be rendered.
#[derive(Debug, Clone)]
pub struct Template {
    /// What it was made of.
    pub(super) source: TemplateSource,
    /// Its body, and the templates that it defines by name. The body has no name.
    pub(super) trees: BTreeMap<String, ListNode>,
    reads_secrets: bool,
}

impl Template {
    /// Takes a text apart.
    ///
    /// # Errors
    /// All that is wrong with it and can be seen without rendering; a mistake of the syntax hides those after it.
    pub fn compile(source: TemplateSource) -> Result<Self, Vec<TemplateError>> {
        let parse = |text: &str| {
            let parsed = Parser::new(text, &source.left, &source.right).and_then(Parser::parse);
            parsed.map_err(|error| vec![TemplateError::syntax(error)])
        };
        parse(&source.text)?;
        let (mut body, mut defines) = parse(&format!("{}{END_MARKER}", source.text))?;
        if !strip_end_marker(&mut body) {
            return Err(vec![unbalanced(&source.text, &mut body, &mut defines)]);
        }
        let mut trees = BTreeMap::from([(String::new(), body)]);
        let mut look = Checker { text: &source.text, names: Vec::new(), reads_secrets: false, wrong: Vec::new() };
        for define in defines {
            let name = define.name.to_string();
            if trees.get(&name).is_some_and(|there| !there.is_empty_tree()) {
                look.refuse(define.pos, format!("the template {name:?} is defined twice"));
            }
            trees.insert(name, define.body);
        }
        look.names = trees.keys().cloned().collect();
        for tree in trees.values_mut() {
            look.list(tree);
        }
        let Checker { wrong, reads_secrets, .. } = look;
        if wrong.is_empty() { Ok(Self { source, trees, reads_secrets }) } else { Err(wrong) }
    }

    /// Whether it calls anything that asks the secrets server.
    pub const fn reads_secrets(&self) -> bool {
        self.reads_secrets
    }

    /// What it was made of.
    pub const fn source(&self) -> &TemplateSource {
        &self.source
    }
}

/// Put after a template: the parser takes what is not ended as ended, and leaves out what follows an end too many. Where this
/// text comes to stand tells.
const END_MARKER: &str = "\u{1}last";

/// Takes [`END_MARKER`] off the end of a list, if it stands there.
fn strip_end_marker(list: &mut ListNode) -> bool {
    let Some(Node::Text(text)) = list.nodes.last_mut() else { return false };
    let Some(before) = text.text.strip_suffix(END_MARKER) else { return false };
    text.text = before.into();
    true
}

/// Says which action has no end, or that there is an end too many.
fn unbalanced(text: &str, body: &mut ListNode, defines: &mut [DefineNode]) -> TemplateError {
    let open = find_unclosed(body).or_else(|| {
        let mut defines = defines.iter_mut();
        defines.find_map(|define| {
            if strip_end_marker(&mut define.body) { Some(define.pos) } else { find_unclosed(&mut define.body) }
        })
    });
    match open {
        Some(pos) => {
            let (line, column) = line_and_column(text, pos.offset);
            TemplateError { line, column, message: "this has no {{ end }}".to_owned() }
        }
        None => {
            TemplateError { line: 0, column: 0, message: "there is an {{ end }} or {{ else }} too many".to_owned() }
        }
    }
}

/// The innermost action whose body holds what should come after all.
fn find_unclosed(list: &mut ListNode) -> Option<Pos> {
    let Some(Node::If(branch) | Node::With(branch) | Node::Range(branch)) = list.nodes.last_mut() else { return None };
    for body in std::iter::once(&mut branch.body).chain(&mut branch.else_body) {
        let inner = find_unclosed(body);
        if inner.is_some() {
            return inner;
        }
        if strip_end_marker(body) {
            return Some(branch.pos);
        }
    }
    None
}

/// Walks a tree: checks what is called, and puts the two calls above into it. The parser bounds its depth.
struct Checker<'a> {
    text: &'a str,
    names: Vec<String>,
    reads_secrets: bool,
    wrong: Vec<TemplateError>,
}

impl Checker<'_> {
    fn refuse(&mut self, pos: Pos, message: String) {
        let (line, column) = line_and_column(self.text, pos.offset);
        self.wrong.push(TemplateError { line, column, message });
    }

    fn list(&mut self, list: &mut ListNode) {
        let nodes = std::mem::take(&mut list.nodes);
        for mut node in nodes {
            if let Some(pos) = self.node(&mut node) {
                list.nodes.push(mark(pos));
            }
            list.nodes.push(node);
        }
    }

    /// Gives the place of what is evaluated.
    fn node(&mut self, node: &mut Node) -> Option<Pos> {
        match node {
            Node::Action(action) => {
                self.pipe(&mut action.pipe);
                if action.pipe.decl.is_empty() {
                    action.pipe.commands.push(call(action.pos, CHECK_PRINTED, None));
                }
                Some(action.pos)
            }
            Node::If(branch) | Node::With(branch) | Node::Range(branch) => {
                self.pipe(&mut branch.pipe);
                self.list(&mut branch.body);
                if let Some(other) = &mut branch.else_body {
                    self.list(other);
                }
                Some(branch.pos)
            }
            Node::Template(used) => {
                if !self.names.iter().any(|name| *name == used.name.as_str()) {
                    self.refuse(used.pos, format!("there is no template {:?}", used.name.as_str()));
                }
                if let Some(pipe) = &mut used.pipe {
                    self.pipe(pipe);
                }
                Some(used.pos)
            }
            Node::List(list) => {
                self.list(list);
                None
            }
            Node::Define(_) | Node::Text(_) | Node::Break(_) | Node::Continue(_) => None,
        }
    }

    fn pipe(&mut self, pipe: &mut PipeNode) {
        for expr in pipe.commands.iter_mut().flat_map(|command| &mut command.args) {
            self.expr(expr);
        }
        // What is printed in a text is held to the same as what is printed.
        let mut commands = Vec::with_capacity(pipe.commands.len());
        for mut command in std::mem::take(&mut pipe.commands) {
            if matches!(command.args.first(), Some(Expr::Identifier(_, name)) if PRINTS.contains(&name.as_str())) {
                if !commands.is_empty() {
                    commands.push(call(command.pos, CHECK_PRINTED, None));
                }
                command.args[1..].iter_mut().for_each(shown);
            }
            commands.push(command);
        }
        pipe.commands = commands;
    }

    fn expr(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Identifier(pos, name) => match functions::refused(name) {
                None => self.reads_secrets |= functions::asks_the_server(name),
                Some(UnavailableFunction::Left(why)) => self.refuse(*pos, format!("{name} is not here: {why}")),
                Some(UnavailableFunction::Unknown) => {
                    let near =
                        did_you_mean(name, &functions::names()).map_or(String::new(), |near| format!("; {near}"));
                    self.refuse(*pos, format!("there is no function {name}{near}"));
                }
            },
            Expr::Pipe(_, pipe) => self.pipe(pipe),
            Expr::Chain(_, inner, _) => self.expr(inner),
            _ => {}
        }
    }
}

/// What makes a text of values as they come.
const PRINTS: [&str; 6] = ["html", "js", "print", "printf", "println", "urlquery"];

/// Puts an argument through [`CHECK_PRINTED`].
fn shown(argument: &mut Expr) {
    let pos = argument.pos();
    let inner = std::mem::replace(argument, Expr::Dot(pos));
    let commands = vec![CommandNode { pos, args: vec![inner] }, call(pos, CHECK_PRINTED, None)];
    *argument = Expr::Pipe(pos, PipeNode { pos, decl: Vec::new(), commands, is_assign: false });
}

fn call(pos: Pos, name: &str, argument: Option<Expr>) -> CommandNode {
    let args = std::iter::once(Expr::Identifier(pos, name.into())).chain(argument).collect();
    CommandNode { pos, args }
}

fn mark(pos: Pos) -> Node {
    let offset = Expr::Number(pos, Number::Int(i64::try_from(pos.offset).unwrap_or(i64::MAX)));
    let pipe =
        PipeNode { pos, decl: Vec::new(), commands: vec![call(pos, MARK_POSITION, Some(offset))], is_assign: false };
    Node::Action(ActionNode { pos, pipe })
}
