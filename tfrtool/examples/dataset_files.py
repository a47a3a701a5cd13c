"""Which files each split has of what a user names, and which are missing or left aside."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tfrtool.errors import ShardError, os_errors_as, printable
from tfrtool.examples.tfds_metadata import DatasetInfo, info_beside
from tfrtool.records.shard_sets import ShardSet, group_shards
from tfrtool.records.shards import find_folders, locate_shards, note_unmatched
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.remote_path import AnyPath


@dataclass(slots=True)
class SplitFiles:
    """The files of a split.

    Attributes:
        shards: those that are there, in order, and how many records the metadata says each has.
        expected: how many records it has by the metadata; None where that doesn't say.
        missing: the files that are not there, the first `MISSING_NAMED` of each set.
        n_missing: how many these are.
        extra: files that have no place by the metadata, or else by the names of the others.
    """

    shards: dict[AnyPath, int | None] = field(default_factory=dict)
    expected: int | None = None
    missing: list[AnyPath] = field(default_factory=list)
    n_missing: int = 0
    extra: list[AnyPath] = field(default_factory=list)

    def add(self, shard_set: ShardSet, lengths: Sequence[int] = ()) -> None:
        """Add what there is of a set that has to be whole."""
        for index, path in shard_set.shards.items():
            if shard_set.count is None or index < shard_set.count:
                self.shards[path] = lengths[index] if lengths else None
        if lengths:
            self.expected = (self.expected or 0) + sum(lengths)
        if n_missing := shard_set.n_missing:
            self.missing += (shard_set.directory / name for name in shard_set.missing)
            self.n_missing += n_missing
        self.extra += (path for path in shard_set.paths if path not in self.shards)


@dataclass(slots=True)
class DatasetFiles:
    """The files of datasets, or some that were named.

    Attributes:
        splits: by name.
        sets: all files, as their names say it; also those that are in no split.
        folders: where they are, and their metadata; of a dataset one, whatever folders are in it.
        info: what the metadata of the dataset says; None where there is none that can be read.
        notes: how datasets were found, a sentence each.
    """

    splits: dict[str, SplitFiles] = field(default_factory=dict)
    sets: list[ShardSet] = field(default_factory=list)
    folders: list[AnyPath] = field(default_factory=list)
    info: DatasetInfo | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def paths(self) -> list[AnyPath]:
        """The files of all splits."""
        return [path for split in self.splits.values() for path in split.shards]

    @property
    def aside(self) -> list[AnyPath]:
        """The files that are in no split."""
        used = {*self.paths}
        return [path for one in self.sets for path in one.paths if path not in used]


def find_files(
    sources: Paths,
    named: Callable[[str], str] = str,
    look: Callable[[AnyPath], Sequence[AnyPath]] = lambda _: (),
) -> DatasetFiles:
    """Find the shards of datasets' directories, patterns and files, by split.

    Of a directory the metadata says which they are; without it, the names of files and folders do.
    What is named otherwise is taken as it is. The same split of several sources is one.

    Args:
        sources: one, or several.
        named: gives a split its name; "" is that of files which say none.
        look: returns files that a source means in place of shards, if it does.

    Raises:
        ShardError: a source means no file at all.
        DatasetError: a directory has no shards, or they are being replaced.
    """
    found = DatasetFiles()

    def split(name: str | None) -> SplitFiles:
        return found.splits.setdefault(named(name or ""), SplitFiles())

    arguments = as_paths(sources)
    for path in arguments:
        with os_errors_as(ShardError, path):
            files, is_folder = look(path), path.is_dir()
        if files or not is_folder:
            sets = group_shards(files or locate_shards(path).paths)
            for one in sets:
                if is_folder:
                    split(one.split).add(one)
                else:
                    split(one.split).shards.update(dict.fromkeys(one.paths))
            found.folders += dict.fromkeys(one.directory for one in sets)
        else:
            root, shards, notes = find_folders(path)
            sets, info = group_shards(shards), info_beside(root)
            if info is None or not info.splits:
                for shard_set in sorted(sets, key=lambda each: each.split_below(root) or ""):
                    split(shard_set.split_below(root)).add(shard_set)
            else:
                for split_info in info.splits:
                    chosen = info.shards_of(split_info, sets, root)
                    split_files = split(split_info.name)
                    split_files.add(chosen, split_info.shard_lengths)
                    others = (
                        one for one in sets if one.split == split_info.name and one is not chosen
                    )
                    split_files.extra += (path for one in others for path in one.paths)
            found.folders.append(root)
            found.info = info
            found.notes += (f"{printable(str(path))}: {note}" for note in notes)
        found.sets += sets
    taken = {shard for one in found.splits.values() for shard in (*one.shards, *one.extra)}
    found.notes += note_unmatched(arguments, taken)
    return found
