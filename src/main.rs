//! The program: hands over to the command line.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: keyward::ZeroingAllocator = keyward::ZeroingAllocator;

fn main() -> ExitCode {
    keyward::cli::main()
}
