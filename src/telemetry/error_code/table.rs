//! The table of error codes.

macro_rules! error_codes {
    ($($number:literal $name:ident: $title:literal, $cause:literal, $remedy:literal;)*) => {
        /// Code of an error that operators meet.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode {
            $(#[doc = $title] $name,)*
        }

        impl ErrorCode {
            /// All codes, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the number, such as 1203.
            pub const fn number(self) -> u16 {
                match self { $(Self::$name => $number,)* }
            }

            /// Returns the code, such as `KW-1203`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => concat!("KW-", $number),)* }
            }

            /// Returns title, cause and remedy.
            pub(super) const fn explanation(self) -> (&'static str, &'static str, &'static str) {
                match self { $(Self::$name => ($title, $cause, $remedy),)* }
            }
        }
    };
}

error_codes! {
    1001 ConfigUnreadable: "a configuration file cannot be read",
        "the file or folder does not exist, is not a regular file, is too large, or the user may not read it",
        "name an existing file with --config, and let the agent's user read it";
    1002 ConfigSyntax: "a configuration file is not valid TOML",
        "a quote, a bracket or an equals sign is missing, or a key is given twice in one table",
        "correct the named line; strings need quotes, and a table starts with [name]";
    1003 UnknownKey: "the configuration has an unknown key",
        "the key is misspelt, is in the wrong table, or belongs to a part that this build does not have",
        "use the suggested key, or move it to the table that docs/configuration.md names";
    1005 WrongType: "a configuration value has the wrong type",
        "the value is a string, number, boolean, array or table, and another type is expected",
        "write the value as the message says: strings with quotes, numbers and booleans without";
    1006 InvalidValue: "a configuration value is not allowed",
        "the value is out of its range, has no unit, is none of the accepted keywords, or does not fit another setting",
        "write one of the values that the message names; docs/configuration.md lists all";
    1007 MissingKey: "the configuration lacks a required key or section",
        "a key without a default is not set, or nothing defines the section that another one needs",
        "add the key or the section that the message names";
    1008 ConflictingKeys: "two configuration keys exclude each other",
        "two keys are set of which only one is allowed",
        "keep one of the two";
    1009 DuplicateSetting: "something is configured twice",
        "a key is given in two files, or two outputs or listeners use the same file or address",
        "keep one of the two places, which the message names, or give each its own";
    1010 UnknownName: "the configuration names something that it does not define",
        "a session or server of this name is not defined, or several exist and none is named",
        "name one that exists, or define it";
    1011 MissingOnHost: "this machine lacks a file or folder of the configuration",
        "a path in the configuration does not exist, or is a folder where a file is expected",
        "create it before the agent starts; on another machine, `keyward check` reports it as a note";
    1012 UnsafePermissions: "others may write or read a file that must be protected",
        "another user or group owns or may write a configuration file or its folder, or may read a secret",
        "run the chmod or chown that the message names";
    1013 UnknownUser: "a user or group of the configuration does not exist",
        "the machine's user database has no user or group of this name, or cannot be read",
        "create the user or group, or write its numeric id";
    1014 UnresolvedValue: "a value from a variable or a secret file is not available",
        "the environment variable is not set or empty, or the file is missing, unreadable or too short",
        "set the variable for the agent's process, or create the file with the secret on one line";
    1015 SettingIgnored: "a configuration value has no effect",
        "another setting makes the value meaningless, as the message says",
        "leave the key out, or change the other setting";
    1016 UnusedSection: "an unused section in the configuration",
        "no session names the server, no output uses the session, or an auth method has no role",
        "add what the message names, or leave the section out";
    1017 WebPagesAdmitted: "a listener accepts requests of web pages",
        "require_request_header is false on a TCP listener without a key, so that a browser on this machine may send requests",
        "set key_file, or leave require_request_header at true";
    1018 UnreachableRule: "a rule of callers can never match",
        "an earlier [caller.NAME] matches every process of this one, or no listener reports the facts that it asks for",
        "put the narrower rule first, or correct what the message names";
    1019 UnencryptedServer: "a server is called without TLS",
        "the address begins with http://, is not on loopback, and allow_http = true allows that",
        "give the server a certificate, write https:// and ca_file, and leave allow_http out";
    1101 LoginRefused: "the server refused the login",
        "the auth method rejected the identity; the server's text says why",
        "compare the role on the server with this machine's identity, which `keyward check --online` shows";
    1102 LoginRoleUnknown: "the server has no role of this name",
        "the role is misspelt, or was created at another mount path or in another namespace",
        "create the role on the server, or correct `role`, `mount` and `namespace` of the session";
    1103 LoginAudience: "the identity token is for another audience",
        "`resource` of the session differs from the one of the server's auth method",
        "write the same text in both, including a slash at the end";
    1104 LoginIssuer: "the identity token comes from another tenant or cloud",
        "tenant, cloud or version of the token differ from the configuration of the server's auth method",
        "compare the tenant of the auth method with the machine's; an own application needs requestedAccessTokenVersion 1";
    1105 LoginClock: "a clock is wrong: the identity token is expired or not yet valid",
        "the clock of this machine or of the server differs from that of the identity source",
        "synchronise the clocks (timedatectl status), then run `keyward retry`";
    1106 LoginPrincipal: "the role is not bound to this identity",
        "the role binds other service principals or groups; changed groups show in new tokens only",
        "bind the role to the object id of the machine's identity; after a change of groups wait up to a day";
    1107 LoginMount: "the login path does not exist or may not be used",
        "the mount path or the namespace is wrong, or the role is bound to other addresses",
        "correct `mount` and `namespace` of the session; `vault auth list` shows the mount paths";
    1108 LoginMalformed: "the server rejected the login request as malformed",
        "the login lacks a field that the server requires, or the identity token is not a signed token (JWT)",
        "add the field that the message names; without one, report a bug with the server's version";
    1109 LoginMachine: "the role is bound to other machines, or the machine's data does not fit",
        "subscription, resource group or machine name are missing from the login or differ from the token's claims",
        "set subscription_id, resource_group_name and the machine's name in the session, or change the role's bounds";
    1110 LoginServerSettings: "the auth method on the server is not set up",
        "the auth method lacks its tenant or resource, or the server may not read the machine in Azure or cannot review tokens in Kubernetes",
        "finish the configuration of the auth method, and give the server the reader role in Azure or system:auth-delegator in Kubernetes";
    1111 LoginSecretId: "the role id or the secret id is not accepted",
        "the secret id has expired, was used up, or belongs to another role",
        "put a new secret id into its file";
    1120 IdentitySettings: "the identity source is not set up",
        "an environment variable or a setting of the identity source is missing or contradicts another",
        "set what the message names; docs/configuration.md lists the variables of each source";
    1121 IdentityDenied: "the identity source gives this machine no identity",
        "no identity of the cloud is assigned to the machine, or the named one is not among those assigned; with SPIFFE, no registration entry fits keyward",
        "assign the identity in the cloud, which may take minutes to show, or register keyward with SPIRE";
    1122 IdentityUnavailable: "the identity source cannot be reached or is not ready",
        "the metadata endpoint does not answer, is starting, or a proxy or firewall blocks it",
        "check that the endpoint in the message (169.254.169.254 on a VM) is reachable without a proxy; in a pod, that the identity webhook is set up";
    1123 IdentityThrottled: "the identity source limits the rate of requests",
        "too many requests for tokens were sent from this machine",
        "wait; keyward retries at the time that the source names";
    1201 ServerUnreachable: "the server cannot be reached",
        "the server is down, the port is wrong, or a firewall or proxy refuses the connection",
        "check `address` of the server and the path to it with `keyward check --online`";
    1202 ServerNameUnknown: "the server's host name cannot be resolved",
        "the name is misspelt, or the machine's resolver does not answer",
        "check `address` of the server and the resolver (getent hosts NAME)";
    1203 ServerCertificate: "TLS with the server failed",
        "the server's certificate is expired, for another name, or from an authority that is not trusted, or it speaks no TLS",
        "set `ca_file` to the server's CA bundle, or renew the certificate; for another name set `server_name`";
    1204 ServerTimeout: "the server did not respond in time",
        "the server is overloaded, or a firewall drops packets on the way",
        "check the server's load and the network path; raise `response_timeout` for slow links";
    1205 ServerSealed: "the server is sealed",
        "a Vault or OpenBao server was restarted and not unsealed",
        "unseal it (vault operator unseal); keyward recovers by itself";
    1206 ServerStandby: "the server is a standby node, lags behind, or redirects",
        "`address` leads to one node of a cluster which forwards no requests, or which has not caught up",
        "use the address of the active node or of the load balancer; keyward follows no redirects";
    1207 ServerRateLimited: "the server limits the rate of requests",
        "a rate limit quota of the server is used up",
        "wait, or raise the quota on the server; keyward retries at the time that the server names";
    1208 ServerFailed: "the server reports an internal error",
        "the server or its storage has failed",
        "read the server's log at the time of the message; keyward retries with backoff";
    1209 InvalidResponse: "the response is not one of the expected server",
        "a proxy or load balancer answers in the server's place, or `kind` of the server is wrong",
        "check `address` and `kind` of the server, and that its base path is right";
    1210 ServerPath: "the server has no such path, or the call is not allowed there",
        "the secrets engine is not mounted at this path, the namespace is wrong, or the path does not exist",
        "check the path and the namespace on the server (vault secrets list)";
    1211 AccessDenied: "the server's policies deny the call",
        "no policy of the token allows the operation on this path",
        "add the capability to a policy of the role, and log in again (keyward retry)";
    1212 CertificateFile: "a certificate, key or CA file cannot be used",
        "the file is missing, unreadable, not PEM, or the certificate and the key do not belong together",
        "replace the file that the message names; `openssl x509 -in FILE -text` shows what it holds";
    1301 TokenDead: "the server no longer knows the token",
        "the token was revoked, or the server lost it in a restore or a restart",
        "nothing: keyward logs in again; if it repeats, look for who revokes tokens of the role";
    1302 TokenExpired: "the token has expired before a login could replace it",
        "logins have failed for the token's whole lifetime",
        "correct the cause of the login error before this one; outputs recover with the next token";
    1303 TokenNotRenewable: "the server refuses to renew the token",
        "the token has reached its maximum lifetime, is not renewable, or its policies forbid renewal",
        "nothing: keyward logs in before the token ends; allow auth/token/renew-self to save logins";
    1304 TokenNotRevoked: "a token could not be revoked",
        "the server was unreachable at the end, or the token's policies forbid revocation",
        "revoke it by the accessor in the log, or let it end; allow auth/token/revoke-self in a policy";
    1305 SavedStateRejected: "the saved state of the previous process is not used",
        "the state file is damaged, from another machine or configuration, or its key has changed",
        "nothing: keyward logs in anew; check seal_key_file if it repeats at each start";
    1306 TokenTooShort: "the server issues tokens with a very short lease",
        "token_ttl of the role is a few seconds",
        "raise token_ttl of the role; an hour is usual";
    1307 TokenLimitedUse: "the server issues tokens with a limited number of uses",
        "token_num_uses of the role is not 0, or the token in a file has limited uses, and the agent's own calls would use the token up",
        "set token_num_uses = 0 in the role, or put a token without a limit of uses into the file";
    1308 SecretMissing: "the path holds no secret",
        "the secret was deleted, never written, or the path lacks the `data/` of a KV engine of version 2",
        "check the path on the server (vault kv get), and read PATH/data/NAME for KV version 2";
    1309 SecretUnusable: "a secret has no usable value for its field",
        "the secret that was read has no field of the configured name, or the field is empty or not a string",
        "write the field to the secret, or correct its name in the configuration; it is read again by itself";
    1310 StateNotSaved: "the agent's state could not be saved",
        "the state folder is missing, not writable or full, or what is to be saved exceeds its limit",
        "repair the folder of agent.state_dir (path, owner, free space); without saved state the next start logs in again";
    1401 OutputFolder: "the folder of an output cannot be used",
        "the folder does not exist, the agent's user may not enter it, or it leads through an unsafe symlink",
        "create the folder and give the agent's user access to it, or name another path";
    1402 OutputDenied: "the system does not let the agent write an output",
        "the agent's user may not write the folder, may not give the file away, or the file system is read-only",
        "let the agent's user write the folder, or change owner and group of the output; run keyward doctor for the command";
    1403 DiskFull: "the disk of an output is full",
        "the file system has no space left, or the user's quota is used up",
        "free some space; keyward writes the output at the next retry";
    1404 OutputNotRegular: "the path of an output is not a regular file",
        "the path of a sink or a template is a folder, a symlink, a socket or a device",
        "remove it, or name another path";
    1405 OutputLocked: "another agent writes the same output",
        "two agents on this machine have a sink with the same path",
        "give each agent its own file, or stop the other one";
    1406 OutputFailed: "an output could not be written",
        "the file system reports an error",
        "see the error for the system's reason; keyward retries with backoff";
    1407 CommandFailed: "the command of a template or of a certificate failed",
        "the command ended with an exit code other than 0, did not end in time, or could not be started",
        "run the command by hand as the agent's user; the file is written, and the command is retried";
    1408 ProcessNotStarted: "the child process cannot be started",
        "the program of [process] does not exist, is not executable, or the agent's user may not run it",
        "check `process.command` and its rights; `keyward exec -- PROGRAM` tries it";
    1409 TemplateFailed: "a template cannot be rendered",
        "the template calls a function with wrong arguments, or a field that the secret does not have",
        "correct the template at the named line and column; `keyward template try FILE` shows the result";
    1410 ProcessEnded: "the child process has ended",
        "the program ended by itself, failed, or was killed",
        "see the program's own output; [process] restart says when it is started again";
    1411 ProcessStuck: "the killed child process does not end",
        "the program waits in the kernel for a device or a network file system that does not answer, so that no signal ends it",
        "restore the file system or device (`ps -o stat,wchan,cmd PID` shows what it waits for), or restart the machine";
    1412 CertificateRefused: "the server refuses to issue a certificate",
        "the role does not exist, does not allow a name or this long a life, or requires another type of key",
        "compare the names, options, `ttl` and `key_type` of the certificate with the role on the server (vault read MOUNT/roles/ROLE)";
    1413 CertificateUnusable: "a certificate that cannot be used has been issued",
        "the answer lacks the certificate or its chain, belongs to another key, is for other names, or has expired already",
        "compare the clocks of this machine and of the server, and check the issuers of the engine, or the authorities that SPIRE's agent has";
    1414 CertificateEnded: "a certificate has ended before another one could take its place",
        "requests have failed from the time of the replacement to the end of the certificate",
        "correct the cause of the failed requests, which the message names; the certificate is requested again by itself";
    1501 AddressInUse: "the address of a listener is in use",
        "another process, or another agent, listens on this port or socket",
        "find it with `ss -ltnp` or `ss -lxp`, stop it, or configure another address";
    1502 AddressUnavailable: "the address of a listener does not belong to this machine",
        "no interface of this machine has the address",
        "use 127.0.0.1, or an address of this machine (ip address)";
    1503 BindDenied: "the system does not let the agent listen",
        "the port is below 1024, or the agent's user may not write the socket's folder",
        "use a higher port, or let the service manager pass the socket (systemd:NAME)";
    1504 SocketPath: "the path of a socket cannot be used",
        "its folder does not exist, the path is too long, or it exists and is not a socket",
        "create the folder, shorten the path, or remove the file there";
    1505 AuditUnavailable: "a request was refused, as its audit record cannot be kept",
        "the audit's disk is full, or nobody reads its socket, and the audit has fail = \"closed\"",
        "see `keyward status` for the cause; make room, or start the collector";
    1601 StoreInUse: "the store of the ACL server is in use",
        "another keyward process has the store open",
        "stop the other process, or configure another data_dir";
    1602 StoreDamaged: "the store of the ACL server is damaged",
        "the file's checksums do not match or a record cannot be read, as after a failing disk",
        "check it with `keyward acl verify --dir FOLDER`, and restore a snapshot";
    1603 StoreLost: "the store of the ACL server is missing, but its key file exists",
        "the store's file was deleted or its disk is not mounted",
        "mount or restore the file; to begin anew, start once with --new-store";
    1604 StoreFormat: "the store belongs to another version or datacenter",
        "the store was written by a newer release, or `datacenter` has changed",
        "start the release that wrote it, or set `datacenter` back";
    1605 SealKeyMissing: "the key file of the ACL server is missing or lacks a key",
        "the key file was deleted, or replaced by one without the key that the store's tokens are encrypted with",
        "restore the key file from its copy: without it the tokens cannot be decrypted";
    1606 SealKeyInvalid: "the key file of the ACL server cannot be used",
        "the file is unreadable, or holds something else than 64 hexadecimal digits a line",
        "restore the file from its copy, and let the server's user read it";
    1607 StoreFull: "the disk of the ACL server's store is full",
        "the file system, or etcd's quota, has no space left",
        "free some space; the server answers reads meanwhile, and writes again afterwards";
    1608 StoreUnreachable: "etcd, the store of the ACL server, cannot be reached",
        "the etcd cluster has no leader, its address is wrong, or its certificate is not trusted",
        "check `acl.etcd` and the cluster (etcdctl endpoint health)";
    1609 StoreFailed: "the store of the ACL server failed",
        "reading or writing the store's file failed",
        "see the error for the system's reason, and check the disk";
    1610 BootstrapDone: "the ACL server has been bootstrapped already",
        "the first token was created before; the call works once",
        "use the token that was created; if it is lost, follow the reset in docs/acl.md";
    1611 AclTokenUnknown: "the ACL server does not know the token",
        "the token is wrong, expired or deleted, or none was given",
        "name a valid token with --token-file or KEYWARD_ACL_TOKEN_FILE; `keyward acl whoami` tries it";
    1612 AclPermissionDenied: "the token lacks a permission of the ACL server",
        "no policy of the token allows the operation",
        "link a policy with the permission that the message names, such as acl = \"write\"";
    1701 PlatformTokenRejected: "HCP Terraform or Terraform Enterprise rejects the platform token",
        "the token was revoked, has expired, or belongs to another host",
        "create a new token there and put it into token_file; waiting calls continue with it";
    1702 PlatformTokenMissing: "the gateway has no platform token",
        "the token's file is missing or empty, or its source has not delivered it yet",
        "put the token into token_file; with another source, see that session's error in `keyward status`";
    1703 PlatformUnreachable: "HCP Terraform or Terraform Enterprise cannot be reached",
        "the address is wrong, the platform is down, or TLS or a proxy on the way fails",
        "check gateway.upstream and its ca_file with `keyward check --online`";
    1704 PlatformTokenNotMinted: "no platform token could be created",
        "the owner's token lacks the right to create tokens, or the platform refuses the request",
        "see the error for the platform's reason, and check [gateway.mint] and its parent token";
    1705 LocalTokenFile: "the local token of the gateway cannot be used",
        "its file cannot be read or written, belongs to another gateway, or holds something else",
        "check the file's owner and mode, or remove the file to have a new token generated";
    1706 LocalTokenRejected: "the gateway rejects the local token",
        "the token's file is not that of the gateway that answers, or holds a token from before the last rotation",
        "name the gateway's own file with --local-token-file, or leave the flag out to use the configuration's";
    1707 TerraformConfigFile: "the configuration file for Terraform and OpenTofu cannot be written or removed",
        "its folder is missing or not writable, or the file there was not written by keyward",
        "create the folder, or move the other file away; see gateway.terraform_config_file";
    1708 FeatureMissing: "HCP Terraform or the release of Terraform Enterprise lacks what the call uses",
        "the call uses a feature that the server does not have, and gateway.strict refuses such calls",
        "upgrade Terraform Enterprise, or change the call; without gateway.strict it is sent as it is";
    1801 AgentNotRunning: "no agent answers",
        "the agent is not running, or listens at another address than the command uses",
        "start it (systemctl start keyward), or give its address by --address, KEYWARD_ADDR or --config";
    1802 AgentSocketDenied: "the system refuses the agent's socket",
        "the user is not in the group that may connect to the socket",
        "add the user to the group that the message names and log in anew, or run the command as the agent's user";
    1803 AgentRefused: "the agent refuses the caller",
        "the key of the listener differs from the agent's, or the caller's user may not use the session",
        "compare the listener's key_file with the one that the agent read, and the users of the listener";
    1804 AgentNotReady: "the agent is not ready",
        "a session has no token yet, or a required output was not written; the message names the component",
        "see `keyward status` for the reason, and `keyward retry SESSION` to log in at once";
    1805 NoListener: "the configuration has no listener for the command",
        "the command asks a local API or an API proxy, and the configuration defines none for the session",
        "add [listener.local], or a listener with kind = \"api_proxy\", or give --address";
    1806 UnknownSession: "the session does not exist or is not named",
        "--session names no session of the configuration, or the configuration has several and none is named",
        "name one of the sessions that the message lists with --session";
    1808 GatewayNotRunning: "no gateway answers",
        "the gateway is not running, or listens at another address than the command uses",
        "start it, or give its address by --address and --local-token-file";
    1809 NoGateway: "the configuration has no gateway for the command",
        "the configuration has no [gateway], or only the service manager knows where it listens",
        "give the address of one that runs by --address and --local-token-file";
    1903 SandboxProgram: "a program cannot gain the rights of another user",
        "NoNewPrivileges= of the unit keeps the command from the rights of another user, as sudo gives them",
        "run the command as the agent's user, and let a polkit rule allow what it does";
    1904 UnitControlDenied: "the agent's user may not control the unit that a command names",
        "no polkit rule allows the user to reload or restart the unit, and a daemon cannot answer a question for a password",
        "add a rule to /etc/polkit-1/rules.d that allows it, such as the one that `keyward doctor` prints";
    1905 SandboxNetwork: "the service's sandbox does not let the agent reach an address",
        "RestrictAddressFamilies= or IPAddressDeny= of the unit covers a server, a listener or the identity source",
        "add the address to IPAddressAllow=, or the family to RestrictAddressFamilies=, in a drop-in";
    1906 SandboxCapability: "the agent's user may not hand a file to another owner, or bind a port below 1024",
        "the user is not in the group that the file is for, or the unit gives no capability for it",
        "add the group to SupplementaryGroups=, or the capability to AmbientCapabilities=, in a drop-in";
    1907 FileAccess: "the agent's user lacks a right on a file or folder of the configuration",
        "owner, group and mode of the path, or of a folder above it, do not let the user in",
        "run the command that `keyward doctor` prints for it, or run the agent as another user";
    1908 ClockSkew: "the clocks of this machine and of a server differ",
        "the time of this machine or of the server is not synchronised",
        "synchronise the clock: timedatectl set-ntp true, then timedatectl status";
    1909 CertificateExpiring: "a certificate expires soon or has expired",
        "nobody has renewed the certificate, or its successor is not in place",
        "renew the certificate; keyward reads changed files for the next connection";
    1910 AgentVersion: "the running agent is another release than this program",
        "the package was upgraded, and the agent was not restarted since",
        "restart it: systemctl restart keyward";
    1911 CheckTimedOut: "a check did not end in time",
        "a server, the resolver or the identity source does not respond, or responds slowly",
        "see the checks beside it; `keyward check --online` waits longer";
    1912 UnitSettings: "the service's unit does not fit this machine or the configuration",
        "the unit names a user or a group that does not exist, or starts the agent with another configuration",
        "correct the unit in a drop-in (systemctl edit keyward.service), and restart the agent";
    1913 LandlockMissing: "nothing keeps the agent from files and programs beyond its configuration",
        "the kernel is older than 5.13 or has no landlock in its lsm=, and the unit does not make up for it",
        "install the drop-in 40-without-landlock.conf, or boot a kernel with Landlock";
    2001 InjectionRefused: "the injector refuses a pod",
        "an annotation has a value that keyward cannot use, asks for more than the operator allows, or has no meaning here",
        "change or remove the annotation that the message names; docs/kubernetes-injector.md lists all";
    2002 KubernetesApi: "the Kubernetes API cannot be called",
        "the API server does not answer, the service account lacks a right, or the Secret or the webhook's configuration is missing",
        "install the chart's Secret, roles and MutatingWebhookConfiguration; the message has the API server's own words";
    2003 InjectorCertificate: "the webhook has no certificate that the API server trusts",
        "the MutatingWebhookConfiguration has no webhooks, or another program keeps changing their caBundle",
        "let one program set caBundle: remove it from other manifests and from cert-manager's injector";
}
