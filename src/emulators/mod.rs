//! Small real servers to run the whole thing with no outside service. Each is labelled as what it is and has dials
//! for faults; `keyward dev` and the tests use the same ones.

mod control_listener;

pub mod cloud;
pub mod platform;
pub mod secrets;
