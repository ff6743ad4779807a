use super::*;

#[test]
fn a_configuration_shows_structure_and_known_keys_and_nothing_else() {
    let text = "# canary-comment\n[server.main]\nkind = \"vault\"\naddress = \"https://user:canary-pass@vault.example/x?t=canary\"\n\
                    [session.web]\nmount = \"azure\"\nunknown = \"canary-unknown\"\n[template.a]\ncontents = \"canary-text\"\n\
                    command = [\"/bin/x\", \"canary-argument\"]\ndestination = \"/etc/a\"\n[listener.l]\nport = 8200\n\
                    key_file = \"canary-key-in-place-of-its-file\"\n[audit.a]\npath = \"/canary+base64/text=\"\n[sink.s]\npath = \"/run/s\"\n";
    let shown = redact_toml(text);
    assert!(!shown.contains("canary"), "{shown}");
    for expected in [
        "kind = \"vault\"",
        "\"https://vault.example/x\"",
        "mount = \"azure\"",
        "\"/etc/a\"",
        "port = 8200",
        "\"/run/s\"",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert_eq!(redact_toml("a = \"canary"), "# not shown: it is not valid TOML\n");
}

#[test]
fn a_unit_shows_names_of_variables_and_credentials_alone() {
    let text = "[Service]\n# canary-comment\nEnvironment=A=canary \"B=canary x\"\nSetCredential=key:canary\n\
                    ExecStart=/usr/bin/keyward run --config /etc/k.toml\nExecStartPre=/bin/sh -c 'canary'\nUser=keyward\n\
                    StandardInputText=canary\nStandardInputData=Y2FuYXJ5canary\nLogExtraFields=A=canary\nX-Note=canary\n\
                    ConditionEnvironment=A=canary\nUnsetEnvironment=A=canary B\nDescription=canary\nNewSetting=canary\n\
                    ProtectSystem=strict\nLimitNOFILE=4096\nLoadCredential=key:/etc/key\n";
    let shown = redact_unit(text);
    assert!(!shown.contains("canary"), "{shown}");
    for expected in [
        "Environment=A=[redacted] B=[redacted]",
        "SetCredential=key:[redacted]",
        "/etc/k.toml",
        "User=keyward",
        "X-Note=[redacted]",
        "UnsetEnvironment=A B",
        "ProtectSystem=strict",
        "LimitNOFILE=4096",
        "LoadCredential=key:/etc/key",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
}

#[test]
fn known_values_and_texts_like_tokens_are_replaced() {
    let mut redactor = Redactor::default();
    redactor.add("canary\"quoted-value\n");
    redactor.add("short");
    let text = "x canary\"quoted-value y {\"a\":\"canary\\\"quoted-value\"} hvs.CAESIJ1234567890 eyJhbGciOi.eyJzdWIi.c2ln \
                    abcdefgh.atlasv1.0123456789 short s.short 01234567-89ab";
    let shown = redactor.apply(text);
    let expected = "x [redacted] y {\"a\":\"[redacted]\"} [redacted] [redacted] [redacted] short s.short 01234567-89ab";
    assert_eq!(shown, expected);
}

#[test]
fn users_of_urls_and_texts_of_servers_are_not_shown_in_errors() {
    let check = |text: &str, expected: &str| assert_eq!(Redactor::default().apply(text), expected);
    check("cannot use \"http://me:canary@proxy.example/\": x", "cannot use \"http://[redacted]@proxy.example/\": x");
    check("proxy http://canary@p:1, y", "proxy http://[redacted]@p:1, y");
    check(
        "{\"error\":\"HTTP 400: canary \\\"quoted\\\" body\",\"n\":1}",
        "{\"error\":\"HTTP 400: [redacted]\",\"n\":1}",
    );
    check("login: HTTP 403: permission denied\nnext", "login: HTTP 403: permission denied\nnext");
    check("HTTP 400: error validating token: canary", "HTTP 400: error validating token [redacted]");
    check("HTTP 503 from https://login.example: canary", "HTTP 503 from https://login.example: [redacted]");
}
