//! What tests share: starting the real thing, and fakes of the network around it.

#[cfg(feature = "dev")]
pub(crate) mod agent;
#[cfg(feature = "acl")]
pub(crate) mod acl;
#[cfg(feature = "acl")]
pub(crate) mod served;
#[cfg(feature = "gateway")]
pub(crate) mod scripted;
#[cfg(feature = "gateway")]
pub(crate) mod front;
#[cfg(feature = "dev")]
pub(crate) mod beside;
#[cfg(feature = "acl")]
pub(crate) mod issuer;
pub(crate) mod log;
#[cfg(feature = "dev")]
pub(crate) mod platform;
pub(crate) mod raw;
#[cfg(feature = "dev")]
pub(crate) mod secrets;
#[cfg(feature = "dev")]
pub(crate) mod session;
#[cfg(feature = "dev")]
pub(crate) mod vault;
#[cfg(feature = "dev")]
pub(crate) mod terraform;
#[cfg(any(feature = "dev", feature = "gateway"))]
pub(crate) mod tunnel;
#[cfg(feature = "dev")]
pub(crate) mod binary;
#[cfg(feature = "dev")]
pub(crate) mod world;

#[cfg(feature = "acl")]
pub(crate) use acl::Acl;
#[cfg(feature = "acl")]
pub(crate) use served::Answer;
