from typing import Optional


class Error(Exception):
    """What tgc, the C compiler or the model says is wrong, and what to do about it.

    status: what NAME_run, NAME_init or NAME_restore returned, where one of them is what failed.
    """

    status: Optional[int]

    def __init__(self, message: str, status: Optional[int] = None):
        super().__init__(message)
        self.status = status


Error.__module__ = "tgc"    # what tracebacks call it
