//! Tree of a parsed template.

use std::collections::BTreeMap;

/// A template, with an empty name, and those that it defines, by name.
pub(in crate::templates) type Trees = BTreeMap<String, Vec<Node>>;

#[derive(Debug, Clone)]
pub(in crate::templates) enum Node {
    Text(String),
    Action(Pipe),
    If(Branch),
    With(Branch),
    Range(Branch),
    Template { offset: usize, name: String, pipe: Option<Pipe> },
    Break,
    Continue,
}

/// A body that is executed once, never or often, and its `else`.
#[derive(Debug, Clone)]
pub(in crate::templates) struct Branch {
    pub(in crate::templates) pipe: Pipe,
    pub(in crate::templates) body: Vec<Node>,
    pub(in crate::templates) otherwise: Vec<Node>,
}

/// Commands of which each gets the value of the one before it as its last argument.
#[derive(Debug, Clone)]
pub(in crate::templates) struct Pipe {
    pub(in crate::templates) offset: usize,
    /// Variables that get the value.
    pub(in crate::templates) names: Vec<String>,
    /// They exist already.
    pub(in crate::templates) is_assignment: bool,
    pub(in crate::templates) commands: Vec<Vec<Expr>>,
}

#[derive(Debug, Clone)]
pub(in crate::templates) struct Expr {
    pub(in crate::templates) offset: usize,
    pub(in crate::templates) kind: ExprKind,
}

#[derive(Debug, Clone)]
pub(in crate::templates) enum ExprKind {
    Dot,
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// A number of more than 64 bits.
    TooLarge,
    Text(String),
    /// Fields of the dot.
    Fields(Vec<String>),
    /// A variable and its fields.
    Variable(String, Vec<String>),
    Function(String),
    /// Fields of a function's or a pipeline's value.
    Chain(Box<Expr>, Vec<String>),
    Pipe(Box<Pipe>),
}
