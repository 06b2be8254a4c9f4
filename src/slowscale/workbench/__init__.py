"""The workbench: the whole path from data to a published table in a browser, on the curator's own machine.

`slowscale serve` starts it. Every page stands for a part of one plan file, and shows that file. Releases are the calls
that the command line makes, in a child process.
"""
