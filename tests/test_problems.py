"""What the tests stand on: data are found, and where they are missing nothing passes in silence."""

import pytest
from problems import data_file


def test_data_are_read_where_the_variable_says(tmp_path, monkeypatch):
    (tmp_path / "votes").mkdir()
    (tmp_path / "votes" / "a.csv").write_text("a,b\n")
    monkeypatch.setenv("GBT_JAX_DATA", str(tmp_path))
    assert data_file("votes/a.csv").read_text() == "a,b\n"


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)]
)
def test_missing_data_fail_in_ci_and_skip_elsewhere(ci, outcome, tmp_path, monkeypatch):
    monkeypatch.setenv("GBT_JAX_DATA", str(tmp_path))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match=r"there is no .*votes.*: set GBT_JAX_DATA to the folder"):
        data_file("votes/a.csv")
