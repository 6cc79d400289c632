//! Compiles the loops. -O2 and the portable instruction set, so that a kernel does the same wherever its binary is
//! taken.

fn main() {
    let sources = ["compute", "coherence", "memory", "stream", "inject", "smash"];
    let mut build = cc::Build::new();
    build.std("c11").opt_level(2).debug(true).warnings(true).extra_warnings(true).include("c");
    // A loop must stay the loop that is written: no call of memcpy in its place (-fno-builtin for clang, which knows
    // no -fno-tree-loop-distribute-patterns), and a multiplication and an addition stay two roundings, so that
    // results can be checked exactly.
    build.flag("-ffp-contract=off").flag("-fno-builtin").flag_if_supported("-fno-tree-loop-distribute-patterns");
    for name in sources {
        build.file(format!("c/{name}.c"));
    }
    build.compile("cotenant_kernels");
    println!("cargo::rerun-if-changed=c");
}
