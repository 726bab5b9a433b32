"""The stubs have the names that the module has."""

import ast
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import situ
from situ import _situ

# What every class has, or what Python makes of another name.
OF_EVERY_CLASS = set(dir(object)) | {"__doc__", "__module__", "__class_getitem__"}
STUBS = ast.parse(Path(situ.__file__).with_name("_situ.pyi").read_text())
CLASSES = {node.name: node for node in STUBS.body if isinstance(node, ast.ClassDef)}


def test_the_module_has_the_names_of_the_stubs():
    functions = {node.name for node in STUBS.body if isinstance(node, ast.FunctionDef)}
    at_runtime = {name for name in dir(_situ) if not name.startswith("_")}
    assert at_runtime == functions | set(CLASSES)
    assert set(situ.__all__) == at_runtime | set(situ.errors.__all__) | {"errors"}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_the_names_of_its_stub(name):
    kind = getattr(situ, name)
    in_stub = {node.name for node in CLASSES[name].body if isinstance(node, ast.FunctionDef)}
    inherited = {attribute for base in kind.__mro__[1:] for attribute in vars(base)}
    own = {attribute for attribute in vars(kind) if attribute not in OF_EVERY_CLASS}
    assert own == in_stub - OF_EVERY_CLASS, f"{name}: its own, without {inherited & own}"
    assert kind.__module__ == "situ" and kind.__doc__


@pytest.mark.parametrize("name", CLASSES)
def test_a_method_has_a_text_and_the_parameters_of_its_stub(name):
    kind = getattr(situ, name)
    for node in CLASSES[name].body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("__"):
            continue
        method = vars(kind)[node.name]
        if node.decorator_list and getattr(node.decorator_list[0], "id", "") == "property":
            assert inspect.isgetsetdescriptor(method), node.name
            continue
        assert method.__doc__, f"{name}.{node.name}"
        arguments = node.args
        in_stub = [one.arg for one in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
        in_stub += [arguments.kwarg.arg] if arguments.kwarg else []
        at_runtime = list(inspect.signature(method).parameters)
        overloaded = any(getattr(one, "id", "") == "overload" for one in node.decorator_list)
        assert in_stub == at_runtime or overloaded and set(in_stub) <= set(at_runtime), f"{name}.{node.name}"


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="SKIPPED: stubtest: mypy is not installed")
def test_stubtest_finds_nothing():
    command = [sys.executable, "-m", "mypy.stubtest", "situ", "--ignore-disjoint-bases"]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
