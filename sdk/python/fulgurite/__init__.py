"""For plugins of Fulgurite in Python: harnesses and rewards.

A harness imports everything from `fulgurite.harness`, a reward from `fulgurite.reward`. Both run
in CPython inside a WebAssembly component: the standard library is there, the network, threads,
processes and extension modules are not.

`fulgurite build` imports the plugin's module once and keeps the memory of the interpreter as it
is then; every episode starts from that picture. So import at the top (later nothing can be imported:
the files of the library are not there any more), prepare tables and compiled patterns in module
scope, and call nothing of the host there.
"""
