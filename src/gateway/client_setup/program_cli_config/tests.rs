use keyward_machine::command::EnvVars;

use super::*;

fn user_files(pairs: &[(&str, &Path)]) -> UserConfigFiles {
    let mut variables = EnvVars::default();
    for (name, value) in pairs {
        variables.set(*name, SecretString::from(value.display().to_string()));
    }
    UserConfigFiles::new(&variables, &["terraform".to_owned()], None)
}

fn generate(folder: &Path, user_files: UserConfigFiles, host: &str) -> Result<String, ProgramCliConfigError> {
    let host = ServiceHost::parse(host).unwrap();
    let config = ProgramCliConfig::new(folder.to_owned(), user_files);
    let prepared = config.prepare(&host, "http://127.0.0.1:8800", &"of-the-gateway".into())?;
    prepared.write().unwrap();
    Ok(std::fs::read_to_string(prepared.path()).unwrap())
}

#[test]
fn user_files_keep_their_order_and_the_host_block_is_last() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    std::fs::create_dir(home.join(".terraform.d")).unwrap();
    let put = |name: &str, text: &str| std::fs::write(home.join(name), text).unwrap();
    put(".terraformrc", "plugin_cache_dir = \"/c\"");
    put(".terraform.d/credentials.tfrc.json", r#"{"//": "x", "credentials": {"a.example": {"token": "t\"1"}}}"#);
    put(".terraform.d/b.tfrc", "disable_checkpoint = true");
    put(".terraform.d/c.tfrc.bak", "no");
    let text = generate(home, user_files(&[("HOME", home)]), "app.terraform.io").unwrap();
    let position = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    let order = [
        position("plugin_cache_dir = \"/c\"\n"),
        position("disable_checkpoint = true\n"),
        position("credentials \"a.example\" {\n\"token\" = \"t\\\"1\"\n}\n"),
        position("host \"app.terraform.io\" {\n"),
    ];
    assert!(order.is_sorted() && !text.contains("no\n") && !text.contains("of-the-gateway"), "{text}");

    // A file named by the variable replaces all others.
    put("mine.json", r#"{"host": {"app.terraform.io": {"services": {}}, "b.example": {"services": {}}}}"#);
    let named = user_files(&[("HOME", home), ("TF_CLI_CONFIG_FILE", &home.join("mine.json"))]);
    let merged: Value = serde_json::from_str(&generate(home, named, "app.terraform.io").unwrap()).unwrap();
    assert_eq!(merged["host"]["app.terraform.io"]["services"]["tfe.v2"], "http://127.0.0.1:8800/api/v2/");
    assert_eq!((&merged["host"]["b.example"]["services"], merged.as_object().unwrap().len()), (&json!({}), 1));

    // JSON blocks may be in an array too.
    let blocks = r#"{"host": [{"b.example": {"services": {}}}, {"c.example": {}}], "credentials": null}"#;
    for beside in ["", "disable_checkpoint = true"] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".terraform.d")).unwrap();
        std::fs::write(folder.path().join(".terraform.d/a.tfrc.json"), blocks).unwrap();
        if !beside.is_empty() {
            std::fs::write(folder.path().join(".terraformrc"), beside).unwrap();
        }
        let text = generate(home, user_files(&[("HOME", folder.path())]), "app.terraform.io").unwrap();
        let named = ["\"b.example\"", "\"c.example\"", "\"app.terraform.io\""];
        assert!(named.iter().all(|host| text.contains(host)), "{text}");
    }

    // For a host without a variable the token is in the file.
    let text = generate(home, UserConfigFiles::default(), "tfe.example.com:8443").unwrap();
    assert!(text.ends_with("credentials \"tfe.example.com:8443\" {\n  token = \"of-the-gateway\"\n}\n"), "{text}");
    let missing = user_files(&[("TF_CLI_CONFIG_FILE", &home.join("nowhere"))]);
    // An unreadable home folder is skipped too.
    for nothing in [missing, user_files(&[("HOME", &home.join("mine.json"))])] {
        let text = generate(home, nothing, "app.terraform.io").unwrap();
        assert!(text.starts_with(&format!("{HEADER_COMMENT}\nhost \"app.terraform.io\"")), "{text}");
    }
}

#[test]
fn merge_errors_name_the_file_without_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    std::fs::create_dir(home.join(".terraform.d")).unwrap();
    std::fs::write(home.join(".terraformrc"), "disable_checkpoint = true").unwrap();
    for text in [
        r#"{"provider_installation": {"direct": {}}}"#,
        r#"{"credentials": {"a": {"token": "canary ${x}"}}}"#,
        r#"{"credentials": {"a": "canary"}}"#,
        r#"{"credentials": "#,
    ] {
        std::fs::write(home.join(".terraform.d/x.tfrc.json"), text).unwrap();
        let error = generate(home, user_files(&[("HOME", home)]), "app.terraform.io").unwrap_err().to_string();
        assert!(error.contains("x.tfrc.json") && !error.contains("canary"), "{error}");
    }
    let mine = home.join("mine.json");
    for file in ["host", "credentials"] {
        std::fs::write(&mine, format!("{{\"{file}\": \"canary\"}}")).unwrap();
        let error =
            generate(home, user_files(&[("TF_CLI_CONFIG_FILE", &mine)]), "app.terraform.io").unwrap_err().to_string();
        assert!(error.contains("mine.json") && error.contains(file) && !error.contains("canary"), "{error}");
    }
}

#[test]
fn a_setting_of_several_files_is_written_once() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    std::fs::create_dir(folder.join(".terraform.d")).unwrap();
    let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let generate = || generate(folder, user_files(&[("HOME", folder)]), "app.terraform.io").unwrap();
    let count = |text: &str, part: &str| text.matches(part).count();
    put(".terraformrc", "disable_checkpoint = false\nplugin_cache_dir = \"\"\n# mine\n");
    put(".terraform.d/a.tfrc", "plugin_cache_dir = \"$HOME/first\"\ndisable_checkpoint = true\n");
    put(".terraform.d/b.tfrc.json", r#"{"plugin_cache_dir": "/second", "disable_checkpoint_signature": "1"}"#);
    let text = generate();
    assert!(text.contains("plugin_cache_dir = \"$HOME/first\"\n") && text.contains("# mine\n"), "{text}");
    assert_eq!((count(&text, "plugin_cache_dir"), count(&text, "disable_checkpoint = ")), (1, 1), "{text}");
    for part in ["disable_checkpoint = true\n", "disable_checkpoint_signature = true\n"] {
        assert!(text.contains(part), "{text}");
    }
    // The same in JSON.
    put(".terraformrc", r#"{"disable_checkpoint": true, "plugin_cache_dir": "/first"}"#);
    put(
        ".terraform.d/a.tfrc",
        r#"{"disable_checkpoint": false, "oci_default_credentials": {"docker_style_config_files": ["x"]}}"#,
    );
    let merged: Value = serde_json::from_str(&generate()).unwrap();
    assert_eq!((&merged["disable_checkpoint"], &merged["plugin_cache_dir"]), (&json!(true), &json!("/first")));
    let paths = &merged["oci_default_credentials"]["docker_style_config_files"];
    assert_eq!(
        paths,
        &json!([folder.join(".terraform.d/x").display().to_string()]),
        "relative to the file that has them"
    );
}

#[test]
fn modules_of_the_generic_host_are_loaded_by_the_gateway() {
    let folder = tempfile::tempdir().unwrap();
    for own in [
        "",
        "host \"localterraform.com\" {\n  services = {}\n}\n",
        r#"{"host": {"localterraform.com": {"services": {}}}}"#,
    ] {
        let file = folder.path().join("own");
        std::fs::write(&file, own).unwrap();
        let text =
            generate(folder.path(), user_files(&[("TF_CLI_CONFIG_FILE", &file)]), "tfe.example.com:8443").unwrap();
        let last = text.rfind("\"localterraform.com\"").unwrap();
        assert!(text[last..].contains("http://127.0.0.1:8800/api/registry/v1/modules/"), "{text}");
        assert_eq!(text.matches("of-the-gateway").count(), 1, "{text}");
    }
}

#[test]
fn all_that_decides_the_content_is_in_the_files_name() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    for file in [".terraformrc", "config/opentofu/x.tfrc"] {
        std::fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
        std::fs::write(home.join(file), "").unwrap();
    }
    let path = |command: &str, address: &str, host: &str| {
        let mut variables = EnvVars::default();
        variables.set("HOME", SecretString::from(home.display().to_string()));
        let files = UserConfigFiles::new(&variables, &[command.to_owned()], Some(home.join("config")));
        let config = ProgramCliConfig::new(home.to_owned(), files);
        let prepared = config.prepare(&ServiceHost::parse(host).unwrap(), address, &"t".into()).unwrap();
        assert!(!prepared.path().exists(), "it is not written before it is used");
        prepared.path().to_owned()
    };
    let (one, two) = ("http://127.0.0.1:8800", "http://127.0.0.1:8801");
    // OpenTofu reads the same main file, and another folder.
    let paths = [
        path("terraform", one, "a.example.com"),
        path("tofu", one, "a.example.com"),
        path("terraform", two, "a.example.com"),
        path("terraform", one, "b.example.com"),
    ];
    assert_eq!(paths.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{paths:?}");
    assert_eq!(paths[0], path("terraform", one, "a.example.com"));
}
