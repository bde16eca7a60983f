from l2d.utils.text import aligned, counted, listed


def test_the_first_column_goes_left_and_the_others_right() -> None:
    lines = ["a       bcd", "-----------", "long      1", "x     12345"]
    assert aligned(["a", "bcd"], [["long", "1"], ["x", "12345"]]).split("\n") == lines
    assert aligned(["a", "b"], []) == "a  b\n----"


def test_counts_and_lists() -> None:
    assert [counted(n, "row") for n in (0, 1, 2, 2000)] == ["0 rows", "1 row", "2 rows", "2,000 rows"]
    twelve = ", ".join(map(str, range(12)))
    assert listed(range(12)) == twelve
    assert listed(range(13)) == f"{twelve} and 1 more"
    assert listed(range(2000), 2) == "0, 1 and 1,998 more"
    assert listed(["a"]) == "a"
