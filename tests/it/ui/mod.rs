//! The pages for browsers: the real binary over TCP, by a client that sends what a browser sends.

mod access;
mod colours;
mod escaping;
mod pages;
mod search;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::harness::binary::{Binary, eventually, run};
use crate::harness::browser::Browser;

/// Key of the listener in these tests.
const KEY: &str = "key-of-the-pages-0123456789abcdef";

/// A running agent with pages, an ACL server and a gateway; its session has no server.
struct Pages {
    binary: Binary,
    folder: tempfile::TempDir,
    browser: Browser,
}

/// Tokens of the ACL server of [`Pages::fill_acl`].
struct AclTokens {
    root: String,
    /// Secret of a token that may read keys below `app/`, by the policy `app-read`.
    web: String,
    /// Accessor of that token.
    accessor: String,
}

impl Pages {
    fn start() -> Self {
        Self::start_with("")
    }

    /// Starts it with more lines of configuration for the listener.
    fn start_with(listener: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (name, text) in [
            ("pages.key", KEY),
            ("platform.token", "platform-token-0123456789"),
            ("vault.token", "hvs.token-of-nobody"),
        ] {
            std::fs::write(at(name), text).unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let dir = folder.path().display();
        let text = format!(
            "[agent]\nstate_dir = \"{dir}/state\"\n\
             [server.main]\nkind = \"vault\"\naddress = \"http://127.0.0.1:9\"\n\
             [session.main.token_file]\nfile = \"{dir}/vault.token\"\n\
             [listener.api]\naddress = \"unix://{dir}/api.sock\"\n\
             [listener.pages]\nkind = \"ui\"\naddress = \"tcp://127.0.0.1:0\"\nkey_file = \"{dir}/pages.key\"\n{listener}\
             [acl]\nlisten = \"unix://{dir}/acl.sock\"\ndata_dir = \"{dir}/acl\"\n\
             [gateway]\nupstream = \"http://127.0.0.1:9\"\nlisten = \"unix://{dir}/gateway.sock\"\n\
             token_file = \"{dir}/platform.token\"\n"
        );
        std::fs::create_dir(at("state")).unwrap();
        std::fs::set_permissions(at("state"), std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::write(at("keyward.toml"), text).unwrap();
        let binary = Binary::start(&["run", "--config", at("keyward.toml").to_str().unwrap()], &[], folder.path());
        let origin = eventually(Duration::from_secs(30), || {
            let output = binary.output();
            let url =
                output.split_once("url=\"").and_then(|(_, rest)| rest.split_once("/\"")).map(|(url, _)| url.to_owned());
            url.ok_or(output)
        });
        Self { binary, folder, browser: Browser::new(origin) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `keyward acl` against its ACL server; returns what it prints.
    fn acl(&self, args: &[&str], token: Option<&str>) -> String {
        let address = format!("unix://{}", self.path("acl.sock").display());
        let variables: Vec<(&str, &str)> = token.map(|token| ("KEYWARD_ACL_TOKEN", token)).into_iter().collect();
        let args = [&["acl"], args, &["--address", &address]].concat();
        let (code, output, error) = run(&args, &variables);
        assert_eq!(code, 0, "{args:?}: {error}");
        output
    }

    /// Creates a policy and a token, whose description is markup.
    fn fill_acl(&self) -> AclTokens {
        let secret = |name: &str, args: &[&str], token: Option<&str>| {
            let file = self.path(name);
            self.acl(&[args, &["--out", file.to_str().unwrap()]].concat(), token);
            std::fs::read_to_string(file).unwrap().trim().to_owned()
        };
        let root = secret("root.token", &["bootstrap"], None);
        let rules = self.path("rules.hcl");
        std::fs::write(&rules, "key_prefix \"app/\" { policy = \"read\" }").unwrap();
        self.acl(&["policy", "create", "app-read", "--rules", rules.to_str().unwrap()], Some(&root));
        let create = ["token", "create", "--policy-name", "app-read", "--description", "<i>web</i>"];
        let web = secret("web.token", &create, Some(&root));
        let own: serde_json::Value =
            serde_json::from_str(&self.acl(&["token", "read", "--self", "-o", "json"], Some(&web))).unwrap();
        let accessor = own["AccessorID"].as_str().unwrap().to_owned();
        AclTokens { root, web, accessor }
    }

    /// Searches in everything.
    async fn search(&self, text: &str, cookie: &str) -> String {
        let query = percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC);
        self.browser.page(&format!("/search?q={query}"), cookie).await
    }
}
