"""python -m tgc: the program."""

import os
import sys

from ._build import find_tgc
from ._error import Error

try:
    program = find_tgc()
except Error as error:
    sys.exit(f"tgc: error: {error}")
os.execv(program, [program, *sys.argv[1:]])
