//! Equality of values with their types.

use std::rc::Rc;

use crate::templates::engine::{Failure, Value};

/// Deepest list in a list that is compared.
const MAX_DEPTH: usize = 64;

/// Most values that one call of a function compares.
const MAX_VALUES: usize = 20_000_000;

/// The comparisons of one call.
pub(super) struct Comparison {
    budget: usize,
}

impl Comparison {
    pub(super) const fn new() -> Self {
        Self { budget: MAX_VALUES }
    }

    /// Returns true if two values have the same type and content.
    pub(super) fn is_equal(&mut self, left: &Value, right: &Value) -> Result<bool, Failure> {
        let is_equal = is_equal_at(left, right, 0, &mut self.budget);
        if self.budget == 0 {
            return Err(Failure::new("the values have too many items to compare"));
        }
        Ok(is_equal)
    }

    /// Returns true if one of several values equals another.
    pub(super) fn is_any_equal<'a>(
        &mut self,
        values: impl IntoIterator<Item = &'a Value>,
        other: &Value,
    ) -> Result<bool, Failure> {
        for value in values {
            if self.is_equal(value, other)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn is_equal_at(left: &Value, right: &Value, depth: usize, budget: &mut usize) -> bool {
    if depth > MAX_DEPTH || *budget == 0 {
        return false;
    }
    *budget -= 1;
    match (left, right) {
        (left, right) if left.is_nil() => right.is_nil(),
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Int(left), Value::Int(right)) | (Value::Int64(left), Value::Int64(right)) => left == right,
        (Value::Uint64(left), Value::Uint64(right)) => left == right,
        (Value::Float(left), Value::Float(right)) => left.total_cmp(right).is_eq(),
        (Value::Text(left), Value::Text(right)) | (Value::Number(left), Value::Number(right)) => left == right,
        (Value::List(left), Value::List(right)) => {
            Rc::ptr_eq(left, right)
                || left.of == right.of
                    && left.items.len() == right.items.len()
                    && left
                        .items
                        .iter()
                        .zip(&right.items)
                        .all(|(left, right)| is_equal_at(left, right, depth + 1, budget))
        }
        (Value::Map(left), Value::Map(right)) => {
            Rc::ptr_eq(left, right)
                || left.of == right.of
                    && left.len() == right.len()
                    && left.entries().into_iter().zip(right.entries()).all(|((key, value), (other_key, other))| {
                        key == other_key && is_equal_at(&value, &other, depth + 1, budget)
                    })
        }
        (Value::Scratch(left), Value::Scratch(right)) => Rc::ptr_eq(left, right),
        _ => false,
    }
}
