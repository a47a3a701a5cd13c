"""Open what ``--annotations`` names."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from pathlib import Path
from pkgutil import resolve_name

from tfrtool.errors import UsageError
from tfrtool.sources.annotations.annotation_kinds import KINDS
from tfrtool.sources.annotations.annotation_reader import (
    AnnotationReader,
    AnnotationRequest,
    ParsedImage,
    check_splits,
    number_classes,
    split_in_name,
)
from tfrtool.sources.items import LeftOut
from tfrtool.sources.source_options import SourceOptions
from tfrtool.storage.remote_path import AnyPath


def open_annotations(
    options: SourceOptions, images: Path | None, scratch: Path, root: AnyPath | None = None
) -> AnnotationReader:
    """Return what reads annotations; their files are opened when images are asked for.

    Args:
        options: which have kinds and paths.
        images: the folder of images, if SOURCE is one.
        scratch: a folder for what is too much for memory.
        root: a second folder for the files of kinds that take one.
    """
    paths_by_kind = dict[str, list[str]]()
    for argument in options.annotations or ():
        kind, _, path = argument.partition(":")
        paths_by_kind.setdefault(kind, []).append(path)
    if root is not None and not any(KINDS[kind].takes_root for kind in paths_by_kind):
        arguments = " or ".join(kind.argument for kind in KINDS.values() if kind.takes_root)
        raise UsageError(f"--root requires a table, or --annotations {arguments}", path=root)
    readers = dict[AnyPath, AnnotationReader]()
    for kind, paths in paths_by_kind.items():
        request = AnnotationRequest(
            paths=paths,
            images=images,
            scratch=scratch,
            options=options,
            root=root if KINDS[kind].takes_root else None,
        )
        open_readers: Callable[[AnnotationRequest], Mapping[AnyPath, AnnotationReader]]
        open_readers = resolve_name(f"{KINDS[kind].reader}.open")
        readers |= open_readers(request)
    return _SeveralReaders(readers) if len(readers) > 1 else next(iter(readers.values()))


class _SeveralReaders(AnnotationReader):
    def __init__(self, readers: Mapping[AnyPath, AnnotationReader]) -> None:
        super().__init__()
        self._readers = readers

    def images(self) -> Iterator[ParsedImage | LeftOut]:
        """Yield all images; a path whose images have no splits may have one in its name."""
        splits = dict[AnyPath, str | None]()
        started = [(path, reader, reader.images()) for path, reader in self._readers.items()]
        firsts = [next(images, None) for *_, images in started]  # now the classes are known
        for (path, reader, images), first in zip(started, firsts, strict=True):
            for image in chain([] if first is None else [first], images):
                if isinstance(image, ParsedImage) and image.problem is None:
                    image = image._replace(split=image.split or split_in_name(path.name))
                    splits[path] = splits.get(path, image.split) and image.split
                yield image
            self.notices += reader.notices
            self.ignored.merge(reader.ignored)
            self.skeletons = reader.skeletons | self.skeletons
            self.optional |= reader.optional
            self.used |= reader.used
        check_splits(splits)

    def classes(self) -> Mapping[str, int]:
        """Return the classes of all readers, numbered from 1 if their numbers differ."""
        numbered = [*chain.from_iterable(one.classes().items() for one in self._readers.values())]
        merged = dict(numbered)
        agree = all(merged[name] == number for name, number in numbered)
        if agree and len({*merged.values()}) == len(merged):
            return dict(sorted(merged.items(), key=itemgetter(1)))
        self.notices.append(
            "annotations number classes differently; classes are renumbered 1, 2, ..."
        )
        return number_classes(merged, next(iter(self._readers)))
