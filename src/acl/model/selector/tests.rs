use proptest::prelude::*;

use super::*;

fn claim_names() -> VerifiedClaims {
    VerifiedClaims::empty(["name", "org", "a.b"], ["groups"])
}

fn claims() -> VerifiedClaims {
    let mut claims = claim_names();
    claims.values.insert("name".into(), Some("jeff2".into()));
    claims.values.insert("org".into(), Some(String::new()));
    claims.values.insert("a.b".into(), Some("web test-db".into()));
    claims.lists.insert("groups".into(), Some(vec!["foo".into(), "bar baz".into()]));
    claims
}

#[test]
fn a_selector_matches_the_claims_it_describes() {
    let check = |text: &str, expected: bool| {
        let selector = Selector::parse(text, &claim_names()).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(selector.matches(&claims()), expected, "{text}");
    };
    check("value.name == jeff2", true);
    check("value.name==jeff2", true);
    check("value.name == \"jeff2\"", true);
    check("value.name == `jeff2`", true);
    check("value.name == \"jeff\"", false);
    check("value.name == Jeff2", false);
    check("value.name != jeff2", false);
    check("value[\"name\"] == jeff2", true);
    check("value[`a.b`] == \"web test-db\"", true);
    check("value[\"a.b\"] contains test", true);
    check("value.name contains eff", true);
    check("value.name not contains eff", false);
    check("eff in value.name", true);
    check("\"eff\" not in value.name", false);
    check("foo in list.groups", true);
    check("\"bar baz\" in list.groups", true);
    check("bar in list.groups", false);
    check("bar not in list.groups", true);
    check("list.groups contains foo", true);
    check("list[\"groups\"] not contains foo", false);
    check("value.org is empty", true);
    check("value.name is empty", false);
    check("value.name is not empty", true);
    check("list.groups is empty", false);
    check("list.groups is not empty", true);
    check("value.name matches `^jeff[0-9]$`", true);
    check("value.name not matches \"^jeff$\"", true);
    check("value.name == jeff2 and foo in list.groups", true);
    check("value.name == x or foo in list.groups", true);
    check("value.name == x or value.org == y and foo in list.groups", false);
    check("(value.name == jeff2 or value.org == y) and x in list.groups", false);
    check("value.name == jeff2 or value.org == y and x in list.groups", true);
    check("not value.name == x and value.name == jeff2", true);
    check("not (value.name == x or value.name == jeff2)", false);
    check("not not value.name == jeff2", true);
    check(" ( ( value.name==jeff2 ) ) ", true);
    check("value.org == \"\"", true);
    check("value.name == \"\\\"\\\\\\n\"", false);
    check("value.name == \"\\x6a\\145\\u0066\\U000000662\"", true);
    check("value.name == je[`ff2`]", false);
    check("value[\"a.b\"] contains web-1", false);
    check("name in value and org in value and groups in list", true);
    check("value contains name and list not contains groups", false);
    check("value is empty or list is empty", false);
    check("not in list.groups or not not in list.groups", true);
    check("(value.name==jeff2)and(not(value.name==x))", true);
    check("and in list.groups", false);
    check("value.name == and and value.name == or", false);
}

#[test]
fn an_invalid_selector_is_rejected_with_its_position() {
    let check = |text: &str, expected: &str| {
        let error = Selector::parse(text, &claim_names()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    };
    check("", "at character 1: expected a name or a value, found the end");
    check("value.name", "at character 11: expected an operator");
    check("value.name =", "at character 12: expected \"==\"");
    check("value.name = x", "expected \"==\" or \"!=\", found =");
    check("value.name ==", "expected a name or a value, found the end");
    check("value.name == x y", "at character 17: expected \"and\", \"or\" or the end, found y");
    check("value.name == x and", "found the end");
    check("(value.name == x", "expected \")\"");
    check("value.name == x)", "expected \"and\"");
    check("value.name == \"x", "at character 15: expected a closing quote");
    check("value.name == \"\\x\"", "expected an escape, such as");
    check("value.name == \"\\\n\"", "found \\\\n");
    check("value.name == \"x\ny\"", "found a line break");
    check("value.name == \"\\400\"", "found \\4");
    check("value.name == \"\\ud800\"", "found \\u");
    check("value.a.b == x", "value.a.b is unknown");
    check("value == name", "value is no string: only `contains`, `in` and `is empty` apply to it, not `==`");
    check("other not in value", "value.other is unknown");
    check("name in list", "list.name is unknown");
    check("value.name == x \u{1b}[31m", "found \\u{1b}");
    check("value[\"a\rb\"] == x", "value.a\\rb is unknown");
    check("value.name is full", "expected \"empty\", found full");
    check("value.name not == x", "expected \"in\", \"contains\" or \"matches\"");
    check("value[name] == x", "expected a name in quotes");
    check("value[\"name\" == x", "expected \"]\"");
    check("\"x\" == value.name", "at character 5: expected \"in\" or \"not in\", found ==");
    check("x in \"y\"", "expected \"value.NAME\" or \"list.NAME\", found a string");
    check("name == x", "name is unknown; available: value.a.b, value.name, value.org, list.groups");
    check("value.other == x", "value.other is unknown");
    check("value.groups is empty", "value.groups is unknown");
    check("x in list.name", "list.name is unknown");
    check("list.groups == x", "list.groups is no string");
    check("list.groups matches x", "not `matches`");
    check("value.name matches \"(\"", "\"(\" is not a valid regular expression");
    check("value.name matches `(?i)é`", "is not a valid regular expression: ignoring case is for ASCII letters only");
    check("value.name matches `(?mi)\\x{212A}`", "ignoring case is for ASCII letters only");
    check("value.name matches \"(a{1000}){1000}\"", "is not a valid regular expression");
    check(&"(".repeat(100), "nested too deep");
    check(&"not ".repeat(100), "nested too deep");
    check(&"x".repeat(MAX_SELECTOR + 1), "longer than");
    let none = Selector::parse("value.x == y", &VerifiedClaims::default()).map(|_| ()).unwrap_err().to_string();
    assert_eq!(none, "value.x is unknown; available: none, as the auth method maps no claims");
}

#[test]
fn a_claim_that_the_token_lacks_never_selects_more_than_consul() {
    let mut claims = claims();
    claims.values.insert("org".into(), None);
    claims.lists.insert("groups".into(), None);
    let check = |text: &str, expected: bool| {
        let selector = Selector::parse(text, &claim_names()).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(selector.matches(&claims), expected, "{text}");
    };
    for (text, expected) in [
        ("org in value", false),
        ("org not in value", true),
        ("value not contains org", true),
        ("groups in list", false),
        ("list is empty", true),
        ("list.groups is empty", true),
        ("foo not in list.groups", true),
        ("value.org == x", false),
        ("value.org != x", true),
        ("not value.org == x", true),
        ("x not in value.org", true),
        ("value.org is empty", true),
        ("value.org is not empty", false),
        ("value.org not matches `^x`", true),
        ("value.org matches `.*`", true),
        // Consul selects the claim with `matches` and `!=`, and an empty string with `==`.
        ("value.org matches `^x`", false),
        ("not value.org matches `^x`", false),
        ("value.org == \"\"", false),
        ("value.org != \"\"", false),
        ("not value.org == \"\"", false),
        ("value.org not matches `^$`", false),
    ] {
        check(text, expected);
        check(&format!("({text}) and value.name == jeff2"), expected);
        check(&format!("({text}) or value.name == jeff2"), true);
        check(&format!("({text}) or value.name == x"), expected);
    }
    // Go also ignores the case of other letters: a Kelvin sign is a `k` there.
    claims.values.insert("org".into(), Some("\u{212a}evin".into()));
    for text in ["value.org matches `(?i)kevin`", "value.org not matches `(?i)kevin`", "not value.org matches `(?i)x`"]
    {
        assert!(!Selector::parse(text, &claim_names()).unwrap().matches(&claims), "{text}");
    }
    assert!(Selector::parse("value.org not matches `kevin`", &claim_names()).unwrap().matches(&claims));
}

/// An expression with its text, put together in the test's own way.
fn any_expression() -> impl Strategy<Value = (String, bool)> {
    let value = prop_oneof!["[a-c]{0,2}", "[ \"\\\\()=!a]{0,4}", Just("jeff2".to_owned()), Just("foo".to_owned())];
    let leaf = (value, 0..6_usize).prop_map(|(value, kind)| {
        let quoted = format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
        let name = "jeff2";
        let groups = ["foo", "bar baz"];
        match kind {
            0 => (format!("value.name == {quoted}"), name == value),
            1 => (format!("value.name != {quoted}"), name != value),
            2 => (format!("{quoted} in list.groups"), groups.contains(&value.as_str())),
            3 => (format!("{quoted} not in list.groups"), !groups.contains(&value.as_str())),
            4 => (format!("value.name contains {quoted}"), name.contains(&value)),
            _ => ("value.org is empty".to_owned(), true),
        }
    });
    leaf.prop_recursive(6, 24, 3, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            inner.prop_map(|(text, holds)| (format!("not ({text})"), !holds)),
            pair.clone().prop_map(|((a, x), (b, y))| (format!("({a}) and ({b})"), x && y)),
            pair.prop_map(|((a, x), (b, y))| (format!("({a}) or ({b})"), x || y)),
        ]
    })
}

proptest! {
    #[test]
    fn a_selector_says_what_its_parts_say((text, expected) in any_expression()) {
        prop_assert_eq!(Selector::parse(&text, &claim_names()).unwrap().matches(&claims()), expected, "{}", text);
    }

    #[test]
    fn no_text_panics_the_parser(text in "(value\\.name|list\\.groups|not|in|and|or|is|empty|==|!=|\\(|\\)|\\[|\"|`|x| |\\PC){0,24}") {
        if let Ok(selector) = Selector::parse(&text, &claim_names()) {
            selector.matches(&claims());
        }
    }
}
