#!/usr/bin/env python3
"""Compares the list of crates in a program (cargo auditable) with its CycloneDX file and with Cargo.lock, and checks that both files
contain no path of this machine.

packaging/tests/supply_chain.py PROGRAM SBOM
"""

import json
import re
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

program, sbom = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())

with tempfile.NamedTemporaryFile() as section:
    subprocess.run(["objcopy", "--dump-section", f".dep-v0={section.name}", program, "/dev/null"], check=True)
    embedded = json.loads(zlib.decompress(Path(section.name).read_bytes()))["packages"]
linked = {(it["name"], it["version"]) for it in embedded if it.get("kind") != "build"}
assert len(linked) > 100, f"the program lists {len(linked)} crates"

assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.5")
components = {(it["name"], it["version"]): it for it in sbom["components"]}
own = {(sbom["metadata"]["component"]["name"], sbom["metadata"]["component"]["version"])}
# The program lists only the crates of its features and platform.
missing = linked - set(components) - own
assert not missing, f"in the program and not in the SBOM: {sorted(missing)}"

locked = re.findall(r'name = "(.*)"\nversion = "(.*)"\nsource = .*\nchecksum = "(.*)"', Path("Cargo.lock").read_text())
checksums = {(name, version): checksum for name, version, checksum in locked}
for crate, component in components.items():
    assert component.get("licenses"), f"{crate} has no licence"
    # A crate of this workspace is in no registry.
    if crate[0].startswith("keyward-"):
        continue
    hashes = [it["content"] for it in component["hashes"] if it["alg"] == "SHA-256"]
    assert hashes == [checksums.get(crate)], f"{crate} differs from Cargo.lock"
refs = {it["bom-ref"] for it in sbom["components"]} | {sbom["metadata"]["component"]["bom-ref"]}
assert {it["ref"] for it in sbom["dependencies"]} <= refs, "a dependency names a crate that is not listed"

content = program.read_bytes()
for folder in [Path.home() / ".cargo", Path.cwd()]:
    for text in [content, Path(sys.argv[2]).read_bytes()]:
        assert str(folder).encode() not in text, f"a file contains the path {folder}"
print(f"packaging: supply chain: {len(linked)} crates in {program.name}, {len(components)} in its SBOM")
