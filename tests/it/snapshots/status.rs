//! `keyward status` of real agents in the states that operators meet, as text and as JSON.

use std::path::Path;
use std::time::Duration;

use keyward_emulators::secrets::{Bounds, CannedResponse, Operation, Role};
use serde_json::Value;

use super::Transcript;
use super::redact::Redactions;
use crate::harness::agent::Agent;
use crate::harness::binary::{ask, eventually, run};
use crate::harness::world::{World, run_in_network_namespace};

/// Adds both forms of an agent's status, once only these components are not ready and this text is in it.
fn add(transcript: &mut Transcript, title: &str, agent: &Agent, not_ready: &[&str], expected: &str) {
    transcript.redact(&agent.path("").display().to_string(), "FOLDER/");
    let config = agent.config.display().to_string();
    // A session logs in again, or looks its token up, now and then: only the state of that name shows a call in flight.
    let is_calling = title == "logging in";
    let settled = |format: &str, is_settled: &dyn Fn(&str) -> bool| {
        eventually(Duration::from_secs(30), || {
            let (code, output, error) = run(&["status", "--format", format, "--config", &config], &[]);
            if code == 0 && output.contains(expected) && is_settled(&output) {
                return Ok((output, error));
            }
            Err(format!("{title}: {code} {output}{error}{}", agent.binary.output()))
        })
    };
    let (json, _) = settled("json", &|output| {
        let status: Value = serde_json::from_str(output).unwrap();
        let components = status["components"].as_object().unwrap().iter();
        // A sink learns the reason of its session a moment later.
        let waits =
            |component: &Value| component["reason"].as_str()?.strip_prefix("waiting for a token: ").map(str::to_owned);
        let reason = status["components"]["session/web"]["reason"].as_str();
        let are_current = components
            .clone()
            .all(|(_, component)| waits(component).is_none_or(|own_reason| Some(own_reason.as_str()) == reason));
        are_current
            && output.contains("\"activity\"") == is_calling
            && components
                .filter(|(_, component)| component["ready"] == false)
                .map(|(name, _)| name.as_str())
                .eq(not_ready.iter().copied())
    });
    let (output, error) = settled("text", &|output| output.contains(", gives up after ") == is_calling);
    transcript.add_output(title, 0, &output, &error);
    let status: Value = serde_json::from_str(&json).unwrap();
    transcript.add(&format!("{title}, --format json"), &format!("{status:#}"));
}

/// The configuration without the checks of the token, which come after some seconds and show in the status.
fn steady(text: &str) -> String {
    text.replace("mount = \"azure\"", "mount = \"azure\"\ncheck_interval = \"off\"")
}

/// The configuration without its server, session and sink.
fn sessionless(text: &str) -> String {
    format!("[listener.local]{}", text.split_once("[listener.local]").unwrap().1)
}

/// The folder that a configuration names.
fn folder(text: &str) -> &Path {
    Path::new(text.split_once("address = \"unix://").unwrap().1.split_once("/api.sock").unwrap().0)
}

/// Replaces addresses and other text that differs between runs.
fn redactions(world: &World) -> Redactions {
    Redactions::default()
        .text(world.secrets.url().trim_end_matches('/'), "http://SERVER")
        .text(world.secrets.url().trim_end_matches('/').trim_start_matches("http://"), "SERVER")
        .text(world.platform.url().trim_end_matches('/'), "http://PLATFORM")
        .text(env!("CARGO_PKG_VERSION"), "VERSION")
        .pattern(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME")
        // How often a session has tried depends on how long the test took to ask.
        .pattern(r"[1-9]\d* failures? in a row", "N failures in a row")
        .pattern(r#""failures": [1-9]\d*"#, r#""failures": N"#)
        .pattern("N failures in a row, ", "")
        .pattern("(, )?N failures in a row", "")
        .pattern(r"\b\d+ (s|min|h|d)( \d+ (min|h))?\b", "SPAN")
        // Of the kernel.
        .pattern(r"Landlock ABI \d+", "Landlock ABI N")
        .pattern(r#""landlock_abi": \d+"#, r#""landlock_abi": "N""#)
        .pattern(r"pid \d+", "pid PID")
        .pattern(r#""pid": \d+"#, r#""pid": "PID""#)
        .pattern(r#"_seconds": \d+"#, r#"_seconds": "SPAN""#)
}

const NO_SUCH_SECRET: &str = "[template.conf]\ndestination = \"FOLDER/conf\"\n\
    contents = '{{ with secret \"secret/data/none\" }}{{ .Data.data.password }}{{ end }}'\n";
const DERIVED: &str = "[listener.derived]\naddress = \"unix://FOLDER/derived.sock\"\n\
    [listener.derived.derived_token]\npolicies = [\"web\"]\nttl = \"1h\"\n";
const PROGRAM: &str = "[process]\ncommand = [\"/bin/false\"]\nrestart = \"always\"\n";
const PROXY: &str = "[listener.proxy]\nkind = \"api_proxy\"\naddress = \"unix://FOLDER/proxy.sock\"\n";
const ACL: &str = "[acl]\nlisten = \"unix://FOLDER/acl.sock\"\ndata_dir = \"FOLDER/acl\"\n";
const GATEWAY: &str = "[gateway]\nupstream = \"PLATFORM\"\nlisten = \"tcp://127.0.0.1:8800\"\n\
    token_file = \"FOLDER/platform.token\"\nlocal_token_file = \"FOLDER/local.token\"\n";
const REFUSED: &str = "Azure token verified, but the principal is not bound to this role";

#[test]
fn status_in_each_state() {
    run_in_network_namespace(|| {
        let world = World::with(
            |_| (),
            |cloud, options| {
                let service_principal_ids = vec![cloud.identities().system.object_id.clone()];
                let bounds = Bounds { service_principal_ids, ..Bounds::default() };
                let policies = vec!["once".to_owned(), "more".to_owned()];
                let once = Role { policies, renewable: false, bounds, ..Role::default() };
                let endless = Role { ttl: Duration::ZERO, max_ttl: None, ..once.clone() };
                options.roles.insert("once".to_owned(), once);
                options.roles.insert("endless".to_owned(), endless);
            },
        );
        let mut transcript = Transcript::new(redactions(&world));
        let mut show = |title: &str, agent: &Agent, not_ready: &[&str], expected: &str| {
            add(&mut transcript, title, agent, not_ready, expected);
        };
        let start = |edit: &dyn Fn(String) -> String| Agent::start(&world, &[], |text| edit(steady(&text)));
        let ready = |edit: &dyn Fn(String) -> String| Agent::ready(&world, &[], |text| edit(steady(&text)));

        let agent = ready(&|text| text);
        show("ready", &agent, &[], "");
        agent.edit(|text| text.replace("[sink.token]", "[sink.token]\ncolour = \"green\""));
        agent.reload("failed");
        show("ready, after a reload that failed", &agent, &[], "colour");
        drop(agent);
        let agent = ready(&|text| text.replace("role = \"web\"", "role = \"once\""));
        show("a token that cannot be renewed", &agent, &[], "once");
        drop(agent);
        let agent = ready(&|text| text.replace("role = \"web\"", "role = \"endless\""));
        show("a token that never ends", &agent, &[], "endless");
        drop(agent);

        // The first look-up is allowed; one that is denied later has the session replace its token, which fails.
        let agent = ready(&|text| text);
        let check = || ask(&agent.socket(), "POST", "/agent/v1/check").unwrap();
        assert_eq!(check().0, 200);
        let denied = CannedResponse::error(403, "a policy denies it");
        world.secrets.faults().respond_always(Operation::Lookup, Some(denied));
        world.secrets.faults().respond_always(Operation::Login, Some(CannedResponse::error(403, REFUSED)));
        check();
        show("a token that cannot be replaced", &agent, &[], REFUSED);
        drop(agent);
        world.secrets.faults().respond_always(Operation::Lookup, None);
        world.secrets.faults().respond_always(Operation::Login, None);
        let agent = ready(&|text| text + PROXY);
        world.set_vault_offline(true);
        ask(&agent.path("proxy.sock"), "GET", "/v1/secret/data/app").unwrap();
        show("the server of an API proxy is down", &agent, &[], "does not respond");
        drop(agent);
        world.set_vault_offline(false);

        let agent = start(&|text| text + NO_SUCH_SECRET);
        show("a template failed", &agent, &["template/conf"], "HTTP 404");
        drop(agent);
        let agent = start(&|text| {
            std::fs::create_dir(folder(&text).join("other")).unwrap();
            text + "[sink.other]\npath = \"FOLDER/other\"\nrequired = false\n"
        });
        show("a sink failed", &agent, &["sink/other"], "is a folder");
        drop(agent);
        world
            .secrets
            .faults()
            .respond_always(Operation::CreateToken, Some(CannedResponse::error(403, "permission denied")));
        let agent = start(&|text| text + DERIVED);
        show("a token for a listener was refused", &agent, &["derived_token/derived/web"], "could not be created");
        drop(agent);
        let agent = start(&|text| text + PROGRAM);
        show("a program is started again", &agent, &["process"], "exited with code 1");
        drop(agent);
        let agent = start(&|text| sessionless(&text) + ACL);
        show("the ACL server", &agent, &[], "");
        drop(agent);

        let token = world.platform.faults().mint("gateway");
        let agent = start(&|text| {
            std::fs::write(folder(&text).join("platform.token"), token.token.expose_secret()).unwrap();
            sessionless(&text) + &GATEWAY.replace("PLATFORM", world.platform.url())
        });
        show("the gateway", &agent, &[], "2.6");
        assert!(world.platform.faults().revoke(&token.id));
        let local = std::fs::read_to_string(agent.path("local.token")).unwrap();
        let call = reqwest::Client::new().get("http://127.0.0.1:8800/api/v2/account/details").bearer_auth(local.trim());
        let call = call.timeout(Duration::from_millis(500));
        let response = world.block_on(async { call.send().await });
        assert!(response.is_err(), "it waits for another token");
        show("the gateway, its token refused", &agent, &["gateway/platform"], "rejects the token");
        drop(agent);

        world.secrets.faults().respond_always(Operation::Login, Some(CannedResponse::error(403, REFUSED)));
        let agent = start(&|text| text);
        show("the login is refused", &agent, &["session/web", "sink/token"], REFUSED);
        drop(agent);
        world.secrets.faults().respond_always(Operation::Login, None);
        world.secrets.faults().set_unresponsive(true);
        let agent = start(&|text| text);
        eventually(Duration::from_secs(30), || {
            let (_, body) = ask(&agent.socket(), "GET", "/agent/v1/status")?;
            let status: Value = serde_json::from_str(&body).unwrap();
            let kind = &status["sessions"]["web"]["activity"]["kind"];
            (kind == "login").then_some(()).ok_or(body)
        });
        show("logging in", &agent, &["session/web", "sink/token"], "");
        drop(agent);
        world.secrets.faults().set_unresponsive(false);
        world.set_vault_offline(true);
        let agent = start(&|text| text);
        show("the server is down", &agent, &["session/web", "sink/token"], "Connection refused");
        drop(agent);
        transcript.compare("status");
    });
}
