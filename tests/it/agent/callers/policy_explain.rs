//! `keyward policy explain` and what `keyward check` finds in callers.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Cgroup, LISTENERS, cannot_run};
use crate::harness::binary::run;
use crate::harness::world::{World, run_in_network_namespace};

#[test]
fn explain_says_which_caller_a_process_is_and_why() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let web = Cgroup::new("/keyward-test-NAME.service");
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let callers = format!(
            "{}[caller.cron]\nunit = \"cron.service\"\nroutes = [\"status\"]\n\
             [caller.web]\nuid = \"0\"\nunit = \"{}\"\nroutes = [\"token\", \"proxy\"]\n\
             [caller.web.proxy]\nallow = [\"GET secret/data/web/*\"]\n[caller.last]\neveryone = true\nroutes = [\"health\"]\n",
            LISTENERS.replace("FOLDER", folder.path().to_str().unwrap()),
            web.unit()
        );
        let config = world.config(folder.path(), &callers);
        let mut inside = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        std::fs::write(web.procs(), inside.id().to_string()).unwrap();
        let pid = inside.id().to_string();
        let explain = |more: &[&str]| {
            let (code, out, error) = run(&[&["policy", "explain", "-c", &config, "--pid", &pid], more].concat(), &[]);
            (code, format!("{out}{error}"))
        };
        let (code, text) = explain(&[]);
        for part in [
            &format!("process {pid}: uid 0"),
            &format!("cgroup: {}", web.path),
            "caller cron (unit cron.service): unit differs",
            "it is caller web, which may use token, proxy",
            "caller last (everyone): not reached",
        ] {
            assert!(code == 0 && text.contains(part), "{part}: {code} {text}");
        }
        for (more, expected, part) in [
            (vec!["--route", "token"], 0, "route token: granted"),
            (vec!["--route", "status"], 6, "route status: refused: the caller lacks the route"),
            (vec!["--path", "secret/data/web/db"], 0, "on listener proxy: granted"),
            (vec!["--path", "/v1/secret/data/web/db"], 0, "on listener proxy: granted"),
            (vec!["--path", "secret/data/web/db", "--method", "PUT"], 6, "the caller's own rules do not allow"),
            (vec!["--path", "secret/data/web/../db"], 6, "refused"),
        ] {
            let (code, text) = explain(&more);
            assert!(code == expected && text.contains(part), "{more:?}: {code} {text}");
        }
        let (_, text) = explain(&["-o", "json"]);
        let output: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&output["caller"], &output["rules"][0]["result"]),
            (&"web".into(), &"unit differs".into()),
            "{text}"
        );
        drop(inside.stdin.take());
        inside.wait().unwrap();
        let (code, text) = explain(&[]);
        assert!(code == 8 && text.contains("there is no process"), "{code} {text}");
    });
}

#[test]
fn over_tcp_a_request_is_explained_by_the_facts_that_the_kernel_tells_there() {
    if cannot_run() {
        return;
    }
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let callers = format!(
            "{}[listener.tcp]\nkind = \"api_proxy\"\naddress = \"tcp://127.0.0.1:8200\"\nsession = \"web\"\n\
             [caller.ops]\ngid = \"0\"\nroutes = [\"proxy\"]\n",
            LISTENERS.replace("FOLDER", folder.path().to_str().unwrap()),
        );
        let config = world.config(folder.path(), &callers);
        let own = std::process::id().to_string();
        let explain = ["policy", "explain", "-c", &config, "--pid", &own, "--path", "secret/data/web"];
        let (code, out, error) = run(&explain, &[]);
        for part in ["on listener proxy: granted", "on listener tcp: refused: no caller matches by user and cgroup"] {
            assert!(code == 0 && out.contains(part), "{part}: {code} {out}{error}");
        }
    });
}
