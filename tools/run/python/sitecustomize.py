"""The start-up hook of `headroom run` in a Python program. It is compiled at each start, so it only waits for a
framework or an error: what it does then is in headroom_hook.py."""

# The interpreter has these already; importlib.util would take longer than the rest of the hook.
import _frozen_importlib
import _frozen_importlib_external
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _hook():
    import importlib.util

    spec = importlib.util.spec_from_file_location("headroom_hook", _here + "/headroom_hook.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook


def _explain_end(kind, error, trace):
    try:
        _hook().explain_end(error, trace)
    except Exception:
        pass
    _hook_before(kind, error, trace)


class _Finder:
    """Finds a framework as the others would, and acts once it is loaded."""

    names = {"torch", "cupy", "numba"}

    def find_spec(self, name, path=None, target=None):
        if name not in self.names:
            return None
        self.names.discard(name)
        try:
            return _hook().find(name)
        except OSError:  # the command has ended, and its folder is gone
            return None


if "HEADROOM_RUN_STRATEGY" in os.environ or "HEADROOM_RUN_SNAPSHOT" in os.environ:
    sys.meta_path.insert(0, _Finder())
if "HEADROOM_RUN_SNAPSHOT" in os.environ:
    _hook_before, sys.excepthook = sys.excepthook, _explain_end

# The program's own sitecustomize, which this file hides.
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _here]
# Kept compiled for the next start, though the program may not want that of its own files.
if sys.dont_write_bytecode and not sys.pycache_prefix and __spec__.cached and not os.path.exists(__spec__.cached):
    sys.dont_write_bytecode = False
    try:
        __spec__.loader.get_code(__name__)
    except Exception:
        pass
    finally:
        sys.dont_write_bytecode = True

_own = _frozen_importlib_external.PathFinder.find_spec("sitecustomize", sys.path)
if _own is not None and _own.loader is not None:
    _module = _frozen_importlib.module_from_spec(_own)
    sys.modules["sitecustomize"] = _module
    _own.loader.exec_module(_module)
