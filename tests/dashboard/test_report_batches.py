"""A report of a group that holds several batches says where one device overtakes the other, with its figure."""

from dashboard.report_content import content
from experiments.settings import Settings
from tests.experiments.test_batch_curve_command import SPEEDS, TITLE
from tests.support.timed_runs import GPU, TAGS, repeats
from training.spec import RunSpec


def test_a_sweep_is_one_section_with_its_figure_and_table(settings: Settings) -> None:
    for device, speeds in SPEEDS.items():
        for batch, speed in speeds.items():
            spec = RunSpec(dataset="synthetic", epochs=4, device=device, global_batch_size=batch, group="sweep")
            repeats(settings, spec, speed, GPU if device == "gpu" else TAGS)

    (section,) = [each for each in content(settings, "sweep").speedups if each.heading.startswith("Batch size")]

    assert (section.heading, section.title) == ("Batch size against throughput: CPU, GPU", TITLE)
    assert section.figures[0].layout.title.text == TITLE
    (table,) = section.tables
    assert table["device"].tolist() == ["CPU"] * 3 + ["GPU"] * 3
    assert table["batch per replica"].tolist() == [8, 32, 128] * 2
    assert table["examples/s"][0].startswith("1,000 (9")
    assert section.command.endswith("--by='batch size' --group=sweep")
