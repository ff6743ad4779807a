//! The whole program, put together as a service manager runs it.

mod canary;
mod end_to_end;
mod offline;
mod reload;
mod rotation;
mod service_manager;
