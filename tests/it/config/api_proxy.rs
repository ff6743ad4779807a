//! `[listener.NAME] kind = "api_proxy"`.

use keyward_agent::api_proxy::TokenMode;
use keyward_config::{Purpose, Serves, load};

use super::{BASE, Folder, environment};

#[test]
fn errors_come_with_advice() {
    let check = |text: &str, expected: &[&str]| {
        let folder = Folder::with(&[("a.toml", text), ("base.toml", BASE)]);
        let outcome = load(&[folder.path("a.toml"), folder.path("base.toml")], &environment(&[]), Purpose::Check);
        assert_eq!(folder.short(&outcome.errors), expected, "{text}");
    };
    let rule = "write \"[METHOD,...] PATH\" without /v1/, such as \"GET,LIST secret/data/web/*\"; + is one segment";
    check(
        "[listener.a]\nkind = \"api_proxy\"\naddress = \"unix:///tmp/a\"\nallow = [\"/secret\", \"GETS secret/*\", \"a/*/b\"]\n",
        &[
            &format!("a.toml:4:10: listener.a.allow: \"/secret\" must not begin with / or v1/; {rule}"),
            &format!(
                "a.toml:4:21: listener.a.allow: \"GETS secret/*\" has an unknown method; use GET, LIST, SCAN, POST, \
                 PUT, PATCH, DELETE or HEAD; {rule}"
            ),
            &format!("a.toml:4:38: listener.a.allow: \"a/*/b\" has a * that is not at its end; {rule}"),
        ],
    );
    check(
        "[listener.a]\nkind = \"api_proxy\"\naddress = \"tcp://0.0.0.0:8200\"\nexempt = [\"sys/mounts\"]\nsessions = [\"main\"]\n",
        &[
            "a.toml:1:11: listener.a.key_file: missing: any user can connect to a TCP address; name a file with a key that callers must send, or set any_local_user = true",
            "a.toml:3:11: listener.a.address: serves tokens on 0.0.0.0, which is not loopback; use 127.0.0.1 or [::1]; only a health listener may serve other machines",
            "a.toml:4:11: listener.a.exempt: \"sys/mounts\" is not a known exemption; write \"acl/logout\", \
             \"acl/token\", \"auth/token/create\", \"auth/token/renew-self\", \"auth/token/revoke-self\", \"snapshot\", \
             \"sys/raw\", \"sys/rotate\", \"sys/seal\" or \"sys/wrapping\"",
            "a.toml:5:1: listener.a.sessions: not allowed on an api_proxy listener: write session; leave it out",
        ],
    );
    let namespace = "write its path, such as \"team-a\", \"team-a/*\" for those below it, \"root\", or \"*\" for all";
    check(
        "[listener.a]\nkind = \"api_proxy\"\naddress = \"unix:///tmp/a\"\nnamespaces = [\"a//b\", \"a*\", \"team\"]\n",
        &[
            &format!("a.toml:4:15: listener.a.namespaces: \"a//b\" is not a namespace; {namespace}"),
            &format!("a.toml:4:23: listener.a.namespaces: \"a*\" has a * that is not a whole segment; {namespace}"),
        ],
    );
    check(
        "[listener.a]\naddress = \"unix:///tmp/a\"\ntoken = \"always\"\n",
        &["a.toml:3:1: listener.a.token: only allowed on a listener of kind = \"api_proxy\"; leave it out"],
    );
    check(
        "[listener.a]\nkind = \"api_proxy\"\naddress = \"unix:///tmp/a\"\nthreads = 0\n\
         [listener.b]\naddress = \"unix:///tmp/b\"\nthreads = 2\n",
        &[
            "a.toml:4:11: listener.a.threads: 0 is out of range; write 1 to 64, without quotes",
            "a.toml:7:1: listener.b.threads: only allowed on a listener of kind = \"api_proxy\"; leave it out",
        ],
    );
    check(
        "[listener.a]\naddress = \"unix:///tmp/a\"\n[listener.a.cache]\nmax_age = \"1m\"\n",
        &["a.toml:3:13: listener.a.cache: only allowed on a listener of kind = \"api_proxy\"; leave it out"],
    );
    check(
        "[session.wrapped]\nwrap_ttl = \"5m\"\n[session.wrapped.cloud]\nrole = \"a\"\nresource = \"b\"\n\
         [listener.a]\nkind = \"api_proxy\"\naddress = \"unix:///tmp/a\"\nsession = \"wrapped\"\n",
        &[
            "a.toml:9:1: listener.a.session: session wrapped has a wrap_ttl, and its token is for one reader; name a session \
           without one",
        ],
    );
    check(
        "[server.own]\nkind = \"keyward\"\naddress = \"https://a.example\"\n[session.c]\nserver = \"own\"\n\
         [session.c.cloud]\nrole = \"a\"\nresource = \"b\"\n[listener.a]\nkind = \"api_proxy\"\n\
         address = \"unix:///tmp/a\"\nsession = \"c\"\n[listener.a.cache]\n",
        &[
            "a.toml:9:11: listener.a.cache: not allowed, as session c has a server of kind \"keyward\"; leave it out: its responses are never cached",
        ],
    );
    check(
        "[listener.a]\nkind = \"api_proxy\"\naddress = \"unix:///tmp/a\"\n[listener.a.cache]\nsize_mib = 0\n\
         max_age = 5\nvalues = [\"/a\"]\nmax = 1\n",
        &[
            "a.toml:5:12: listener.a.cache.size_mib: 0 is out of range; write 1 to 4096, without quotes",
            "a.toml:6:11: listener.a.cache.max_age: the integer 5 has no unit; write max_age = \"5s\" for seconds",
            &format!("a.toml:7:11: listener.a.cache.values: \"/a\" must not begin with / or v1/; {rule}"),
            "a.toml:8:1: listener.a.cache.max: an unknown key; known keys: size_mib, max_age, stale_if_error, values, leases, persist",
        ],
    );
    let cache = "[listener.a]\nkind = \"api_proxy\"\naddress = \"unix:///tmp/a\"\n[listener.a.cache]\npersist = true\n";
    check(
        &format!("[agent]\nstate_dir = \"/tmp\"\n{cache}"),
        &["a.toml:7:1: listener.a.cache.persist: needs a seal_key_file in session main, whose key seals the file; \
             set one (openssl rand -hex 32), or leave persist out"],
    );
    check(
        "[server.here]\nkind = \"vault\"\naddress = \"http://127.0.0.1:8200\"\n[session.b]\nserver = \"here\"\n\
         [session.b.cloud]\nrole = \"a\"\nresource = \"b\"\n[listener.a]\nkind = \"api_proxy\"\n\
         address = \"tcp://127.0.0.1:8200\"\nany_local_user = true\nsession = \"b\"\n",
        &[
            "a.toml:9:11: listener.a.address: the address of session b's server: the listener would forward to itself; listen on another address, or set the real address of the server",
        ],
    );
}

#[test]
fn an_api_proxy_is_described_with_its_rules() {
    let text = "[listener.a]\nkind = \"api_proxy\"\naddress = \"unix:///tmp/a\"\ntoken = \"always\"\nallow = [\"secret/*\"]\n\
                deny = [\"a\", \"b\"]\nnamespaces = [\"team/*\", \"root\"]\nexempt = [\"sys/wrapping\"]\nlogins = false\nrequire_request_header = false\n\
                [listener.a.cache]\nstale_if_error = \"1h\"\n";
    let folder = Folder::with(&[("a.toml", text), ("base.toml", BASE)]);
    let outcome = load(&[folder.path("a.toml"), folder.path("base.toml")], &environment(&[]), Purpose::Check);
    let description = outcome.description().unwrap().to_string();
    let description = description.split("listener a\n").nth(1).unwrap().split("agent\n").next().unwrap().to_owned();
    let expected = "  serves the API of the server on unix:///tmp/a, mode 0660
  puts the token of session main on every request
  allows only requests that 1 rule allows
  denies requests that 2 rules deny
  refuses with that token: acl/logout, acl/token, auth/token/create, auth/token/renew-self, auth/token/revoke-self, \
snapshot, sys/raw, sys/rotate, sys/seal
  allows with that token, as exempt: sys/wrapping
  lets callers use only the namespaces team/*, root
  refuses logins
  accepts requests without X-Vault-Request
  caches responses, at most 16 MiB: values for 10s, while the server does not respond for 1h; leases until they end
  waits up to 30s for a response of the server
  accepts root, the agent's user, and members of the socket's group
";
    assert_eq!(description, expected);
    let config = outcome.config.unwrap();
    assert!(
        matches!(&config.listeners[0].serves, Serves::ApiProxy(options) if options.token_mode == TokenMode::Always)
    );
    assert_eq!(config.listeners[0].sessions, ["main"]);
}

#[test]
fn an_empty_list_of_a_cache_keeps_none_of_its_kind() {
    for (lists, expected) in [
        ("leases = []\n", "values for 10s, while the server does not respond for 10s\n"),
        ("values = []\n", "leases until they end\n"),
        ("values = []\nleases = []\n", "no path is listed\n"),
    ] {
        let text =
            format!("[listener.a]\nkind = \"api_proxy\"\naddress = \"unix:///tmp/a\"\n[listener.a.cache]\n{lists}");
        let folder = Folder::with(&[("a.toml", &text), ("base.toml", BASE)]);
        let outcome = load(&[folder.path("a.toml"), folder.path("base.toml")], &environment(&[]), Purpose::Check);
        assert_eq!(folder.short(&outcome.errors), [""; 0], "{lists}");
        let description = outcome.description().unwrap().to_string();
        assert!(
            description.contains(&format!("  caches responses, at most 16 MiB: {expected}")),
            "{lists}: {description}"
        );
        let Serves::ApiProxy(options) = &outcome.config.unwrap().listeners[0].serves else { panic!("{lists}") };
        let cache = options.cache.as_ref().unwrap();
        assert_eq!(
            (cache.values.is_empty(), cache.leases.is_empty()),
            (lists.contains("values"), lists.contains("leases"))
        );
    }
}
