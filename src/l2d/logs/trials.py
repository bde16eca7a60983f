"""Two routers side by side: what the log says about the difference of their costs."""

from pathlib import Path

from l2d.logs.databases import reading

SUMS = """
SELECT count(*), coalesce(sum(x), 0), coalesce(sum(x * x), 0) FROM (
    SELECT base + weight * CASE WHEN cost < ? THEN cost ELSE ? END AS x FROM (
        SELECT t.base, t.weight, coalesce(o.loss, 1 - o.correct) + ? * coalesce(o.price, d.price, 0) AS cost
        FROM trials AS t JOIN outcomes AS o ON o.decision_id = t.decision_id JOIN decisions AS d ON d.id = t.decision_id
        WHERE t.candidate = ? AND t.bound = ? AND d.run = ?
    ) AS graded
) AS differences
"""
# Of a decision that two routers had a part in: the candidate, its choice, a bound, base and weight. base + weight·cost estimates
# the cost of its choice less that of the other router's; it is at most ±bound.
Compared = tuple[str, str, float, float, float]


def read_sums(
    address: Path | str, run: str, candidate: str, bound: float, most: float, rate: float
) -> tuple[int, float, float]:
    """The number of decisions with an outcome, the sum of their differences, and that of the squares. most: that a cost counts.
    rate: of a price, in units of one error. Raises LogUnavailable."""
    with reading(address) as database:
        database.execute("BEGIN")
        database.no_limit()
        n, total, squares = database.execute(SUMS, (most, most, rate, candidate, bound, run)).fetchone()
        return int(n), float(total), float(squares)
