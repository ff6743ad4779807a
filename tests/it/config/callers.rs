//! `[caller.NAME]`: errors, and rules that can never match.

use keyward_config::{Purpose, Serves, load};
use keyward_http::guard::AccessMode;

use super::{BASE, Folder, environment};

const SOCKET: &str = "[listener.a]\naddress = \"unix:///tmp/a\"\n";

/// Errors and warnings of a configuration.
fn check(text: &str) -> (Vec<String>, Vec<String>) {
    let folder = Folder::with(&[("a.toml", text), ("base.toml", BASE)]);
    let outcome = load(&[folder.path("a.toml"), folder.path("base.toml")], &environment(&[]), Purpose::Check);
    (folder.short(&outcome.errors), folder.short(&outcome.warnings))
}

#[test]
fn errors_of_callers_come_with_advice() {
    let criteria = "write uid, gid, group, unit, cgroup, pod or executable, or everyone = true for every process";
    let routes = "\"token\", \"refresh\", \"proxy\", \"credentials\", \"identity\", \"status\" or \"health\"";
    for (text, expected) in [
        ("[caller.a]\nroutes = [\"token\"]\n", format!("a.toml:1:9: caller.a: matches no process: it has no criterion; {criteria}")),
        ("[caller.a]\nuid = \"0\"\n", format!("a.toml:1:9: caller.a.routes: missing; list what it may use: {routes}")),
        (
            "[caller.a]\nuid = \"0\"\nroutes = [\"tokens\"]\n",
            format!("a.toml:3:11: caller.a.routes: \"tokens\" is not a known value; write {routes}"),
        ),
        (
            "[caller.a]\nuid = \"0\"\neveryone = true\nroutes = [\"token\"]\n",
            "a.toml:3:1: caller.a.everyone: conflicts with its other criteria: every process matches, or those that meet them; \
             keep one of the two"
                .to_owned(),
        ),
        (
            "[caller.a]\nunit = [\"nginx.service\", \"cron.timer\"]\nroutes = [\"token\"]\n",
            "a.toml:2:26: caller.a.unit: \"cron.timer\" is not a unit with processes of its own; write its whole name, such as \
             \"nginx.service\" or \"session-*.scope\""
                .to_owned(),
        ),
        (
            "[caller.a]\nunit = \"a.service\"\ncgroup = \"/system.slice/b.service\"\nroutes = [\"token\"]\n",
            "a.toml:3:1: caller.a.cgroup: no process of unit a.service is in the cgroup /system.slice/b.service; keep one of \
             the two, or correct it"
                .to_owned(),
        ),
        (
            "[caller.a]\npod = \"web-0\"\nroutes = [\"token\"]\n",
            "a.toml:2:7: caller.a.pod: \"web-0\" is not the UID of a pod; write its metadata.uid, or \"*\" for every pod".to_owned(),
        ),
        (
            "[caller.a]\nuid = \"0\"\nsha256 = \"00\"\nroutes = [\"token\"]\n",
            "a.toml:3:10: caller.a.sha256: \"00\" is not a SHA-256 digest; write the 64 digits that sha256sum prints".to_owned(),
        ),
        (
            "[caller.a]\nuid = \"0\"\nroutes = [\"token\"]\n[caller.a.proxy]\nallow = [\"secret/*\"]\n",
            "a.toml:4:11: caller.a.proxy: limits requests that the caller may not send; add \"proxy\" to its routes, or leave it out"
                .to_owned(),
        ),
        (
            "[caller.a]\nuid = \"0\"\nsessions = [\"mian\"]\nroutes = [\"token\"]\n",
            "a.toml:3:13: caller.a.sessions: there is no session \"mian\"; did you mean main?".to_owned(),
        ),
        (
            "[caller.a]\nuid = \"0\"\nroutes = [\"token\"]\n[caller.a.derived_token]\nscope = \"thread\"\nttl = \"1h\"\n",
            "a.toml:5:9: caller.a.derived_token.scope: \"thread\" is not a known value; write \"caller\" or \"process\"".to_owned(),
        ),
        (
            "[caller.a]\nuid = \"0\"\nroutes = [\"token\"]\n[caller.a.derived_token]\nttl = \"1h\"\nrole = \"a/b\"\n",
            "a.toml:6:8: caller.a.derived_token.role: \"a/b\" is not the name of a token role; write the NAME of \
             auth/token/roles/NAME"
                .to_owned(),
        ),
        (
            "[caller.a]\nuid = \"0\"\nroutes = [\"token\"]\nsessions = [\"acl\"]\n[caller.a.derived_token]\nttl = \"1h\"\n\
             [server.acl]\nkind = \"keyward\"\naddress = \"https://acl.example.com\"\n[session.acl]\nserver = \"acl\"\n\
             [session.acl.kubernetes]\nrole = \"a\"\n",
            "a.toml:5:11: caller.a.derived_token: conflicts with a server of the kind keyward: it has no derived tokens; keep one \
             of the two"
                .to_owned(),
        ),
    ] {
        let (errors, _) = check(&format!("{text}{SOCKET}"));
        assert!(errors.contains(&expected), "{expected}\n{errors:#?}");
    }
    // A criterion that cannot be read is one error, not also a caller without criteria.
    let (errors, _) = check(&format!("[caller.a]\nuid = 0\nroutes = [\"token\"]\n{SOCKET}"));
    assert!(errors.len() == 1 && errors[0].contains("caller.a.uid"), "{errors:#?}");
}

#[test]
fn rules_that_can_never_match_and_rights_that_nothing_serves_are_warnings() {
    let shadowed = "[caller.b]\nuid = [\"0\", \"1\"]\nroutes = [\"token\"]\n[caller.a]\nuid = \"1\"\nunit = \"x.service\"\nroutes = [\"token\"]\n";
    let (errors, warnings) = check(&format!("{shadowed}{SOCKET}"));
    let expected = "a.toml:4:9: caller.a: never matches: caller b, at a.toml:1:9, matches first; put the narrower rule first, \
                  or leave this one out";
    assert_eq!((errors, warnings), (vec![], vec![expected.to_owned()]));
    for (text, part) in [
        (
            "[caller.a]\ngid = \"1\"\nroutes = [\"token\"]\n[listener.a]\naddress = \"tcp://127.0.0.1:1\"\n",
            "over TCP the kernel reports only",
        ),
        (
            "[caller.a]\ngid = \"1\"\nroutes = [\"proxy\"]\n[listener.a]\naddress = \"unix:///tmp/a\"\n\
             [listener.b]\nkind = \"api_proxy\"\naddress = \"tcp://127.0.0.1:1\"\n",
            "over TCP the kernel reports only",
        ),
        (
            "[caller.a]\nuid = \"1\"\nroutes = [\"proxy\"]\n[listener.a]\naddress = \"unix:///tmp/a\"\n",
            "has a route to an API proxy, and there is none",
        ),
        ("[caller.a]\nuid = \"1\"\nroutes = [\"token\"]\n[sink.a]\npath = \"/tmp/a\"\n", "no listener serves callers"),
        (
            "[caller.a]\nuid = \"1\"\nroutes = [\"status\"]\n[caller.a.derived_token]\nttl = \"1h\"\n\
             [listener.a]\naddress = \"unix:///tmp/a\"\n",
            "no route of this caller serves or uses a token",
        ),
        (
            "[caller.a]\nuid = \"1\"\nroutes = [\"token\"]\n[caller.a.derived_token]\nttl = \"1h\"\nscope = \"process\"\n\
             [listener.a]\naddress = \"tcp://127.0.0.1:1\"\n",
            "the kernel does not report the process behind a TCP connection",
        ),
        (
            "[caller.a]\neveryone = true\nroutes = [\"token\"]\n[caller.a.derived_token]\nttl = \"1h\"\nscope = \"process\"\n\
             [listener.a]\naddress = \"unix:///tmp/a\"\n",
            "64 processes use up all tokens",
        ),
        (
            "[caller.a]\nuid = \"1\"\nroutes = [\"token\"]\n[caller.a.derived_token]\nttl = \"1h\"\n\
             [listener.b]\naddress = \"unix:///tmp/b\"\n[listener.b.derived_token]\nttl = \"1h\"\n",
            "as the listener b has: the caller's own is used there for a",
        ),
    ] {
        let (errors, warnings) = check(text);
        assert!(
            errors.is_empty() && warnings.iter().any(|warning| warning.contains(part)),
            "{part}: {errors:?} {warnings:?}"
        );
    }
}

#[test]
fn callers_keep_the_order_of_the_files_and_decide_in_place_of_the_sockets_group() {
    let text = "[caller.z]\nuid = \"0\"\nroutes = [\"token\"]\n[caller.a]\neveryone = true\nroutes = [\"credentials\"]\n\
        [listener.tcp]\naddress = \"tcp://127.0.0.1:1\"\n[listener.health]\nkind = \"health\"\naddress = \"tcp://127.0.0.1:2\"\n\
        [listener.p]\nkind = \"api_proxy\"\naddress = \"unix:///tmp/p\"\n";
    let folder = Folder::with(&[("a.toml", &format!("{text}{SOCKET}")), ("base.toml", BASE)]);
    let load = |names: &[&str]| {
        let paths: Vec<_> = names.iter().map(|name| folder.path(name)).collect();
        load(&paths, &environment(&[]), Purpose::Check).config.unwrap()
    };
    let config = load(&["a.toml", "base.toml"]);
    let names: Vec<_> = config.callers.as_ref().unwrap().rules().iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["z", "a"]);
    for listener in &config.listeners {
        let decides = listener.name != "health";
        assert_eq!(listener.callers.is_some(), decides, "{}", listener.name);
        assert_eq!(listener.guard.admit == AccessMode::Callers, decides, "{}", listener.name);
        if let Serves::ApiProxy(options) = &listener.serves {
            assert_eq!(options.callers, [None, None], "no credential, and no route of the first");
        }
    }
    folder.put("plain.toml", SOCKET);
    let plain = load(&["plain.toml", "base.toml"]);
    assert_eq!((&plain.callers, &plain.listeners[0].guard.admit), (&None, &AccessMode::SocketPeers));
}

#[test]
fn a_user_that_this_machine_lacks_matches_no_process() {
    let folder = Folder::with(&[("base.toml", BASE)]);
    folder.put("a.toml", &format!("[caller.a]\nuid = \"no-such-user\"\nroutes = [\"token\"]\n{SOCKET}"));
    let outcome = load(&[folder.path("a.toml"), folder.path("base.toml")], &environment(&[]), Purpose::Check);
    let rule = &outcome.config.as_ref().unwrap().callers.as_ref().unwrap().rules()[0];
    assert_eq!(rule.matches.uids, [u32::MAX]);
    let run = load(&[folder.path("a.toml"), folder.path("base.toml")], &environment(&[]), Purpose::Run);
    assert!(run.config.is_none());
}
