//! The integration tests of the host.

mod launch;
mod machines;
mod made;
mod memory;
mod neighbours;
mod observe;
mod oracle;
mod orders;
mod program;
mod progress;
mod proxies;
mod random;
mod refused;
mod topology_archive;
mod topology_oracle;
mod topology_robust;

/// Runs before `main`, in the thread that leads the process: libtest runs each test in another one.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn before_main() {
        launch::run_if_asked();
        neighbours::run_if_asked();
        program::run_if_asked();
    }
    before_main
};
