from l2d.utils.text import aligned


def test_the_first_column_goes_left_and_the_others_right() -> None:
    assert aligned(["a", "bcd"], [["long", "1"], ["x", "12345"]]).split("\n") == [
        "a       bcd",
        "-----------",
        "long      1",
        "x     12345",
    ]
    assert aligned(["a", "b"], []) == "a  b\n----"
