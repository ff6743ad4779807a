//! HTTP/1.1 messages (RFC 9112), as the server and the reverse proxy receive and send them.

pub(crate) mod headers;
pub(crate) mod body_decoder;
pub(crate) mod receive_buffer;
pub(crate) mod message_writer;
