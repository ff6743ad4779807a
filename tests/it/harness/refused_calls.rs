//! Programs that the kernel refuses some system calls, as an older one does.

use super::not_run::not_run;

/// Returns true where [`without`] works; says otherwise that the test was not run.
pub(crate) fn can_refuse_calls() -> bool {
    let can = cfg!(target_arch = "x86_64");
    if !can {
        not_run("the filter of system calls is that of x86_64");
    }
    can
}

/// Shell command that replaces the agent's start: perl installs a seccomp filter, then executes the agent. Each refused call is
/// a number of a system call, the place of an argument and its value (-1: any), and an error number.
pub(crate) fn without(refused: &[(u32, i64, u32, u32)]) -> String {
    const FILTER: &str = r#"
        my ($refused, @command) = @ARGV; my @program = (pack('SCCL', 0x20, 0, 0, 0));
        for (split /;/, $refused) {
            my ($call, $at, $value, $error) = split /,/;
            my @argument = $at < 0 ? () : (pack('SCCL', 0x20, 0, 0, 16 + 8 * $at), pack('SCCL', 0x15, 0, 1, $value));
            push @program, pack('SCCL', 0x15, 0, @argument + 1, $call), @argument, pack('SCCL', 0x06, 0, 0, 0x00050000 | $error);
            # The argument replaced the number of the call.
            push @program, pack('SCCL', 0x20, 0, 0, 0) if @argument;
        }
        my $code = join('', @program, pack('SCCL', 0x06, 0, 0, 0x7fff0000));
        my $filter = pack('Sx6P', length($code) / 8, $code);
        syscall(157, 38, 1, 0, 0, 0) == 0 or die "no_new_privs: $!";
        syscall(157, 22, 2, $filter) == 0 or die "seccomp: $!";
        exec @command or die "exec: $!";"#;
    let refused: Vec<_> =
        refused.iter().map(|(call, at, value, error)| format!("{call},{at},{value},{error}")).collect();
    format!("exec perl -e '{}' '{}' \"$0\" \"$@\"", FILTER.replace('\'', "'\\''"), refused.join(";"))
}

/// `landlock_create_ruleset` on every architecture.
pub(crate) const CREATE_RULESET: u32 = 444;

/// Error numbers of Linux.
pub(crate) const ENOSYS: u32 = 38;
pub(crate) const ENOMEM: u32 = 12;
