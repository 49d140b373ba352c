"""Traces twelve programs with versions of PyTorch and compares: bench/check_versions.py FOLDER VERSION [VERSION...]

Makes a virtual environment in FOLDER for each version (`2.8.0`), traces the programs of version_programs.py with it, and
deletes it; one takes up to 3 GB. pip installs from where it is configured to. Where it gives PyTorch with CUDA, cuDNN
and CUDA's small libraries are installed as well, and empty libraries stand for the large ones, which a trace never
calls; that needs gcc and binutils. `headroom` is taken from PATH. Prints one row of Markdown for each program:
requested and reserved MiB at the peak with each version, in bold where they differ from those of --base.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent
PURE = ["typing-extensions", "filelock", "sympy", "networkx", "jinja2", "fsspec", "numpy", "setuptools<82"]
# Packages of libraries that run without a GPU.
CALLED = re.compile("cuda-(runtime|cupti|nvrtc)|cudnn|cublas|nvtx|cufile")
TOOLKIT = re.compile(r"cuda-toolkit\[.*\](==\S+)")  # names them from PyTorch 2.11 on
CALLED_OF_TOOLKIT = "cuda-toolkit[cudart,cupti,nvrtc,nvtx,cufile]"
DRIVER = "libcuda.so.1"  # without one, PyTorch knows that there is no GPU


def output(command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def pip(python, *arguments):
    output([python, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", *arguments])


def cuda_packages(python):
    """The packages of CUDA that PyTorch names, those alone whose libraries a trace may call."""
    names = output([python, "-c", "import importlib.metadata as m; print('\\n'.join(m.requires('torch')))"])
    packages = []
    for line in names.split("\n"):
        name = line.partition(";")[0].replace(" ", "")
        if TOOLKIT.match(name):
            packages.append(CALLED_OF_TOOLKIT + TOOLKIT.match(name)[1])
        elif CALLED.search(name):
            packages.append(name)
    return packages


def needed(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output(["readelf", "-dW", library]))


def write_empty_libraries(packages):
    """Writes a library beside PyTorch's for each that one of these needs and that is not there."""
    libraries = [*packages.glob("torch/lib/*.so*"), *packages.glob("nvidia/**/*.so*")]
    there = {library.name for library in libraries}
    loader = output(["/sbin/ldconfig", "-p"])
    missing = {}
    for library in libraries:
        for name in needed(library):
            if name not in there and f"{name} " not in loader and name.startswith(("libcu", "libnc", "libnv")) and name != DRIVER:
                missing.setdefault(name, []).append(library)
    users = {library for list_ in missing.values() for library in list_}
    undefined = set()
    for library in users:
        undefined |= set(re.findall(r" U (\w+)", output(["nm", "-D", "--undefined-only", library])))
    names = [name for name in sorted(undefined) if name.startswith(("cu", "nccl", "nvshmem", "nvJit", "__nvJit"))]
    code = "".join(f"void {name}(void) {{}}\n" for name in names)
    for name in missing:
        linker = f"-Wl,-soname,{name},--default-symver"  # PyTorch before 2.6 asks for versions of symbols
        command = ["gcc", "-shared", "-w", "-fno-builtin", "-x", "c", "-", linker]
        output([*command, "-o", packages / "torch" / "lib" / name], input=code)


def install(folder, version):
    """Makes an environment with PyTorch and returns its Python."""
    output([sys.executable, "-m", "venv", folder])
    python = folder / "bin" / "python"
    pip(python, "--no-deps", f"torch=={version}")
    pip(python, *PURE)
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode:
        packages = cuda_packages(python)
        toolkits = [name for name in packages if name.startswith("cuda-toolkit")]
        pip(python, "--no-deps", *(name for name in packages if name not in toolkits))
        if toolkits:
            pip(python, *toolkits)
        folder = output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
        write_empty_libraries(pathlib.Path(folder.strip()))
        output([python, "-c", "import torch"])
    return python


def predict(what, device, environment):
    """The requested and reserved peak of a trace, or of a command after --, in MiB, or its error."""
    command = ["headroom", "predict", "--device", device, "--json", *what]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    try:
        answer = json.loads(result.stdout)
    except ValueError:
        return (result.stderr.strip().split("\n") or ["no answer"])[-1]
    return tuple(answer[f"peak_{kind}_bytes"] / 2**20 for kind in ("requested", "reserved"))


def peaks(python, programs, device):
    """Returns what `predict` says of each program. Functions are traced by one process, scripts by one each."""
    environment = {**os.environ, "HEADROOM_PYTHON": str(python)}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, BENCH / "version_programs.py", folder, device], check=True)
        for name in programs:
            error, trace = (pathlib.Path(folder) / f"{name}.{kind}" for kind in ("error", "trace"))
            if error.exists():
                found.append(error.read_text(encoding="utf-8"))
            else:
                script = ["--", python, BENCH / "version_programs.py", name]
                found.append(predict([trace] if trace.exists() else script, device, environment))
    return found


def programs():
    text = (BENCH / "version_programs.py").read_text(encoding="utf-8")
    return re.findall(r"^def (make_\w+|resume|main)\(", text, re.MULTILINE)


def cell(found, base):
    if isinstance(found, str):
        return found
    text = f"{found[0]:.2f} / {found[1]:.0f}"
    return text if found == base else f"**{text}**"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--base", default="2.11.0", help="the version that others are compared with")
    parser.add_argument("--device", default="h100")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    options = parser.parse_args()
    found = {}
    for version in options.versions:
        folder = options.folder / version
        try:
            python = folder / "bin" / "python"
            if not python.exists():
                python = install(folder, version)
            found[version] = peaks(python, programs(), options.device)
        except subprocess.CalledProcessError as error:
            found[version] = [f"not installed: {error}"] * len(programs())
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
        print(version, found[version], file=sys.stderr, flush=True)
    base = found.get(options.base, next(iter(found.values())))
    print(f"| program | {' | '.join(found)} |\n|{' --- |' * (len(found) + 1)}")
    for row, name in enumerate(programs()):
        print(f"| {name} | {' | '.join(cell(values[row], base[row]) for values in found.values())} |")


if __name__ == "__main__":
    main()
