//! Functions on types, choices and failures.

use crate::templates::engine::{MapType, Value};
use crate::templates::functions::NamedFunction;
use crate::templates::functions::equality::Comparison;

pub(super) const FUNCTIONS: &[NamedFunction] = &[
    ("sprig_deepEqual", 2, 2, |args| Ok(Value::Bool(Comparison::new().is_equal(args.value(0)?, args.value(1)?)?))),
    // The message may hold a secret: it is not repeated.
    ("sprig_fail", 1, 1, |args| {
        args.text(0)?;
        Err(args.fail("the template refuses its values"))
    }),
    ("sprig_hello", 0, 0, |_| Ok(Value::text("Hello!"))),
    ("sprig_kindIs", 2, 2, |args| Ok(Value::Bool(kind(args.value(1)?) == args.text(0)?))),
    ("sprig_kindOf", 1, 1, |args| Ok(Value::text(kind(args.value(0)?)))),
    ("sprig_ternary", 3, 3, |args| Ok(args.value(usize::from(!args.flag(2)?))?.clone())),
    ("sprig_typeIs", 2, 2, |args| Ok(Value::Bool(args.value(1)?.type_name() == args.text(0)?))),
    ("sprig_typeIsLike", 2, 2, |args| {
        let name = args.value(1)?.type_name();
        Ok(Value::Bool(name.strip_prefix('*').unwrap_or(name) == args.text(0)? || name == args.text(0)?))
    }),
    ("sprig_typeOf", 1, 1, |args| Ok(Value::text(args.value(0)?.type_name()))),
];

/// Returns the kind of a value's type in Go.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Nil | Value::Absent => "invalid",
        Value::Bool(_) | Value::Int(_) | Value::Int64(_) | Value::Uint64(_) | Value::Float(_) => value.type_name(),
        Value::Number(_) | Value::Text(_) => "string",
        Value::List(_) => "slice",
        Value::Map(map) if matches!(map.of, MapType::Struct(_)) => "ptr",
        Value::Map(_) => "map",
        Value::Counter(..) => "chan",
        Value::Scratch(_) => "ptr",
    }
}
