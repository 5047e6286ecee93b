"""Runs a command, writes its CPU seconds and the peak of its memory in bytes: peak.py FILE COMMAND...

A process starts as a copy of the one that made it, and the kernel counts that copy in. This
program is small, so that the peak is the command's own whatever the caller holds; and the
time is without the start of this program.
"""

import os
import resource
import sys

child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status = os.waitpid(child, 0)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    file.write(f"{usage.ru_utime + usage.ru_stime} {usage.ru_maxrss * 1024}")
code = os.waitstatus_to_exitcode(status)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
