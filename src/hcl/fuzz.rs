//! Entry point of the fuzz target `hcl`.

use super::{HclError, Node, Object, Position, Value};

/// An object as a fuzz target compares it: without the positions.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadObject {
    /// The object in HCL's JSON form.
    pub json: String,
    /// Positions of keys and values in the order of the text.
    pub positions: Vec<Position>,
    /// Depth of the nesting.
    pub depth: usize,
}

/// Parses a string, and prints the object.
pub fn read(text: &str) -> Result<ReadObject, HclError> {
    let mut read = ReadObject { json: String::new(), positions: Vec::new(), depth: 0 };
    read.print_object(&super::read(text)?, 1);
    Ok(read)
}

impl ReadObject {
    fn print_object(&mut self, object: &Object, depth: usize) {
        self.depth = self.depth.max(depth);
        self.json.push('{');
        for (index, attribute) in object.attributes.iter().enumerate() {
            self.separate(index);
            self.positions.push(attribute.at);
            self.print_text(&attribute.key);
            self.json.push(':');
            self.print_node(&attribute.value, depth + 1);
        }
        self.json.push('}');
    }

    fn print_node(&mut self, node: &Node, depth: usize) {
        self.positions.push(node.at);
        match &node.value {
            Value::Text(text) => self.print_text(text),
            // Such as 0640, which JSON does not have.
            Value::Number(number) if serde_json::from_str::<serde_json::Number>(number).is_err() => {
                self.print_text(number);
            }
            Value::Number(number) => self.json.push_str(number),
            Value::Bool(value) => self.json.push_str(if *value { "true" } else { "false" }),
            Value::Null => self.json.push_str("null"),
            Value::List(nodes) => {
                self.depth = self.depth.max(depth);
                self.json.push('[');
                for (index, node) in nodes.iter().enumerate() {
                    self.separate(index);
                    self.print_node(node, depth + 1);
                }
                self.json.push(']');
            }
            Value::Object(object) => self.print_object(object, depth),
        }
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.json.push(',');
        }
    }

    fn print_text(&mut self, text: &str) {
        self.json.push_str(&serde_json::Value::from(text).to_string());
    }
}
