"""Debian's packages: what is installed, installing the rest as root, and the mirror this machine uses.

Counterpart: the steps that need a system package. Never writes down a mirror's address: apt is asked for it.
"""

import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from build_tools.errors import StepError
from build_tools.progress import apt_progress
from build_tools.run import run_command
from build_tools.steps import StepRun

QUIET = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
"""Environment in which apt and dpkg ask nothing."""

_WAIT = ("-o", "DPkg::Lock::Timeout=120")
"""Another apt, such as the system's own daily one, is waited for: two minutes at most."""

INSTALL = (
    *("apt-get", "install", "--yes", "--no-install-recommends", "--fix-broken", "-q"),
    *(*_WAIT, "-o", "APT::Status-Fd=1"),
)
"""Command that installs packages, and what an interrupted run of itself left out; reports its progress for
`apt_progress`."""

UPDATE = ("apt-get", "update", "-q", *_WAIT)
"""Command that fetches the lists of packages."""

CONTINUE = ("dpkg", "--force-confdef", "--force-confold", "--configure", "--pending")
"""Command that ends what an interrupted installation began; until then apt refuses to install anything."""

_TARGET_FORMAT = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(RELEASE)|$(SIGNED_BY)|$(REPO_URI)"


@dataclass(frozen=True)
class Mirror:
    """Where the system's own Debian archive comes from. keyring: file of its keys, "" for apt's default."""

    address: str
    keyring: str


def is_debian_like() -> bool:
    """Whether apt manages this system."""
    return shutil.which("apt-get") is not None and shutil.which("dpkg-query") is not None


def missing_packages(packages: Sequence[str]) -> list[str]:
    """Those of the packages that are not installed, in the order given."""
    query = ("dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *packages)
    lines = run_command(query, check=False, keep_stderr=False).output.splitlines()
    installed = {line.split()[0] for line in lines if line.endswith(" installed")}
    return [package for package in packages if package not in installed]


def ensure_apt_packages(run: StepRun, packages: Sequence[str], purpose: str) -> None:
    """Installs the packages that are missing.

    purpose: what they are for, as the end of "… needed for".
    Raises StepError with the exact command to type, where this process may not install packages.
    """
    if not is_debian_like():
        names = ", ".join(packages)
        raise StepError(
            f"{names} (Debian's names) needed for {purpose}; this system has no apt to install them with",
            hint=f"install what corresponds to {names} with this system's package manager",
        )
    if not (missing := missing_packages(packages)):
        return
    by_hand = f"apt-get update && apt-get install --yes --no-install-recommends {shlex.join(missing)}"
    if os.geteuid() != 0:
        raise StepError(
            f"{', '.join(missing)} needed for {purpose}, and only root can install packages",
            hint=f"sudo sh -c '{by_hand}'",
        )
    run.progress(f"installing {', '.join(missing)}")
    # Refused while another dpkg runs; the installation then waits for that one.
    run.run(CONTINUE, env=QUIET, check=False)
    if run.run([*INSTALL, *missing], env=QUIET, parse=apt_progress, check=False).returncode == 0:
        return
    # Either the package lists were never fetched (as in container images) or they are too old.
    run.run(UPDATE, env=QUIET, hint="check the network and /etc/apt/sources.list")
    run.run([*INSTALL, *missing], env=QUIET, parse=apt_progress, hint=by_hand)


def system_mirror(run: StepRun) -> Mirror:
    """The mirror of Debian's main archive that this machine is configured to use."""
    query = ("apt-get", "indextargets", "--format", _TARGET_FORMAT, "Created-By: Packages")
    mirror = parse_index_targets(run_command(query, keep_stderr=False).output)
    if mirror is None:
        # An archive's origin is known to apt only after an update.
        run.run(UPDATE, env=QUIET, hint="check the network and /etc/apt/sources.list")
        mirror = parse_index_targets(run_command(query, keep_stderr=False).output)
    if mirror is None:
        raise StepError("apt on this machine knows no mirror of Debian's main archive")
    return mirror


def parse_index_targets(output: str) -> Mirror | None:
    """The first main archive of Debian among apt's index targets; None if there is none.

    output: lines of ORIGIN|LABEL|COMPONENT|RELEASE|SIGNED_BY|REPO_URI. Third parties publish a "bookworm
    main" too, and Debian's security and updates archives are incomplete: origin and label tell them apart.
    """
    for line in output.splitlines():
        origin, label, component, release, keyring, address = line.split("|", 5)
        if (origin, label, component) != ("Debian", "Debian", "main") or "-" in release:
            continue
        return Mirror(address.rstrip("/"), keyring if keyring.startswith("/") else "")
    return None


def acquire_settings(dump: str) -> list[str]:
    """How this machine reaches its mirrors (proxies, certificates, date checks): lines for another apt.conf.

    dump: the output of `apt-config dump Acquire`.
    """
    kept = (
        "Acquire::http::",
        "Acquire::https::",
        "Acquire::Check-",
        "Acquire::Retries",
        "Acquire::ForceIPv4",
    )
    return [line for line in dump.splitlines() if line.startswith(kept) and not line.endswith(' "";')]
