//! Compiles a template's text: checks its syntax, and that the functions and templates that it calls exist.

use keyward_telemetry::wording::did_you_mean;

use super::TemplateSource;
use super::engine::{Branch, Expr, ExprKind, Node, Pipe, Trees, parse};
use super::error::{TemplateError, line_and_column};
use super::functions::{self, UnavailableFunction};

/// A compiled template.
#[derive(Debug, Clone)]
pub struct Template {
    pub(super) source: TemplateSource,
    pub(super) trees: Trees,
    reads_secrets: bool,
}

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    /// All errors that show without rendering; a syntax error hides those after it.
    pub fn compile(source: TemplateSource) -> Result<Self, Vec<TemplateError>> {
        let parsed = parse(&source.text, &source.left, &source.right);
        let trees = parsed.map_err(|failure| vec![TemplateError::new(&source.text, failure)])?;
        let mut checker = Checker { source: &source, trees: &trees, reads_secrets: false, errors: Vec::new() };
        for tree in trees.values() {
            checker.check_nodes(tree);
        }
        let Checker { mut errors, reads_secrets, .. } = checker;
        errors.sort_by_key(|error| (error.line, error.column));
        if errors.is_empty() { Ok(Self { source, trees, reads_secrets }) } else { Err(errors) }
    }

    /// Text of the template.
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// Returns true if it calls a function that reads secrets.
    pub const fn reads_secrets(&self) -> bool {
        self.reads_secrets
    }
}

/// Walks the trees, and checks the names that are called. The parser bounds the depth.
struct Checker<'a> {
    source: &'a TemplateSource,
    trees: &'a Trees,
    reads_secrets: bool,
    errors: Vec<TemplateError>,
}

impl Checker<'_> {
    fn report(&mut self, offset: usize, message: String) {
        let (line, column) = line_and_column(&self.source.text, offset);
        self.errors.push(TemplateError { line, column, message });
    }

    fn check_nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Action(pipe) => self.check_pipe(pipe),
                Node::If(branch) | Node::With(branch) | Node::Range(branch) => self.check_branch(branch),
                Node::Template { offset, name, pipe } => {
                    if !self.trees.contains_key(name) {
                        self.report(*offset, format!("unknown template {name:?}"));
                    }
                    if let Some(pipe) = pipe {
                        self.check_pipe(pipe);
                    }
                }
                Node::Text(_) | Node::Break | Node::Continue => {}
            }
        }
    }

    fn check_branch(&mut self, branch: &Branch) {
        self.check_pipe(&branch.pipe);
        self.check_nodes(&branch.body);
        self.check_nodes(&branch.otherwise);
    }

    fn check_pipe(&mut self, pipe: &Pipe) {
        for expr in pipe.commands.iter().flatten() {
            self.check_expr(expr);
        }
        for command in &pipe.commands {
            if let [Expr { offset, kind: ExprKind::Function(name) }, Expr { kind: ExprKind::Text(first), .. }, _, ..] =
                command.as_slice()
                && let Some(problem) = functions::check_call(self.source, name, first)
            {
                self.report(*offset, problem.message);
            }
        }
    }

    fn check_expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Function(name) => match functions::unavailable(name) {
                None => self.reads_secrets |= functions::reads_secrets(name),
                Some(UnavailableFunction::Omitted(reason)) => {
                    self.report(expr.offset, format!("{name} is not available: {reason}"));
                }
                Some(UnavailableFunction::Unknown) => {
                    let suggestion =
                        did_you_mean(name, &functions::names()).map_or(String::new(), |name| format!("; {name}"));
                    self.report(expr.offset, format!("unknown function {name}{suggestion}"));
                }
            },
            ExprKind::Pipe(pipe) => self.check_pipe(pipe),
            ExprKind::Chain(inner, _) => self.check_expr(inner),
            _ => {}
        }
    }
}
