"""What the places of files mean."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrtool.errors import SourceError
from tfrtool.sources.folders.class_layout import arrange
from tfrtool.sources.folders.listing import Entry, FolderReader, Listing
from tfrtool.sources.folders.name_pattern import LabelFrom
from tfrtool.sources.items import Source

NAME = LabelFrom.FILENAME


def _arrange(*keys: str, label_from: LabelFrom = LabelFrom.FOLDER) -> Source:
    listing = Listing(entries=[Entry(key, 1) for key in keys], reader=FolderReader(("/r",)))
    return arrange(listing, label_from, "photos")


def _meaning(source: Source) -> dict[str, tuple[str | None, str]]:
    return {item.key: (item.split, item.label) for item in source.items}


def _labels(*keys: str, label_from: LabelFrom = LabelFrom.FOLDER) -> dict[str, str]:
    return {item.key: item.label for item in _arrange(*keys, label_from=label_from).items}


def test_folders_are_classes() -> None:
    """Items come sorted by key, labels sorted; without split folders there are no splits."""
    source = _arrange("dog/1.jpg", "cat/2.jpg", "cat/10.jpg")
    assert [item.key for item in source.items] == ["cat/10.jpg", "cat/2.jpg", "dog/1.jpg"]
    assert source.labels == ("cat", "dog")
    assert source.splits == ()


@pytest.mark.parametrize(
    ("keys", "labels"),
    [
        (("PetImages/Cat/1.jpg", "PetImages/Dog/1.jpg"), ["Cat", "Dog"]),
        (("a/b/c/cat/1.jpg", "a/b/c/dog/1.jpg"), ["cat", "dog"]),
        (("cat/persian/1.jpg", "cat/2.jpg", "dog/3.jpg"), ["cat", "cat", "dog"]),
        (("cat/1.jpg", "cat/2.jpg"), ["cat", "cat"]),
        (("a/cat/1.jpg", "a/cat/2.jpg"), ["cat", "cat"]),
        (("cat/1.jpg", "cat/persian/2.jpg"), ["cat", "cat"]),
        (("cat/persian/1.jpg", "cat/siamese/2.jpg"), ["persian", "siamese"]),
        (("dogs-vs-cats/train/cat/1.jpg", "dogs-vs-cats/train/dog/1.jpg"), ["cat", "dog"]),
        (("cat/1.jpg", "category/1.jpg"), ["cat", "category"]),
        (("train/1.jpg", "train/old/2.jpg"), ["train", "train"]),
    ],
)
def test_folders_around_everything_are_looked_through(
    keys: tuple[str, ...], labels: list[str]
) -> None:
    """The uppermost folders that tell images apart are classes; keys keep the whole path."""
    assert _labels(*keys) == dict(zip(keys, labels, strict=True))


def test_an_image_on_top_of_the_wrapping_folder_makes_it_no_class() -> None:
    """A stray image beside PetImages is rejected, and Cat and Dog stay classes."""
    source = _arrange("logo.png", "PetImages/Cat/1.jpg", "PetImages/Dog/1.jpg")
    assert source.labels == ("Cat", "Dog")
    assert [entry.key for entry in source.rejected] == ["logo.png"]


def test_files_that_are_no_images_say_nothing_about_the_layout() -> None:
    """Papers beside the wrapping folder don't make it a class; they are listed."""
    source = _arrange("docs/readme.txt", "Read.me", "Pets/Cat/1.JPG", "Pets/Dog/1.JpEg")
    assert source.labels == ("Cat", "Dog")
    assert [entry.key for entry in source.ignored] == ["Read.me", "docs/readme.txt"]


def test_split_folders() -> None:
    """Folders of which all are splits are splits, in the usual order, with TFDS' names."""
    source = _arrange(
        "pets/Test/cat/1.jpg",
        "pets/val/dog/2.jpg",
        "pets/training/cat/3.jpg",
        "pets/training/dog/old/4.jpg",
    )
    assert source.splits == ("train", "validation", "test")
    assert _meaning(source) == {
        "pets/Test/cat/1.jpg": ("test", "cat"),
        "pets/val/dog/2.jpg": ("validation", "dog"),
        "pets/training/cat/3.jpg": ("train", "cat"),
        "pets/training/dog/old/4.jpg": ("train", "dog"),
    }


def test_a_class_may_be_called_test() -> None:
    """Where only some folders have names of splits, they are classes."""
    source = _arrange("train/1.jpg", "car/1.jpg", "test/red/1.jpg")
    assert source.labels == ("car", "test", "train")
    assert source.splits == ()
    assert source.notices[0] == "class folders named like splits: 'test', 'train'"
    with pytest.raises(SourceError) as caught:  # another depth would mix them with the others
        _arrange("cat/1.jpg", "dog/1.jpg", "test/cat/2.jpg")
    assert caught.value.hint == "move them out of SOURCE"


def test_a_test_split_without_class_folders_has_no_labels() -> None:
    """Its images are items without a label, and no class is made up; other splits need labels."""
    source = _arrange("train/cat/1.jpg", "train/dog/1.jpg", "test/1.jpg", "val/2.jpg", "odd.jpg")
    assert source.labels == ("cat", "dog")
    assert source.splits == ("train", "test")
    assert _meaning(source)["test/1.jpg"] == ("test", "")
    assert {entry.key: entry.reason for entry in source.rejected} == {
        "val/2.jpg": "not in a class folder",
        "odd.jpg": "not in a split folder",
    }
    assert source.notices[1:] == (
        "split test has no class folders; its images get no label (-1): 1",
    )


@pytest.mark.parametrize(
    ("keys", "meanings"),
    [
        (
            (
                "seg_train/seg_train/sea/1.jpg",
                "seg_test/seg_test/sea/1.jpg",
                "seg_pred/seg_pred/1.jpg",
            ),
            ["train sea", "test sea", "pred "],
        ),
        (
            ("x/Training_Set/car/1.jpg", "x/Test_Set/train/2.jpg", "x/Test_Set/car/2.jpg"),
            ["train car", "test train", "test car"],
        ),
        (
            ("train/A/1.jpg", "test/A/1.jpg", "copy/train/B/2.jpg", "copy/val/B/3.jpg"),
            ["train A", "test A", "train B", "validation B"],
        ),
        (
            ("cat/train/1.jpg", "cat/test/2.jpg", "dog/train/3.jpg"),
            ["train cat", "test cat", "train dog"],
        ),
        (("m/a/train/ok/1.jpg", "m/b/test/bad/2.jpg"), ["train ok", "test bad"]),
        (("train/images/A/1.jpg", "test/images/2.jpg"), ["train A", "test "]),
        (("my/TESTING/A/1.jpg", "my/TESTING/B/2.jpg"), ["test A", "test B"]),
        (
            ("road/car/1.jpg", "road/bus/1.jpg", "rail/train/3.jpg"),
            ["None road", "None road", "None rail"],
        ),
    ],
)
def test_splits_at_any_depth(keys: tuple[str, ...], meanings: list[str]) -> None:
    """Folders that are named like splits are splits wherever they are, unless they are classes."""
    found = _meaning(_arrange(*keys))
    assert [f"{found[key][0]} {found[key][1]}" for key in keys] == meanings


def test_labels_from_names() -> None:
    """The label is what stands before the number, or else before the first separator."""
    names = {
        "cat.0.jpg": "cat",
        "dog-12.png": "dog",
        "cat_7.jpg": "cat",
        "deep/down/cat_8.JPG": "cat",
        "great_pyrenees_12.jpg": "great_pyrenees",
        "cat.0_flipped.jpg": "cat",
        "cat (3).jpg": "cat",
        "cat-asleep.jpg": "cat",
        "猫_7.jpg": "猫",
    }
    source = _arrange(*names, "1.jpg", "_1.jpg", "IMG.jpg", label_from=NAME)
    assert {item.key: item.label for item in source.items} == names
    assert [entry.key for entry in source.rejected] == ["1.jpg", "IMG.jpg", "_1.jpg"]


def test_labels_from_names_in_split_folders() -> None:
    """Split folders give splits with flat names too; a single one is looked through."""
    source = _arrange("a/train/cat.0.jpg", "a/valid/dog.1.jpg", label_from=NAME)
    assert _meaning(source) == {
        "a/train/cat.0.jpg": ("train", "cat"),
        "a/valid/dog.1.jpg": ("validation", "dog"),
    }
    assert _arrange("train/cat.0.jpg", "train/dog.0.jpg", label_from=NAME).splits == ()
    assert len(_arrange("cat.0.jpg", "train/dog.0.jpg", label_from=NAME).items) == 2


@pytest.mark.parametrize("prefix", ["", "train/", "dogs-vs-cats/train/"])
def test_flat_names_get_a_hint(prefix: str) -> None:
    """Flat images are an error that knows the option for such as are named by class."""
    keys = [f"{prefix}{label}.{number}.jpg" for label in ("cat", "dog") for number in range(3)]
    with pytest.raises(SourceError) as caught:
        _arrange(*keys)
    assert "--label-from filename" in str(caught.value.hint)


def test_flat_splits_are_not_taken_for_classes() -> None:
    """Images that lie flat in train/ and test/ have no class."""
    with pytest.raises(SourceError):
        _arrange("train/a.jpg", "test/b.jpg")


@pytest.mark.parametrize(
    ("keys", "label_from"),
    [
        ((), LabelFrom.FOLDER),
        (("cat/readme.txt",), LabelFrom.FOLDER),
        (("1.jpg", "2.jpg"), LabelFrom.FOLDER),
        (("1.jpg",), NAME),
    ],
)
def test_nothing_labelled_is_an_error(keys: tuple[str, ...], label_from: LabelFrom) -> None:
    """A tree without a labelled image is an error that names it."""
    with pytest.raises(SourceError) as caught:
        _arrange(*keys, label_from=label_from)
    assert caught.value.path == "photos"


@pytest.mark.parametrize("label", ["do\ng", " dog", "do\x85g", "\udcff"])
def test_class_name_must_fit_a_line(label: str) -> None:
    """A class that can't be written to label.labels.txt is refused, and the file named."""
    with pytest.raises(SourceError) as caught:
        _arrange("cat/1.jpg", f"{label}/1.jpg")
    assert caught.value.path == f"photos/{label}/1.jpg"
    assert str(caught.value).isprintable()


def test_problems_are_rejected_with_their_reason() -> None:
    """What can't be read is no item, whatever its name."""
    files = [Entry("cat/1.jpg", 1), Entry("cat/2.jpg", problem="gone"), Entry("x", problem="y")]
    listing = Listing(entries=[*files], reader=FolderReader(("/r",)))
    source = arrange(listing, LabelFrom.FOLDER, "photos")
    assert [(entry.key, entry.reason) for entry in source.rejected] == [
        ("cat/2.jpg", "gone"),
        ("x", "y"),
    ]


_NAMES = st.sampled_from(["a", "b", "train", "test", "1.jpg", "b.2.png", "c.txt"])
_KEYS = st.lists(_NAMES, min_size=1, max_size=4).map("/".join)


@given(st.lists(_KEYS, unique=True, max_size=12), st.sampled_from(LabelFrom), st.integers())
def test_every_file_is_accounted_for(keys: list[str], label_from: LabelFrom, seed: int) -> None:
    """Each file is an item, rejected or ignored, and once; the order of listing is nothing."""
    shuffled = keys.copy()
    random.Random(seed).shuffle(shuffled)
    try:
        source = _arrange(*keys, label_from=label_from)
    except SourceError:
        with pytest.raises(SourceError):
            _arrange(*shuffled, label_from=label_from)
        return
    assert source == _arrange(*shuffled, label_from=label_from)
    groups = (source.items, source.rejected, source.ignored)
    assert sorted(entry.key for group in groups for entry in group) == sorted(keys)
