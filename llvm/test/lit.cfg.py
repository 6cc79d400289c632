"""Tests of the pass: FileCheck on IR (*.ll), and programs that are compiled and run (*.c, *.cpp)."""
import os
import lit.formats

config.name = "cotenant-pass"
config.test_format = lit.formats.ShTest(True)
config.suffixes = [".ll", ".c", ".cpp"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.environment["PATH"] = config.llvm_bin + os.pathsep + os.environ["PATH"]
# Without the user's own settings.
for name in ("COTENANT_PASS", "COTENANT_PASS_REGIONS"):
    config.environment.pop(name, None)
config.substitutions += [
    ("%opt", f"opt -load-pass-plugin={config.plugin} -passes=cotenant,verify -S"),
    ("%clangxx", f"clang++ -fpass-plugin={config.plugin}"),
    ("%clang", f"clang -pthread -fpass-plugin={config.plugin}"),
    ("%plugin", config.plugin),
    ("%inputs", os.path.join(config.test_source_root, "Inputs")),
]
