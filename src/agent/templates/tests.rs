//! The template language: templates and secrets in, texts out.

mod budgets;
mod consul_template;
mod options;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use keyward_machine::command::EnvVars;
use keyward_machine::secret_string::SecretString;
use serde_json::{Value, json};

use super::{Dependency, Rendered, Resolved, Template, TemplateError, TemplateSource};
use crate::secrets::{SecretFields, SecretOp, SecretRequest, SecretResponse};

const CANARY: &str = "canary-5ecret";

fn text(contents: &str) -> TemplateSource {
    let of = BTreeMap::from([("LANG".to_owned(), "C".to_owned())]);
    TemplateSource {
        name: "test".to_owned(),
        file: None,
        text: contents.to_owned(),
        left: "{{".to_owned(),
        right: "}}".to_owned(),
        variables: EnvVars::select(&of, &[]),
        folders: vec![PathBuf::from("/etc/app")],
        write_folders: vec![PathBuf::from("/etc/ssl/app")],
        allows_missing_keys: false,
    }
}

fn response(data: &Value) -> Resolved {
    let data = SecretFields::from(data.as_object().unwrap().clone());
    Resolved::Secret(Arc::new(SecretResponse { data: Arc::new(data), lease: None, suggested_ttl: None }))
}

fn known() -> Arc<BTreeMap<Dependency, Resolved>> {
    let read = |path: &str| Dependency::Secret(SecretRequest::read(path));
    let write = |path: &str, fields: &[(&str, &str)]| {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Dependency::Secret(SecretRequest { path: path.to_owned(), op: SecretOp::Write(fields) })
    };
    let app = json!({
        "data": {
            "password": CANARY, "port": 5432, "ratio": 0.5, "on": true, "nothing": null, "hosts": ["b", "a"],
            "coded": "aGVsbG8=", "json": "{\"a\":[1,2]}", "tag": "a<b>&c", "pairs": "x=1,y=2"
        },
        "metadata": { "version": 3 }
    });
    let absent = Resolved::Absent("the secret secret/data/gone is not there: HTTP 404".into());
    Arc::new(BTreeMap::from([
        (read("secret/data/app"), response(&app)),
        (read("secret/data/gone"), absent),
        (write("transit/decrypt/k", &[("ciphertext", "c=1")]), response(&json!({ "plaintext": "cGxhaW4=" }))),
        (
            Dependency::Secret(SecretRequest { path: "secret/metadata".to_owned(), op: SecretOp::List }),
            response(&json!({ "keys": ["app", "folder/"] })),
        ),
        (Dependency::File("/etc/app/motd".into()), Resolved::Text(Arc::new(SecretString::from("hello")))),
    ]))
}

fn render(contents: &str) -> Rendered {
    render_and_list(contents).0
}

fn render_and_list(contents: &str) -> (Rendered, BTreeSet<Dependency>) {
    let template = Template::compile(text(contents)).unwrap_or_else(|wrong| panic!("{contents}: {wrong:?}"));
    template.render_and_list(known(), SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
}

fn check(contents: &str, expected: &str) {
    match render(contents) {
        Rendered::Complete { text, .. } => assert_eq!(text, expected, "{contents}"),
        other => panic!("{contents}: {other:?}"),
    }
}

/// Checks a template in which `.` is the application's secret.
fn check_app(inside: &str, expected: &str) {
    check(&format!("{{{{ with secret \"secret/data/app\" }}}}{inside}{{{{ end }}}}"), expected);
}

#[test]
fn secrets_lists_certificates_and_files_are_read() {
    check_app("{{ .Data.data.password }}:{{ .Data.data.port }} v{{ .Data.metadata.version }}", "canary-5ecret:5432 v3");
    check("{{ (secret \"/secret/data/app/\").Data.data.ratio }}", "0.5");
    check("{{ range secrets \"secret/metadata/\" }}[{{ . }}]{{ end }}", "[app][folder/]");
    check(
        "{{ with secret \"transit/decrypt/k\" \"ciphertext=c=1\" }}{{ .Data.plaintext | base64Decode }}{{ end }}",
        "plain",
    );
    check("{{ file \"/etc/app/motd\" | toUpper }}", "HELLO");
    check("{{ env \"LANG\" }} {{ envOrDefault \"NONE\" \"else\" }}", "C else");
    check(
        "{{ timestamp }} {{ timestamp \"2006-01-02\" }} {{ timestamp \"unix\" }}",
        "2023-11-14T22:13:20Z 2023-11-14 1700000000",
    );
}

#[test]
fn the_syntax_is_gos() {
    check("a {{- /* nothing */ -}} b", "ab");
    check_app("{{ range $key, $value := .Data.metadata }}{{ $key }}={{ $value }};{{ end }}", "version=3;");
    check_app(
        "{{ range $i, $host := .Data.data.hosts }}{{ if $i }},{{ end }}{{ $host }}{{ else }}none{{ end }}",
        "b,a",
    );
    check_app("{{ printf \"%s:%05d %q\" \"x\" .Data.data.port \"y\" }}", "x:05432 \"y\"");
    check_app("{{ if and .Data.data.on (gt .Data.data.port 1024) }}high{{ else }}low{{ end }}", "high");
    check_app(
        "{{ index .Data.data \"password\" }} {{ index .Data.data.hosts 1 }} {{ len .Data.data.hosts }}",
        "canary-5ecret a 2",
    );
    check_app("{{ with index .Data.data \"absent\" }}{{ . }}{{ else }}default{{ end }}", "default");
    check("{{ define \"row\" }}<{{ . }}>{{ end }}{{ template \"row\" \"x\" }}{{ template \"row\" \"y\" }}", "<x><y>");
    check("{{ $sum := 0 }}{{ range loop 1 4 }}{{ $sum = add . $sum }}{{ end }}{{ $sum }}", "6");
    check("{{ range $i := loop 5 }}{{ if eq $i 3 }}{{ break }}{{ end }}{{ $i }}{{ end }}", "012");
    let other = TemplateSource { left: "[[".to_owned(), right: "]]".to_owned(), ..text("{{ [[ \"x\" | toUpper ]] }}") };
    let rendered = Template::compile(other).unwrap().render(known(), SystemTime::UNIX_EPOCH);
    assert!(matches!(rendered, Rendered::Complete { text, .. } if text == "{{ X }}"));
}

#[test]
fn functions_have_the_results_of_consul_template() {
    check_app(
        "{{ .Data.data.coded | base64Decode }} {{ \"a?b>\" | base64URLEncode }} {{ \"YT9iPg==\" | base64URLDecode }}",
        "hello YT9iPg== a?b>",
    );
    check_app("{{ (.Data.data.json | parseJSON).a | toJSON }}", "[1,2]");
    check_app(
        "{{ .Data.data.tag | toJSON }} {{ .Data.data.tag | toUnescapedJSON }}",
        "\"a\\u003cb\\u003e\\u0026c\" \"a<b>&c\"",
    );
    check_app("{{ .Data.metadata | toJSONPretty }}", "{\n  \"version\": 3\n}");
    check_app("{{ .Data.data.hosts | join \"-\" }} {{ range \"a,b\" | split \",\" }}({{ . }}){{ end }}", "b-a (a)(b)");
    check_app("{{ range $k, $v := .Data.data.pairs | splitToMap \",\" \"=\" }}{{ $k }}:{{ $v }} {{ end }}", "x:1 y:2 ");
    check(
        "{{ \"Foo bar\" | toLower }} {{ \"foo\" | toUpper }} {{ \"foo bar-baz\" | toTitle }}",
        "foo bar FOO Foo Bar-Baz",
    );
    check(
        "{{ \"xxax\" | trim \"x\" }} {{ \" a \" | trimSpace }}. {{ \"pre-a\" | trimPrefix \"pre-\" }} {{ \"a.x\" | trimSuffix \".x\" }}",
        "a a. a a",
    );
    check("{{ \"a.b.c\" | replaceAll \".\" \"_\" }} {{ \"a1b22\" | regexReplaceAll \"[0-9]+\" \"#\" }}", "a_b_c a#b#");
    check("{{ if \"v1.2\" | regexMatch \"^v[0-9]\" }}yes{{ end }}", "yes");
    check_app("{{ if .Data.data.hosts | contains \"a\" }}1{{ end }}{{ if in .Data.data.hosts \"x\" }}2{{ end }}", "1");
    check_app("{{ if .Data.data.hosts | containsAny (split \",\" \"a,z\") }}1{{ end }}", "1");
    check_app("{{ if .Data.data.hosts | containsAll (split \",\" \"a,z\") }}1{{ else }}2{{ end }}", "2");
    check(
        "{{ 5 | subtract 2 }} {{ 7 | divide 2 }} {{ 7 | modulo 4 }} {{ multiply 2 3 }} {{ maximum 2 3 }} {{ 1.5 | add 1 }}",
        "3 3 3 6 3 2.5",
    );
    check("{{ parseInt \"12\" | add 1 }} {{ parseFloat \"0.5\" }} {{ parseBool \"true\" }}", "13 0.5 true");
    check("{{ \"abc\" | sha256Hex }}", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check("{{ \"a\\nb\" | indent 2 }}{{ \"x\" | sprig_default \"y\" }}{{ \"\" | sprig_default \"y\" }}", "  a\n  bxy");
}

#[test]
fn unresolved_dependencies_are_requested_together_where_possible() {
    let needs = |contents: &str| match render(contents) {
        Rendered::Unresolved(needs) => needs,
        other => panic!("{contents}: {other:?}"),
    };
    let read = |path: &str| Dependency::Secret(SecretRequest::read(path));
    let both =
        needs("{{ with secret \"a/b\" }}{{ .Data.x }}{{ end }}{{ (secret \"c/d\").Data.y }} {{ file \"/etc/app/x\" }}");
    assert_eq!(both, BTreeSet::from([read("a/b"), read("c/d"), Dependency::File("/etc/app/x".into())]));
    // A branch that is not taken asks for nothing.
    check("{{ if false }}{{ secret \"a/b\" }}{{ end }}x", "x");
    // A failure that follows from an unresolved dependency is not an error yet.
    assert_eq!(needs("{{ (secret \"a/b\").Data.x | toUpper }}"), BTreeSet::from([read("a/b")]));
}

#[test]
fn a_rendering_lists_what_it_used_whatever_its_result() {
    let check = |contents: &str, expected: &[&str]| {
        let expected: BTreeSet<_> =
            expected.iter().map(|path| Dependency::Secret(SecretRequest::read(*path))).collect();
        assert_eq!(render_and_list(contents).1, expected, "{contents}");
    };
    check("{{ with secret \"secret/data/app\" }}{{ .Data.data.port }}{{ end }}", &["secret/data/app"]);
    check("{{ secret \"secret/data/app\" }}{{ secret \"a/b\" }}", &["a/b", "secret/data/app"]);
    check("{{ (secret \"secret/data/app\").Data.missing }}{{ secret \"a/b\" }}", &["secret/data/app"]);
    check("{{ with secret \"secret/data/app\" }}{{ else }}{{ secret \"a/b\" }}{{ end }}", &["secret/data/app"]);
}

#[test]
fn errors_of_compilation_have_a_position() {
    let check = |contents: &str, line, column, message: &str| {
        let wrong = Template::compile(text(contents)).unwrap_err();
        assert_eq!((wrong[0].line, wrong[0].column), (line, column), "{wrong:?}");
        assert!(wrong[0].message.contains(message), "{wrong:?}");
    };
    check("a\nb {{ secrt \"x\" }}", 2, 6, "unknown function secrt; did you mean secret?");
    check("{{ if true }}", 1, 4, "this has no {{ end }}");
    check("{{ if true }}{{ range loop 3 }}{{ end }}", 1, 4, "this has no {{ end }}");
    check("{{ if true }}{{ else }}\n{{ with 3 }} x", 2, 4, "this has no {{ end }}");
    check("{{ define \"a\" }}x", 1, 4, "this has no {{ end }}");
    check("{{ if true }}{{ end }}{{ end }} x", 1, 23, "unexpected {{ end }}");
    check("{{ else }}", 1, 1, "unexpected {{ else }}");
    check("x\n{{ nope", 2, 8, "unclosed action");
    check("{{ if true }}{{ key \"a\" }}{{ end }}", 1, 17, "key is not available: it reads Consul");
    check(
        "{{ \"x\" | writeToFile \"/x\" \"\" \"\" \"0600\" }}",
        1,
        10,
        "writeToFile \"/x\": the path is below none of the template's write_folders",
    );
    check("{{ template \"row\" }}", 1, 4, "unknown template \"row\"");
    check("{{ (printf \"%s\" (foo 1)) }}", 1, 18, "unknown function foo");
    check("{{ define \"a\" }}1{{ end }}{{ define \"a\" }}2{{ end }}", 1, 30, "defined twice");
    let both = Template::compile(text("{{ foo }}{{ bar }}")).unwrap_err();
    assert_eq!(both.len(), 2, "all at once");
}

#[test]
fn a_json_null_is_printed_as_in_go_and_a_missing_key_is_an_error() {
    let app = "{{ with secret \"secret/data/app\" }}";
    let check = |contents: &str, expected: &str| match render(&format!("{app}{contents}{{{{ end }}}}")) {
        Rendered::Complete { text, .. } => assert_eq!(text, expected, "{contents}"),
        other => panic!("{contents}: {other:?}"),
    };
    check("{{ .Data.data.nothing }}", "<no value>");
    check("{{ index .Data.data \"nothing\" }}", "<no value>");
    check("{{ .Data.data.nothing | printf \"%v\" }}", "<nil>");
    check("{{ with .Data.data.nothing }}x{{ else }}y{{ end }}", "y");
    check("{{ with index .Data.data \"missing\" }}x{{ else }}y{{ end }}{{ .Data.data.nothing }}", "y<no value>");
    check("{{ .Data.data.nothing | toJSON }}", "null");
    for missing in ["{{ .Data.data.missing }}", "{{ index .Data.data \"missing\" }}", "{{ index .Data \"x\" | print }}"]
    {
        let rendered = render(&format!("{app}{missing}{{{{ end }}}}"));
        assert!(matches!(rendered, Rendered::Failed(_)), "{missing}: {rendered:?}");
    }
}

#[test]
fn errors_of_rendering_have_a_position_and_no_value() {
    let fails = |contents: &str| match render(contents) {
        Rendered::Failed(wrong) => wrong,
        other => panic!("{contents}: {other:?}"),
    };
    let check = |contents: &str, line, column, message: &str| {
        let TemplateError { line: its, column: theirs, message: said } = fails(contents);
        assert_eq!((its, theirs), (line, column), "{contents}: {said}");
        assert!(said.contains(message), "{contents}: {said}");
    };
    let app = "{{ with secret \"secret/data/app\" }}\n";
    check(&format!("{app}ok {{{{ .Data.data.missing }}}}{{{{ end }}}}"), 2, 7, "there is no \"missing\" here");
    check(&format!("{app}{{{{ index .Data.data \"x\" }}}}{{{{ end }}}}"), 2, 4, "there is no value here");
    check("x {{ secret \"secret/data/gone\" }}", 1, 6, "secret/data/gone is not there: HTTP 404");
    check(
        "{{ range loop 2 }}{{ if eq . 1 }}\n{{ index (split \",\" \"a\") 7 }}{{ end }}{{ end }}",
        2,
        4,
        "out of range",
    );
    check("{{ env \"NOPE\" }}", 1, 4, "env \"NOPE\": the variable is not set or not passed");
    check("{{ \"NO\" | env }}", 1, 11, "env: the variable is not set or not passed");
    check("{{ file \"/etc/shadow\" }}", 1, 4, "below none of the template's read_folders");
    check("{{ file \"/etc/app/../shadow\" }}", 1, 4, "read_folders");
    check("{{ secret \"secret/../sys/raw\" }}", 1, 4, "not the path of a secret");
    check("{{ secret \"a%20b\" }}", 1, 4, "not the path of a secret");
    check("{{ toUpper 3 }}", 1, 4, "toUpper expects a string as argument 1, got a number");
    check("{{ split \",\" }}", 1, 4, "split expects 2 arguments, got 1");
    check("{{ divide 0 1 }}", 1, 4, "divide: the result does not fit");
    for inside in [
        "{{ .Data.data.password | parseJSON }}",
        "{{ .Data.data.password | parseInt }}",
        "{{ .Data.data.password | parseBool }}",
        "{{ .Data.data.password | base64Decode }}",
        "{{ .Data.data.password.field }}",
        "{{ .Data.data.password | regexMatch \"(\" }}",
        "{{ regexMatch (printf \"(%s\" .Data.data.password) \"x\" }}",
        "{{ index .Data.data.hosts .Data.data.password }}",
        "{{ range .Data.data.password }}{{ end }}",
        "{{ template \"t\" .Data.data.password }}{{ define \"t\" }}{{ .x }}{{ end }}",
        "{{ add .Data.data.password 1 }}",
        "{{ call .Data.data.password }}",
        "{{ printf .Data.data .Data.data.password }}",
        "{{ slice .Data.data.password 3 99 }}",
        "{{ secret .Data.data.password \"x\" }}",
        "{{ lt .Data.data.password 3 }}",
        "{{ file .Data.data.password }}",
        "{{ indent 5000 .Data.data.password }}",
        "{{ toUpper .Data.data }}",
        "{{ (.Data.data.password | toUpper).x }}",
        "{{ executeTemplate .Data.data.password }}",
        "{{ sprig_fail .Data.data.password }}",
        "{{ sprig_mustRegexFind .Data.data.json \"x\" }}{{ sprig_int64 .Data.data.password | sprig_div 1 }}",
        "{{ scratch.MapSet .Data.data.password \"a\" 1 }}{{ scratch.Set \"b\" 1 }}{{ scratch.MapSet \"b\" .Data.data.password 1 }}",
        "{{ sprig_semver .Data.data.password }}",
        "{{ env .Data.data.password }}",
        "{{ mustEnv .Data.data.password }}",
        "{{ writeToFile .Data.data.password \"\" \"\" \"0600\" \"x\" }}",
    ] {
        let body = inside.split("{{ define").next().unwrap();
        let defined = inside.strip_prefix(body).unwrap_or_default();
        let wrong = fails(&format!("{app}{body}{{{{ end }}}}{defined}"));
        let said = wrong.to_string();
        let shown = format!("{wrong:?}");
        assert!(!said.contains(CANARY) && !shown.contains(CANARY), "{inside}: {said}");
        assert!(said.starts_with("line "), "{inside}: {said}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_compiles_and_renders_without_a_panic(deps in proptest::collection::vec(0..PARTS.len(), 0..24)) {
        let contents: String = deps.into_iter().map(|part| PARTS[part]).collect();
        let template = Template::compile(text(&contents));
        let rendered = template.map(|template| template.render(known(), SystemTime::UNIX_EPOCH));
        if let Ok(Rendered::Complete { text, .. }) = rendered {
            proptest::prop_assert!(!text.contains('\u{1}'), "{contents}: {text:?}");
        }
    }
}

const PARTS: [&str; 32] = [
    "{{",
    "}}",
    "{{ ",
    " }}",
    "{{-",
    "-}}",
    "if ",
    "else",
    "end",
    "range ",
    "with ",
    "define ",
    "template ",
    "block ",
    "\"a\"",
    ".",
    "$x",
    " := ",
    " = ",
    "|",
    "(",
    ")",
    "printf ",
    "index ",
    "1 ",
    "nil ",
    "secret \"secret/data/app\" ",
    "ü",
    "\n",
    "break",
    ".Data.data",
    "{{ . }}",
];
