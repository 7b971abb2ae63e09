"""`python benchmarks/tokenize.py [--quick]` runs tokenizing.py, which says what is measured.

The standard library has a module of this name, and scripts of this folder come upon this file first: to them it is that module.
"""

import importlib.util
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    import tokenizing

    tokenizing.main()
else:
    _spec = importlib.util.spec_from_file_location(__name__, Path(os.__file__).with_name("tokenize.py"))
    assert _spec is not None and _spec.loader is not None
    sys.modules[__name__] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[__name__])
