//! `keyward config`: the settings in force with the place of each, and the schema.

use std::path::Path;

use serde_json::Value;

use crate::harness::binary::run;

const CONFIG: &str = "[server.main]\nkind = \"vault\"\naddress = \"${env:CANARY_ADDRESS}\"\n\
                      proxy = \"http://user:canary-password@proxy.example:3128\"\n\
                      [session.web.cloud]\nrole = \"web\"\nresource = \"x\"\n\
                      [agent]\ndrop_in = \"more\"\n";
const MORE: &str = "[template.a]\ncontents = \"canary-contents {{ 1 }}\"\ndestination = \"/run/keyward/a\"\n\
                    command = [\"/bin/true\", \"canary-argument\"]\n\
                    [listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix:///run/keyward/vault.sock\"\n\
                    [listener.health]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:8400\"\n";

/// Writes both files; returns the path of the first.
fn write(folder: &Path) -> String {
    let path = folder.join("keyward.toml");
    std::fs::write(&path, CONFIG).unwrap();
    std::fs::create_dir(folder.join("more")).unwrap();
    std::fs::write(folder.join("more/a.toml"), MORE).unwrap();
    path.display().to_string()
}

const VARIABLES: [(&str, &str); 1] = [("CANARY_ADDRESS", "https://canary-value.example")];

#[test]
fn show_prints_every_setting_with_its_file_and_line_its_variable_or_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path());
    let (code, output, error) = run(&["config", "show", "-c", &config], &VARIABLES);
    assert_eq!((code, error.as_str()), (0, ""), "{output}");
    let more = folder.path().join("more/a.toml").display().to_string();
    let line = |key: &str, section: &str| {
        let (_, rest) = output.split_once(&format!("[{section}]\n")).unwrap_or_else(|| panic!("[{section}]: {output}"));
        let mut lines = rest.lines().take_while(|line| !line.starts_with('['));
        let found = lines.find(|line| line.trim_start_matches("# ").starts_with(key));
        found.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
    };
    assert_eq!(line("kind", "server.main"), format!("kind = \"vault\" # {config}:2"));
    let address = format!("address = \"${{env:CANARY_ADDRESS}}\" # {config}:3, environment CANARY_ADDRESS");
    assert_eq!(line("address", "server.main"), address);
    assert_eq!(line("connect_timeout", "server.main"), "connect_timeout = \"5s\" # default");
    assert_eq!(line("server", "session.web"), "server = \"main\" # default");
    assert_eq!(line("role", "session.web.cloud"), format!("role = \"web\" # {config}:6"));
    assert_eq!(line("destination", "template.a"), format!("destination = \"/run/keyward/a\" # {more}:3"));
    assert_eq!(line("threads", "listener.proxy"), "threads = 1 # default");
    assert_eq!((line("threads", "listener.health"), line("mode", "listener.health")), (String::new(), String::new()));
    assert_eq!(line("interval", "templates"), "interval = \"5m\" # default", "{output}");
    assert_eq!(line("level", "log"), "level = \"info\" # default");
    assert_eq!(line("stop_grace", "agent"), "stop_grace = \"10s\" # default");
    output.parse::<toml::Table>().unwrap_or_else(|error| panic!("{error}: {output}"));
    for secret in ["canary-value", "canary-password", "canary-contents", "canary-argument"] {
        assert!(!output.contains(secret), "{secret}: {output}");
    }
}

#[test]
fn show_takes_sections_and_prints_json() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path());
    let (code, output, error) = run(&["config", "show", "session.web", "-o", "json", "-c", &config], &VARIABLES);
    assert_eq!((code, error.as_str()), (0, ""), "{output}");
    let settings: Vec<Value> = serde_json::from_str(&output).unwrap();
    assert!(settings.iter().all(|setting| setting["section"].as_str().unwrap().starts_with("session.web")), "{output}");
    let role = settings.iter().find(|setting| setting["key"] == "role").unwrap();
    assert_eq!((&role["value"], &role["line"], &role["default"]), (&"web".into(), &6.into(), &false.into()));
    let interval = settings.iter().find(|setting| setting["key"] == "check_interval").unwrap();
    assert_eq!((&interval["value"], &interval["from"]), (&"5m".into(), &"default".into()));
    assert!(!output.contains("canary-value"), "{output}");
    let (code, _, error) = run(&["config", "show", "session.other", "-c", &config], &VARIABLES);
    assert_eq!((code, error.as_str()), (8, "error: the configuration has no section session.other\n"));
}

#[test]
fn show_of_a_configuration_with_errors_prints_them_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keyward.toml");
    std::fs::write(&path, "[server.main]\nkind = \"vault\"\nadress = \"x\"\n[sessions]\n").unwrap();
    let (code, output, error) = run(&["config", "show", "-c", path.to_str().unwrap()], &[]);
    assert_eq!((code, output.as_str()), (3, ""), "{error}");
    assert!(error.contains(":3:1: server.main.adress") && error.contains(":4:2: sessions"), "{error}");
}

#[test]
fn schema_prints_a_json_schema_with_meanings_and_defaults() {
    let (code, output, error) = run(&["config", "schema"], &[]);
    assert_eq!((code, error.as_str()), (0, ""));
    let schema: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    let server = schema.pointer("/properties/server/patternProperties/^[A-Za-z0-9_-]{1,64}$").unwrap();
    assert_eq!(server["properties"]["connect_timeout"]["default"], "5s");
    assert!(server["properties"]["kind"]["enum"].as_array().unwrap().contains(&"vault".into()), "{server}");
    assert!(
        server["properties"]["ca_file"]["description"].as_str().unwrap().starts_with("CA bundle (PEM)"),
        "{server}"
    );
}
