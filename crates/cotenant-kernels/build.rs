//! Compiles the loops with -O2 for the portable instruction set, so that a kernel behaves the same on every machine.

fn main() {
    let sources = ["compute", "coherence", "memory", "stream", "inject", "smash"];
    let mut build = cc::Build::new();
    build.std("c11").opt_level(2).debug(true).warnings(true).extra_warnings(true).include("c");
    // Keeps a loop as written: no call of memcpy in its place (-fno-builtin for clang, which lacks
    // -fno-tree-loop-distribute-patterns). Multiplication and addition round separately, so that results can be checked
    // exactly.
    build.flag("-ffp-contract=off").flag("-fno-builtin").flag_if_supported("-fno-tree-loop-distribute-patterns");
    for name in sources {
        build.file(format!("c/{name}.c"));
    }
    build.compile("cotenant_kernels");
    println!("cargo::rerun-if-changed=c");
}
