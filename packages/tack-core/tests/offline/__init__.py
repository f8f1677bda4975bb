"""Every kernel of the suites, compiled by the vendors' compilers, for which no GPU is needed.

A suite that runs with ``TACK_TEST_SOURCES=FOLDER`` leaves its kernels' sources there; ``python -m offline
FOLDER`` in the tests folder compiles them.
"""
