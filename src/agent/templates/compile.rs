//! Compiles a template's text: checks its syntax, and that the functions and templates that it calls exist.

use std::collections::BTreeMap;

use gotmpl::parse::{ActionNode, CommandNode, DefineNode, Expr, ListNode, Node, Number, Parser, PipeNode, Pos};
use keyward_telemetry::wording::did_you_mean;

use super::TemplateSource;
use super::error::{TemplateError, line_and_column};
use super::functions::{self, CHECK_PRINTED, MARK_POSITION, UnavailableFunction};

/// A compiled template.
#[derive(Debug, Clone)]
pub struct Template {
    pub(super) source: TemplateSource,
    /// The body, with an empty name, and the templates that it defines, by name.
    pub(super) trees: BTreeMap<String, ListNode>,
    reads_secrets: bool,
}

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    /// All errors that show without rendering; a syntax error hides those after it.
    pub fn compile(source: TemplateSource) -> Result<Self, Vec<TemplateError>> {
        let parse = |text: &str| {
            let parsed = Parser::new(text, &source.left, &source.right).and_then(Parser::parse);
            parsed.map_err(|error| vec![TemplateError::from_syntax(error)])
        };
        parse(&source.text)?;
        let (mut body, mut defines) = parse(&format!("{}{END_MARKER}", source.text))?;
        if !strip_end_marker(&mut body) {
            return Err(vec![unbalanced_error(&source.text, &mut body, &mut defines)]);
        }
        let mut trees = BTreeMap::from([(String::new(), body)]);
        let mut checker = Checker { source: &source, names: Vec::new(), reads_secrets: false, errors: Vec::new() };
        for define in defines {
            let name = define.name.to_string();
            if trees.get(&name).is_some_and(|tree| !tree.is_empty_tree()) {
                checker.report(define.pos, format!("the template {name:?} is defined twice"));
            }
            trees.insert(name, define.body);
        }
        checker.names = trees.keys().cloned().collect();
        for tree in trees.values_mut() {
            checker.check_list(tree);
        }
        let Checker { errors, reads_secrets, .. } = checker;
        if errors.is_empty() { Ok(Self { source, trees, reads_secrets }) } else { Err(errors) }
    }

    /// Returns true if it calls a function that reads secrets.
    pub const fn reads_secrets(&self) -> bool {
        self.reads_secrets
    }
}

/// Appended to a template's text. The parser accepts a missing `end` and drops the text after a surplus one; the position of this
/// marker in the tree reveals both.
const END_MARKER: &str = "\u{1}last";

/// Removes [`END_MARKER`] from the end of a list; returns whether it was there.
fn strip_end_marker(list: &mut ListNode) -> bool {
    let Some(Node::Text(text)) = list.nodes.last_mut() else { return false };
    let Some(before) = text.text.strip_suffix(END_MARKER) else { return false };
    text.text = before.into();
    true
}

/// Builds the error for an action without `end`, or for a surplus `end`.
fn unbalanced_error(text: &str, body: &mut ListNode, defines: &mut [DefineNode]) -> TemplateError {
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
        None => TemplateError { line: 0, column: 0, message: "unexpected {{ end }} or {{ else }}".to_owned() },
    }
}

/// Returns the innermost action whose body ends with the marker.
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

/// Walks a tree: checks the names that are called, and inserts the calls of [`MARK_POSITION`] and [`CHECK_PRINTED`]. The parser
/// bounds the depth.
struct Checker<'a> {
    source: &'a TemplateSource,
    names: Vec<String>,
    reads_secrets: bool,
    errors: Vec<TemplateError>,
}

impl Checker<'_> {
    fn report(&mut self, pos: Pos, message: String) {
        let (line, column) = line_and_column(&self.source.text, pos.offset);
        self.errors.push(TemplateError { line, column, message });
    }

    fn check_list(&mut self, list: &mut ListNode) {
        let nodes = std::mem::take(&mut list.nodes);
        for mut node in nodes {
            if let Some(pos) = self.check_node(&mut node) {
                list.nodes.push(mark(pos));
            }
            list.nodes.push(node);
        }
    }

    /// Checks a node; returns its position if it evaluates something.
    fn check_node(&mut self, node: &mut Node) -> Option<Pos> {
        match node {
            Node::Action(action) => {
                self.check_pipe(&mut action.pipe);
                if action.pipe.decl.is_empty() {
                    action.pipe.commands.push(call(action.pos, CHECK_PRINTED, None));
                }
                Some(action.pos)
            }
            Node::If(branch) | Node::With(branch) | Node::Range(branch) => {
                self.check_pipe(&mut branch.pipe);
                self.check_list(&mut branch.body);
                if let Some(else_body) = &mut branch.else_body {
                    self.check_list(else_body);
                }
                Some(branch.pos)
            }
            Node::Template(used) => {
                if !self.names.iter().any(|name| *name == used.name.as_str()) {
                    self.report(used.pos, format!("unknown template {:?}", used.name.as_str()));
                }
                if let Some(pipe) = &mut used.pipe {
                    self.check_pipe(pipe);
                }
                Some(used.pos)
            }
            Node::List(list) => {
                self.check_list(list);
                None
            }
            Node::Define(_) | Node::Text(_) | Node::Break(_) | Node::Continue(_) => None,
        }
    }

    fn check_pipe(&mut self, pipe: &mut PipeNode) {
        for expr in pipe.commands.iter_mut().flat_map(|command| &mut command.args) {
            self.check_expr(expr);
        }
        for command in &pipe.commands {
            if let [Expr::Identifier(pos, name), Expr::String(_, first), _, ..] = command.args.as_slice()
                && let Some(problem) = functions::check_call(self.source, name, first)
            {
                self.report(*pos, problem);
            }
        }
        // Arguments that are printed into a string are checked like printed values.
        let mut commands = Vec::with_capacity(pipe.commands.len());
        for mut command in std::mem::take(&mut pipe.commands) {
            if matches!(command.args.first(), Some(Expr::Identifier(_, name)) if PRINTING.contains(&name.as_str())) {
                if !commands.is_empty() {
                    commands.push(call(command.pos, CHECK_PRINTED, None));
                }
                command.args[1..].iter_mut().for_each(wrap_printed);
            }
            commands.push(command);
        }
        pipe.commands = commands;
    }

    fn check_expr(&mut self, expr: &mut Expr) {
        match expr {
            Expr::Identifier(pos, name) => match functions::unavailable(name) {
                None => self.reads_secrets |= functions::reads_secrets(name),
                Some(UnavailableFunction::Omitted(reason)) => {
                    self.report(*pos, format!("{name} is not available: {reason}"));
                }
                Some(UnavailableFunction::Unknown) => {
                    let suggestion =
                        did_you_mean(name, &functions::names()).map_or(String::new(), |name| format!("; {name}"));
                    self.report(*pos, format!("unknown function {name}{suggestion}"));
                }
            },
            Expr::Pipe(_, pipe) => self.check_pipe(pipe),
            Expr::Chain(_, inner, _) => self.check_expr(inner),
            _ => {}
        }
    }
}

/// Functions that print their arguments into a string.
const PRINTING: [&str; 6] = ["html", "js", "print", "printf", "println", "urlquery"];

/// Wraps an argument in a call of [`CHECK_PRINTED`].
fn wrap_printed(argument: &mut Expr) {
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
