"""Builds the package's functions in C. Without a compiler, the same is done in Python."""

import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension

NAME, FOLDER = "_frames", "tfrtool/records"
SOURCES = ("_frames.c", "_features.c", "_encode.c", "_json.c")
ABI = "cp311-abi3"
"""CPython's stable ABI: a wheel is for this version and all that follow."""


class NativeCode(BuildHookInterface[Any]):
    """Puts the compiled module into wheels, and next to its source in an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; if that fails, the wheel is for every platform, and has Python alone."""
        del version
        module = compiled(Path(self.root))
        if module is None:
            sys.stderr.write("tfrtool: no C compiler or headers: frames are read in Python\n")
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"{ABI}-{platform}"
        build_data["pure_python"] = False
        build_data["artifacts"].append(f"{FOLDER}/{module.name}")


def compiled(root: Path) -> Path | None:
    """Compile the module in its folder, and return its path; None if that is not possible."""
    for old in modules(root):
        old.unlink()
    extension = Extension(
        f"{FOLDER.replace('/', '.')}.{NAME}",
        [str(root / FOLDER / source) for source in SOURCES],
        define_macros=[("Py_LIMITED_API", "0x030b0000")],
        extra_compile_args=[] if sys.platform == "win32" else ["-std=c11", "-O3", "-g0"],
        py_limited_api=True,
        optional=True,
    )
    command = Distribution({"ext_modules": [extension]}).get_command_obj("build_ext")
    with TemporaryDirectory() as scratch:
        command.build_lib, command.build_temp = str(root), scratch
        command.ensure_finalized()
        command.run()
    return next(iter(modules(root)), None)


def modules(root: Path) -> list[Path]:
    """Return the compiled modules that are there."""
    found = (root / FOLDER).glob(f"{NAME}.*")
    return [path for path in found if path.suffix in (".so", ".pyd")]
