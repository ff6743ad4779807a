//! The JSON Schema of the configuration, by a validator that is not ours: it accepts each configuration that the reader accepts, and refuses
//! what editors are to mark.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use keyward_config::schema;
use serde_json::{Value, json};

use super::check;
use super::reference::sections::SECTIONS;

/// Validates documents; returns the error of each, or nothing.
fn validate(documents: &[Value]) -> Vec<Option<String>> {
    const SCRIPT: &str = "
import fastjsonschema, json, sys
work = json.load(sys.stdin)
validator = fastjsonschema.compile(work['schema'])
found = []
for document in work['documents']:
    try:
        validator(document)
        found.append(None)
    except fastjsonschema.JsonSchemaValueException as error:
        found.append(error.message)
print(json.dumps(found))
";
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/schema/bin/python");
    assert!(python.exists(), "{} is not there: ./tests/run brings it and starts the tests", python.display());
    let mut child =
        Command::new(python).args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let work = json!({ "schema": schema(), "documents": documents });
    child.stdin.take().unwrap().write_all(work.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn document(text: &str) -> Value {
    serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap()
}

#[track_caller]
fn assert_accepted(texts: &[(String, String)]) {
    let documents: Vec<Value> = texts.iter().map(|(_, text)| document(text)).collect();
    let found = validate(&documents);
    let refused: Vec<_> = texts.iter().zip(found).filter_map(|((name, _), error)| Some((name, error?))).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn the_schema_accepts_every_example() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let mut folders = vec![folder];
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "toml") {
                texts.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(texts.len() > 4, "{texts:?}");
    assert_accepted(&texts);
}

#[test]
fn the_schema_accepts_every_section_that_the_reader_accepts() {
    let bases = SECTIONS.iter().flat_map(|(heading, bases)| bases.iter().map(move |base| (*heading, *base)));
    let texts: Vec<_> = bases.map(|(heading, base)| (heading.to_owned(), base.replace("@\n", ""))).collect();
    for (heading, text) in &texts {
        assert_eq!(check(text).1.errors, [], "{heading}: {text}");
    }
    assert_accepted(&texts);
    // And with each key at its default.
    let mut all = Vec::new();
    for (heading, rows) in super::reference::documented() {
        let Some((_, bases)) = SECTIONS.iter().find(|(other, _)| *other == heading) else { continue };
        for row in rows {
            let literal = row.default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
            let Some(literal) = literal.filter(|literal| !literal.contains('`') && !literal.starts_with('/')) else {
                continue;
            };
            let line = format!("{} = {literal}", row.key);
            let text = super::reference::filled(bases[0], &row.key, &line);
            all.push((format!("{heading} {line}"), text));
        }
    }
    assert!(all.len() > 70, "{}", all.len());
    assert_accepted(&all);
}

#[test]
fn the_schema_refuses_what_an_editor_is_to_mark() {
    let base = "[server.a]\nkind = \"vault\"\naddress = \"https://vault.example.com\"\n";
    let wrong = [
        "unknown = 1\n",
        "[servers.a]\nkind = \"vault\"\n",
        "[server.a]\nkind = \"vault\"\n",
        "[server.a]\nkind = \"other\"\naddress = \"https://a.example\"\n",
        "[server.a]\nkind = \"vault\"\naddress = \"https://a.example\"\nadress = \"x\"\n",
        "[server.a]\nkind = \"vault\"\naddress = \"https://a.example\"\nconnect_timeout = 5\n",
        "[server.a]\nkind = \"vault\"\naddress = \"https://a.example\"\nconnect_timeout = \"five\"\n",
        "[server.a]\nkind = \"vault\"\naddress = \"https://a.example\"\nca_file = \"ca.pem\"\n",
        "[server.\"a b\"]\nkind = \"vault\"\naddress = \"https://a.example\"\n",
        "[sink.a]\npath = \"/a\"\nmode = \"abc\"\n",
        "[sink.a]\npath = \"/a\"\nrequired = \"yes\"\n",
        "[listener.a]\naddress = \"unix:///a\"\nthreads = 65\n",
        "[listener.a]\naddress = \"unix:///a\"\nsessions = []\n",
    ];
    let found = validate(&wrong.map(document));
    for (text, error) in wrong.iter().zip(found) {
        assert!(error.is_some(), "accepted: {text}");
    }
    let good = [base.to_owned(), format!("{base}ca_file = \"${{env:CA}}\"\n")].map(|text| (text.clone(), text));
    assert_accepted(&good);
}
