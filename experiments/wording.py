"""Numbers in words, as every room below a person's eyes says them."""


def count(value: int, singular: str, plural: str = "") -> str:
    """`1 run`, `1,500 runs`."""
    return f"{value:,} {singular if value == 1 else plural or singular + 's'}"
