"""The one error type that is the user's to mend."""

from __future__ import annotations


class UserError(Exception):
    """A mistake the user can mend: bad setting, missing file, wrong column, port in use.

    The message is one sentence that names the thing, the place and the remedy. Entry points print it
    without a traceback and exit with status 2; everything else is a defect and keeps its traceback.
    """
