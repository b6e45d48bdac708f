"""Packs CPython's standard library for a guest: `standard_library.py SOURCE/Lib FOLDER`.

FOLDER is then what a guest needs at /usr/local/lib: the library as a zip (stored, as the guest has no zlib, and without
tests), and the two places by which the interpreter recognises its library, of which it uses neither.
"""
import pathlib
import sys
import zipfile

SKIPPED = {
    "__pycache__", "_pyrepl", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test",
    "tests", "tkinter", "turtledemo", "venv",
}


def main(library, folder):
    minor = sys.version_info.minor
    extensions = folder / f"python3.{minor}" / "lib-dynload"
    extensions.mkdir(parents=True)
    # A folder without a file would be lost where only files are kept.
    (extensions / "README").write_text("Extension modules of the guest would be here.\n")
    (extensions.parent / "os.py").write_bytes((library / "os.py").read_bytes())
    with zipfile.ZipFile(folder / f"python3{minor}.zip", "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(library.rglob("*.py")):
            name = path.relative_to(library)
            if not SKIPPED.intersection(name.parts[:-1]):
                entry = zipfile.ZipInfo(name.as_posix(), (2023, 1, 1, 0, 0, 0))
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes())


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
