//! Options of templates: missing keys, and files and tokens that a template may not make.

use super::*;

#[test]
fn a_write_that_makes_a_token_is_refused_before_it_is_sent() {
    let refused = |contents: &str| match Template::compile(text(contents)) {
        Err(wrong) => wrong[0].message.clone(),
        Ok(template) => match template.render(known(), SystemTime::UNIX_EPOCH) {
            Rendered::Failed(wrong) => wrong.message,
            other => format!("{other:?}"),
        },
    };
    for path in [
        "auth/token/create",
        "/auth/token/create/role",
        "team/auth/token/create-orphan",
        "auth/team/approle/login",
        "auth/token/create?a=1",
        "auth/azure/login?a=1",
        "auth/auth/login",
    ] {
        let literal =
            refused(&format!("{{{{ with secret \"{path}\" \"ttl=1h\" }}}}{{{{ .Auth.ClientToken }}}}{{{{ end }}}}"));
        assert!(literal.starts_with("secret") && literal.contains(": this path makes a token"), "{path}: {literal}");
        let computed = refused(&format!("{{{{ secret (print \"{path}\") \"ttl=1h\" }}}}"));
        assert!(computed.starts_with("secret: this path makes a token"), "{path}: {computed}");
    }
    for other in [
        "secret \"auth/approle/role/web/secret-id\" \"a=b\"",
        "secret \"auth/token/lookup-self\"",
        "secret \"kv/auth/token/create\"",
    ] {
        assert!(refused(&format!("{{{{ {other} }}}}")).starts_with("Unresolved"), "{other}");
    }
}

#[test]
fn missing_keys_are_printed_where_they_are_allowed() {
    let render = |inside: &str| {
        let contents = format!("{{{{ with secret \"secret/data/app\" }}}}{inside}{{{{ end }}}}");
        let source = TemplateSource { allows_missing_keys: true, ..text(&contents) };
        match Template::compile(source).unwrap().render(known(), SystemTime::UNIX_EPOCH) {
            Rendered::Complete { text, .. } => text,
            other => format!("{other:?}"),
        }
    };
    assert_eq!(render("{{ .Data.data.none }}"), "<no value>");
    assert_eq!(render("{{ index .Data.data \"none\" }}"), "<no value>");
    assert_eq!(render("{{ if .Data.data.none }}a{{ else }}b{{ end }}"), "b");
    assert_eq!(render("{{ .Data.data.password }}"), CANARY);
}

#[test]
fn files_are_recorded_below_the_folders_of_the_template() {
    let problem = |path: &str| {
        let contents = format!("{{{{ \"x\" | writeToFile \"{path}\" \"\" \"\" \"0600\" }}}}");
        Template::compile(text(&contents)).map_or_else(|wrong| wrong[0].message.clone(), |_| String::new())
    };
    assert_eq!(problem("/etc/ssl/app/key.pem"), "");
    for path in ["/etc/ssl/app", "/etc/ssl/application/key.pem", "/etc/ssl/app/../key.pem", "key.pem"] {
        assert!(problem(path).starts_with(&format!("writeToFile \"{path}\": the path ")), "{path}: {}", problem(path));
    }
    check("a{{ \"x\" | writeToFile \"/etc/ssl/app/key.pem\" \"\" \"\" \"0600\" }}b", "ab");
    let Rendered::Failed(wrong) = render("{{ \"x\" | writeToFile \"/etc/ssl/app/key.pem\" \"\" \"\" \"rw\" }}") else {
        panic!()
    };
    assert_eq!(wrong.message, "writeToFile \"/etc/ssl/app/key.pem\": argument 4 is not a mode such as \"0640\"");
}
