"""`python -m dashboard.report`: one HTML file about a group of runs, which needs neither a server nor a network.

Every text reaches the page through Jinja's autoescape or as JSON in a data block; the file forbids itself, by its
Content-Security-Policy, to fetch anything and to run any script but its own two.
"""

import argparse
import base64
import hashlib
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from dashboard.report_content import Content, content
from experiments.analysis.comparable import NotThereError
from experiments.questions import UnknownGroupError
from experiments.queue import UnknownRun
from experiments.settings import Settings, SettingsError

ASSETS = Path(__file__).parent / "assets"
DRAW = (ASSETS / "report.js").read_text(encoding="utf-8")


def render(found: Content, written: datetime) -> str:
    """The whole file.

    Args:
        found: what the report says.
        written: when, with a time zone.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    scripts = [get_plotlyjs(), DRAW]
    page = environment.get_template("report.html.j2").render(
        report=found,
        written=f"{written:%Y-%m-%d %H:%M %Z}",
        scripts=[Markup(script) for script in scripts],
        hashes=[_hash(script) for script in scripts],
        style=Markup((ASSETS / "report.css").read_text(encoding="utf-8")),
        as_json=lambda figure: Markup(_data(figure.to_json())),
    )
    return page


def _hash(script: str) -> str:
    """A script as the Content-Security-Policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _data(text: str) -> str:
    """JSON that cannot end the block it stands in."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def write(page: str, file: Path) -> None:
    """Writes the file whole or not at all."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, suffix=".part", delete=False) as part:
        part.write(page)
    written = Path(part.name)
    try:
        written.chmod(0o644)
        written.replace(file)
    except OSError:
        written.unlink(missing_ok=True)
        raise


def main(arguments: list[str] | None = None) -> int:
    """Writes a report. Exit code 2, and one line on stderr, when it cannot."""
    parser = argparse.ArgumentParser(prog="python -m dashboard.report", allow_abbrev=False)
    parser.add_argument("--group", required=True)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--put-back", action="append", default=[])
    options = parser.parse_args(arguments)
    try:
        settings = Settings.from_environment().prepare()
        found = content(settings, options.group, frozenset(options.put_back))
        write(render(found, datetime.now(UTC)), options.output)
    except (SettingsError, UnknownGroupError, UnknownRun, NotThereError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
