"""Hashes that change with what they cover, writes that are whole or absent, locks between processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from build_tools.errors import StepError
from build_tools.files import (
    content_hash,
    copy_atomically,
    file_sha256,
    lock,
    remove_folder,
    write_atomically,
)


def test_file_sha256_of_known_bytes(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_sha256(tmp_path / "abc") == expected


def test_content_hash_changes_with_content_name_presence_and_facts(tmp_path: Path) -> None:
    folder = tmp_path / "native"
    folder.mkdir()
    (folder / "a.cpp").write_text("1")
    (folder / "b.cpp").write_text("2")
    seen = {content_hash(tmp_path, [folder])}

    (folder / "a.cpp").write_text("3")
    seen.add(content_hash(tmp_path, [folder]))
    (folder / "a.cpp").rename(folder / "c.cpp")
    seen.add(content_hash(tmp_path, [folder]))
    (folder / "b.cpp").unlink()
    seen.add(content_hash(tmp_path, [folder]))
    seen.add(content_hash(tmp_path, [folder], "-O2"))
    assert len(seen) == 5


def test_content_hash_ignores_where_the_clone_is_and_bytecode(tmp_path: Path) -> None:
    hashes = set()
    for clone in (tmp_path / "one", tmp_path / "two"):
        (clone / "native").mkdir(parents=True)
        (clone / "native" / "a.cpp").write_text("1")
        hashes.add(content_hash(clone, [clone / "native"]))
    (tmp_path / "two" / "native" / "__pycache__").mkdir()
    (tmp_path / "two" / "native" / "__pycache__" / "x.pyc").write_text("")
    hashes.add(content_hash(tmp_path / "two", [tmp_path / "two" / "native"]))
    assert len(hashes) == 1


def test_write_atomically_replaces_and_leaves_nothing_beside(tmp_path: Path) -> None:
    target = tmp_path / "new" / "stamp"
    write_atomically(target, "one")
    write_atomically(target, b"two")
    assert target.read_text() == "two"
    assert list(target.parent.iterdir()) == [target]


def test_a_failed_copy_keeps_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    with pytest.raises(FileNotFoundError):
        copy_atomically(tmp_path / "absent", target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_remove_folder_refuses_while_something_is_mounted_inside(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    (folder / "proc").mkdir(parents=True)
    table = tmp_path / "mountinfo"
    mounted = str(folder / "proc").replace(" ", "\\040")
    table.write_text(f"22 1 0:21 / / rw - ext4 /dev/vda rw\n30 22 0:4 / {mounted} rw - proc proc rw\n")
    with pytest.raises(StepError, match="is mounted in it"):
        remove_folder(folder, table)
    assert (folder / "proc").is_dir()

    table.write_text("22 1 0:21 / / rw - ext4 /dev/vda rw\n")
    remove_folder(folder, table)
    assert not folder.exists()
    remove_folder(folder, table)


HOLDER = """
import sys
from pathlib import Path
from build_tools.files import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
    Path(sys.argv[2]).write_text("first")
"""


def test_lock_waits_for_another_process_and_says_so(tmp_path: Path) -> None:
    path, mark = tmp_path / "locks" / "item.lock", tmp_path / "mark"
    told: list[str] = []
    argv = [sys.executable, "-c", HOLDER, str(path), str(mark)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        stdin = holder.stdin

        def release(text: str) -> None:
            told.append(text)
            assert not mark.exists()
            stdin.write("\n")
            stdin.flush()

        with lock(path, release):
            assert mark.read_text() == "first"
    assert len(told) == 1
    assert str(path) in told[0]


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "item.lock"
    argv = [sys.executable, "-c", HOLDER, str(path), str(tmp_path / "mark")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
        holder.wait()
        with lock(path, lambda text: pytest.fail(text)):
            pass
