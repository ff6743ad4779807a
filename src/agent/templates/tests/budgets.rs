//! Templates that never end or take all memory, and values that a secret's writer chose to break them.

use std::fmt::Write as _;

use super::*;

fn wrong(contents: &str) -> String {
    match render(contents) {
        Rendered::Failed(wrong) => wrong.message,
        other => panic!("{contents}: {other:?}"),
    }
}

#[test]
fn runaway_templates_are_stopped() {
    assert!(wrong("{{ range loop 100000 }}{{ range loop 100000 }}{{ end }}{{ end }}").contains("budget"));
    assert!(wrong("{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}").contains("recursion"));
    assert!(wrong("{{ loop 1000000 }}").contains("hundred thousand"));
    let doubled = |by: &str| {
        let long = "x".repeat(1024);
        wrong(&format!("{{{{ $x := \"{long}\" }}}}{{{{ range loop 40 }}}}{{{{ $x = {by} }}}}{{{{ end }}}}"))
    };
    for by in ["printf \"%s%s\" $x $x", "print $x $x", "replaceAll \"x\" \"xx\" $x", "join $x (sprig_until 3)"] {
        assert!(doubled(by).contains("exceeds 16 MiB"), "{by}: {}", doubled(by));
    }
    let twice =
        "{{ $x := sprig_list (sprig_repeat 9999 `x`) }}{{ range sprig_until 60 }}{{ $x = sprig_list $x $x }}{{ end }}";
    for (by, expected) in [("toJSON", "exceeds 16 MiB"), ("sprig_deepCopy", "too large")] {
        assert!(wrong(&format!("{twice}{{{{ $x | {by} | len }}}}")).contains(expected), "{by}");
    }
    assert!(wrong("{{ $d := sprig_dict }}{{ $_ := sprig_set $d \"a\" (sprig_list $d) }}").contains("contain itself"));
    assert!(
        wrong("{{ scratch.MapSet \"m\" \"a\" 1 }}{{ scratch.MapSet \"m\" \"b\" scratch }}").contains("contain itself")
    );
    check("{{ $x := sprig_list }}{{ range loop 100000 }}{{ $x = sprig_list $x }}{{ end }}{{ len $x }}", "1");
    let long = "x".repeat(1024);
    assert!(wrong(&format!("{{{{ range loop 20000 }}}}{long}{{{{ end }}}}")).contains("exceeds 16 MiB"));
}

#[test]
fn templates_that_call_each_other_twice_are_stopped() {
    let mut contents = "{{ define \"t0\" }}{{ end }}".to_owned();
    for level in 1..60 {
        let below = format!("{{{{ template \"t{}\" }}}}", level - 1);
        let _ = write!(contents, "{{{{ define \"t{level}\" }}}}{below}{below}{{{{ end }}}}");
    }
    assert!(wrong(&format!("{contents}{{{{ template \"t59\" }}}}")).contains("budget of work"));
}

#[test]
fn a_result_that_would_take_all_memory_is_refused_before_it_is_made() {
    let long = "{{ $x := printf \"%0999999d\" 0 }}{{ $lines := sprig_repeat 99999 \"x\\n\" }}";
    for (call, expected) in [
        ("replaceAll \"0\" $x $x", "exceeds 16 MiB"),
        ("sprig_replace \"0\" $x $x", "exceeds 16 MiB"),
        ("regexReplaceAll \"0\" $x $x", "exceeds 16 MiB"),
        ("regexReplaceAll \"0+\" (sprig_repeat 99999 \"$0\") $x", "exceeds 16 MiB"),
        ("sprig_regexReplaceAllLiteral \"0\" $x $x", "exceeds 16 MiB"),
        ("join $x (split \"0\" $x)", "exceeds 16 MiB"),
        ("sprig_join $x (sprig_list 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9)", "exceeds 16 MiB"),
        ("indent 1000 $lines", "exceeds 16 MiB"),
        ("sprig_indent 1000 $lines", "exceeds 16 MiB"),
        ("sprig_wrapWith 1 $x (sprig_repeat 99 \"x \")", "exceeds 16 MiB"),
    ] {
        let message = wrong(&format!("{long}{{{{ {call} | len }}}}"));
        assert!(message.contains(expected), "{call}: {message}");
    }
    let grown = "{{ $x := sprig_list 1 }}{{ range loop 60 }}{{ $x = sprig_concat $x $x }}{{ end }}";
    assert!(wrong(grown).contains("budget of work"));
    let noted = "{{ range loop 100000 }}{{ scratch.Set (print .) (printf \"%0999999d\" .) }}{{ end }}";
    assert!(wrong(noted).contains("budget of work"));
    let lists = "{{ $x := sprig_list }}{{ range $i := loop 3000 }}{{ $x = sprig_append $x (sprig_append (sprig_until 3000) $i) }}{{ end }}";
    let message = wrong(&format!("{lists}{{{{ sprig_uniq $x | len }}}}"));
    assert!(message.contains("budget of work") || message.contains("too many items"), "{message}");
}

#[test]
fn an_integer_has_one_sign() {
    check(
        "{{ sprig_int \"--170141183460469231731687303715884105728\" }} {{ sprig_int \"--5\" }} {{ sprig_int \"-+5\" }}",
        "0 0 0",
    );
    check("{{ sprig_int \"-5\" }} {{ sprig_int \"+5\" }} {{ sprig_int \"-0x1F\" }}", "-5 5 -31");
}

#[test]
fn a_map_whose_keys_have_no_total_order_becomes_yaml() {
    let keys = "1435 938 7-14 37 70 -0 203 601 0186 4 54 -045 6252 25a2 4565 78 5-4 6 93 a58 8a63";
    let fields: Vec<String> = keys.split(' ').map(|key| format!("\"{key}\": 1")).collect();
    check(&format!("{{{{ parseJSON `{{{}}}` | toYAML | split \"\\n\" | len }}}}", fields.join(",")), "21");
}

proptest::proptest! {
    /// Keys of which the order is no total one.
    #[test]
    fn a_map_with_any_keys_becomes_yaml(keys in proptest::collection::vec("[0-9a-]{1,5}", 0..200)) {
        let map: serde_json::Map<String, Value> = keys.into_iter().map(|key| (key, 1.into())).collect();
        let count = map.len();
        let json = Value::Object(map);
        check(&format!("{{{{ parseJSON `{json}` | toYAML | split \"\\n\" | len }}}}"), &count.max(1).to_string());
    }
}
