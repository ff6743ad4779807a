//! Root of the crate that `tests/mutants/run` builds of the mutated modules and their dependencies. Stubs replace the rest of the program,
//! and each feature has one decision, so that a mutant is built and tested in seconds.
#![allow(dead_code, unused_imports, reason = "callers of the modules are not here")]

// Stub: the modules only use `rand` of aws-lc-rs, which takes minutes to build.
extern crate self as aws_lc_rs;

pub mod rand {
    pub fn fill(bytes: &mut [u8]) -> std::io::Result<()> {
        use std::io::Read as _;
        std::fs::File::open("/dev/urandom")?.read_exact(bytes)
    }
}

#[cfg(any(feature = "schedule", feature = "retry_budget"))]
pub mod backoff;
#[cfg(any(feature = "schedule", feature = "retry_budget"))]
pub mod clock;
#[cfg(feature = "login")]
pub mod error_code;
#[cfg(feature = "retry_budget")]
pub mod token_bucket;
#[cfg(feature = "authorization")]
pub mod hcl;

#[cfg(any(feature = "schedule", feature = "retry_budget"))]
/// Stub: only the clock's timers use it.
mod os {
    use std::os::fd::OwnedFd;

    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    pub(crate) fn readable(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
        AsyncFd::with_interest(descriptor, Interest::READABLE)
    }
}

pub mod http {
    #[cfg(feature = "login")]
    /// Stub: errors of requests contain it, and an error code, on which no decision depends.
    pub mod client {
        use std::time::Duration;

        use crate::error_code::ErrorCode;

        #[derive(Debug, thiserror::Error)]
        pub enum TransportError {
            #[error("no response")]
            TimedOut { server: String, after: Duration },
            #[error("too large")]
            TooLarge {},
            #[error("no connection")]
            Connect {},
            #[error("broken connection")]
            Broken {},
        }

        pub(crate) fn connection_error_code(_causes: &str) -> ErrorCode {
            ErrorCode::ServerUnreachable
        }
    }
    #[cfg(feature = "framing")]
    pub mod guard {
        mod connection;
        pub(crate) use connection::is_end_to_end;
    }
    #[cfg(feature = "framing")]
    pub mod reverse_proxy {
        mod headers;
        pub mod http1 {
            pub(crate) mod body_decoder;
            pub(crate) mod response_head;
        }
    }
}

pub mod agent {
    #[cfg(feature = "login")]
    pub mod server_client {
        mod error;
        pub use error::{CallError, is_outage};
    }
    #[cfg(feature = "login")]
    pub mod login {
        pub mod classify;
    }
    #[cfg(feature = "retry_budget")]
    pub mod retry_budget;
    #[cfg(feature = "schedule")]
    pub mod token_lifecycle {
        pub mod schedule;
    }
    #[cfg(feature = "proxy")]
    pub mod api_proxy {
        mod path;
        mod query;
        pub mod rules;
    }
}

#[cfg(feature = "authorization")]
pub mod acl {
    pub mod model {
        pub(crate) const DEFAULT_NAMESPACE: &str = "default";
        pub(crate) mod id;
        pub mod rules;
        pub mod authorize;
    }
}

#[cfg(feature = "gateway")]
pub mod gateway {
    mod path_rules;
    pub mod proxy {
        pub mod path;
    }
}
