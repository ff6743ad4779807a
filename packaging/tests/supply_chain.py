#!/usr/bin/env python3
"""Compares the list of crates in a program (cargo auditable) with its CycloneDX file and with Cargo.lock, and looks for this machine's
folders in it.

packaging/tests/supply_chain.py PROGRAM BOM
"""

import json
import re
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

program, bom = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())

with tempfile.NamedTemporaryFile() as section:
    subprocess.run(["objcopy", "--dump-section", f".dep-v0={section.name}", program, "/dev/null"], check=True)
    listed = json.loads(zlib.decompress(Path(section.name).read_bytes()))["packages"]
linked = {(it["name"], it["version"]) for it in listed if it.get("kind") != "build"}
assert len(linked) > 100, f"the program lists {len(linked)} crates"

assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.5")
components = {(it["name"], it["version"]): it for it in bom["components"]}
own = {(bom["metadata"]["component"]["name"], bom["metadata"]["component"]["version"])}
# The program lists those of its own features and platform alone.
missing = linked - set(components) - own
assert not missing, f"in the program and not in the bill: {sorted(missing)}"

locked = re.findall(r'name = "(.*)"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"', Path("Cargo.lock").read_text())
sums = {(name, version): checksum for name, version, checksum in locked}
for crate, component in components.items():
    assert component.get("licenses"), f"{crate} has no licence"
    hashes = [it["content"] for it in component["hashes"] if it["alg"] == "SHA-256"]
    assert hashes == [sums.get(crate)], f"{crate} is not the one of Cargo.lock"
refs = {it["bom-ref"] for it in bom["components"]} | {bom["metadata"]["component"]["bom-ref"]}
assert {it["ref"] for it in bom["dependencies"]} <= refs, "an edge names a crate that is not listed"

content = program.read_bytes()
for folder in [Path.home() / ".cargo", Path.cwd()]:
    for text in [content, Path(sys.argv[2]).read_bytes()]:
        assert str(folder).encode() not in text, f"{folder} is named"
print(f"packaging: supply chain: {len(linked)} crates in {program.name}, {len(components)} in its bill")
