//! Errors of every kind, as users read them.

use super::{BASE, Folder, environment};
use keyward_config::{Purpose, load};

/// Parses a text together with a valid file, and compares all diagnostics about it.
fn check(text: &str, expected: &[&str]) {
    let folder = Folder::with(&[("a.toml", text), ("base.toml", BASE)]);
    let outcome = load(&[folder.path("a.toml"), folder.path("base.toml")], &environment(&[]), Purpose::Check);
    assert_eq!(folder.short(&outcome.errors), expected, "{text}");
    assert!(outcome.config.is_none());
}

/// vault#9404: a mode that is read as decimal.
#[test]
fn syntax_errors_have_a_position_and_hide_no_other_error() {
    check(
        "[sink.a]\nsession = main\npath = \"/tmp/a\nmode = 640\n[sink.b]\npath = \"b\"\npath = \"/c\"\n",
        &[
            "a.toml:2:11: string values must be quoted, expected literal string",
            "a.toml:3:15: invalid basic string, expected `\"`",
            "a.toml:4:8: sink.a.mode: the integer 640 is not a mode, which is octal; write a string, such as mode = \"0640\"",
            "a.toml:6:8: sink.b.path: \"b\" is not an absolute path; start it with /",
            "a.toml:7:1: duplicate key",
        ],
    );
    // Keys below a broken header belong to its table, and not to the one before it.
    check(
        "[sink.a]\npath = \"/tmp/a\"\n[sink.b\npath = \"/tmp/b\"\nmode = \"0600\"\nrequired = 1\n[sink.c]\npath = 1\n",
        &[
            "a.toml:3:8: unclosed table, expected `]`",
            "a.toml:8:8: sink.c.path: expected a string, found an integer; put it in quotes",
        ],
    );
    check("[sevrer.a\nkind = \"vault\"\n", &["a.toml:1:10: unclosed table, expected `]`"]);
    // A key that a malformed line may have set is not reported as missing.
    check("[sink.a]\npath \"/tmp/a\"\n", &["a.toml:2:6: key with no value, expected `=`"]);
    check(
        "[sink.é]\nmode = \"é\" x\n",
        &[
            "a.toml:1:7: invalid unquoted key, expected letters, numbers, `-`, `_`",
            "a.toml:2:12: unexpected key or value, expected newline, `#`",
        ],
    );
}

/// vault#12399: a key that is misspelt is ignored.
#[test]
fn an_unknown_key_comes_with_a_suggestion_or_the_known_keys() {
    check("[servr.a]\n", &["a.toml:1:2: servr: an unknown key; did you mean server?"]);
    check(
        "[log]\nlevl = \"info\"\ncolour = true\n",
        &[
            "a.toml:2:1: log.levl: an unknown key; did you mean level?",
            "a.toml:3:1: log.colour: an unknown key; known keys: level, format",
        ],
    );
    check(
        "[session.main.cloud]\nobjectid = \"a\"\n",
        &["a.toml:2:1: session.main.cloud.objectid: an unknown key; did you mean object_id?"],
    );
    check(
        "\"\\u001b[31m\" = 1\n",
        &[concat!(
            "a.toml:1:1: \"\\u{1b}[31m\": an unknown key; ",
            "known keys: agent, log, server, session, templates, certificate, identity, sink, template, env_template, process, listener, caller, credential, audit, acl, gateway"
        )],
    );
}

#[test]
fn a_value_of_another_type_is_an_error() {
    check(
        concat!(
            "[sink.a]\npath = 1\nrequired = \"yes\"\nformat = true\nowner = 1.5\n",
            "[listener.a]\naddress = 2020-01-01\nsessions = \"main\"\n[listener.b]\naddress = [1]\nsessions = [1]\n",
        ),
        &[
            "a.toml:2:8: sink.a.path: expected a string, found an integer; put it in quotes",
            "a.toml:3:12: sink.a.required: expected a boolean, found a string; write true or false, without quotes",
            "a.toml:4:10: sink.a.format: expected a string, found a boolean; put it in quotes",
            "a.toml:5:9: sink.a.owner: expected a string, found a float; put it in quotes",
            "a.toml:7:11: listener.a.address: expected a string, found a date; put it in quotes",
            "a.toml:8:12: listener.a.sessions: expected an array, found a string; write sessions = [\"...\"]",
            "a.toml:10:11: listener.b.address: expected a string, found an array; put it in quotes",
            "a.toml:11:13: listener.b.sessions: expected a string, found an integer; put it in quotes",
        ],
    );
    check(
        "log = 1\n[[server]]\naddress = \"x\"\n",
        &[
            "a.toml:1:7: log: expected a table, found an integer; write [log] and its keys below",
            "a.toml:2:1: server: expected tables with names, found an array; write [server.NAME], with a name of your choice",
            "base.toml:1:2: server: set here and at a.toml:2:3; keep one of the two",
            "base.toml:5:10: session.main.server: there is no server \"main\"; define it with [server.NAME]",
        ],
    );
    check(
        "[sink]\npath = \"/tmp/a\"\n",
        &[concat!(
            "a.toml:2:1: sink.path: expected a table with a name, found a string; ",
            "write [sink.NAME], with a name of your choice, and the keys below it"
        )],
    );
    check("[sink.a]\npath = \"\"\n", &["a.toml:2:8: sink.a.path: an empty string; set a value, or leave the key out"]);
    check(
        "[session.main]\nnamespace = \"a\\nb\"\n",
        &["a.toml:2:13: session.main.namespace: \"a\\nb\" contains a control character; write it on one line"],
    );
}

#[test]
fn names_are_fit_for_files() {
    check(
        "[sink.\"../a\"]\npath = \"/tmp/a\"\n",
        &["a.toml:1:7: sink.\"../a\": the name \"../a\" is not valid; a name has letters, digits, - and _, at most 64"],
    );
}

#[test]
fn durations_have_units_and_bounds() {
    check(
        concat!(
            "[session.main]\ncheck_interval = 300\nwrap_ttl = \"5\"\nlogin_jitter = \"-1s\"\n",
            "[agent]\nstop_grace = \"20m\"\n[server.b]\nkind = \"vault\"\naddress = \"https://b\"\n",
            "connect_timeout = \"0s\"\nresponse_timeout = \"5 sek\"\nlogin_timeout = \"soon\"\n",
        ),
        &[
            concat!(
                "a.toml:2:18: session.main.check_interval: the integer 300 has no unit; ",
                "write check_interval = \"300s\" for seconds"
            ),
            "a.toml:3:12: session.main.wrap_ttl: \"5\" has no unit; write one such as 500ms, 30s, 5m or 1h",
            "a.toml:4:16: session.main.login_jitter: \"-1s\" is negative; write one from 0s to 1h",
            "a.toml:6:14: agent.stop_grace: \"20m\" is out of range; write one from 0s to 10m",
            "a.toml:10:19: server.b.connect_timeout: \"0s\" is out of range; write one from 100ms to 5m",
            concat!(
                "a.toml:11:20: server.b.response_timeout: \"5 sek\" has the unknown unit \"sek\"; ",
                "units are ms, s, m, h and d"
            ),
            "a.toml:12:17: server.b.login_timeout: \"soon\" is not a duration; write one such as 500ms, 30s, 5m or 1h",
        ],
    );
}

#[test]
fn a_server_must_be_safe_to_reach() {
    check(
        "[server.b]\n",
        &[
            "a.toml:1:9: server.b.kind: missing; write kind = \"vault\", \"openbao\", \"keyward\" or \"consul\"",
            "a.toml:1:9: server.b.address: missing; the server's address, such as \"https://secrets.example.com:8200\"",
        ],
    );
    check(
        concat!(
            "[server.b]\nkind = \"nomad\"\naddress = \"http://secrets.example.com\"\nca_file = \"ca.pem\"\n",
            "[server.c]\nkind = \"vault\"\naddress = \"https://me:hush@secrets.example.com\"\nproxy = \"hush\"\n",
            "[server.d]\nkind = \"vault\"\naddress = \"unix:///run/vault.sock\"\nserver_name = \"a\"\n",
            "[server.e]\nkind = \"vault\"\naddress = \"https://e\"\nclient_cert = \"/etc/passwd\"\nserver_name = \"a/b\"\n",
        ),
        &[
            "a.toml:2:8: server.b.kind: \"nomad\" is not a known value; write \"vault\", \"openbao\", \"keyward\" or \"consul\"",
            concat!(
                "a.toml:3:11: server.b.address: \"http://secrets.example.com\" would send tokens unencrypted; ",
                "use https://; beyond loopback http:// needs allow_http = true"
            ),
            "a.toml:4:11: server.b.ca_file: the value is not an absolute path; start it with /",
            concat!(
                "a.toml:7:11: server.c.address: the value contains a user or a password; ",
                "leave both out: the agent logs in by the cloud's identity"
            ),
            concat!(
                "a.toml:8:9: server.c.proxy: the value is not a proxy; ",
                "write \"environment\", \"direct\" or the proxy's \"http://HOST:PORT\""
            ),
            "a.toml:12:1: server.d.server_name: not allowed without TLS; leave it out, or use https://",
            "a.toml:13:9: server.e.client_key: missing; the private key that belongs to client_cert",
            concat!(
                "a.toml:17:15: server.e.server_name: \"a/b\" is not a host name; ",
                "write the name in the server's certificate, without scheme and port"
            ),
        ],
    );
    check(
        concat!(
            "[server.b]\nkind = \"vault\"\naddress = \"https://b\"\nserver_name = \"c\"\nproxy = \"http://p\"\n",
            "[server.c]\nkind = \"vault\"\naddress = \"http://[::1]\"\nproxy = \"http://p\"\n",
        ),
        &[
            concat!(
                "a.toml:4:1: server.b.server_name: conflicts with proxy: ",
                "a proxy looks up the address's host itself; keep one of the two"
            ),
            concat!(
                "a.toml:9:1: server.c.proxy: conflicts with an http:// address: ",
                "tokens would leave this machine unencrypted; keep one of the two"
            ),
        ],
    );
    check(
        concat!(
            "[server.b]\nkind = \"vault\"\naddress = \"https://b\"\nallow_http = true\n",
            "[server.c]\nkind = \"vault\"\naddress = \"http://127.0.0.1\"\nallow_http = true\n",
            "[server.d]\nkind = \"vault\"\naddress = \"http://d\"\nallow_http = true\nproxy = \"http://p\"\n",
        ),
        &[
            "a.toml:4:1: server.b.allow_http: has no effect: only http:// to another machine needs it; leave it out",
            "a.toml:8:1: server.c.allow_http: has no effect: only http:// to another machine needs it; leave it out",
            concat!(
                "a.toml:13:1: server.d.proxy: conflicts with an http:// address: ",
                "tokens would leave this machine unencrypted; keep one of the two"
            ),
        ],
    );
    check(
        "[server.b]\nkind = \"vault\"\naddress = \"https://b\"\nclient_key = \"/etc/passwd\"\n",
        &["a.toml:1:9: server.b.client_cert: missing; the certificate that belongs to client_key"],
    );
}

#[test]
fn a_session_names_its_server_and_one_method() {
    check(
        concat!(
            "[server.b]\nkind = \"vault\"\naddress = \"https://b\"\n[session.a]\nmount = \"auth/azure/login\"\n",
            "[session.b]\nserver = \"mian\"\nnamespace = \"a//b\"\ncloud = \"azure\"\n[session.c.azure]\nrole = \"a\"\n",
        ),
        &[
            "a.toml:4:10: session.a.server: missing; name one of b, main",
            "a.toml:4:10: session.a.cloud: missing; a session has one method: write [session.a.cloud] with role and resource",
            "a.toml:5:9: session.a.mount: \"auth/azure/login\" ends with login; write only the mount, such as \"azure\"",
            "a.toml:7:10: session.b.server: there is no server \"mian\"; did you mean main?",
            "a.toml:8:13: session.b.namespace: \"a//b\" is not a namespace; write its path, such as \"team-a\" or \"team-a/web\"",
            "a.toml:9:9: session.b.cloud: expected a table, found a string; write [session.b.cloud] and its keys below",
            "a.toml:10:10: session.c.server: missing; name one of b, main",
            "a.toml:10:10: session.c.cloud: missing; a session has one method: write [session.c.cloud] with role and resource",
            concat!(
                "a.toml:10:12: session.c.azure: an unknown key; known keys: server, cloud, aws, gcp, jwt, kubernetes, approle, ",
                "cert, token_file, auth_method, mount, namespace, wrap_ttl, seal_key_file, revoke_on_exit, ",
                "check_interval, login_jitter"
            ),
        ],
    );
}

#[test]
fn conflicting_lifecycle_options_are_errors() {
    let folder = Folder::with(&[("seal.key", &"k".repeat(32)), ("short.key", "short")]);
    let seal = folder.path("seal.key");
    check(
        &format!(
            "[session.main]\nwrap_ttl = \"5m\"\nrevoke_on_exit = true\nseal_key_file = {seal:?}\n[agent]\nstate_dir = {:?}\n",
            folder.path(""),
        ),
        &[
            "a.toml:3:1: session.main.revoke_on_exit: conflicts with wrap_ttl: the agent does not own a wrapped token; keep one of the two",
            "a.toml:4:1: session.main.seal_key_file: conflicts with revoke_on_exit: a revoked token cannot be resumed; keep one of the two",
            "a.toml:4:1: session.main.seal_key_file: conflicts with wrap_ttl: a wrapped token is passed on, not stored; keep one of the two",
        ],
    );
}

#[test]
fn a_sink_has_a_file_of_its_own() {
    check(
        concat!(
            "[sink.a]\npath = \"/tmp/x/\"\nsession = \"mian\"\nformat = \"yaml\"\nmode = \"0o640\"\n",
            "[sink.b]\npath = \"/tmp/./x\"\nmode = 0o640\non_expiry = \"delete\"\n[sink.c]\npath = \"/tmp//x\"\n",
            "[sink.d]\npath = \"/tmp/../x\"\nmode = \"4755\"\nowner = \"4294967295\"\n[sink.e]\n",
        ),
        &[
            "a.toml:2:8: sink.a.path: \"/tmp/x/\" is a folder's path; end it with the file's name",
            "a.toml:3:11: sink.a.session: there is no session \"mian\"; did you mean main?",
            "a.toml:4:10: sink.a.format: \"yaml\" is not a known value; write \"raw\", \"json\" or \"env\"",
            "a.toml:5:8: sink.a.mode: \"0o640\" is not a mode; write three or four octal digits, such as \"0640\"",
            "a.toml:8:8: sink.b.mode: the integer 0o640 is not a mode, which is octal; write a string, such as mode = \"0640\"",
            "a.toml:9:13: sink.b.on_expiry: \"delete\" is not a known value; write \"keep\", \"truncate\" or \"remove\"",
            "a.toml:11:1: sink.c.path: also the file of sink b, at a.toml:7:1; give each sink its own file",
            "a.toml:13:8: sink.d.path: \"/tmp/../x\" contains ..; write the path without ..",
            "a.toml:14:8: sink.d.mode: \"4755\" sets bits beyond read, write and execute; write one from 0000 to 0777",
            "a.toml:15:9: sink.d.owner: \"4294967295\" is not an id; write a name or another id",
            "a.toml:16:7: sink.e.path: missing; the file to write, such as \"/run/keyward/token\"",
        ],
    );
}

#[test]
fn a_wrapped_token_goes_to_one_reader_as_json() {
    check(
        concat!(
            "[session.main]\nwrap_ttl = \"5m\"\n[sink.a]\npath = \"/tmp/a\"\n[sink.b]\npath = \"/tmp/b\"\nformat = \"json\"\n",
            "[listener.a]\naddress = \"unix:///tmp/a.sock\"\nsessions = [\"main\"]\n",
        ),
        &[
            "a.toml:3:7: sink.a.format: session main wraps its token, which only a JSON file can hold; write format = \"json\"",
            concat!(
                "a.toml:5:7: sink.b: takes the wrapped token of session main, like sink a; ",
                "keep one: a wrapped token can be unwrapped once"
            ),
            "a.toml:10:13: listener.a.sessions: session main has a wrap_ttl, and a wrapped token is for one reader; write it to a sink",
        ],
    );
}

#[test]
fn a_listener_needs_access_control() {
    check(
        concat!(
            "[listener.a]\naddress = \"tcp://0.0.0.0:8300\"\nany_local_user = true\nmode = \"0600\"\n",
            "[listener.b]\naddress = \"tcp://127.0.0.1:8300\"\n",
            "[listener.c]\naddress = \"unix:///tmp/c\"\nany_local_user = true\nsessions = []\n",
            "[listener.d]\naddress = \"systemd:d\"\nowner = \"root\"\nallowed_hosts = [\"a:80\"]\n",
            "[listener.e]\naddress = \"tcp://localhost:1\"\nkind = \"metrics\"\n",
            "[listener.f]\nkind = \"health\"\naddress = \"tcp://0.0.0.0:8300\"\nsessions = [\"main\"]\n[listener.g]\n",
        ),
        &[
            concat!(
                "a.toml:2:11: listener.a.address: serves tokens on 0.0.0.0, which is not loopback; ",
                "use 127.0.0.1 or [::1]; only a health listener may serve other machines"
            ),
            "a.toml:4:1: listener.a.mode: not allowed for a TCP address; leave it out",
            concat!(
                "a.toml:5:11: listener.b.key_file: missing: any user can connect to a TCP address; ",
                "name a file with a key that callers must send, or set any_local_user = true"
            ),
            concat!(
                "a.toml:9:1: listener.c.any_local_user: not allowed for a unix socket: mode, owner and group ",
                "decide who may connect; leave it out"
            ),
            "a.toml:10:12: listener.c.sessions: an empty array; list something, or leave the key out",
            concat!(
                "a.toml:13:1: listener.d.owner: not allowed for a socket that systemd opens: ",
                "set it in the socket unit; leave it out"
            ),
            "a.toml:14:18: listener.d.allowed_hosts: \"a:80\" is not a host name; write only the name, without scheme and port",
            concat!(
                "a.toml:16:11: listener.e.address: \"tcp://localhost:1\" is not a TCP address; ",
                "write numbers: \"tcp://127.0.0.1:8300\" or \"tcp://[::1]:8300\""
            ),
            "a.toml:17:8: listener.e.kind: \"metrics\" is not a known value; write \"local_api\", \"health\", \"api_proxy\", \"identity\", \"ui\" or \"systemd_credentials\"",
            "a.toml:20:1: listener.f.address: also the address of listener a, at a.toml:2:1; give each listener its own address",
            concat!(
                "a.toml:21:1: listener.f.sessions: not allowed on a health listener, ",
                "which reports all sessions and serves no token; leave it out"
            ),
            "a.toml:22:11: listener.g.address: missing; the address to listen on, such as \"unix:///run/keyward/api.sock\"",
        ],
    );
    let folder = Folder::with(&[("key", &"k".repeat(16))]);
    check(
        &format!(
            "[listener.a]\naddress = \"tcp://[::1]:1\"\nkey_file = {:?}\nany_local_user = true\n",
            folder.path("key")
        ),
        &[concat!(
            "a.toml:4:1: listener.a.any_local_user: conflicts with key_file: callers send the key, or need none; ",
            "keep one of the two"
        )],
    );
    // A key in the place of the file that holds it.
    check(
        "[listener.a]\naddress = \"tcp://[::1]:1\"\nkey_file = \"hush\"\n",
        &["a.toml:3:12: listener.a.key_file: the value is not an absolute path; start it with /"],
    );
}

#[test]
fn values_of_agent_and_log_are_checked() {
    check(
        "[agent]\nready = \"sinks\"\ndrop_in = 1\n[log]\nlevel = \"loud\"\nformat = \"xml\"\n",
        &[
            "a.toml:2:9: agent.ready: \"sinks\" is not a known value; write \"listener\", \"token\" or \"outputs\"",
            "a.toml:3:11: agent.drop_in: expected a string, found an integer; put it in quotes",
            concat!(
                "a.toml:5:9: log.level: \"loud\" is not a log level; ",
                "write error, warn, info, debug, trace or off, and TARGET=LEVEL after a comma"
            ),
            "a.toml:6:10: log.format: \"xml\" is not a known value; write \"text\" or \"json\"",
        ],
    );
}

#[cfg(not(feature = "acl"))]
#[test]
fn a_part_missing_in_this_build_is_reported_as_such() {
    check(
        "[acl]\nnothing = 1\n",
        &["a.toml:1:2: acl: this build has no acl part; leave [acl] out, or use a build that has it"],
    );
}

#[test]
fn a_configuration_without_a_session_is_an_error() {
    let folder = Folder::with(&[("a.toml", "")]);
    let outcome = load(&[folder.path("a.toml")], &environment(&[]), Purpose::Check);
    let expected = concat!(
        "a.toml: no session: there is nothing to do; ",
        "write [session.NAME] with [session.NAME.cloud], and the server that it logs in to"
    );
    assert_eq!(folder.short(&outcome.errors), [expected]);
}
