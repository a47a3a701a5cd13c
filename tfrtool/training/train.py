"""Training: a dataset of shards becomes a trained model."""

from dataclasses import replace

from tfrtool.declare import takes
from tfrtool.training.compare import comparable_runs, compare_recipes
from tfrtool.training.run_record import resumed
from tfrtool.training.train_options import TrainOptions
from tfrtool.training.train_report import TrainReport
from tfrtool.training.train_run import run_here


@takes(TrainOptions, make=resumed)
def train(options: TrainOptions) -> TrainReport:
    """Train an image classifier on a dataset: ``tfrtool.train("shards", model="cnn")``.

    Args:
        dataset: dataset directory, glob pattern or list of shards, or an open dataset. None to
            take the one in ``run.json`` of a run that is resumed, if it is below the directory of
            the run. Every other option that is not passed is read from that record, too, but no
            code and no path outside the directory.

    Returns:
        The settings of the run and the result of each epoch.

    Raises:
        UsageError: an option is unknown, or does not fit other options, the dataset or the run to
            resume.
        DatasetError: the dataset can't be trained on, or the checkpoint can't be used.
        CorruptShardError: a shard is damaged; the error names the record.
        TrainingError: the loss is not finite, and the checkpoint of the previous epoch is kept; or
            the model can't be exported, and the model itself is kept.
        WeightsError: the weights can't be loaded or downloaded.
        WriteError: a file can't be written.
    """
    return train_with(options)


def train_with(options: TrainOptions) -> TrainReport:
    """Train by options that are complete."""
    if not options.compare:
        return run_here(options)
    runs = comparable_runs(options)
    report = run_here(options)
    compared, skipped = compare_recipes(options, runs, report.plan.cache)
    return replace(report, compared=compared, compare_skipped=skipped)
