"""``python -m tack validate``: checks that the devices of this machine compute what they should.

The checks are kernels with answers from Python and NumPy; no test framework is needed, and nothing of the
repository. Each device is checked in processes of its own, so that one that crashes is a result too.

`language`, `device` and `library` have the checks, `child` runs them, `command` starts that and reports.
"""
