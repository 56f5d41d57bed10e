# SPDX-License-Identifier: Apache-2.0
"""What _api.py says of the headers is what the C compiler reads in them, and nothing is forgotten.
"""

import ctypes
import errno
import glob
import os
import re
import shlex
import subprocess
import unittest

import verbena
from verbena import _api, _errors

INCLUDE = os.path.join(os.path.dirname(__file__), "../../../include")
HEADERS = sorted(glob.glob(os.path.join(INCLUDE, "verbena/*.h")))
COMPILER = shlex.split(os.environ.get("VERBENA_CC", ""))


def read_headers():
    text = ""
    for path in HEADERS:
        with open(path, encoding="utf-8") as file:
            text += file.read()
    return text


def headers():
    """Their text without comments."""
    return re.sub(r"/\*.*?\*/", " ", read_headers(), flags=re.S)


# ---- what the headers have, by name ----


def structs_of(text):
    """{name: [field, ...]} of the structs that are defined."""
    found = {}
    for name, body in re.findall(r"struct (vb_\w+) \{(.*?)\};", text, re.S):
        body = re.sub(r"\(\*(\w+)\)\([^()]*\)|\[\w+\]", r"\1", body)  # functions, arrays
        found[name] = [
            re.search(r"(\w+)\s*$", field).group(1)
            for declaration in body.split(";")
            if declaration.strip()
            for field in declaration.split(",")
        ]
    return found


def opaque_of(text):
    return set(re.findall(r"^struct (vb_\w+);", text, re.M))


def constants_of(text):
    """Macros with a number, and enumerators."""
    found = set(re.findall(r"#define\s+(VB_\w+)\s+[^\s\"]", text))
    for body in re.findall(r"enum vb_\w+ \{(.*?)\}", text, re.S):
        found |= {re.match(r"\s*(\w+)", one).group(1) for one in body.split(",") if one.strip()}
    return found


def functions_of(text):
    """Functions, inline ones too, and types that are names."""
    text = re.sub(r"^#.*$", "", text, flags=re.M)
    found = set(re.findall(r"\b(vb_[a-z0-9_]+)\([^()]*\)\s*[;{]", text))
    found |= set(re.findall(r"typedef uint64_t (\w+);", text))
    return found | set(re.findall(r"typedef \w+ \(\*(\w+)\)", text))


# ---- what Python says, for the compiler ----


def program(structs, constants, functions):
    """A C file that compiles if the headers say the same."""
    lines = [f"#include <verbena/{os.path.basename(path)}>" for path in HEADERS]
    for name, kind in _api.SCALARS.items():
        if kind is not None:
            size = ctypes.sizeof(kind)
            lines.append(f'_Static_assert(sizeof({name}) == {size}, "{name}");')
    for name, fields in structs.items():
        kind = _api.structs[name]
        lines.append(f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(kind)}, "{name}");')
        for declared, field in fields:
            at = getattr(kind, field)
            place = f"((struct {name} *)0)->{field}"
            lines.append(
                f"_Static_assert(offsetof(struct {name}, {field}) == {at.offset} &&"
                f" sizeof({place}) == {at.size} &&"
                f" __builtin_types_compatible_p(__typeof__({place}), {declared}),"
                f' "{name}.{field}");'
            )
    for name, value in constants.items():
        lines.append(f'_Static_assert({name} == {value}u, "{name}");')
    for name, (kind, arguments) in functions.items():
        listed = ", ".join(declared for declared, _ in arguments) or "void"
        lines.append(f"{kind} {name}({listed});")
    return "\n".join(lines) + "\n"


def compiles(text):
    """What the compiler has against it: empty, or its errors."""
    done = subprocess.run(
        COMPILER + ["-std=gnu11", "-I", INCLUDE, "-fsyntax-only", "-x", "c", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else done.stderr or "it failed"


STRUCTS = _api.parse_structs(_api.STRUCTS)
FUNCTIONS = _api.parse_functions(_api.FUNCTIONS)


@unittest.skipUnless(COMPILER, "VERBENA_CC names no C compiler")
class Compared(unittest.TestCase):
    def test_headers_say_the_same(self):
        self.assertEqual(compiles(program(STRUCTS, _api.CONSTANTS, FUNCTIONS)), "")

    def test_each_difference_is_found(self):
        """A check that cannot fail is a defect."""
        text = program(STRUCTS, _api.CONSTANTS, FUNCTIONS)
        wrong = (
            ("VB_EXCLUSIVE == 1u", "VB_EXCLUSIVE == 2u", "VB_EXCLUSIVE"),
            ("sizeof(struct vb_grant) == 48", "sizeof(struct vb_grant) == 40", '"vb_grant"'),
            ("vb_grant, token) == 16", "vb_grant, token) == 24", "vb_grant.token"),
            ("->lease_ns), uint64_t", "->lease_ns), int64_t", "lease_ns"),
            ("bool vb_lock_valid(", "int vb_lock_valid(", "vb_lock_valid"),
            ("vb_lock_now(const struct", "vb_lock_now(struct", "vb_lock_now"),
            ("struct vb_grant *, uint64_t);", "struct vb_grant *, uint32_t);", "vb_lock_renew"),
            ("vb_txn_commit(struct vb_coordinator *", "vb_txn_commit(struct vb_db *", "vb_txn_commit"),
        )
        for right, other, _ in wrong:
            self.assertIn(right, text)
            text = text.replace(right, other)
        said = compiles(text)
        for _, _, complaint in wrong:
            self.assertRegex(said, f"error.*{complaint}")


class Complete(unittest.TestCase):
    def test_structs(self):
        known = {name: [field for _, field in fields] for name, fields in STRUCTS.items()}
        there = structs_of(headers())
        for name in set(there) & set(_api.UNBOUND):
            del there[name]
        self.assertEqual(known, there)
        self.assertEqual(set(_api.OPAQUE.split()), opaque_of(headers()) - set(_api.UNBOUND))

    def test_constants(self):
        there = constants_of(headers())
        known = set(_api.CONSTANTS)
        self.assertEqual(known - there, set())
        self.assertEqual(there - known - set(_api.UNBOUND), set(), "neither bound nor UNBOUND")

    def test_functions(self):
        there = functions_of(headers())
        known = set(FUNCTIONS)
        self.assertEqual(known - there, set())
        self.assertEqual(there - known - set(_api.UNBOUND), set(), "neither bound nor UNBOUND")

    def test_exports(self):
        """By another reader of the same: the linker's."""
        with open(os.path.join(INCLUDE, "../src/verbena.map"), encoding="utf-8") as file:
            exported = set(re.findall(r"^\t(vb_\w+);", file.read(), re.M))
        self.assertGreater(len(exported), 60)
        self.assertEqual(exported - set(FUNCTIONS) - set(_api.UNBOUND), set())

    def test_unbound(self):
        """Each is there, is not bound after all, and says why."""
        text = headers()
        there = functions_of(text) | constants_of(text)
        there |= set(structs_of(text)) | opaque_of(text)
        for name, why in _api.UNBOUND.items():
            self.assertIn(name, there)
            self.assertNotIn(name, FUNCTIONS)
            self.assertNotIn(name, _api.CONSTANTS)
            self.assertGreater(len(why), 5)

    def test_what_is_forgotten_is_found(self):
        text = headers()
        more = (
            text
            + "\nstruct vb_more { uint64_t a, b; };\nstruct vb_most;\n#define VB_MORE 3\n"
            + "enum vb_such { VB_SUCH,\n\tVB_OTHER };\nint vb_more_of(struct vb_more *m,\n\tint n);\n"
        )
        self.assertEqual(structs_of(more)["vb_more"], ["a", "b"])
        self.assertEqual(opaque_of(more) - opaque_of(text), {"vb_most"})
        new = constants_of(more) - constants_of(text)
        self.assertEqual(new, {"VB_MORE", "VB_SUCH", "VB_OTHER"})
        self.assertEqual(functions_of(more) - functions_of(text), {"vb_more_of"})


class Words(unittest.TestCase):
    def test_enums(self):
        """Python's own enums are those of CONSTANTS, each member."""
        for kind, name, count in (
            (verbena.Mode, "VB_", "VB_MODES"),
            (verbena.Cause, "VB_TXN_", "VB_TXN_CAUSES"),
            (verbena.Isolation, "VB_", "VB_ISOLATIONS"),
            (verbena.Outcome, "VB_", None),
            (verbena.Partition, "VB_PARTITION_", None),
            (verbena.Role, "VB_CLUSTER_", None),
            (verbena.Seal, "VB_CLUSTER_SEAL_", None),
            (verbena.LogLevel, "VB_LOG_", None),
        ):
            for member in kind:
                self.assertEqual(_api.CONSTANTS[name + member.name], member.value)
            if count:
                self.assertEqual(_api.CONSTANTS[count], len(kind))

    def test_names(self):
        self.assertEqual(str(verbena.Mode.INTENT_SHARED), "intent-shared")
        self.assertEqual(str(verbena.Cause.WOUNDED), "wounded")

    def test_every_error_has_a_class(self):
        named = set(re.findall(r"-(VB_E[A-Z]+|E[A-Z0-9]{3,})\b", read_headers()))
        self.assertGreater(len(named), 20)
        for name in named:
            number = _api.CONSTANTS[name] if name.startswith("VB_") else getattr(errno, name)
            self.assertIn(number, _errors.CLASSES, name)
            made = _errors.error(-number, "vb_call")
            self.assertIs(type(made), getattr(verbena, type(made).__name__))
            self.assertEqual(made.errno, number)
            self.assertEqual(made.strerror, verbena.strerror(number))
            self.assertEqual(str(made), "vb_call: " + verbena.strerror(-number))
        self.assertIs(type(_errors.error(-5)), verbena.Error)

    def test_version(self):
        self.assertEqual(verbena.__version__, "%d.%d.%d" % _api.VERSION)
        self.assertEqual(verbena.version(), verbena.__version__)
        self.assertTrue(verbena.commit())

    def test_outcome(self):
        self.assertEqual(verbena.outcome(), verbena.Outcome.GRANTED)
        timed_out, unknown = _errors.error(-110), _errors.error(-4096)
        self.assertEqual(verbena.outcome(timed_out), verbena.Outcome.NOT_GRANTED)
        self.assertEqual(verbena.outcome(unknown), verbena.Outcome.UNKNOWN)

    def test_prefix(self):
        self.assertEqual(verbena.prefix(0x1234, 8), (0x1200, 0x12FF))
        self.assertEqual(verbena.prefix(7, 0), (7, 7))
        self.assertEqual(verbena.prefix(7, 64), (0, 2**64 - 1))
