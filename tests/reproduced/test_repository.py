"""The address of the repository is found, never invented."""

import subprocess

import pytest

from reproduced.repository import public_address


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A function that makes a checkout with a remote `origin`, outside CI."""
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)

    def make(origin):
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
        subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", origin], check=True)
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ("https://github.com/some/book.git", "https://github.com/some/book"),
        ("https://token@github.com/some/book", "https://github.com/some/book"),
        ("git@github.com:some/book.git", "https://github.com/some/book"),
        ("ssh://git@git.example.org/some/my.book", "https://git.example.org/some/my.book"),
        ("/home/me/book", ""),
        ("file:///home/me/book", ""),
    ],
)
def test_a_web_address_is_taken_from_the_remote(checkout, origin, address):
    assert public_address(checkout(origin)) == address


def test_ci_says_the_address(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", "some/book")
    assert public_address(tmp_path) == "https://github.com/some/book"


def test_a_folder_without_a_remote_has_none(tmp_path, monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert not public_address(tmp_path)
