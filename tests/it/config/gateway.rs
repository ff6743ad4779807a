//! `[gateway]`: the gateway in front of HCP Terraform or Terraform Enterprise.

use std::path::Path;
use std::time::Duration;

use keyward_config::{Environment, Purpose, TokenSource, load};
use keyward_gateway::proxy::RateLimit;
use keyward_http::server::Endpoint;

use super::{check, clean, environment};

const SOUND: &str = "[gateway]\nupstream = \"https://tfe.example.com:8443\"\nlisten = \"tcp://127.0.0.1:8800\"\n\
                     token_file = \"/tmp/t\"\nlocal_token_file = \"/tmp/l\"\n";

#[test]
fn a_gateway_is_read_with_its_defaults_and_needs_no_session() {
    let gateway = clean(SOUND).gateway.unwrap();
    assert_eq!(gateway.endpoints, [Endpoint::Tcp("127.0.0.1:8800".parse().unwrap())]);
    assert_eq!(gateway.token, TokenSource::File("/tmp/t".into()));
    assert_eq!((gateway.host.to_string().as_str(), gateway.required), ("tfe.example.com:8443", true));
    assert_eq!((gateway.proxy.limit, gateway.proxy.connections), (RateLimit::FromServer, 256));
    assert_eq!((gateway.local_token.max_age, gateway.local_token.grace), (None, Duration::from_hours(24)));
    assert!(gateway.terraform_config_file.is_none() && gateway.proxy.ca_file.is_none());
    let more = "requests_per_second = 0\nhost = \"App.Terraform.io\"\n[gateway.terraform_config_file]\npath = \"/tmp/zz.tfrc.json\"\n";
    let gateway = clean(&format!("{SOUND}{more}")).gateway.unwrap();
    assert_eq!(gateway.proxy.limit, RateLimit::None);
    let drop_in = gateway.terraform_config_file.unwrap();
    assert_eq!((drop_in.host.to_string().as_str(), drop_in.attributes.mode), ("app.terraform.io", 0o600));
}

#[test]
fn a_grace_period_of_a_local_token_that_is_never_replaced_is_a_warning() {
    for (more, expected) in [
        ("", false),
        ("local_token_grace = \"1h\"\n", true),
        ("local_token_grace = \"1h\"\nlocal_token_max_age = \"30d\"\n", false),
    ] {
        let (_folder, outcome) = check(&format!("{SOUND}{more}"));
        let warnings: Vec<String> = outcome.warnings.iter().map(ToString::to_string).collect();
        let is_ignored =
            |text: &String| text.contains("gateway.local_token_grace: has no effect") && text.contains("[KW-1015]");
        assert_eq!(warnings.iter().any(is_ignored), expected, "{warnings:?}");
    }
}

#[test]
fn a_file_for_terraform_or_of_audit_records_that_every_user_can_read_is_a_warning() {
    let audit = "[audit.a]\nkey_file = \"/tmp/key\"\npath = \"/tmp/audit/a.jsonl\"\n";
    for (section, place, content) in [
        (
            "[gateway.terraform_config_file]\npath = \"/tmp/zz.tfrc.json\"\n",
            "gateway.terraform_config_file",
            "the token",
        ),
        (audit, "audit.a", "the records"),
    ] {
        for (mode, expected) in [("0640", false), ("0644", true)] {
            let (_folder, outcome) = check(&format!("{SOUND}{section}mode = \"{mode}\"\n"));
            let warnings: Vec<String> = outcome.warnings.iter().map(ToString::to_string).collect();
            let warning = format!("{place}.mode: 0644 lets every user of this machine access {content}; end it with 0");
            assert_eq!(warnings.iter().any(|text| text.contains(&warning)), expected, "{warnings:?}");
        }
    }
}

#[test]
fn the_example_is_described() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/gateway.toml");
    let outcome = load(&[path], &Environment::default(), Purpose::Check);
    let description = outcome.description().unwrap().to_string();
    for expected in [
        "gateway\n  serves the platform's API of https://app.terraform.io on tcp://127.0.0.1:8800\n",
        "  puts the platform token of the file /etc/keyward/platform.token on each request\n",
        "  accepts callers with the local token of /var/lib/keyward/gateway.token, which is replaced every 30d and valid for 1d after that\n",
    ] {
        assert!(description.contains(expected), "{expected} is not in\n{description}");
    }
}

#[test]
fn a_host_with_a_port_is_described_as_having_no_variable() {
    for (child, described) in [
        (
            "local_token",
            "leaves the token of Terraform and OpenTofu for tfe.example.com:8443 to the file of TF_CLI_CONFIG_FILE: no environment variable",
        ),
        (
            "platform_token",
            "leaves the token of Terraform and OpenTofu for tfe.example.com:8443 to [gateway.terraform_config_file]: no environment variable",
        ),
    ] {
        for (host, expected) in [("", true), ("host = \"tfe.example.com\"\n", false)] {
            let (_folder, outcome) = check(&format!("{SOUND}process_token = \"{child}\"\n{host}"));
            let words = outcome.description().unwrap().to_string();
            assert_eq!(words.contains(described), expected, "{words}");
        }
    }
}

#[test]
fn a_value_from_a_variable_is_described_by_its_reference() {
    let text = SOUND.replace("https://tfe.example.com:8443", "https://${env:TFE}");
    let folder = super::Folder::with(&[("a.toml", &text)]);
    let outcome = load(&[folder.path("a.toml")], &environment(&[("TFE", "secret.example")]), Purpose::Run);
    assert_eq!(folder.short(&outcome.errors), [""; 0]);
    let words = outcome.description().unwrap().to_string();
    assert!(words.contains("API of https://${env:TFE} on") && !words.contains("secret.example"), "{words}");
    assert_eq!(outcome.config.unwrap().gateway.unwrap().proxy.upstream.as_str(), "https://secret.example/");
    let more = format!(
        "{text}process_token = \"local_token\"\n[gateway.terraform_config_file]\npath = \"/tmp/zz.tfrc.json\"\n"
    );
    let folder = super::Folder::with(&[("a.toml", &more)]);
    let outcome = load(&[folder.path("a.toml")], &environment(&[("TFE", "secret.example:8443")]), Purpose::Run);
    let words = outcome.description().unwrap().to_string();
    let leads = "points Terraform and OpenTofu at the gateway for host https://${env:TFE}";
    assert!(words.contains(leads) && !words.contains("secret.example"), "{words}");
    assert!(words.contains("does not reach the tfe provider by that file"), "{words}");
    let outcome = load(&[folder.path("a.toml")], &environment(&[]), Purpose::Check);
    assert!(outcome.config.is_some() && outcome.errors.is_empty(), "what this machine lacks is a note");
}

#[test]
fn every_error_comes_with_advice() {
    let check_diagnostics = |text: &str, expected: &[&str]| {
        let (folder, outcome) = check(text);
        assert_eq!(folder.short(&outcome.errors), expected, "{text}");
    };
    check_diagnostics(
        "[gateway]\nlisten = []\nmoed = \"x\"\n[agent]\nstate_dir = \"/tmp\"\n",
        &[
            "a.toml:1:2: gateway.upstream: missing; the platform's address, such as \"https://app.terraform.io\"",
            "a.toml:1:2: gateway.token_file: missing; name the file of the platform token, or write [gateway.secret] with the path of a secret, or [gateway.mint] to create tokens",
            "a.toml:2:10: gateway.listen: an empty array; list something, or leave the key out",
            "a.toml:3:1: gateway.moed: an unknown key; did you mean mode?",
        ],
    );
    let changed = |from: &str, to: &str, expected: &str| {
        assert!(SOUND.contains(from), "{from}");
        check_diagnostics(&SOUND.replace(from, to), &[expected]);
    };
    for (key, expected) in [
        ("registry_name", "6:17: gateway.registry_name: \"..\" is not a name; write the name itself"),
        ("namespace", "6:13: gateway.namespace: \"..\" is not a name; write the name itself"),
        ("organization", "6:16: gateway.organization: \"..\" is not a name; write the name itself"),
    ] {
        let more = format!("local_token_file = \"/tmp/l\"\n{key} = \"..\"\n");
        changed("local_token_file = \"/tmp/l\"\n", &more, &format!("a.toml:{expected}"));
    }
    changed(
        "local_token_file = \"/tmp/l\"\n",
        "local_token_file = \"/tmp/l\"\nallowed_hosts = [\"*.example\"]\n",
        "a.toml:6:18: gateway.allowed_hosts: \"*.example\" is not a host name; write each name: wildcards are not supported",
    );
    changed(
        "127.0.0.1:8800",
        "0.0.0.0:8800",
        concat!(
            "a.toml:3:10: gateway.listen: listens on 0.0.0.0, which is not loopback; ",
            "use 127.0.0.1 or [::1]: only local callers are allowed"
        ),
    );
    changed(
        "https://tfe.example.com:8443",
        "https://tfe.example.com/api/v2",
        concat!(
            "a.toml:2:12: gateway.upstream: \"https://tfe.example.com/api/v2\" has a path; ",
            "leave it off: the platform serves its API at the root"
        ),
    );
    changed(
        "https://tfe.example.com:8443",
        "https://x:canary@tfe.example.com",
        concat!(
            "a.toml:2:12: gateway.upstream: the value contains a user, a query or a fragment; ",
            "write \"https://HOST\", and nothing behind the host and port"
        ),
    );
    changed(
        "token_file = \"/tmp/t\"",
        "token_fiel = \"/tmp/t\"\ntoken_file = \"/tmp/t\"",
        "a.toml:4:1: gateway.token_fiel: an unknown key; did you mean token_file?",
    );
    changed(
        "local_token_file = \"/tmp/l\"\n",
        "local_token_file = \"/tmp/l\"\n[gateway.terraform_config_file]\npath = \"/tmp/credentials.tfrc.json\"\n",
        concat!(
            "a.toml:7:8: gateway.terraform_config_file.path: \"/tmp/credentials.tfrc.json\" is the user's own file; ",
            "choose another name, such as zz-keyward.tfrc.json: the last by name wins"
        ),
    );
    changed(
        "tcp://127.0.0.1:8800",
        "unix:///tmp/g.sock\"\nhost = \"https://x",
        "a.toml:4:8: gateway.host: \"https://x\" is not a host; write HOST or HOST:PORT",
    );
}

#[test]
fn variables_of_programs_are_described_and_need_a_tcp_address() {
    let run = "[process]\ncommand = [\"/usr/bin/deploy\"]\n";
    for (token_kind, expected) in [
        (
            "local_token",
            "gives the program of [process] variables that point clients at the gateway, with the local token\n",
        ),
        ("platform_token", "gives the program of [process] variables with the platform's address and token\n"),
    ] {
        let words =
            check(&format!("{SOUND}process_token = \"{token_kind}\"\n{run}")).1.description().unwrap().to_string();
        assert!(words.contains(expected), "{words}");
    }
    let mistake = |text: &str, expected: &str| {
        let (folder, outcome) = check(text);
        assert_eq!(folder.short(&outcome.errors), [expected], "{text}");
    };
    let words = check(&format!("{SOUND}process_token = \"local_token\"\n")).1.description().unwrap().to_string();
    assert!(words.contains("gives programs of keyward exec variables that point clients at the gateway"), "{words}");
    let text = format!("{SOUND}process_token = \"local_token\"\n{run}");
    mistake(
        &text.replace("tcp://127.0.0.1:8800", "unix:///tmp/g.sock"),
        "a.toml:6:1: gateway.process_token: needs a TCP address: the program's clients cannot connect to a unix socket; add an address on 127.0.0.1 to gateway.listen",
    );
    mistake(
        &text.replace("\"local_token\"", "\"both\""),
        "a.toml:6:17: gateway.process_token: \"both\" is not a known value; write \"local_token\" or \"platform_token\"",
    );
}

const SESSION: &str = "[server.main]\nkind = \"vault\"\naddress = \"https://secrets.example.com\"\n\
                       [session.web.cloud]\nrole = \"web\"\nresource = \"api://web\"\n";

#[test]
fn a_session_whose_secret_holds_the_platform_token_needs_no_other_output() {
    let gateway = SOUND.replace("token_file = \"/tmp/t\"\n", "");
    let config = clean(&format!("{SESSION}{gateway}[gateway.secret]\npath = \"terraform/creds/deploy\"\n"));
    let TokenSource::Secret(secret) = config.gateway.unwrap().token else { panic!("a secret") };
    assert_eq!(
        (secret.session.as_str(), secret.path.as_str(), secret.field.as_str(), secret.interval, secret.grace),
        ("web", "terraform/creds/deploy", "token", Duration::from_mins(5), Duration::from_mins(1))
    );
    let wrong = |text: &str, expected: &[&str]| {
        let (folder, outcome) = check(text);
        assert_eq!(folder.short(&outcome.errors), expected, "{text}");
    };
    let check_diagnostics =
        |secret: &str, expected: &[&str]| wrong(&format!("{SESSION}{gateway}[gateway.secret]\n{secret}"), expected);
    check_diagnostics(
        "",
        &["a.toml:11:10: gateway.secret.path: missing; the secret's path, such as \"terraform/creds/deploy\""],
    );
    check_diagnostics(
        "path = \"/v1/kv/x\"\nsession = \"wbe\"\n",
        &[
            "a.toml:12:8: gateway.secret.path: \"/v1/kv/x\" begins with /v1/ or a slash, or ends with one; write it as the server's API has it, such as \"terraform/creds/deploy\" or \"secret/data/platform\"",
            "a.toml:13:11: gateway.secret.session: there is no session \"wbe\"; did you mean web?",
        ],
    );
    wrong(
        &format!("{SESSION}{SOUND}[gateway.secret]\npath = \"kv/x\"\n"),
        &[
            "a.toml:10:14: gateway.token_file: conflicts with [gateway.secret]; keep one: the token comes from one place",
        ],
    );
    // Errors of both are reported in one run.
    wrong(
        &format!("{SESSION}{SOUND}[gateway.secret]\npath = \"kv/\"\n"),
        &[
            "a.toml:10:14: gateway.token_file: conflicts with [gateway.secret]; keep one: the token comes from one place",
            "a.toml:13:8: gateway.secret.path: \"kv/\" begins with /v1/ or a slash, or ends with one; write it as the server's API has it, such as \"terraform/creds/deploy\" or \"secret/data/platform\"",
        ],
    );
}

const MINT: &str =
    "[gateway.mint]\nparent_token_file = \"/tmp/p\"\nkind = \"team\"\nowner = \"team-a\"\norganization = \"example\"\n";

#[test]
fn a_gateway_with_a_mint_section_mints_tokens() {
    use keyward_gateway::token_minting::{MintOptions, TokenOwner};
    let without = SOUND.replace("token_file = \"/tmp/t\"\n", "");
    let read = |mint: &str| match clean(&format!("{without}{mint}")).gateway.unwrap().token {
        TokenSource::Mint(mint) => mint,
        other => panic!("{other:?}"),
    };
    let owner = TokenOwner::Team { team: "team-a".to_owned(), organization: "example".to_owned() };
    let (ttl, grace) = (Duration::from_hours(1), Duration::from_mins(1));
    assert_eq!(read(MINT), MintOptions { parent_token_file: "/tmp/p".into(), owner, ttl, grace });
    let other = |kind: &str| MINT.replace("organization = \"example\"\n", "").replace("\"team\"", kind);
    assert_eq!(read(&other("\"agent-pool\"")).owner, TokenOwner::AgentPool("team-a".to_owned()));
    assert_eq!(read(&other("\"user\"")).owner, TokenOwner::User("team-a".to_owned()));
    let single = |kind: &str| other(kind) + "single_slot = \"acknowledged\"\n";
    assert_eq!(read(&single("\"organization\"")).owner, TokenOwner::Organization("team-a".to_owned()));
    assert_eq!(read(&single("\"team-legacy\"")).owner, TokenOwner::TeamLegacy("team-a".to_owned()));

    let check_diagnostics = |text: &str, expected: &[&str]| {
        let (folder, outcome) = check(text);
        assert_eq!(folder.short(&outcome.errors), expected, "{text}");
    };
    let mint = |text: &str, expected: &str| check_diagnostics(&format!("{without}{text}"), &[expected]);
    mint(
        &other("\"organization\""),
        "a.toml:7:1: gateway.mint.single_slot: missing: an organization has one token of this kind, and making another ends it at once, wherever it is in use; use kind = \"team\", which has any number of tokens; or write single_slot = \"acknowledged\" if nobody else uses or makes it",
    );
    mint(
        &other("\"team-legacy\""),
        "a.toml:7:1: gateway.mint.single_slot: missing: a team has one token of this kind, and making another ends it at once, wherever it is in use; use kind = \"team\", which has any number of tokens with a description; or write single_slot = \"acknowledged\" if nobody else uses or makes it",
    );
    mint(
        &format!("{MINT}single_slot = \"acknowledged\"\n"),
        "a.toml:10:1: gateway.mint.single_slot: not allowed for this kind, which may have any number of tokens; leave it out",
    );
    mint(
        &other("\"team\""),
        "a.toml:5:10: gateway.mint.organization: missing; the name of the team's organization, which lists the team's tokens",
    );
    mint(
        &MINT.replace("\"team\"", "\"user\""),
        "a.toml:9:1: gateway.mint.organization: not allowed for this kind; leave it out: it is for kind = \"team\"",
    );
    mint(
        &format!("{MINT}ttl = \"10m\"\ngrace = \"5m\"\n"),
        "a.toml:11:1: gateway.mint.grace: longer than a quarter of ttl: a token that was replaced ends before it; shorten it, or lengthen ttl",
    );
    mint(
        &MINT.replace("team-a", "../x"),
        "a.toml:8:9: gateway.mint.owner: \"../x\" is not an id or a name of the platform; it has letters, digits, - and _",
    );
    check_diagnostics(
        &format!("{SOUND}{MINT}"),
        &["a.toml:4:14: gateway.token_file: conflicts with [gateway.mint]; keep one: the token comes from one place"],
    );
}
