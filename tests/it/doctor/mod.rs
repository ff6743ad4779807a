//! `keyward doctor`: the real program against emulators, on a machine with a unit, a sandbox and rules of polkit.

mod beside;
mod bundle;
mod faults;
mod instance;
mod landlock;
mod remedies;
mod setup;
mod site;
mod tls;
