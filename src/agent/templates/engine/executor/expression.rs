//! Evaluation of pipelines, commands and operands.

use super::{Executor, NODE_WORK};
use crate::templates::engine::builtins;
use crate::templates::engine::tree::{Expr, ExprKind, Pipe};
use crate::templates::engine::value::{Failure, MapType, Value};

impl Executor<'_> {
    /// Evaluates a pipeline, and sets its variables.
    pub(super) fn pipe(&mut self, pipe: &Pipe, dot: &Value) -> Result<Value, Failure> {
        let value = self.undeclared_pipe(pipe, dot)?;
        if let [name] = pipe.names.as_slice() {
            self.set(pipe, name, value.clone());
        }
        Ok(value)
    }

    /// Evaluates a pipeline without setting its variables.
    pub(super) fn undeclared_pipe(&mut self, pipe: &Pipe, dot: &Value) -> Result<Value, Failure> {
        let mut last = None;
        for command in &pipe.commands {
            last = Some(self.command(command, dot, last)?);
        }
        Ok(last.unwrap_or(Value::Nil))
    }

    /// Evaluates a command, with the value of the one before it as its last argument.
    fn command(&mut self, command: &[Expr], dot: &Value, last: Option<Value>) -> Result<Value, Failure> {
        let Some((first, args)) = command.split_first() else { return Ok(Value::Nil) };
        let has_args = !args.is_empty() || last.is_some();
        let refuse = |has_args: bool| {
            if has_args { Err(Failure::new("this is no function, and takes no arguments")) } else { Ok(()) }
        };
        let result = match &first.kind {
            ExprKind::Function(name) => return self.function(first.offset, name, args, dot, last),
            ExprKind::Chain(inner, fields) => {
                let whole = self.operand(inner, dot)?;
                return self.fields_with_args(first.offset, whole, fields, args, dot, last);
            }
            ExprKind::Fields(fields) => {
                return self.fields_with_args(first.offset, dot.clone(), fields, args, dot, last);
            }
            ExprKind::Variable(name, fields) => {
                let whole = self.variable(name);
                return self.fields_with_args(first.offset, whole, fields, args, dot, last);
            }
            ExprKind::Nil => Err(Failure::new("nil alone is no value")),
            _ => refuse(has_args).and_then(|()| self.operand(first, dot)),
        };
        result.map_err(|failure| failure.at(first.offset))
    }

    /// Evaluates an operand without arguments.
    fn operand(&mut self, expr: &Expr, dot: &Value) -> Result<Value, Failure> {
        let result = match &expr.kind {
            ExprKind::Dot => Ok(dot.clone()),
            ExprKind::Nil => Ok(Value::Nil),
            ExprKind::Bool(flag) => Ok(Value::Bool(*flag)),
            ExprKind::Int(number) => Ok(Value::Int(*number)),
            ExprKind::Float(number) => Ok(Value::Float(*number)),
            ExprKind::TooLarge => Err(Failure::new("the number does not fit in 64 bits")),
            ExprKind::Text(text) => Ok(Value::text(text.as_str())),
            ExprKind::Function(name) => self.function(expr.offset, name, &[], dot, None),
            ExprKind::Fields(fields) => self.fields(dot.clone(), fields),
            ExprKind::Variable(name, fields) => {
                let whole = self.variable(name);
                self.fields(whole, fields)
            }
            ExprKind::Chain(inner, fields) => {
                let whole = self.operand(inner, dot)?;
                return self.fields_with_args(expr.offset, whole, fields, &[], dot, None);
            }
            ExprKind::Pipe(pipe) => self.scope(expr.offset, |this| this.pipe(pipe, dot)),
        };
        result.map_err(|failure| failure.at(expr.offset))
    }

    fn variable(&self, name: &str) -> Value {
        let found = self.variables.iter().rev().find(|(visible, _)| visible == name);
        found.map_or(Value::Nil, |(_, value)| value.clone())
    }

    fn operands(&mut self, args: &[Expr], dot: &Value, last: Option<Value>) -> Result<Vec<Value>, Failure> {
        let mut values = Vec::with_capacity(args.len() + 1);
        for arg in args {
            values.push(self.operand(arg, dot)?);
        }
        values.extend(last);
        Ok(values)
    }

    fn function(
        &mut self,
        offset: usize,
        name: &str,
        args: &[Expr],
        dot: &Value,
        last: Option<Value>,
    ) -> Result<Value, Failure> {
        if let "and" | "or" = name {
            return self.logical(name == "or", args, dot, last).map_err(|failure| failure.at(offset));
        }
        let values = self.operands(args, dot, last)?;
        let is_printed =
            builtins::PRINTING.contains(&name) && values.iter().any(|value| matches!(value, Value::Absent));
        if is_printed && self.options.is_absent_key_an_error && !self.host.is_incomplete() {
            return Err(Failure::new("there is no value here to print").at(offset));
        }
        self.spend(values.iter().map(items_work).sum()).map_err(|failure| failure.at(offset))?;
        let result = match name {
            "executeTemplate" => self.execute_template(&values),
            _ => builtins::call(name, &values).unwrap_or_else(|| self.host.call(name, &values)),
        };
        let result = result.and_then(|value| {
            self.spend(value.as_text().map_or(0, str::len).saturating_add(items_work(&value)))?;
            Ok(value)
        });
        result.map_err(|failure| match args {
            // Another argument than one that the template itself has may be a secret.
            [Expr { kind: ExprKind::Text(literal), .. }, ..] => failure.of_call(name, literal).at(offset),
            _ => failure.at(offset),
        })
    }

    /// Evaluates arguments to the first that decides.
    fn logical(&mut self, is_or: bool, args: &[Expr], dot: &Value, last: Option<Value>) -> Result<Value, Failure> {
        let mut value = None;
        for arg in args {
            let next = self.operand(arg, dot)?;
            if next.is_true() == is_or {
                return Ok(next);
            }
            value = Some(next);
        }
        last.or(value).ok_or_else(|| Failure::new("and and or expect 1 or more arguments, got 0"))
    }

    fn execute_template(&mut self, args: &[Value]) -> Result<Value, Failure> {
        match args {
            [Value::Text(name)] => self.template_text(name, &Value::Nil),
            [Value::Text(name), dot] => self.template_text(name, dot),
            _ => Err(Failure::new("executeTemplate expects the name of a template, and at most one value")),
        }
    }

    fn fields(&self, mut value: Value, fields: &[String]) -> Result<Value, Failure> {
        for field in fields {
            value = self.field(&value, field)?;
        }
        Ok(value)
    }

    /// Evaluates fields, of which the last may be a method with arguments.
    fn fields_with_args(
        &mut self,
        offset: usize,
        whole: Value,
        fields: &[String],
        args: &[Expr],
        dot: &Value,
        last: Option<Value>,
    ) -> Result<Value, Failure> {
        let Some((method, before)) = fields.split_last() else {
            if args.is_empty() && last.is_none() {
                return Ok(whole);
            }
            return Err(Failure::new("this is no function, and takes no arguments").at(offset));
        };
        let whole = self.fields(whole, before).map_err(|failure| failure.at(offset))?;
        if let Value::Scratch(_) = whole {
            let mut values = vec![whole];
            values.append(&mut self.operands(args, dot, last)?);
            return self.host.call(&format!("scratch.{method}"), &values).map_err(|failure| failure.at(offset));
        }
        if !args.is_empty() || last.is_some() {
            return Err(Failure::new(format!("{method} is no function, and takes no arguments")).at(offset));
        }
        self.field(&whole, method).map_err(|failure| failure.at(offset))
    }

    fn field(&self, value: &Value, name: &str) -> Result<Value, Failure> {
        match value {
            Value::Map(map) => match (map.get(name), map.of) {
                (Some(value), _) => Ok(value),
                (None, MapType::Struct(_)) => Err(Failure::new(format!("there is no field {name:?} here"))),
                (None, MapType::Texts) if !self.options.is_absent_key_an_error => Ok(Value::text("")),
                (None, _) if self.options.is_absent_key_an_error => Err(Failure::new(format!(
                    "there is no {name:?} here; if it is optional, use index, which returns nothing then"
                ))),
                (None, _) => Ok(Value::Absent),
            },
            // The further dependencies of the template are requested together.
            Value::Nil | Value::Absent if self.host.is_incomplete() => Ok(Value::Absent),
            Value::Nil | Value::Absent => Err(Failure::new(format!("there is no {name:?} in nothing"))),
            other => Err(Failure::new(format!("there is no field {name:?} in {}", other.describe()))),
        }
    }
}

/// The work of copying a list.
fn items_work(value: &Value) -> usize {
    if let Value::List(list) = value { list.items.len().saturating_mul(NODE_WORK) } else { 0 }
}
