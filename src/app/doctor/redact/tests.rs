use super::*;

#[test]
fn a_configuration_shows_structure_and_known_keys_and_nothing_else() {
    let text = "# canary-comment\n[server.main]\nkind = \"vault\"\naddress = \"https://user:canary-pass@vault.example/x?t=canary\"\n\
                    [session.web]\nmount = \"azure\"\nunknown = \"canary-unknown\"\n[template.a]\ncontents = \"canary-text\"\n\
                    command = [\"/bin/x\", \"canary-argument\"]\ndestination = \"/etc/a\"\n[listener.l]\nport = 8200\n";
    let shown = redact_toml(text);
    assert!(!shown.contains("canary"), "{shown}");
    for expected in
        ["kind = \"vault\"", "\"https://vault.example/x\"", "mount = \"azure\"", "\"/etc/a\"", "port = 8200"]
    {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    assert_eq!(redact_toml("a = \"canary"), "# not shown: it is not valid TOML\n");
}

#[test]
fn a_unit_shows_names_of_variables_and_credentials_alone() {
    let text = "[Service]\n# canary-comment\nEnvironment=A=canary \"B=canary x\"\nSetCredential=key:canary\n\
                    ExecStart=/usr/bin/keyward run --config /etc/k.toml\nExecStartPre=/bin/sh -c 'canary'\nUser=keyward\n";
    let shown = redact_unit(text);
    assert!(!shown.contains("canary"), "{shown}");
    for expected in
        ["Environment=A=[redacted] B=[redacted]", "SetCredential=key:[redacted]", "/etc/k.toml", "User=keyward"]
    {
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
