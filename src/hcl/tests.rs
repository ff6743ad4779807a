use proptest::prelude::*;

use super::*;

/// Parses a string; returns its tree in short, or the error.
fn found(text: &str) -> String {
    read(text).map_or_else(|error| error.to_string(), |object| format_object(&object))
}

fn format_object(object: &Object) -> String {
    let items: Vec<_> = object
        .attributes
        .iter()
        .map(|attribute| format!("{}={}", attribute.key, told_value(&attribute.value.value)))
        .collect();
    format!("{{{}}}", items.join(" "))
}

fn told_value(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("{text:?}"),
        Value::Number(number) => number.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null => "null".into(),
        Value::List(items) => {
            format!("[{}]", items.iter().map(|attribute| told_value(&attribute.value)).collect::<Vec<_>>().join(" "))
        }
        Value::Object(object) => format_object(object),
    }
}

fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(found(text), *expected, "{text}");
    }
}

#[test]
fn items_blocks_and_labels_give_one_tree() {
    check(&[
        ("", "{}"),
        ("\u{feff}\n\n", "{}"),
        ("a = 1 b = 2", "{a=1 b=2}"),
        ("a = 1, b = 2,", "{a=1 b=2}"),
        ("a\n=\n1", "{a=1}"),
        (
            "listener \"tcp\" { address = \"x\" tls_disable = true }",
            "{listener={tcp={address=\"x\" tls_disable=true}}}",
        ),
        ("config = { a = 1 b = 2 }", "{config={a=1 b=2}}"),
        ("\"path\" \"x\" {}", "{path={x={}}}"),
        ("key_prefix \"\" {}", "{key_prefix={={}}}"),
        ("path x y { z {} }", "{path={x={y={z={}}}}}"),
        ("a {} a {} a \"x\" {}", "{a={} a={} a={x={}}}"),
        ("a.b = 1 c-d = 2 _e = 3 é = 4", "{a.b=1 c-d=2 _e=3 é=4}"),
        ("a = [1, \"2\", {b = 3}, [4],]", "{a=[1 \"2\" {b=3} [4]]}"),
        ("# c\n// d\n/* e\n*/ a /* f */ = /* g */ true # h", "{a=true}"),
    ]);
}

#[test]
fn values_are_read_as_they_are_written() {
    check(&[
        (
            "a = 0640 b = 0x1aF c = -5 d = 1.5 e = 1e3 f = -1.5e-3 g = 0",
            "{a=0640 b=0x1aF c=-5 d=1.5 e=1e3 f=-1.5e-3 g=0}",
        ),
        (r#"a = "x\n\t\"\\\101\x41\u00e9\U0001F600""#, r#"{a="x\n\t\"\\AAé😀"}"#),
        ("a = \"${b(\"c\")}\n d\"", "line 1, column 15: line end in a string; write \\n, or a heredoc"),
        ("a = \"${b(\"c\n\")} $${d} $ {e}\"", "{a=\"${b(\\\"c\\n\\\")} $${d} $ {e}\"}"),
        ("a = \"${{}}\" b = 1", "{a=\"${{}}\" b=1}"),
        ("a = <<EOF\nfoo\n  bar\nEOF\nb = 1", "{a=\"foo\\n  bar\\n\" b=1}"),
        ("a = <<EOF\r\nfoo\r\nEOF\r\n", "{a=\"foo\\n\"}"),
        ("a = <<EOF\n${x} \\n\nEOFx\nfooEOF\nEOF", "{a=\"${x} \\\\n\\nEOFx\\nfooEOF\\n\"}"),
        ("a = <<-EOF\n  foo\n    bar\n  EOF\n", "{a=\"foo\\n  bar\\n\"}"),
        ("a = <<-EOF\n foo\n    bar\n  EOF\n", "{a=\" foo\\n    bar\\n\"}"),
        ("a = [<<EOF\nx\nEOF\n, 2]", "{a=[\"x\\n\" 2]}"),
    ]);
}

#[test]
fn json_gives_the_same_tree() {
    check(&[
        ("{}", "{}"),
        (" {\"a\": {\"b\": [1, 2.5, -3e2, true, false, null]}}\n", "{a={b=[1 2.5 -3e2 true false null]}}"),
        (r#"{"a": "x\u00e9\n\/\ud83d\ude00\""}"#, "{a=\"xé\\n/😀\\\"\"}"),
        ("{\"a\": 1, \"a\": [2,],}", "{a=1 a=[2]}"),
        ("{\"a\": 1} x", "line 1, column 10: expected the end after the object, found \"x\""),
        ("{a: 1}", "line 1, column 2: expected a key in quotes, found \"a\""),
        ("{\"a\" 1}", "line 1, column 6: expected `:` after the key, found \"1\""),
        ("{\"a\": 0640}", "line 1, column 7: invalid number `0640`; JSON has only decimal numbers"),
        ("{\"a\": nil}", "line 1, column 7: expected a value, with strings in quotes, found `nil`"),
        (
            "{\"a\": [1 2]}",
            "line 1, column 10: expected `,` or `]` for what was opened at line 1, column 7, found \"2\"",
        ),
        ("{\"a\": \"\\ud83d\"}", "line 1, column 8: this escape is not a character; write \\u and four digits"),
        ("{\"a\": \"b\nc\"}", "line 1, column 9: control character \"\\n\" in a string; write an escape such as \\n"),
    ]);
    let hcl = read("service \"web\" { policy = \"read\" }").unwrap();
    let json = read("{\"service\": {\"web\": {\"policy\": \"read\"}}}").unwrap();
    assert_eq!(format_object(&hcl), format_object(&json));
}

#[test]
fn syntax_errors_have_a_position_and_say_what_was_expected() {
    check(&[
        ("a = }", "line 1, column 5: expected a value, found `}`"),
        ("a = ", "line 1, column 5: expected a value, found the end"),
        ("a = x", "line 1, column 5: expected a value, with strings in quotes, found `x`"),
        ("a 1", "line 1, column 3: expected `=` and a value, or a block in braces, found `1`"),
        ("a \"b\" = 1", "line 1, column 7: expected a block in braces after the label, found `=`"),
        ("= 1", "line 1, column 1: expected a key, found `=`"),
        ("a = 1\n}", "line 2, column 1: unmatched `}`"),
        (
            "é = 1\na {\n  b = 1\n",
            "line 4, column 1: expected `}` for the block opened at line 2, column 3, found the end",
        ),
        ("a = [1, 2", "line 1, column 10: expected `]` for the list opened at line 1, column 5, found the end"),
        ("a = [1 2]", "line 1, column 8: expected `,` or `]`, found `2`"),
        ("a = 08", "line 1, column 5: invalid number \"08\""),
        ("a = 1.2.3", "line 1, column 5: invalid number \"1.2.3\""),
        ("a = -", "line 1, column 5: invalid number \"-\""),
        ("a = 'x'", "line 1, column 5: expected a name, a value, a bracket, a brace, `=` or `,`, found \"'\""),
        ("a = \"x", "line 1, column 5: unterminated string; end it with `\"`"),
        ("é = \"\\q\"", "line 1, column 6: unknown escape; known: \\\\ \\\" \\n \\r \\t \\a \\b \\f \\v \\x \\u \\U"),
        (
            "a = \"\\xff\"",
            "line 1, column 6: this escape is one byte of a multi-byte character; use \\u and four digits",
        ),
        ("a = \"\\u12\"", "line 1, column 10: expected 4 digits, found \"\\\"\""),
        ("/* a", "line 1, column 1: unterminated comment; end it with `*/`"),
        ("a = <<EOF\nx\n", "line 1, column 5: unterminated heredoc; end it with EOF on a line of its own"),
        ("a = <<EOF x", "line 1, column 10: expected a word and the end of the line after `<<`, found \" \""),
    ]);
}

#[test]
fn size_and_depth_have_limits() {
    let nested = |open: &str, close: &str, levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
    let check = |text: &str, good: bool| assert_eq!(read(text).is_ok(), good, "{}", found(text));
    let deepest = MAX_DEPTH;
    check(&format!("a = {}", nested("[", "]", deepest)), true);
    check(&format!("a = {}", nested("[", "]", deepest + 1)), false);
    check(&format!("{}a = 1{}", "a { ".repeat(deepest), "}".repeat(deepest)), true);
    check(&format!("{}a = 1{}", "a { ".repeat(deepest + 1), "}".repeat(deepest + 1)), false);
    check(&format!("{}{{}}", "a ".repeat(deepest)), true);
    check(&format!("{}{{}}", "a ".repeat(deepest + 2)), false);
    check(&"a ".repeat(100_000), false);
    check(&nested("{\"a\":", "}", deepest), true);
    check(&nested("{\"a\":", "}", 100_000), false);
    check(&format!("a = {}", "[".repeat(100_000)), false);
    check(&format!("#{}", " ".repeat(MAX_SIZE - 1)), true);
    check(&format!("#{}", " ".repeat(MAX_SIZE)), false);
}

/// Formats a tree as HCL; with `labels`, objects of one key are written as labels.
fn written(object: &Object, labels: bool) -> String {
    let attribute = |attribute: &Attribute| {
        let mut keys = vec![quoted(&attribute.key)];
        let mut value = &attribute.value.value;
        while let Value::Object(inner) = value
            && let [label] = inner.attributes.as_slice()
            && let Value::Object(_) = label.value.value
            && labels
        {
            keys.push(quoted(&label.key));
            value = &label.value.value;
        }
        let block = labels && matches!(value, Value::Object(_));
        format!("{} {}{}\n", keys.join(" "), if block { "" } else { "= " }, written_value(value, labels))
    };
    object.attributes.iter().map(attribute).collect()
}

fn written_value(value: &Value, labels: bool) -> String {
    match value {
        Value::Text(text) => quoted(text),
        Value::Number(number) => number.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null => "null".into(),
        Value::List(items) => {
            format!(
                "[{}]",
                items.iter().map(|attribute| written_value(&attribute.value, labels)).collect::<Vec<_>>().join(", ")
            )
        }
        Value::Object(object) => format!("{{\n{}}}", written(object, labels)),
    }
}

/// In `${...}` nothing is an escape, so a `$` is written as one.
fn quoted(text: &str) -> String {
    let characters = text.chars().map(|character| match character {
        '$' => "\\u0024".to_owned(),
        '"' | '\\' => format!("\\{character}"),
        control if control.is_control() => format!("\\u{:04x}", u32::from(control)),
        other => other.to_string(),
    });
    format!("\"{}\"", characters.collect::<String>())
}

fn any_object() -> impl Strategy<Value = Object> {
    let at = Position { line: 1, column: 1 };
    let leaf = prop_oneof![
        ".{0,6}".prop_map(Value::Text),
        "0[0-7]{0,3}|-?[1-9][0-9]{0,5}|0x[0-9a-f]{1,4}|[0-9]\\.[0-9]{1,3}(e-?[0-9])?".prop_map(Value::Number),
        any::<bool>().prop_map(Value::Bool),
    ];
    let object = move |items: Vec<(String, Value)>| Object {
        attributes: items.into_iter().map(|(key, value)| Attribute { key, at, value: Node { at, value } }).collect(),
    };
    let value = leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(move |items| Value::List(items.into_iter().map(|value| Node { at, value }).collect())),
            prop::collection::vec((".{0,6}", inner), 0..4).prop_map(move |items| Value::Object(object(items))),
        ]
    });
    prop::collection::vec((".{0,6}", value), 0..5).prop_map(object)
}

proptest! {
    #[test]
    fn a_written_object_parses_to_itself(object in any_object(), labels: bool) {
        let text = written(&object, labels);
        prop_assert_eq!(found(&text), format_object(&object), "{}", text);
    }

    #[test]
    fn json_is_read_as_others_read_it(object in any_object()) {
        let json = json_of(&Value::Object(object));
        let read = read(&json).unwrap();
        let again = json_of(&Value::Object(read));
        prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&again).unwrap(), serde_json::from_str::<serde_json::Value>(&json).unwrap());
    }

    #[test]
    fn any_text_is_parsed_without_a_panic(text in "\\PC{0,40}|[a\"{}\\[\\]=,<$\\\\\n 0-9/*#:-]{0,60}") {
        if let Err(error) = read(&text) {
            let lines: Vec<_> = text.split('\n').collect();
            let line = lines.get(error.position.line - 1).copied().unwrap_or_default();
            prop_assert!(error.position.line <= lines.len() && error.position.column <= line.chars().count() + 1, "{}", error);
            prop_assert!(!error.to_string().contains('\n') && error.to_string().len() < 300, "{}", error);
        }
    }
}

/// A tree as JSON writes it; numbers that it has not become null.
fn json_of(value: &Value) -> String {
    match value {
        Value::Text(text) => serde_json::to_string(text).unwrap(),
        Value::Number(number) if serde_json::from_str::<serde_json::Value>(number).is_ok() => number.clone(),
        Value::Number(_) | Value::Null => "null".into(),
        Value::Bool(flag) => flag.to_string(),
        Value::List(items) => {
            format!("[{}]", items.iter().map(|attribute| json_of(&attribute.value)).collect::<Vec<_>>().join(","))
        }
        Value::Object(object) => {
            let attribute = |attribute: &Attribute| {
                format!("{}:{}", serde_json::to_string(&attribute.key).unwrap(), json_of(&attribute.value.value))
            };
            format!("{{{}}}", object.attributes.iter().map(attribute).collect::<Vec<_>>().join(","))
        }
    }
}
