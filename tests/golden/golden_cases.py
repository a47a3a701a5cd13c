"""The cases of golden files: commands, run in order in a folder that `test_golden` fills.

In that folder are `photos` (six cats, six dogs, and a table of four of them), `more` (two of each;
also as `more.zip`), `bad` (one cat is a PNG, one dog is truncated), `pets` (the photos as a dataset
of two splits) and `fixtures`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

__all__ = ["CASES", "Case"]

Varies: TypeAlias = Literal["files", "payloads"] | None


class Case(NamedTuple):
    """A name, and commands of tfrtool and of a shell.

    ``varies`` is what differs between versions of libraries: the bytes of compressed files and of
    other formats (``files``), or also those of records, with re-encoded images (``payloads``).
    """

    name: str
    commands: tuple[str, ...]
    tf: bool
    varies: Varies


def _case(name: str, commands: str, *, varies: Varies = None) -> Case:
    lines = tuple(line.strip() for line in commands.strip().splitlines())
    tf = name.startswith(("write", "training")) or name == "append_images"
    return Case(name, lines, tf, varies)


_DAMAGED, _GOLDEN = "fixtures/damaged", "fixtures/golden"

CASES = (
    _case(
        "write_folders",
        """
        tfrtool write photos out --split train=0.5 --split test=0.5 --seed 3 --shards 2
        tfrtool write photos out
        tfrtool write photos out --no-shuffle --shards 3 --overwrite
        """,
    ),
    _case(
        "write_dry_run",
        """
        tfrtool write photos out --dry-run
        tfrtool write photos out --split train=0.7 --split test=0.3 --stratify --dry-run
        tfrtool write photos out --shard-size 8KB --dry-run
        """,
    ),
    _case(
        "write_table",
        """
        tfrtool write photos/labels.csv out --column age:int64
        tfrtool write photos/labels.csv tfod --layout tfod --label-column age --labels keep
        """,
    ),
    _case(
        "write_dedupe",
        """
        cp photos/cat/cat-000.jpg photos/cat/copy.jpg
        cp photos/dog/dog-001.jpg photos/dog/copy.jpg
        tfrtool write photos out --dedupe --stratify --split train=0.5 --split test=0.5
        """,
    ),
    _case(
        "write_bad",
        """
        tfrtool write bad out
        tfrtool write bad stopped --on-error stop
        """,
        varies="payloads",
    ),
    _case(
        "write_zip",
        """
        tfrtool write more.zip out --name zoo --version 2.0.0
        tfrtool write more.zip packed --compression gzip
        """,
        varies="files",
    ),
    _case(
        "write_coco",
        """
        cp -r fixtures/scenes .
        tfrtool write scenes/images out --annotations coco:scenes/coco.json --shards 2
        tfrtool extract out back --annotations coco
        """,
    ),
    _case(
        "write_errors",
        """
        tfrtool write none out
        tfrtool write photos out --shards 0
        tfrtool write photos out --shards 20
        tfrtool write photos out --split train=0.5
        tfrtool write photos out --split train=0.5 --split train=0.5
        tfrtool write photos out --shards 2 --shard-size 1MB
        tfrtool write photos out --engine cluster
        tfrtool write photos/labels.csv out --column weight
        tfrtool write photos out --annotations voc:none
        """,
    ),
    _case(
        "append_images",
        """
        tfrtool append pets more --out both
        tfrtool write more new --labels pets/label.labels.txt
        tfrtool append pets new --out both
        """,
    ),
    _case(
        "append_records",
        """
        tfrtool filter pets some --where "label = 0"
        tfrtool append pets some --out both --version 1.2.0 --dry-run
        tfrtool append pets some --out both --version 1.2.0
        tfrtool append pets some --out both
        tfrtool append pets some --out new --split test --workers 1
        tfrtool append pets some
        tfrtool append none some --out third
        tfrtool append pets some --out third --version 1
        tfrtool append pets fixtures/golden/plain.tfrecord --out third
        """,
    ),
    _case(
        "convert_tables",
        """
        tfrtool convert pets rows.parquet --dry-run
        tfrtool convert pets table --to parquet --workers 1
        tfrtool convert pets rows.jsonl
        tfrtool convert 'pets/*-train*' rows.jsonl --select label,image/filename --workers 1
        tfrtool convert 'pets/*-train*' kinds.csv --select label --rename label=kind --workers 1
        tfrtool convert rows.jsonl back --workers 1
        tfrtool convert kinds.csv kinds --workers 1
        tfrtool convert photos/labels.csv typed --cast age:float32 --workers 1
        """,
        varies="files",
    ),
    _case(
        "convert_datasets",
        """
        tfrtool convert pets hf --to hf --workers 1
        tfrtool convert pets wds --to webdataset --shards 1 --workers 1
        tfrtool convert pets arrays --to arrayrecord --workers 1
        """,
        varies="files",
    ),
    _case(
        "convert_exact",
        """
        tfrtool convert pets kept --to parquet --exact --verify bytes --workers 1
        tfrtool convert kept back --name pets --shards 2 --verify bytes --workers 1
        tfrtool diff pets back
        """,
        varies="files",
    ),
    _case(
        "convert_errors",
        f"""
        tfrtool convert none out --to parquet
        tfrtool convert pets rows.parquet --select size
        tfrtool convert pets rows.csv
        tfrtool convert pets out --to jsonl --cast label:int32
        tfrtool convert {_DAMAGED}/payload-bit.tfrecord bit.jsonl
        tfrtool convert {_DAMAGED}/payload-bit.tfrecord stop.jsonl --on-error stop
        tfrtool convert {_DAMAGED}/web-page.tfrecord page.jsonl
        """,
    ),
    _case(
        "reshard",
        """
        tfrtool reshard pets one --shards 1 --dry-run
        tfrtool reshard pets one --shards 1
        tfrtool reshard pets random --shuffle --seed 7 --shards 2
        tfrtool reshard pets named --name zoo --version 3.0.0
        """,
    ),
    _case(
        "reshard_compressed",
        """
        tfrtool reshard pets packed --compression gzip
        tfrtool reshard packed plain
        """,
        varies="files",
    ),
    _case(
        "reshard_splits",
        """
        tfrtool reshard pets new --split train=0.5 --split test=0.5 --stratify label
        tfrtool reshard pets new --split a=0.25 --split b=0.75 --seed 5 --shuffle --overwrite
        tfrtool reshard pets other --split a=0.5 --split b=0.5 --group-by image/filename
        """,
    ),
    _case(
        "reshard_errors",
        f"""
        tfrtool reshard none out
        tfrtool reshard pets out --shards 0
        tfrtool reshard pets out --shards 9
        tfrtool reshard pets out --split train=0.7
        tfrtool reshard pets out --split train=0.7 --split test=0.3 --stratify color
        tfrtool reshard pets fixtures/golden/plain.tfrecord out
        tfrtool reshard {_DAMAGED}/payload-bit.tfrecord stopped --on-error stop
        tfrtool reshard {_DAMAGED}/payload-bit.tfrecord out
        tfrtool reshard {_DAMAGED}/cut-in-payload.tfrecord cut
        """,
    ),
    _case(
        "filter",
        """
        tfrtool filter pets cats --where "label = 0" --dry-run
        tfrtool filter pets cats --where "label = 0"
        tfrtool filter pets four --sample 4 --seed 2
        tfrtool filter pets share --where "label = 1" --sample 50% --shards 1
        """,
    ),
    _case(
        "filter_lists",
        """
        printf 'pets-train.tfrecord-00000-of-00002 1\\npets-test.tfrecord-00001-of-00002 0\\n' > two
        tfrtool filter pets kept --keep two
        tfrtool filter pets dropped --drop two
        cat pets/*-train* pets/*-test* pets/*-train* > twice.tfrecord
        tfrtool filter twice.tfrecord deduped --dedupe
        """,
    ),
    _case(
        "filter_errors",
        f"""
        tfrtool filter none out --sample 1
        tfrtool filter pets out
        tfrtool filter pets out --where "color = 1"
        tfrtool filter pets out --where "label ="
        tfrtool filter pets out --where "label = 5"
        tfrtool filter pets out --sample 0
        tfrtool filter pets out --sample 200%
        tfrtool filter pets out --keep none.txt
        printf 'nowhere 1\\n' > list
        tfrtool filter pets out --drop list
        tfrtool filter {_DAMAGED}/payload-bit.tfrecord out --sample 2
        """,
    ),
    _case(
        "edit",
        """
        tfrtool edit pets out --drop image --rename label=kind --add source=kaggle --dry-run
        tfrtool edit pets out --drop image --rename label=kind --add source=kaggle
        tfrtool edit pets typed --select label --cast label=float32 --add 'weight:float32=0.5'
        """,
    ),
    _case("edit_resize", "tfrtool edit pets out --resize 24x20 --encode jpeg", varies="payloads"),
    _case(
        "edit_errors",
        f"""
        tfrtool edit none out --drop a
        tfrtool edit pets out
        tfrtool edit pets out --drop color
        tfrtool edit pets out --select label --drop label
        tfrtool edit pets out --rename label=image
        tfrtool edit pets out --cast image/filename=int64
        tfrtool edit pets out --cast label=int32
        tfrtool edit pets out --add weight:float32=heavy
        tfrtool edit pets out --resize 0
        tfrtool edit {_DAMAGED}/payload-bit.tfrecord out --add a=b
        tfrtool edit {_DAMAGED}/payload-bit.tfrecord skipped --add a=b --on-error skip
        """,
    ),
    _case(
        "diff",
        """
        tfrtool reshard pets same --shuffle --shards 1 --workers 1
        tfrtool diff pets same
        tfrtool filter pets cats --where "label = 0"
        tfrtool diff pets cats --limit 2
        tfrtool edit pets changed --rename label=kind --add source=kaggle
        tfrtool diff pets changed --key image/filename --limit 1
        tfrtool reshard pets moved --split train=0.5 --split test=0.5
        tfrtool diff pets moved --key image/filename
        tfrtool diff pets none
        tfrtool diff pets cats --key color
        tfrtool diff pets cats --limit -1
        """,
    ),
    _case(
        "repair",
        f"""
        tfrtool repair {_DAMAGED}/payload-bit.tfrecord bit.tfrecord
        tfrtool repair {_DAMAGED}/cut-in-payload.tfrecord cut.tfrecord
        tfrtool repair {_DAMAGED}/inserted-bytes.tfrecord inserted.tfrecord
        tfrtool repair {_DAMAGED}/two-lengths.tfrecord lengths.tfrecord
        tfrtool repair {_DAMAGED}/web-page.tfrecord page.tfrecord
        tfrtool repair fixtures/golden/plain.tfrecord plain.tfrecord
        tfrtool repair fixtures/golden/plain.tfrecord plain.tfrecord
        tfrtool repair none.tfrecord out.tfrecord
        """,
    ),
    _case(
        "repair_compressed",
        f"""
        tfrtool repair {_DAMAGED}/bad-block.tfrecord.gz block.tfrecord.gz
        tfrtool repair {_DAMAGED}/cut.tfrecord.gz cut.tfrecord.gz
        """,
        varies="files",
    ),
    _case(
        "extract",
        f"""
        tfrtool extract pets out
        tfrtool extract pets flat --flat --limit 3
        tfrtool extract pets named --by image/filename --name label --limit 2
        tfrtool extract pets split --by image/filename --limit 2
        tfrtool extract pets out
        tfrtool extract none new
        tfrtool extract pets new --feature color
        tfrtool extract pets new --limit 0
        tfrtool extract {_DAMAGED}/payload-bit.tfrecord new --feature image
        """,
    ),
    _case(
        "count",
        f"""
        tfrtool count pets
        tfrtool count fixtures/golden/plain.tfrecord fixtures/golden/plain.tfrecord.gz
        tfrtool count {_DAMAGED}/length-bit.tfrecord {_DAMAGED}/cut-in-payload.tfrecord
        tfrtool count {_DAMAGED}/web-page.tfrecord
        tfrtool count none.tfrecord
        tfrtool count
        """,
    ),
    _case(
        "index",
        f"""
        tfrtool index pets
        tfrtool index fixtures/golden/plain.tfrecord --out indexes
        tfrtool index fixtures/golden/plain.tfrecord.gz --out indexes
        tfrtool index {_DAMAGED}/length-bit.tfrecord --out indexes
        tfrtool index none.tfrecord
        tfrtool index pets --out pets/dataset_info.json
        """,
    ),
    _case(
        "verify",
        f"""
        tfrtool verify pets --workers 1
        tfrtool verify pets --images --workers 1
        tfrtool verify fixtures/golden/plain.tfrecord fixtures/golden/members.tfrecord.gz
        tfrtool verify {_DAMAGED}/payload-bit.tfrecord
        tfrtool verify {_DAMAGED}/length-bit.tfrecord {_DAMAGED}/cut-in-payload.tfrecord
        tfrtool verify {_DAMAGED}/git-lfs.tfrecord {_DAMAGED}/bad-crc.tfrecord.gz
        rm pets/pets-train.tfrecord-00001-of-00002
        tfrtool verify pets
        tfrtool verify none
        tfrtool verify pets --workers 0
        """,
    ),
    _case(
        "verify_schema",
        """
        printf 'feature { name: "label" type: INT int_domain { min: 0 max: 0 } }' > schema.pbtxt
        tfrtool verify pets --schema schema.pbtxt --workers 1
        printf 'feature {' > wrong.pbtxt
        tfrtool verify pets --schema wrong.pbtxt
        tfrtool verify pets --schema none.pbtxt
        """,
    ),
    _case(
        "inspect_shard",
        f"""
        tfrtool inspect shard pets/pets-test.tfrecord-00000-of-00002 {_GOLDEN}/plain.tfrecord.gz
        tfrtool inspect shard {_GOLDEN}/kinds.tfrecord {_GOLDEN}/sequence.tfrecord
        tfrtool inspect shard {_GOLDEN}/nested.tfrecord {_GOLDEN}/text.tfrecord --limit 1
        tfrtool inspect shard {_GOLDEN}/events.out.tfevents.1700000000.host --limit 0
        tfrtool inspect shard {_DAMAGED}/payload-bit.tfrecord {_DAMAGED}/cut-in-payload.tfrecord
        tfrtool inspect shard {_DAMAGED}/web-page.tfrecord {_DAMAGED}/empty.tfrecord
        tfrtool inspect shard {_GOLDEN}/plain.tfrecord --record 3
        tfrtool inspect shard {_GOLDEN}/short.tfrecord --record 1 --raw
        tfrtool inspect shard {_GOLDEN}/plain.tfrecord --record 99
        tfrtool inspect shard none.tfrecord
        """,
    ),
    _case(
        "inspect_shard_features",
        f"""
        tfrtool inspect shard {_GOLDEN}/plain.tfrecord --feature label:int64=-1 --limit 2
        tfrtool inspect shard {_GOLDEN}/plain.tfrecord --feature label:string --feature a:string=b
        tfrtool inspect shard {_GOLDEN}/plain.tfrecord --feature label:int32
        tfrtool inspect shard {_GOLDEN}/plain.tfrecord --feature a:int64 --description none.json
        printf '{{"label": {{"dtype": "int64", "default": -1}}}}' > features.json
        tfrtool inspect shard {_GOLDEN}/plain.tfrecord --description features.json --limit 1
        printf '{{"a": {{"dtype": "int32"}}}}' > wrong.json
        tfrtool inspect shard {_GOLDEN}/plain.tfrecord --description wrong.json
        tfrtool inspect shard {_GOLDEN}/plain.tfrecord --description none.json
        """,
    ),
    _case(
        "inspect_schema",
        f"""
        tfrtool inspect schema pets
        tfrtool inspect schema {_GOLDEN}/kinds.tfrecord
        tfrtool inspect schema {_GOLDEN}/sequence.tfrecord --sample 2
        tfrtool inspect schema {_DAMAGED}/payload-bit.tfrecord
        tfrtool inspect schema {_GOLDEN}/text.tfrecord pets/pets-test.tfrecord-00000-of-00002
        """,
    ),
    _case(
        "inspect_stats",
        f"""
        tfrtool inspect stats pets
        tfrtool inspect stats {_GOLDEN}/kinds.tfrecord
        tfrtool inspect stats pets/pets-test.tfrecord-00000-of-00002 --against pets --threshold 0.1
        tfrtool inspect stats {_DAMAGED}/payload-bit.tfrecord
        """,
    ),
    _case(
        "inspect_dataset",
        f"""
        tfrtool inspect dataset pets
        tfrtool inspect dataset pets --label-feature image/filename
        tfrtool inspect dataset pets --label color
        rm pets/pets-train.tfrecord-00001-of-00002
        tfrtool inspect dataset pets
        mkdir damaged
        cp {_DAMAGED}/payload-bit.tfrecord damaged/a.tfrecord
        tfrtool inspect dataset damaged
        tfrtool inspect dataset none
        """,
    ),
    _case(
        "inspect_images",
        f"""
        tfrtool inspect images pets --out all.png
        tfrtool inspect images pets --out all.png
        tfrtool inspect images pets --out some.png --limit 4 --columns 2 --thumb 64
        tfrtool inspect images {_DAMAGED}/payload-bit.tfrecord --out bit.png
        tfrtool inspect images {_GOLDEN}/text.tfrecord --out text.png
        tfrtool inspect images pets --out label.png --label color
        tfrtool inspect images pets
        """,
        varies="files",
    ),
    _case(
        "report",
        f"""
        tfrtool report pets --out pets.html --workers 1
        tfrtool report pets --out pets.html
        tfrtool report {_DAMAGED}/payload-bit.tfrecord --out bit.html --workers 1
        tfrtool report none --out none.html
        tfrtool report pets --out pets.txt
        tfrtool report pets
        """,
        varies="files",
    ),
    _case(
        "training_errors",
        """
        tfrtool train none
        tfrtool train pets --epochs 0
        tfrtool evaluate none pets
        tfrtool predict none photos
        tfrtool bench none
        tfrtool bench pets --rounds 0
        tfrtool view none
        tfrtool view pets --port 99999
        """,
    ),
    _case(
        "cat",
        f"""
        tfrtool cat pets --limit 2
        tfrtool cat pets --records 0,2: --select label,image/filename
        tfrtool cat pets --select label,image/filename --sample 3 --seed 1
        tfrtool cat pets --where "label_name = 'dog' AND _bytes > 0" --select label
        tfrtool cat {_GOLDEN}/kinds.tfrecord --bytes base64
        tfrtool cat {_GOLDEN}/sequence.tfrecord --records 1
        tfrtool cat {_GOLDEN}/nested.tfrecord {_GOLDEN}/text.tfrecord
        tfrtool cat {_DAMAGED}/payload-bit.tfrecord --select label
        tfrtool cat {_DAMAGED}/payload-bit.tfrecord --select label --on-error stop
        tfrtool cat pets --select lable
        tfrtool cat pets --records 99
        tfrtool cat pets --records 5:2
        tfrtool cat pets --records 1 --sample 1
        tfrtool cat pets --where "lable = 1"
        """,
    ),
    _case(
        "query",
        f"""
        tfrtool query pets 'SELECT label_name, count(*) FROM records GROUP BY 1 ORDER BY 1'
        tfrtool query pets 'SELECT _record, "image/filename" FROM records ORDER BY 2' --out out.csv
        tfrtool query pets 'SELECT label FROM records' --out out.csv
        tfrtool query {_DAMAGED}/payload-bit.tfrecord 'SELECT count(*) AS n FROM records'
        tfrtool query pets 'SELECT lable FROM records'
        tfrtool query pets "SELECT * FROM read_text('/etc/passwd')"
        tfrtool query pets 'DROP VIEW records'
        """,
    ),
)
