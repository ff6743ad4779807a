//! Equality of values with their types.

use std::rc::Rc;

use crate::templates::engine::Value;

/// Deepest list in a list that is compared.
const MAX_DEPTH: usize = 64;

/// Most values that are compared; beyond, they count as different.
const MAX_VALUES: usize = 1_000_000;

/// Returns true if two values have the same type and content.
pub(super) fn is_deep_equal(left: &Value, right: &Value) -> bool {
    is_equal_at(left, right, 0, &mut MAX_VALUES.clone())
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
