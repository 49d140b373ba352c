"""A test in a temporary folder, which is the current one."""

import os
import tempfile
import textwrap
import unittest


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.folder = os.path.realpath(folder.name)
        os.chdir(self.folder)

    def write(self, name, text=""):
        os.makedirs(os.path.dirname(os.path.abspath(name)), exist_ok=True)
        with open(name, "w") as file:
            file.write(textwrap.dedent(text))

    def files(self):
        return sorted(os.path.join(top, name) for top, _, names in os.walk(".") for name in names)
