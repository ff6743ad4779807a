//! Go's template language, written from the documentation of its package `text/template`: a text is parsed to a tree, which is
//! executed with values and functions.
//!
//! It knows no secret and no file: the functions of a [`Host`] do.

// 0: values, errors, the output
mod value;
mod output;

// 1: a value as text
mod float;
mod quote;
mod format;

// 2: text -> tree
mod tree;
mod lexer;
mod parser;

// 3: functions that the language itself has
mod compare;
mod builtins;

// 4: tree -> text
mod executor;

pub(super) use self::builtins::NAMES as BUILT_IN;
pub(super) use self::executor::{Host, Options, execute};
pub(super) use self::float::{format_float, format_json};
pub(super) use self::format::format_value;
pub(super) use self::output::{Buffer, check_size};
pub(super) use self::parser::parse;
pub(super) use self::quote::quote;
pub(super) use self::tree::{Branch, Expr, ExprKind, Node, Pipe, Trees};
pub(super) use self::value::{Elements, Failure, Map, MapType, Text, Value};
