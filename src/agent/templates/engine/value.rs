//! Values of templates, with the types that a program in Go would have: `printf "%T"` and comparisons show them.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

/// A text.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::templates) struct Text(Rc<String>);

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Rc::new(text))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// A value.
#[derive(Clone)]
pub(in crate::templates) enum Value {
    /// Go's nil, and the null of JSON.
    Nil,
    /// The nil that an absent key gives. It is no text: only a lenient template prints it.
    Absent,
    Bool(bool),
    /// Go's `int`.
    Int(i64),
    Int64(i64),
    Uint64(u64),
    Float(f64),
    /// Number of a secret: a text of digits, as Vault's client in Go decodes it.
    Number(Text),
    Text(Text),
    List(Rc<List>),
    Map(Rc<Map>),
    /// A channel that yields integers, from the first to before the last.
    Counter(i64, i64),
    /// The notes of a template, whose methods read and write them.
    Scratch(Rc<Map>),
}

/// A list.
pub(in crate::templates) struct List {
    pub(in crate::templates) items: Vec<Value>,
    pub(in crate::templates) of: Elements,
}

/// Type of a list's elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::templates) enum Elements {
    Any,
    Ints,
    Texts,
    Lists,
}

/// A map, or a struct, which several values may share. It never contains itself.
pub(in crate::templates) struct Map {
    entries: RefCell<BTreeMap<Text, Value>>,
    pub(in crate::templates) of: MapType,
}

/// Type of a map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::templates) enum MapType {
    Any,
    Texts,
    /// Keys of any type, as YAML has them.
    AnyKeys,
    /// A struct: it has no other fields.
    Struct(&'static str),
}

impl Map {
    pub(in crate::templates) const fn new(entries: BTreeMap<Text, Value>, of: MapType) -> Self {
        Self { entries: RefCell::new(entries), of }
    }

    pub(in crate::templates) fn get(&self, key: &str) -> Option<Value> {
        self.entries.borrow().get(key).cloned()
    }

    pub(in crate::templates) fn contains(&self, key: &str) -> bool {
        self.entries.borrow().contains_key(key)
    }

    pub(in crate::templates) fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    /// Returns the entries as they are now, by key.
    pub(in crate::templates) fn entries(&self) -> Vec<(Text, Value)> {
        self.entries.borrow().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    pub(in crate::templates) fn remove(&self, key: &str) {
        self.entries.borrow_mut().remove(key);
    }

    /// Sets an entry.
    ///
    /// # Errors
    /// The value contains this map, which would never be freed and never be printed to its end.
    pub(in crate::templates) fn set(&self, key: Text, value: Value) -> Result<(), Failure> {
        if self.is_in(&value) {
            return Err(Failure::new("a map cannot contain itself"));
        }
        self.entries.borrow_mut().insert(key, value);
        Ok(())
    }

    fn is_in(&self, value: &Value) -> bool {
        let mut visited = std::collections::BTreeSet::new();
        let mut rest = vec![value.clone()];
        while let Some(value) = rest.pop() {
            match value {
                Value::Map(map) | Value::Scratch(map) => {
                    if std::ptr::eq(&raw const *map, self) {
                        return true;
                    }
                    if visited.insert((&raw const *map).addr()) {
                        rest.extend(map.entries.borrow().values().cloned());
                    }
                }
                Value::List(list) if visited.insert((&raw const *list).addr()) => {
                    rest.extend(list.items.iter().cloned());
                }
                _ => {}
            }
        }
        false
    }
}

/// Drops values one after the other: a list in a list in a list would exceed the stack.
fn drop_flat(mut rest: Vec<Value>) {
    while let Some(value) = rest.pop() {
        match value {
            Value::List(list) => {
                if let Ok(mut list) = Rc::try_unwrap(list) {
                    rest.append(&mut list.items);
                }
            }
            Value::Map(map) | Value::Scratch(map) => {
                if let Ok(map) = Rc::try_unwrap(map) {
                    rest.extend(std::mem::take(&mut *map.entries.borrow_mut()).into_values());
                }
            }
            _ => {}
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        drop_flat(std::mem::take(&mut self.items));
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        drop_flat(std::mem::take(&mut *self.entries.borrow_mut()).into_values().collect());
    }
}

impl Value {
    pub(in crate::templates) fn text(text: impl Into<Text>) -> Self {
        Self::Text(text.into())
    }

    pub(in crate::templates) fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::list_of(Elements::Any, items)
    }

    pub(in crate::templates) fn list_of(of: Elements, items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(Rc::new(List { items: items.into_iter().collect(), of }))
    }

    pub(in crate::templates) fn texts<T: Into<Text>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::list_of(Elements::Texts, texts.into_iter().map(Self::text))
    }

    pub(in crate::templates) fn map<K: Into<Text>>(entries: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::map_of(MapType::Any, entries)
    }

    pub(in crate::templates) fn map_of<K: Into<Text>>(
        of: MapType,
        entries: impl IntoIterator<Item = (K, Self)>,
    ) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value)).collect();
        Self::Map(Rc::new(Map::new(entries, of)))
    }

    pub(in crate::templates) const fn is_nil(&self) -> bool {
        matches!(self, Self::Nil | Self::Absent)
    }

    /// Returns the text of a text, and the digits of a secret's number.
    pub(in crate::templates) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Number(text) => Some(text),
            _ => None,
        }
    }

    /// Returns true unless the value is the zero of its type, or empty.
    pub(in crate::templates) fn is_true(&self) -> bool {
        match self {
            Self::Nil | Self::Absent => false,
            Self::Bool(flag) => *flag,
            Self::Int(number) | Self::Int64(number) => *number != 0,
            Self::Uint64(number) => *number != 0,
            Self::Float(number) => number.abs() > 0.0 || number.is_nan(),
            Self::Number(text) | Self::Text(text) => !text.is_empty(),
            Self::List(list) => !list.items.is_empty(),
            Self::Map(map) => matches!(map.of, MapType::Struct(_)) || map.len() > 0,
            Self::Counter(..) | Self::Scratch(_) => true,
        }
    }

    /// Returns the name of its type in Go.
    pub(in crate::templates) fn type_name(&self) -> &'static str {
        match self {
            Self::Nil | Self::Absent => "<nil>",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Int64(_) => "int64",
            Self::Uint64(_) => "uint64",
            Self::Float(_) => "float64",
            Self::Number(_) => "json.Number",
            Self::Text(_) => "string",
            Self::List(list) => match list.of {
                Elements::Any => "[]interface {}",
                Elements::Ints => "[]int",
                Elements::Texts => "[]string",
                Elements::Lists => "[][]interface {}",
            },
            Self::Map(map) => match map.of {
                MapType::Any => "map[string]interface {}",
                MapType::Texts => "map[string]string",
                MapType::AnyKeys => "map[interface {}]interface {}",
                MapType::Struct(name) => name,
            },
            Self::Counter(..) => "<-chan int64",
            Self::Scratch(_) => "*template.Scratch",
        }
    }

    /// Describes its type for an error message.
    pub(in crate::templates) const fn describe(&self) -> &'static str {
        match self {
            Self::Nil | Self::Absent => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Int64(_) | Self::Uint64(_) | Self::Float(_) => "a number",
            Self::Number(_) => "a number of a secret",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Counter(..) => "a loop",
            Self::Scratch(_) => "scratch",
        }
    }
}

/// Error of a rendering: never a value, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::templates) struct Failure {
    pub(in crate::templates) message: String,
    /// Byte offset of what failed; the executor adds it.
    pub(in crate::templates) offset: Option<usize>,
}

impl Failure {
    pub(in crate::templates) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), offset: None }
    }

    /// Adds the path or name that the template itself gives to a function, unless it has other characters than those have.
    pub(in crate::templates) fn of_call(mut self, function: &str, literal: &str) -> Self {
        let is_name = literal.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte));
        if let Some(reason) = self.message.strip_prefix(function).filter(|rest| rest.starts_with(':') && is_name) {
            self.message = format!("{function} \"{literal}\"{reason}");
        }
        self
    }

    /// Adds the position, unless it has one.
    pub(in crate::templates) fn at(mut self, offset: usize) -> Self {
        self.offset.get_or_insert(offset);
        self
    }
}
