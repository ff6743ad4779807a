//! `keyward run --exit-after-auth`, as a container that prepares another one runs it.

use std::time::Duration;

use keyward_emulators::secrets::{CannedResponse, Operation};
use rustix::process::Signal;
use serde_json::json;

use crate::harness::binary::{Binary, eventually, run};
use crate::harness::world::{World, run_in_network_namespace};

#[test]
fn exit_after_auth_ends_with_0_once_each_required_output_is_written() {
    run_in_network_namespace(|| {
        let world = World::start();
        world.put("app", &json!({ "password": "one" }));
        let folder = tempfile::tempdir().unwrap();
        let more = format!(
            "[template.conf]\ncontents = '{{{{ with secret \"secret/data/app\" }}}}{{{{ .Data.data.password }}}}{{{{ end }}}}'\n\
             destination = \"{0}/conf\"\n[env_template.NEVER]\ncontents = \"x\"\n\
             [process]\ncommand = [\"/bin/sh\", \"-c\", \"touch {0}/child\"]\n",
            folder.path().display()
        );
        let config = world.config(folder.path(), &more);
        let (code, output, error) = run(&["run", "--exit-after-auth", "--config", &config], &[]);
        assert_eq!((code, output.as_str()), (0, ""), "{error}");
        assert_eq!(std::fs::read_to_string(folder.path().join("conf")).unwrap(), "one");
        let token = std::fs::read_to_string(folder.path().join("token")).unwrap();
        assert!(!token.is_empty() && world.secrets.faults().tokens() >= 1, "the token lives on");
        assert_eq!(world.secrets.faults().counts().get(Operation::Login), 1);
        assert!(!folder.path().join("child").exists(), "no program is run");
        assert!(!error.contains("api.sock"), "nothing is served: {error}");
    });
}

#[test]
fn exit_after_auth_ends_with_the_error_of_a_failed_login() {
    run_in_network_namespace(|| {
        let world = World::start();
        let refused = "Azure token verified, but the principal is not bound to this role";
        world.secrets.faults().respond_always(Operation::Login, Some(CannedResponse::error(403, refused)));
        let folder = tempfile::tempdir().unwrap();
        let config = world.config(folder.path(), "");
        let (code, _, error) = run(&["run", "--exit-after-auth", "--config", &config], &[]);
        assert_eq!(code, 2, "{error}");
        let last = error.lines().last().unwrap();
        assert!(
            last.starts_with("error: session web: ") && last.contains(refused) && last.contains(" [KW-11"),
            "{error}"
        );
        assert!(!folder.path().join("token").exists());
    });
}

#[test]
fn exit_after_auth_reports_an_early_stop_and_refuses_sessions_that_revoke_on_exit() {
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let missing = "[template.conf]\ncontents = '{{ with secret \"secret/data/none\" }}{{ end }}'\n";
        let missing = format!("{missing}destination = \"{}/conf\"\n", folder.path().display());
        let config = world.config(folder.path(), &missing);
        let mut binary = Binary::start(&["run", "--exit-after-auth", "--config", &config], &[], folder.path());
        eventually(Duration::from_secs(30), || {
            let output = binary.output();
            if output.contains("HTTP 404") { Ok(()) } else { Err(output) }
        });
        binary.signal(Signal::TERM);
        let status = binary.wait(Duration::from_secs(30));
        let output = binary.output();
        assert_eq!(status.code(), Some(4), "{output}");
        assert!(output.contains("template/conf: the secret secret/data/none is not available: HTTP 404"), "{output}");

        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, text.replace("mount = \"azure\"", "mount = \"azure\"\nrevoke_on_exit = true")).unwrap();
        let (code, _, error) = run(&["run", "--exit-after-auth", "--config", &config], &[]);
        assert_eq!(code, 78, "{error}");
        assert!(error.contains("session web has revoke_on_exit = true"), "{error}");
    });
}

#[test]
fn exit_after_auth_with_a_timeout_retries_logins_and_ends_with_what_is_missing() {
    run_in_network_namespace(|| {
        let world = World::start();
        let folder = tempfile::tempdir().unwrap();
        let missing = "[template.conf]\ncontents = '{{ with secret \"secret/data/none\" }}{{ end }}'\n";
        let missing = format!("{missing}destination = \"{}/conf\"\n", folder.path().display());
        let config = world.config(folder.path(), &missing);
        let once = ["run", "--exit-after-auth", "--config", &config];
        let (code, _, error) = run(&[&once[..], &["--timeout", "6s"]].concat(), &[]);
        assert_eq!(code, 5, "{error}");
        let reason = "template/conf: the secret secret/data/none is not available: HTTP 404";
        let last = error.lines().last().unwrap();
        assert!(last.starts_with(&format!("error: not everything was written within 6s: {reason}")), "{error}");
        let waiting = error.lines().find(|line| line.contains("event=\"run.waiting\"")).unwrap();
        assert!(waiting.contains(reason) && waiting.contains("waited_seconds=5"), "{waiting}");

        world.secrets.faults().respond_next(Operation::Login, CannedResponse::error(403, "permission denied"));
        let folder = tempfile::tempdir().unwrap();
        let config = world.config(folder.path(), "");
        let once = ["run", "--exit-after-auth", "--config", &config];
        let (code, _, error) = run(&[&once[..], &["--timeout", "30s"]].concat(), &[]);
        assert_eq!(code, 0, "{error}");
        assert!(error.contains("event=\"token.login.failed\""), "{error}");
        let (code, _, error) = run(&["run", "--timeout", "30s", "--config", &config], &[]);
        assert_eq!(code, 1, "{error}");
    });
}
