//! Configurations in which each key of the reference is tried.

/// A heading of the reference, and configurations without an error in which a line of that section may stand at `@`. A key is
/// tried in each of them until one accepts it.
pub(in crate::config) type Section = (&'static str, &'static [&'static str]);

macro_rules! with_session {
    ($text:literal) => {
        concat!(
            "[server.a]\nkind = \"vault\"\naddress = \"https://vault.example.com\"\n",
            "[session.a.cloud]\nrole = \"web\"\nresource = \"https://management.azure.com/\"\n",
            $text
        )
    };
}

macro_rules! with_server {
    ($text:literal) => {
        concat!("[server.a]\nkind = \"vault\"\naddress = \"https://vault.example.com\"\n", $text)
    };
}

macro_rules! with_identity {
    ($text:literal) => {
        concat!("[identity.a]\nresources = [\"x\"]\n", $text)
    };
}

macro_rules! with_gateway {
    ($text:literal) => {
        concat!(
            "[gateway]\nupstream = \"https://app.terraform.io\"\nlisten = \"tcp://127.0.0.1:8800\"\n",
            "local_token_file = \"/run/keyward/local\"\n",
            $text
        )
    };
}

macro_rules! with_acl {
    ($text:literal) => {
        concat!("[acl]\nlisten = \"unix:///run/keyward/acl.sock\"\ndata_dir = \"/var/lib/keyward/acl\"\n", $text)
    };
}

/// Every heading of the reference, in its order.
pub(in crate::config) const SECTIONS: &[Section] = &[
    (
        "`[server.NAME]`",
        &[
            "[session.a.cloud]\nrole = \"web\"\nresource = \"x\"\n[server.a]\nkind = \"vault\"\naddress = \"https://vault.example.com\"\n@\n",
        ],
    ),
    (
        "`[session.NAME]`",
        &[
            with_server!("[session.a]\n@\n[session.a.cloud]\nrole = \"web\"\nresource = \"x\"\n"),
            "[server.a]\nkind = \"consul\"\naddress = \"https://acl.example.com\"\n[session.a]\nauth_method = \"m\"\n@\n[session.a.cloud]\nresource = \"x\"\n",
        ],
    ),
    ("`[session.NAME.cloud]`", &[with_session!("@\n")]),
    (
        "`[session.NAME.aws]`",
        &[
            with_server!("[session.a.aws]\nrole = \"web\"\n@\n"),
            with_server!("[session.a.aws]\nrole = \"web\"\ncredentials_file = \"/run/credentials\"\n@\n"),
        ],
    ),
    (
        "`[session.NAME.gcp]`",
        &[
            with_server!("[session.a.gcp]\nrole = \"web\"\n@\n"),
            with_server!("[session.a.gcp]\nrole = \"web\"\ntype = \"iam\"\n@\n"),
        ],
    ),
    (
        "`[session.NAME.jwt]`",
        &[
            with_server!("[session.a.jwt]\nrole = \"web\"\nfile = \"/run/jwt\"\n@\n"),
            with_server!("[session.a.jwt]\nrole = \"web\"\nvariable = \"ID_TOKEN\"\n@\n"),
            with_server!("[session.a.jwt]\nrole = \"web\"\nci = \"github-actions\"\n@\n"),
            with_server!("[session.a.jwt]\nrole = \"web\"\nworkload_api = \"unix:///run/a\"\naudience = \"a\"\n@\n"),
            with_server!("[session.a.jwt]\nrole = \"web\"\nci = \"azure-devops\"\nservice_connection = \"1\"\n@\n"),
        ],
    ),
    ("`[session.NAME.kubernetes]`", &[with_server!("[session.a.kubernetes]\nrole = \"web\"\n@\n")]),
    (
        "`[session.NAME.approle]`",
        &[with_server!("[session.a.approle]\nrole_id_file = \"/run/role\"\nsecret_id_file = \"/run/secret\"\n@\n")],
    ),
    (
        "`[session.NAME.cert]`",
        &[
            with_server!("[session.a.cert]\nclient_cert = \"/run/cert\"\nclient_key = \"/run/key\"\n@\n"),
            with_server!(
                "[certificate.x]\nkind = \"spiffe\"\nworkload_api = \"/run/spire.sock\"\nfolder = \"/run/keyward/svid\"\n\
                 [session.a.cert]\ncertificate = \"x\"\n@\n"
            ),
        ],
    ),
    ("`[session.NAME.token_file]`", &[with_server!("[session.a.token_file]\nfile = \"/run/token\"\n@\n")]),
    ("`[sink.NAME]`", &[with_session!("[sink.a]\npath = \"/run/token\"\n@\n")]),
    (
        "`[sink.NAME.derived_token]`",
        &[with_session!("[sink.a]\npath = \"/run/token\"\n[sink.a.derived_token]\nttl = \"1h\"\n@\n")],
    ),
    (
        "`[sink.NAME.encrypt]`",
        &[with_session!("[sink.a]\npath = \"/run/token\"\n[sink.a.encrypt]\npublic_key_file = \"/run/key\"\n@\n")],
    ),
    (
        "`[template.NAME]`",
        &[with_session!(
            "[template.a]\nsource = \"/run/x\"\ndestination = \"/run/file\"\ncommand = [\"/bin/true\"]\n@\n"
        )],
    ),
    ("`[env_template.NAME]`", &[with_session!("[env_template.A]\nsource = \"/run/x\"\n@\n")]),
    (
        "`[templates]`",
        &[
            with_session!("[template.a]\ncontents = \"x\"\ndestination = \"/run/file\"\n[templates]\n@\n"),
            with_session!(
                "[session.a]\nseal_key_file = \"/run/key\"\n[agent]\nstate_dir = \"/run/state\"\n\
                 [template.a]\ncontents = \"x\"\ndestination = \"/run/file\"\n[templates]\npersist = true\n@\n"
            ),
        ],
    ),
    (
        "`[certificate.NAME]`",
        &[
            with_session!(
                "[certificate.a]\nrole = \"web\"\ncommon_name = \"web.example.com\"\nfolder = \"/run/keyward/tls\"\n\
                 command = [\"/bin/true\"]\n@\n"
            ),
            with_session!(
                "[certificate.a]\nrole = \"web\"\ncommon_name = \"web.example.com\"\nbundle = \"/run/keyward/tls.pem\"\n@\n"
            ),
            with_session!(
                "[certificate.a]\nrole = \"web\"\ncommon_name = \"web.example.com\"\npkcs12 = \"/run/keyward/tls.p12\"\n\
                 password_file = \"/run/key\"\n@\n"
            ),
        ],
    ),
    (
        "`[certificate.NAME]` of SSH",
        &[
            with_session!(
                "[certificate.a]\nkind = \"ssh\"\nrole = \"web\"\nvalid_principals = [\"a\"]\nfolder = \"/run/keyward/ssh\"\n\
                 command = [\"/bin/true\"]\n@\n"
            ),
            with_session!("[certificate.a]\nkind = \"ssh\"\nrole = \"web\"\nfolder = \"/run/keyward/ssh\"\n@\n"),
            with_session!("[certificate.a]\nkind = \"ssh\"\nrole = \"web\"\nkey_file = \"/run/key\"\n@\n"),
        ],
    ),
    (
        "`[certificate.NAME]` of SPIFFE",
        &[
            "[certificate.a]\nkind = \"spiffe\"\nworkload_api = \"/run/spire.sock\"\nfolder = \"/run/keyward/svid\"\n@\n\
             [listener.a]\nkind = \"health\"\naddress = \"unix:///run/keyward/a.sock\"\n",
        ],
    ),
    (
        "`[process]`",
        &[
            with_session!("[process]\ncommand = [\"/bin/true\"]\n@\n"),
            with_session!("[process]\ncommand = [\"/bin/true\"]\non_change = \"signal\"\n@\n"),
        ],
    ),
    (
        "`[listener.NAME]`",
        &[
            with_session!("[listener.a]\naddress = \"unix:///run/keyward/a.sock\"\n@\n"),
            with_session!("[listener.a]\naddress = \"tcp://127.0.0.1:8300\"\nkey_file = \"/run/keyward/key\"\n@\n"),
        ],
    ),
    (
        "`[listener.NAME]` of an API proxy",
        &[with_session!(
            "[listener.a]\nkind = \"api_proxy\"\naddress = \"tcp://127.0.0.1:8200\"\nany_local_user = true\n@\n"
        )],
    ),
    (
        "`[listener.NAME]` of identities",
        &[with_identity!(
            "[identity.a.cloud]\n[listener.a]\nkind = \"identity\"\naddress = \"unix:///run/keyward/a.sock\"\n@\n"
        )],
    ),
    #[cfg(feature = "ui")]
    (
        "`[listener.NAME]` of pages",
        &[with_session!(
            "[listener.a]\nkind = \"ui\"\naddress = \"tcp://127.0.0.1:8310\"\nkey_file = \"/run/keyward/key\"\n@\n"
        )],
    ),
    (
        "`[listener.NAME]` for systemd",
        &[with_session!(
            "[listener.a]\nkind = \"systemd_credentials\"\naddress = \"unix:///run/keyward/a.sock\"\n@\n\
             [listener.a.credential.a]\nunits = \"a.service\"\ntoken = true\n"
        )],
    ),
    (
        "`[listener.NAME.credential.NAME]`",
        &[
            with_session!(
                "[listener.a]\nkind = \"systemd_credentials\"\naddress = \"unix:///run/keyward/a.sock\"\n\
                 [listener.a.credential.a]\nunits = \"a.service\"\npath = \"secret/data/a\"\nfield = \"b\"\n@\n"
            ),
            with_session!(
                "[listener.a]\nkind = \"systemd_credentials\"\naddress = \"unix:///run/keyward/a.sock\"\n\
                 [listener.a.credential.a]\nunits = \"a.service\"\nsource = \"/run/x\"\n@\n"
            ),
        ],
    ),
    (
        "`[listener.NAME.cache]`",
        &[with_session!(
            "[listener.a]\nkind = \"api_proxy\"\naddress = \"unix:///run/keyward/a.sock\"\n[listener.a.cache]\n@\n"
        )],
    ),
    (
        "`[listener.NAME.derived_token]`",
        &[with_session!(
            "[listener.a]\naddress = \"unix:///run/keyward/a.sock\"\n[listener.a.derived_token]\nttl = \"1h\"\n@\n"
        )],
    ),
    (
        "`[credential.NAME]`",
        &[with_session!(
            "[listener.a]\nkind = \"api_proxy\"\naddress = \"unix:///run/keyward/a.sock\"\n\
             [credential.a]\nhosts = [\"registry.example.com\"]\npath = \"secret/data/registry\"\n@\n"
        )],
    ),
    (
        "`[identity.NAME]`",
        &[concat!(
            "[listener.a]\nkind = \"identity\"\naddress = \"unix:///run/keyward/a.sock\"\n",
            "[identity.a]\nresources = [\"x\"]\n@\n[identity.a.cloud]\n"
        )],
    ),
    (
        "`[identity.NAME.aws_role]`",
        &[with_identity!(
            "[identity.a.cloud]\n[identity.a.aws_role]\nrole_arn = \"arn:aws:iam::123456789012:role/web\"\naudience = \"x\"\n@\n"
        )],
    ),
    ("`[identity.NAME.cloud]`", &[with_identity!("[identity.a.cloud]\n@\n")]),
    ("`[identity.NAME.gcp]`", &[with_identity!("[identity.a.gcp]\n@\n")]),
    ("`[identity.NAME.jwt]`", &[with_identity!("[identity.a.jwt]\nfile = \"/run/jwt\"\n@\n")]),
    (
        "`[caller.NAME]`",
        &[with_session!(
            "[listener.a]\nkind = \"api_proxy\"\naddress = \"unix:///run/keyward/a.sock\"\n\
             [caller.a]\nuid = \"0\"\nroutes = [\"proxy\"]\n@\n"
        )],
    ),
    (
        "`[caller.NAME.derived_token]`",
        &[with_session!(
            "[listener.a]\naddress = \"unix:///run/keyward/a.sock\"\n\
             [caller.a]\nuid = \"0\"\nroutes = [\"token\"]\n[caller.a.derived_token]\nttl = \"1h\"\n@\n"
        )],
    ),
    (
        "`[caller.NAME.proxy]`",
        &[with_session!(
            "[listener.a]\nkind = \"api_proxy\"\naddress = \"unix:///run/keyward/a.sock\"\n\
             [caller.a]\nuid = \"0\"\nroutes = [\"proxy\"]\n[caller.a.proxy]\n@\n"
        )],
    ),
    ("`[audit.NAME]`", &[with_session!("[audit.a]\npath = \"/run/audit.jsonl\"\nkey_file = \"/run/key\"\n@\n")]),
    ("`[acl]`", &[with_acl!("@\n")]),
    (
        "`[acl.etcd]`",
        &["[acl]\nlisten = \"unix:///run/keyward/acl.sock\"\nkey_file = \"/run/key\"\n\
           [acl.etcd]\nendpoints = [\"https://etcd.example.com:2379\"]\nca_file = \"/run/ca\"\n@\n"],
    ),
    (
        "`[acl.method.NAME]`",
        &[
            with_acl!(
                "[acl.method.a.role.a]\nprincipals = [\"p\"]\n\
                 [acl.method.a]\nissuer = \"i\"\naudience = \"b\"\njwks_url = \"https://keys.example.com\"\n@\n"
            ),
            with_acl!(
                "[acl.method.a.role.a]\naccounts = [\"111122223333\"]\n\
                 [acl.method.a]\ntype = \"aws\"\nserver_id = \"acl.example.com\"\n@\n"
            ),
            with_acl!(
                "[acl.method.a.role.a]\nnamespaces = [\"a\"]\n\
                 [acl.method.a]\ntype = \"kubernetes\"\naudience = \"a\"\ntoken_file = \"/run/token\"\n@\n"
            ),
        ],
    ),
    (
        "`[acl.method.NAME.role.NAME]`",
        &[
            with_acl!(
                "[acl.method.a]\nissuer = \"i\"\naudience = \"b\"\njwks_url = \"https://keys.example.com\"\n\
                 [acl.method.a.role.a]\nprincipals = [\"p\"]\n@\n"
            ),
            with_acl!(
                "[acl.method.a]\ntype = \"aws\"\nserver_id = \"acl.example.com\"\n\
                 [acl.method.a.role.a]\naccounts = [\"111122223333\"]\n@\n"
            ),
            with_acl!(
                "[acl.method.a]\ntype = \"gcp\"\naudience = \"http://vault/web\"\n\
                 [acl.method.a.role.a]\nprojects = [\"p\"]\n@\n"
            ),
            with_acl!(
                "[acl.method.a]\ntype = \"kubernetes\"\naudience = \"a\"\n\
                 [acl.method.a.role.a]\nnamespaces = [\"a\"]\n@\n"
            ),
        ],
    ),
    (
        "`[gateway]`",
        &[
            with_gateway!("token_file = \"/run/token\"\n@\n"),
            "[gateway]\nupstream = \"https://app.terraform.io\"\nlisten = \"unix:///run/keyward/g.sock\"\n\
             local_token_file = \"/run/keyward/local\"\ntoken_file = \"/run/token\"\n@\n",
        ],
    ),
    (
        "`[gateway.secret]`",
        &[concat!(
            with_session!("[gateway]\nupstream = \"https://app.terraform.io\"\nlisten = \"tcp://127.0.0.1:8800\"\n"),
            "local_token_file = \"/run/keyward/local\"\n[gateway.secret]\npath = \"terraform/creds/deploy\"\n@\n"
        )],
    ),
    (
        "`[gateway.mint]`",
        &[with_gateway!(
            "[gateway.mint]\nparent_token_file = \"/run/parent\"\nkind = \"team\"\nowner = \"team-1\"\norganization = \"o\"\n@\n"
        )],
    ),
    (
        "`[gateway.terraform_config_file]`",
        &[with_gateway!(
            "token_file = \"/run/token\"\n[gateway.terraform_config_file]\npath = \"/run/keyward/z.tfrc.json\"\n@\n"
        )],
    ),
    ("`[agent]`", &[with_session!("[agent]\n@\n")]),
    ("`[log]`", &[with_session!("[log]\n@\n")]),
];
