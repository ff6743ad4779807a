//! The program: hands over to the command line.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: keyward_machine::os::ZeroingAllocator = keyward_machine::os::ZeroingAllocator;

fn main() -> ExitCode {
    keyward::cli::main()
}
