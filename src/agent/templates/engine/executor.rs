//! Execution of a tree.

mod expression;

use super::format::format_value;
use super::output::Buffer;
use super::tree::{Branch, Node, Pipe, Trees};
use super::value::{Failure, Value};

/// Functions that a template calls.
pub(in crate::templates) trait Host {
    /// Calls a function by name.
    fn call(&mut self, name: &str, args: &[Value]) -> Result<Value, Failure>;

    /// Returns true while values are missing that a later rendering has: nothing that is printed counts.
    fn is_incomplete(&self) -> bool;
}

/// Options of an execution.
#[derive(Debug, Clone, Copy)]
pub(in crate::templates) struct Options {
    /// An absent key is an error; otherwise it is nothing, and printed as `<no value>`.
    pub(in crate::templates) is_absent_key_an_error: bool,
}

/// Executes the template without a name. Errors have the offset of what failed.
pub(in crate::templates) fn execute(trees: &Trees, host: &mut dyn Host, options: Options) -> Result<String, Failure> {
    let mut executor = Executor {
        trees,
        host,
        options,
        output: Buffer::new(),
        variables: vec![("$".to_owned(), Value::Nil)],
        depth: 0,
        work: 0,
    };
    let body = trees.get("").map_or(&[][..], Vec::as_slice);
    executor.nodes(body, &Value::Nil)?;
    executor.output.finish()
}

/// Bounds the work of a rendering in bytes: what functions return, and [`NODE_WORK`] for each action, each iteration of a loop and each
/// item of a list that a function takes. Templates that call each other twice would go on for years, and lists that grow in a loop
/// take all memory.
const MAX_WORK: usize = 256 << 20;

/// Work that an action, an iteration or an item of a list counts as.
const NODE_WORK: usize = 32;

/// Bounds actions, calls of templates and parentheses within each other.
const MAX_DEPTH: usize = 400;

struct Executor<'a> {
    trees: &'a Trees,
    host: &'a mut dyn Host,
    options: Options,
    output: Buffer,
    /// Visible variables, the innermost last.
    variables: Vec<(String, Value)>,
    depth: usize,
    work: usize,
}

/// Reaction of a loop to the end of its body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

impl Executor<'_> {
    fn nodes(&mut self, nodes: &[Node], dot: &Value) -> Result<Flow, Failure> {
        for node in nodes {
            if self.output.is_full() {
                break;
            }
            let flow = self.node(node, dot)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// Counts work against the budget.
    fn spend(&mut self, work: usize) -> Result<(), Failure> {
        self.work = self.work.saturating_add(work);
        if self.work > MAX_WORK {
            return Err(Failure::new(
                "the template exceeds its budget of work: too many actions, or too large texts and lists",
            ));
        }
        Ok(())
    }

    fn node(&mut self, node: &Node, dot: &Value) -> Result<Flow, Failure> {
        self.spend(NODE_WORK)?;
        match node {
            Node::Text(text) => self.output.push(text),
            Node::Action(pipe) => {
                let value = self.pipe(pipe, dot)?;
                if pipe.names.is_empty() {
                    self.print(&value).map_err(|failure| failure.at(pipe.offset))?;
                }
            }
            Node::If(branch) => return self.scope(branch.pipe.offset, |this| this.condition(branch, dot, false)),
            Node::With(branch) => return self.scope(branch.pipe.offset, |this| this.condition(branch, dot, true)),
            Node::Range(branch) => return self.scope(branch.pipe.offset, |this| this.range(branch, dot)),
            Node::Template { offset, name, pipe } => {
                let dot = pipe.as_ref().map_or(Ok(Value::Nil), |pipe| self.pipe(pipe, dot))?;
                self.template(name, &dot).map_err(|failure| failure.at(*offset))?;
            }
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    /// Executes something deeper, and forgets its variables.
    fn scope<T>(&mut self, offset: usize, inner: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Failure::new(format!("a recursion exceeds {MAX_DEPTH} actions within each other")).at(offset));
        }
        let visible = self.variables.len();
        let result = inner(self);
        self.variables.truncate(visible);
        self.depth -= 1;
        result
    }

    fn condition(&mut self, branch: &Branch, dot: &Value, sets_dot: bool) -> Result<Flow, Failure> {
        let value = self.pipe(&branch.pipe, dot)?;
        if value.is_true() {
            return self.nodes(&branch.body, if sets_dot { &value } else { dot });
        }
        self.nodes(&branch.otherwise, dot)
    }

    fn range(&mut self, branch: &Branch, dot: &Value) -> Result<Flow, Failure> {
        let names = &branch.pipe.names;
        let value = self.undeclared_pipe(&branch.pipe, dot)?;
        let is_countable = matches!(value, Value::Int(_) | Value::Int64(_) | Value::Uint64(_));
        if is_countable && names.len() > 1 {
            return Err(Failure::new("range over a number sets one variable, not two").at(branch.pipe.offset));
        }
        let number = |at: usize| Value::Int(i64::try_from(at).unwrap_or(i64::MAX));
        let mut is_empty = true;
        let mut iterate = |this: &mut Self, key: Value, item: Value| {
            is_empty = false;
            this.iteration(branch, key, &item)
        };
        match &value {
            Value::Nil | Value::Absent => {}
            Value::List(list) => {
                for (at, item) in list.items.iter().enumerate() {
                    if iterate(self, number(at), item.clone())? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Map(map) if matches!(value.type_name().as_bytes(), [b'm', ..]) => {
                for (key, item) in map.entries() {
                    if iterate(self, Value::Text(key), item)? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Int(end) | Value::Int64(end) => {
                for at in 0..*end {
                    let item = if matches!(value, Value::Int(_)) { Value::Int(at) } else { Value::Int64(at) };
                    if iterate(self, item.clone(), item)? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Uint64(end) => {
                for at in 0..*end {
                    if iterate(self, Value::Uint64(at), Value::Uint64(at))? == Flow::Break {
                        break;
                    }
                }
            }
            Value::Counter(from, to) => {
                for (at, item) in (*from..*to).enumerate() {
                    if iterate(self, number(at), Value::Int64(item))? == Flow::Break {
                        break;
                    }
                }
            }
            other => {
                let message = format!("range needs a list, a map or a number, got {}", other.describe());
                return Err(Failure::new(message).at(branch.pipe.offset));
            }
        }
        if is_empty { self.nodes(&branch.otherwise, dot) } else { Ok(Flow::Next) }
    }

    fn iteration(&mut self, branch: &Branch, key: Value, item: &Value) -> Result<Flow, Failure> {
        let pipe = &branch.pipe;
        if self.output.is_full() {
            return Ok(Flow::Break);
        }
        self.spend(NODE_WORK).map_err(|failure| failure.at(pipe.offset))?;
        let visible = self.variables.len();
        match pipe.names.as_slice() {
            [] => {}
            [name] => self.set(pipe, name, item.clone()),
            [first, second, ..] => {
                self.set(pipe, first, key);
                self.set(pipe, second, item.clone());
            }
        }
        let flow = self.nodes(&branch.body, item)?;
        self.variables.truncate(visible);
        Ok(flow)
    }

    /// Executes another template, whose `$` is its dot.
    fn template(&mut self, name: &str, dot: &Value) -> Result<(), Failure> {
        let Some(body) = self.trees.get(name) else {
            // The name may be a secret.
            return Err(Failure::new("there is no template of that name"));
        };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Failure::new(format!("a recursion exceeds {MAX_DEPTH} actions within each other")));
        }
        let variables = std::mem::replace(&mut self.variables, vec![("$".to_owned(), dot.clone())]);
        let result = self.nodes(body, dot);
        self.variables = variables;
        self.depth -= 1;
        result.map(|_| ())
    }

    /// Executes another template to a text of its own.
    fn template_text(&mut self, name: &str, dot: &Value) -> Result<Value, Failure> {
        let output = std::mem::replace(&mut self.output, Buffer::new());
        let result = self.template(name, dot);
        let text = std::mem::replace(&mut self.output, output);
        result?;
        text.into_text().map(Value::Text)
    }

    fn print(&mut self, value: &Value) -> Result<(), Failure> {
        match value {
            Value::Absent if self.host.is_incomplete() => {}
            Value::Absent if self.options.is_absent_key_an_error => {
                return Err(Failure::new("there is no value here to print"));
            }
            Value::Nil | Value::Absent => self.output.push("<no value>"),
            Value::Counter(..) | Value::Scratch(_) => {
                return Err(Failure::new(format!("{} cannot be printed", value.describe())));
            }
            value => format_value(&mut self.output, value),
        }
        Ok(())
    }

    /// Sets a variable that a pipeline names.
    fn set(&mut self, pipe: &Pipe, name: &str, value: Value) {
        if pipe.is_assignment {
            if let Some((_, old)) = self.variables.iter_mut().rev().find(|(visible, _)| visible == name) {
                *old = value;
            }
        } else {
            self.variables.push((name.to_owned(), value));
        }
    }
}
