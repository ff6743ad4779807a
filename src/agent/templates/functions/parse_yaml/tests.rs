use serde_json::json;

use super::*;

fn found(yaml: &str) -> Result<Json, String> {
    read(yaml).map_err(|error| error.to_string())
}

#[test]
fn values_have_the_types_of_gos_library() {
    let check = |yaml: &str, expected: Json| assert_eq!(found(yaml), Ok(expected), "{yaml}");
    check("a: [1, two, 'three', \"4\"]", json!({"a": [1, "two", "three", "4"]}));
    check("- ~\n-\n- null\n- true\n- FALSE\n- yes\n- on", json!([null, null, null, true, false, true, true]));
    check("[0x1f, 0o17, 017, 0b11, 1_000, -7, +7]", json!([31, 15, 15, 3, 1000, -7, 7]));
    check("[18446744073709551615, 1.5, 1e3, .5, 2.]", json!([u64::MAX, 1.5, 1000.0, 0.5, 2.0]));
    check(
        "[1.2.3, 0xzz, '12', 2026-01-31, 12:30, e3, infinity, 1e999]",
        json!(["1.2.3", "0xzz", "12", "2026-01-31", "12:30", "e3", "infinity", "1e999"]),
    );
    check("a: |\n  one\n  two\nb: >-\n  one\n  two\n", json!({"a": "one\ntwo\n", "b": "one two"}));
    check("a: !!str 12\nb: !!int '12'\nc: !mine 12", json!({"a": "12", "b": 12, "c": "12"}));
    check("1: a\ntrue: b\noff: c\n'no': d", json!({"1": "a", "true": "b", "false": "c", "no": "d"}));
    check("[y, No, OFF, 'n', yesterday]", json!([true, false, false, "n", "yesterday"]));
    check(
        "base: &b {x: 1, z: 2}\nmine:\n  <<: *b\n  z: 3",
        json!({
            "base": {"x": 1, "z": 2}, "mine": {"x": 1, "z": 3}
        }),
    );
    check("<<: [{x: 1}, {x: 2, z: 3}]", json!({"x": 1, "z": 3}));
    check("# nothing\n", Json::Null);
    check("a: 1\n---\nb: 2\n", json!({"a": 1}));
}

#[test]
fn errors_have_the_line_and_not_the_content() {
    let check = |yaml: &str, expected: &str| {
        let error = found(yaml).unwrap_err();
        assert!(error.contains(expected) && !error.contains("canary"), "{error}");
    };
    check("a: 1\nb: [canary", "invalid YAML at line");
    check("canary: 1\ncanary: 2", "line 2: a key is repeated");
    check("? [a]\n: 1", "a key is not a scalar");
    check("a: &x [*x]", "an alias refers to a value that contains it");
    check("a: *canary", "invalid YAML at line 1");
    check("a: !!binary Y2FuYXJ5", "a tag is not supported");
    check("a: !!int canary", "not have the type");
    check("<<: canary", "is not a map");
    check(&"[".repeat(150), "invalid YAML");
    check(&format!("{}{}", "- ".repeat(150), "x"), "too deeply");
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        laughs.extend([&format!("a{level}: &a{level} ["), &*vec![before; 10].join(", "), "]\n"]);
    }
    check(&laughs, "too many values");
}
