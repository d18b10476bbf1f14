"""The command line where packages are not installed."""


def command_without(*packages: str) -> str:
    """Code that runs ``node2seq`` with the arguments of the process; what others import is not held back."""
    return f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        importer = sys._getframe(1)
        while importer and "importlib" in importer.f_code.co_filename:
            importer = importer.f_back
        ours = importer and "node2seq" in importer.f_globals.get("__name__", "")
        if ours and name.split(".")[0] in {packages}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
from node2seq.__main__ import main
main()
"""
