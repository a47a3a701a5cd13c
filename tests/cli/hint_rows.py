"""What errors tell to do, and what is done then: tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tfrtool.convert.formats.format_specs import FORMAT_NAMES

__all__ = ["ALL", "ELSEWHERE", "Row"]

ROWS = """
inspect schema --json --emit python a.tfrecord | 2
  ? use --emit json alone to print a schema as JSON
  > tfrtool inspect schema a.tfrecord --emit json
inspect stats a.tfrecord --threshold 0.1 | 2
  ? use --against SHARDS to name what to compare
  > tfrtool inspect stats a.tfrecord --threshold 0.1 --against a.tfrecord
inspect dataset numbers --json --emit croissant | 2
  ? use --emit croissant alone to print JSON
  > tfrtool inspect dataset numbers --emit croissant
inspect shard a.tfrecord --record 3 | 1
  ? records are numbered from 0
  > tfrtool inspect shard a.tfrecord --record 2
repair a.tfrecord - | 2
  ? use ./- for a file named -
  > tfrtool repair a.tfrecord ./-
inspect images pixels.tfrecord --out s.png | 1
  ? use --feature to name the one that holds pixels
  > tfrtool inspect images pixels.tfrecord --out s.png --feature second
train pets --model cnn --image-size 32 --epochs 1 --strategy mirrored | 2
  ? use --strategy one to train on it
  > tfrtool train pets --model cnn --image-size 32 --epochs 1 --strategy one
inspect images a.tfrecord --out s.png --limit 99999999 | 2
  ? use a lower --limit or --thumb
  > tfrtool inspect images a.tfrecord --out s.png --limit 99 --thumb 64
inspect images a.tfrecord --out sheet.png | 2
  ? use --overwrite to replace it
  > tfrtool inspect images a.tfrecord --out sheet.png --overwrite
$ tfrtool write photos halves --split a=0.5 --split b=0.5
evaluate run halves | 2
  ? use --split NAME
  > tfrtool evaluate run halves --split b
inspect dataset numbers --label nosuch | 2
  ? label candidates are kind, sort
  > tfrtool inspect dataset numbers --label sort
$ tfrtool extract a.tfrecord done
extract a.tfrecord done | 2
  ? choose another directory, or use --overwrite to replace an earlier extract
  > tfrtool extract a.tfrecord new
  > tfrtool extract a.tfrecord done --overwrite
extract a.tfrecord lined | 2
  ? choose another directory, or use --overwrite to replace an earlier extract
  > tfrtool extract a.tfrecord new
extract a.tfrecord photos --overwrite | 2
  ? move it away; --overwrite only replaces files of an earlier extract
  > mv photos elsewhere
  > tfrtool extract a.tfrecord photos --overwrite
extract a.tfrecord lined --overwrite | 2
  ? move it away
  > mv lined.jsonl elsewhere.jsonl
  > tfrtool extract a.tfrecord lined
extract unclear new | 2
  ? use --feature to choose one
  > tfrtool extract unclear new --feature left
extract texts.tfrecord new | 1
  ? use --feature to extract another string feature
  > tfrtool extract texts.tfrecord new --feature title
inspect schema notes.tfrecord | 1
  ? run tfrtool inspect shard notes.tfrecord to see what it contains
  > tfrtool inspect shard notes.tfrecord
edit numbers new --add kind=1 | 2
  ? use --drop or --rename on the existing one
  > tfrtool edit numbers new --drop kind --add kind=1
  > tfrtool edit numbers other --rename kind=type --add kind=1
edit texts.tfrecord new --cast title=int64 | 1
  ? use --on-error skip to skip such records
  > tfrtool edit texts.tfrecord new --cast title=int64 --on-error skip | 3
append pets photos --out new | 2
  ? write images with tfrtool write photos NEW --labels pets/label.labels.txt, and append NEW
  > tfrtool write photos shards --labels pets/label.labels.txt
  > tfrtool append pets shards --out new --split train
append pets pets | 2
  ? use --out DIR to choose one
  > tfrtool append pets pets --out new
cat pets --where "label = 'cat'" | 2
  ? compare with label_name instead
  > tfrtool cat pets --where "label_name = 'cat'"
cat pets --where 'label_name = cat' | 2
  ? use single quotes for a string: 'cat'
  > tfrtool cat pets --where "label_name = 'cat'"
cat a.tfrecord --where 'lable = 1' | 2
  ? did you mean 'label'?
  > tfrtool cat a.tfrecord --where 'label = 1'
$ echo 'a.tfrecord:0' > list.txt
filter a.tfrecord new | 2
  ? use --where, --keep, --drop, --dedupe, --dedupe-by or --sample
  > tfrtool filter a.tfrecord new1 --where 'label = 1'
  > tfrtool filter a.tfrecord new2 --keep list.txt
  > tfrtool filter a.tfrecord new3 --drop list.txt
  > tfrtool filter a.tfrecord new4 --dedupe
  > tfrtool filter a.tfrecord new5 --sample 1
  > tfrtool filter a.tfrecord new6 --dedupe-by label
query a.tfrecord 'SELECT label, label FROM records' | 2
  ? use AS to rename one of them
  > tfrtool query a.tfrecord 'SELECT label, label AS twice FROM records'
query a.tfrecord 'SHOW TABLES' | 2
  ? use DESCRIBE records to list the columns
  > tfrtool query a.tfrecord 'DESCRIBE records'
query 'SELECT 1' a.tfrecord | 2
  ? swap the arguments: tfrtool query a.tfrecord 'SELECT 1'
  > tfrtool query a.tfrecord 'SELECT 1'
index header.tfrecord | 1
  ? run tfrtool verify header.tfrecord to list the damage, or tfrtool repair header.tfrecord
  ? TARGET to recover the intact records
  > tfrtool verify header.tfrecord | 3
  > tfrtool repair header.tfrecord TARGET | 3
  > tfrtool index TARGET
count deep | 1
  ? to search deeper, quote a pattern: 'deep/**'
  > tfrtool count 'deep/**'
repair numbers b.tfrecord | 2
  ? run tfrtool verify numbers to find the damaged shards
  > tfrtool verify numbers
repair damaged.tfrecord a.tfrecord | 2
  ? choose a new file; repair never overwrites one
  > tfrtool repair damaged.tfrecord new | 3
count pipe | 1
  ? to read from a pipe, connect it to standard input and pass -
  > cat a.tfrecord > pipe & cat pipe | tfrtool count -
index packed.tfrecord | 1
  ? decompress it first, as with tfrtool reshard
  > gzip -dc < packed.tfrecord > COPY
  > tfrtool index COPY
index zlib.tfrecord | 1
  ? decompress it first, as with tfrtool reshard
  > python3 -c 'import sys, zlib;
    sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read()))' < zlib.tfrecord > COPY
  > tfrtool index COPY
write pets new | 1
  ? run tfrtool inspect dataset pets to see what it contains; verify, reshard, edit, convert and
  ? train read it too
  > tfrtool inspect dataset pets
  > tfrtool verify pets
  > tfrtool reshard pets new
write masks new | 1
  ? use --annotations for COCO, Pascal VOC or YOLO boxes, or pass the images alone, in one folder
  ? per class (masks alone are not supported)
  > tfrtool write photos new
  > tfrtool write yolo other --annotations yolo:yolo
write yolo DATASET | 1
  ? run tfrtool write yolo DATASET --annotations yolo:yolo to write both
  > tfrtool write yolo DATASET --annotations yolo:yolo
write astray new --annotations yolo:astray | 1
  ? use --root for labels in another folder
  > tfrtool write astray new --annotations yolo:astray --root strayed
write pets.csv new --columns all | 2
  ? use --all-columns
  > tfrtool write pets.csv new --all-columns
write boxes.csv new | 1
  ? run tfrtool write IMAGES DATASET --annotations csv:boxes.csv to write the boxes
  > cp -r photos IMAGES
  > tfrtool write IMAGES DATASET --annotations csv:boxes.csv
write masked.csv new | 1
  ? remove these columns, and keep one row per image
  > cut -d, -f1,2 masked.csv > plain.csv
  > tfrtool write plain.csv new
write latin.csv new | 1
  ? save the table as UTF-8
  > iconv -f latin1 -t utf-8 latin.csv > utf8.csv
  > tfrtool write utf8.csv new
write quote.csv new | 1
  ? check for an unclosed quotation mark
  > tr -d '"' < quote.csv > fixed.csv
  > tfrtool write fixed.csv new
write flat new | 1
  ? or use --label-from filename for names such as cat.0.jpg, or --split-labels NAME=FILE for lists
  > tfrtool write flat new --label-from filename
  > for f in $(ls flat); do echo $f ${f%%.*}; done > list.txt
  > tfrtool write flat newer --split-labels train=list.txt
write photos new --label-depth 9 | 1
  ? use a lower --label-depth
  > tfrtool write photos new --label-depth 1
write loose new | 1
  ? move them into one folder per class
  > mkdir -p loose/a loose/b && mv loose/1*.jpg loose/a && mv loose/*.jpg loose/b
  > tfrtool write loose new
write names.csv new | 1
  ? use --label-column NAME to read the labels from a column of another name,
  > tfrtool write names.csv new --label-column was
write float.csv new | 1
  ? use names or integers as labels, or --column NAME:float32 to write the numbers
  > sed 's/\\.0$//' float.csv > whole.csv
  > tfrtool write whole.csv new
  > tfrtool write float.csv newer --column label:float32
write several.csv new | 1
  ? use --multi-label '|' to write several labels per image
  > tfrtool write several.csv new --multi-label '|'
write sub/up.csv new | 1
  ? use --root DIR to allow files below DIR
  > tfrtool write sub/up.csv new --root .
write cut.tar new | 1
  ? download or copy it again
  > tfrtool write photos.tar new
write twice.tar new | 1
  ? unpack it with tar --ignore-zeros and pass the folder as SOURCE
  > mkdir unpacked && tar --ignore-zeros -xf twice.tar -C unpacked
  > tfrtool write unpacked new
write bomb.zip new | 1
  ? if you trust it, unpack it yourself and pass the folder as SOURCE
  > mkdir unpacked && python3 -m zipfile -e bomb.zip unpacked
  > tfrtool write unpacked new
write bomb.tar.gz new | 1
  ? if you trust it, unpack it yourself and pass the folder as SOURCE
  > mkdir unpacked && tar -xzf bomb.tar.gz -C unpacked
  > tfrtool write unpacked new
write circle new | 1
  ? remove the circular links
  > rm circle/link*
  > tfrtool write circle new
write cut.zip new | 1
  ? download or copy it again
  > tfrtool write photos.zip new
write photos pets | 2
  ? use --overwrite to replace it
  > tfrtool write photos pets --overwrite
write photos foreign | 2
  ? choose another directory; --overwrite only replaces files that tfrtool wrote
  > tfrtool write photos new
write photos foreign --overwrite | 2
  ? choose another directory; --overwrite only replaces files that tfrtool wrote
  > tfrtool write photos new --overwrite
write photos begun | 2
  ? use --resume to continue it, or --overwrite to start over
  > tfrtool write photos begun --resume
write photos begun | 2
  ? use --resume to continue it, or --overwrite to start over
  > tfrtool write photos begun --overwrite
write photos pets --resume --seed 5 | 2
  ? use --overwrite to replace it
  > tfrtool write photos pets --seed 5 --overwrite
write photos hole --name pets --split train=0.7 --split validation=0.3 --shards 2 --resume
    | 2
  ? use --overwrite to write the dataset again
  > tfrtool write photos hole --overwrite
write photos new --split train=0.999 --split test=0.001 | 1
  ? give it a larger fraction, or use another --seed
  > tfrtool write photos new --split train=0.5 --split test=0.5 --seed 1
write splits new --split train=1 | 2
  ? remove --split to keep them, or use --ignore-splits
  > tfrtool write splits new
  > tfrtool write splits newer --split train=1 --ignore-splits
write spoilt new --on-error stop | 1
  ? use --on-error skip to skip such images
  > tfrtool write spoilt new --on-error skip | 3
write photos photos/new | 2
  ? choose a directory outside
  > tfrtool write photos new
convert a.tfrecord new | 2
  ? use --to with one of FORMAT_NAMES
  > tfrtool convert a.tfrecord new --to hf
convert foreign/thesis.doc new --to csv | 1
  ? use --from NAME to choose one
  > tfrtool convert pets.csv new --from csv --to jsonl
convert photos.zip new --to csv | 1
  ? decompress it, or save it as Parquet or as JSON Lines
  > tfrtool convert pets.csv new --to jsonl
convert a.tfrecord new.parquet.gz | 2
  ? remove .gz from the name
  > tfrtool convert a.tfrecord new.parquet
repair foreign.tfrecord new | 1
  ? use --accept-checksums zero
  > tfrtool repair foreign.tfrecord new --accept-checksums zero
repair a.tfrecord new --accept-checksums zlib | 1
  ? repair it without --accept-checksums
  > tfrtool repair a.tfrecord new
repair a.tfrecord new.zst | 2
  ? remove the ending, or use .gz
  > tfrtool repair a.tfrecord new.gz
query a.tfrecord 'SELECT label FROM records' --out new.csv.gz | 2
  ? remove .gz
  > tfrtool query a.tfrecord 'SELECT label FROM records' --out new.csv
query a.tfrecord 'SELECT label FROM records' --out lined.jsonl | 2
  ? use --overwrite to replace it
  > tfrtool query a.tfrecord 'SELECT label FROM records' --out lined.jsonl --overwrite
reshard a.tfrecord new.gz | 2
  ? choose another name, and use --compression to compress the shards
  > tfrtool reshard a.tfrecord new --compression gzip
$ printf '{"x": 16777217}\\n{"x": 0.5}' > wide.jsonl
convert wide.jsonl new | 1
  ? use --cast x:float32 to round it, or --cast x:string to keep its digits
  > tfrtool convert wide.jsonl new --cast x:float32
  > tfrtool convert wide.jsonl new --cast x:string --overwrite
convert a.tfrecord new --to parquet --cast label:int64 | 2
  ? convert it without the cast
  > tfrtool convert a.tfrecord new --to parquet
convert a.tfrecord new --to arrayrecord --cast label:string | 2
  ? change records with --cast of tfrtool edit
  > tfrtool edit a.tfrecord new --cast label=string
convert a.tfrecord pets.csv new | 2
  ? use --from to read the files of one format
  > tfrtool convert pets new --from tfrecord --to jsonl
convert pets rows.jsonl | 2
  ? pass a directory, and its format with --to
  > tfrtool convert pets rows --to jsonl
convert a.tfrecord lined.jsonl | 2
  ? use --overwrite to replace it
  > tfrtool convert a.tfrecord lined.jsonl --overwrite
convert a.tfrecord new --to csv --verify bytes | 2
  ? use --exact to keep them
  > tfrtool convert a.tfrecord new --to csv --verify bytes --exact
convert pets.csv new --to parquet --exact | 2
  ? convert it without --exact
  > tfrtool convert pets.csv new --to parquet
$ printf '{"x": 1}' > 1.jsonl ; printf '{"x": "a", "y": 1}' > 2.jsonl
convert 1.jsonl 2.jsonl new --to csv | 1
  ? use --cast x:TYPE to choose one, or --select to choose other features
  > tfrtool convert 1.jsonl 2.jsonl new --to csv --cast x:string
  > tfrtool convert 1.jsonl 2.jsonl new --to csv --overwrite --select y
$ tfrtool query a.tfrecord "SELECT {'x': label} AS s FROM records" --out deep.parquet
convert deep.parquet new --cast s:string | 2
  ? name the path of the values, such as objects/id
  > tfrtool convert deep.parquet new --cast s/x:string
$ tfrtool query a.tfrecord "SELECT {'x': label} AS s FROM records" --out deep.parquet
convert deep.parquet new --rename s/x=y | 2
  ? use --select s/x to make a column of it
  > tfrtool convert deep.parquet new --select s/x --rename s/x=y
$ tfrtool query a.tfrecord "SELECT make_timestamp_ns(1) AS t" --out time.parquet
convert time.parquet new | 1
  ? use --cast t:string to store text
  > tfrtool convert time.parquet new --cast t:string
$ echo '{' > bad.json
convert a.tfrecord new --to csv --schema bad.json | 2
  ? print one with inspect schema --emit json
  > tfrtool inspect schema a.tfrecord --emit json
$ printf '{"x": 1, "y": 1}' > 3.jsonl ; printf '{"x": "a", "y": "b"}' > 4.jsonl
convert 3.jsonl 4.jsonl new --to csv | 1
  ? use --cast x:TYPE --cast y:TYPE to choose their types
  > tfrtool convert 3.jsonl 4.jsonl new --to csv --cast x:string --cast y:string
reshard pets new --stratify label | 2
  ? use --split NAME=FRACTION for each split
  > tfrtool reshard pets new --stratify label --split a=0.5 --split b=0.5
$ echo 'a.tfrecord:0' > tagged.txt
edit a.tfrecord new | 2
  ? use --select, --drop, --rename, --cast, --add, --tag, --class-map, --encode or --resize
  > tfrtool edit a.tfrecord new1 --select label
  > tfrtool edit a.tfrecord new2 --drop label
  > tfrtool edit a.tfrecord new3 --rename label=class
  > tfrtool edit a.tfrecord new4 --cast label=string
  > tfrtool edit a.tfrecord new5 --add source=web
  > tfrtool edit a.tfrecord new6 --encode png
  > tfrtool edit a.tfrecord new7 --resize 8
  > tfrtool edit pets new8 --class-map cat=kitten
  > tfrtool edit a.tfrecord new9 --tag listed=tagged.txt
train nosuch --resume | 2
  ? use --out DIR
  > tfrtool train nosuch --resume --out run | 1
train pets --model cnn --image-size 32 --epochs 1 --split train,validation --validation-steps 1 | 2
  ? use --validation FRACTION
  > tfrtool train pets --model cnn --image-size 32 --epochs 1 --validation 0.2 --validation-steps 1
train nosuch --profile | 2
  ? use --tensorboard or --out
  > tfrtool train nosuch --profile --tensorboard logs | 1
  > tfrtool train nosuch --profile --out run | 1
train nosuch --model cnn --precision bfloat16 | 2
  ? use a model of keras.applications, --trainable head, --cache features or auto,
  ? --recipe tfrtool, and no --augment
  > tfrtool train nosuch --precision bfloat16 --model mobilenet_v2 --trainable head --cache
    features --recipe tfrtool | 1
  > tfrtool train nosuch --precision bfloat16 --model resnet50 --trainable head --cache auto |
    1
"""
"""A command and how it ends, with what goes before it after a dollar; after a question mark the
hint that it gives; and after that what is done then, with its exit code where that is not 0."""

SLOW = """
train pets --model cnn --image-size 32 --epochs 2 --out run | 2
  ? use --resume to continue it, or choose another directory
  > tfrtool train pets --model cnn --image-size 32 --epochs 2 --out run --resume
train pets --model cnn --image-size 32 --seed 9 --epochs 1 --out run --resume | 2
  ? choose another directory for another run
  > tfrtool train nosuch --model cnn --seed 9 --out another | 1
train pets --model cnn --image-size 32 --trainable hidden --epochs 1 --out run --resume | 2
  ? use --weights run/model.keras, and another directory for its run
  > tfrtool train pets --model cnn --image-size 32 --trainable hidden --epochs 1 --weights
    run/model.keras --out run2
$ rm -r run/checkpoint
train pets --model cnn --image-size 32 --epochs 1 --out run | 2
  ? choose another directory
  > tfrtool train nosuch --model cnn --image-size 32 --epochs 1 --out another | 1
$ rm run/checkpoint
$ echo tfrtool > run/checkpoint
train pets --model cnn --image-size 32 --epochs 1 --out run --resume | 1
  ? delete it to start over
  > rm -r run
  > tfrtool train pets --model cnn --image-size 32 --epochs 1 --out run --resume
train unclear --model cnn --image-size 32 | 1
  ? run tfrtool inspect shard unclear to show the features, and use --image-feature NAME to choose
  ? one
  > tfrtool inspect shard unclear
  > tfrtool bench unclear --image-feature left --label-feature kind --split nosuch | 2
train pets --model cnn --image-size 32 --label-feature labels | 2
  ? did you mean 'label'?
  > tfrtool bench pets --label-feature label --split nosuch | 2
train hurt --model cnn --image-size 32 --epochs 1 | 1
  ? train and evaluate skip damaged records with --on-error skip
  > tfrtool train hurt --model cnn --image-size 32 --epochs 1 --on-error skip | 3
evaluate run hurt --split train | 1
  ? train and evaluate skip damaged records with --on-error skip
  > tfrtool evaluate run hurt --split train --on-error skip | 3
bench hurt | 1
  ? train and evaluate skip damaged records with --on-error skip
$ echo '{"shard": "a.tfrecord", "record": null}' > unnumbered.jsonl
filter a.tfrecord fewer --drop unnumbered.jsonl | 2
  ? repair the shard, and evaluate again
  > tfrtool repair a.tfrecord repaired.tfrecord
train undecodable --model cnn --image-size 32 --epochs 1 | 1
  ? run tfrtool inspect shard undecodable/train.tfrecord --record 3 to show it, or use --on-error
  ? skip of train and evaluate
  > tfrtool inspect shard undecodable/train.tfrecord --record 3
  > tfrtool train undecodable --model cnn --image-size 32 --epochs 1 --on-error skip | 3
"""


ELSEWHERE = {
    "use tfrtool.open_records for the records of a dataset": "tests/view/test_notebook.py has one",
    "run pip install {}": "tests/inspection/rows/test_read_rows.py lacks them",
    "NAME to choose the control of the labels": "tests/sources/annotations/test_label_studio.py",
    "unpack it and pass the folder as SOURCE": "tests/sources/test_archived_arrays.py has a folder",
    "pass a quoted pattern such as 'gzip/emnist": "tests/sources/test_idx_files.py passes one",
    "convert it to an .npz file": "tests/sources/test_array_images.py reads .npz files",
    "pass one of the tables": "tests/sources/test_pixel_tables.py passes one",
    "load it with keras.models.load_model": "tests/training/test_own_model_file.py does",
    "with one class name per line": "tests/training/test_own_model_file.py has such a file",
    "for the folder that the paths start from": "tests/sources/test_chosen_columns.py has no files",
    "where such files are": "tests/sources/test_chosen_columns.py follows it",
    "use --path-column NAME to read the paths": "tests/sources/test_chosen_columns.py does",
    "use another --type, or --as-stored": "tests/features/test_typed_features.py uses others",
    "name the feature that has them": "tests/features/test_typed_features.py names some",
    "use --as-stored to write samples as numbers": "tests/features/test_typed_pictures.py does",
    "name one of its fields, such as": "tests/features/test_typed_features.py names one",
    "use --as-stored to show features as": "tests/features/test_logical_tables.py does",
    "use --as-stored when you make the table": "tests/features/test_logical_tables.py makes one",
    "records can't be made of it; use the TFRecord files": "tests/features/test_explode.py has one",
    "lists are": "tests/features/test_explode.py names one of them",
    "to see the columns of its Examples": "tests/features/test_ranking.py shows them",
    "use {} itself": "tests/features/test_explode.py takes the list itself",
    "use --select to leave it out": "tests/features/test_explode.py leaves it out",
    "use tfrtool filter to drop records": "tests/convert/test_filter.py filters",
    "export the task as CVAT for images": "advice for CVAT",
    "put names without colors into classes.txt": "tests/sources/annotations has such a list",
    "use OLD=NEW, or a file with the old and the new name": "tests/writing/test_class_map.py does",
    "redirect it to a file or a program": "tests/cli/test_query_tables.py does",
    "start the viewer again if the dataset was replaced": "tests/view/test_hostile_datasets.py",
    "leave this column out": "tests/cli/test_query_tables.py does",
    "without the cast, its bytes are kept as they are": "tests/examples/test_control_characters.py",
    "raise ulimit -v to": "tests/process/test_address_space.py sets one",
    "make one with protoc": "tests/cli/test_proto.py has such files",
    "use a table format": "tests/cli/test_proto.py writes some",
    "they can't be converted back; use the TFRecord files": "tests/cli/test_proto.py has them",
    "messages are": "tests/cli/test_proto.py names one of them",
    "pass staging=FOLDER": "an argument of Python",
    "leave compile() out": "most models in tests/training/test_own_model.py are not compiled",
    "use it with --weights FILE": "tests/training/test_models.py loads such files",
    "use --outputs logits": "tests/training/test_heads.py trains on logits",
    "add what is missing with tfrtool edit": "tests/convert/test_merge.py adds it",
    "use --allow-mixed to merge them anyway": "tests/convert/test_reshard.py merges them",
    "set TMPDIR to a folder on another disk": "tests/convert/test_local_copies.py fills one",
    "set TMPDIR to a folder that all nodes share": "tests/convert/test_store_targets.py has one",
    "load it with the same shards and numbers of workers": "tests/test_torch.py",
    "use --strategy one to train on this machine, or": "tests/training/test_devices.py does",
    "pass a function that returns it": "tests/training/test_own_model.py has one",
    'pip install "tfrtool[{}]"': "tests/process/test_without_tensorflow.py does without one",
    "pass credentials in environment variables": "no advice, but where they belong",
    "write it again without compression and dictionaries": "test_hostile_parquet.py does",
    "write to a local folder and copy it": "the store's own programs copy it",
    "pip install array_record": "tests/convert/formats/test_array_records.py does without it",
    "leave the leading folders that no longer exist out": "tests/sources/test_tables.py has some",
    "NAME to choose one, or --decode-function FILE.py:FUNCTION": "tests/loading has such functions",
    "the checkpoint of epoch": "no advice, but what is left: tests/training/test_resume.py",
    "use --column NAME:int64 to write a table's numbers": "tests/sources/test_value_columns.py",
    "use --label-column NAME to read": "tests/writing/test_columns_and_labels.py does",
    "unpack it, and pass the folder: {} has the labels": "tests/sources/test_chosen_columns.py",
    "move them out of SOURCE": "tests/cli/test_write.py does, or uses --label-depth",
    "use unique ids for the images": "test_annotation_round_trips.py has some",
    "use the same id for a category in all files": "test_annotation_round_trips.py has one",
    "pipe a shard into it": "test_standard_input.py runs it",
    "give it a larger fraction, or use another --seed": "above, of write",
    "cache auto to cache what fits, or a smaller --image-size": "may help, or not: it depends",
    "use a smaller --batch-size or --image-size": "may help, or not: it depends on the GPU",
    'pip install "tfrtool[ray]': "tests/engines/test_ray_cluster.py does without it",
    "run `ray start --head` to start a cluster": "tests/engines has one",
    "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE": "tests/engines/test_ray_cluster.py has one",
    "try a --learning-rate lower than": "may help, or not: tests/training/test_resume.py",
    "check whether it ran out of memory": "tests/engines/test_ray_cluster.py kills one",
    "use paths that are the same on every node": "no advice, but what is needed",
    "use --shard-cache DIR to choose one": "tests/storage/test_shard_cache.py does",
    "use --shard-cache DIR on another disk": "tests/storage/test_shard_cache.py makes room instead",
    "run tfrtool verify to list the damage, or use": "tests/cli/test_train_stores.py does",
    "use a larger --shard-size or fewer --shards": "tests/writing/test_too_many_shards.py",
    "set XDG_CACHE_HOME": "below",
    "set KERAS_BACKEND={}": "tests/training sets it to another",
    "use --recipe tfrtool, whose cache": "below",
    "use --cache auto to cache what fits": "below",
    "pass one of them, such as split=": "below",
    "write the index elsewhere": "test_standard_input.py runs it",
    "give custom layers get_config": "tests/training/test_own_model.py has one without",
    "to list the damage": "below",
    "to list all damage": "below",
    "; the label column one of": "above, with the paths",
    "use one name per line, or a label_map.pbtxt": "tests/sources/test_label_choice.py",
    "set TFDS_DATA_DIR if it is prepared elsewhere": "tests/sources/test_tfds.py does",
    "prepare it again with file_format": "TFDS' own option",
    "prepare the dataset again": "what TFDS does",
    "again with --resume to finish it": "tests/process/test_die_anywhere.py runs it after a kill",
    "rename the file": "tests/view/test_pages.py has such a name",
    "move the file away": "tests/view/test_tags.py has such a list",
    "pass {} again": "tests/cli/test_train.py has a model that is code",
    "to decode the images again": "tests/loading/test_disk_cache.py deletes one",
    "use shards in one folder": "tests/loading/test_dataset.py has such patterns",
    "move them away": "tests/training/test_exporting.py has some",
    "delete it and pass all options": "tests/cli/test_train.py has such records",
    "pass the directory of a dataset": "tests/cli/test_train.py",
    "--resume to finish the write": "likewise",
    "--resume to write what is missing": "tests/writing/test_store_publish.py runs it",
    "wait for it to finish; --overwrite would replace it": "test_store_publish.py has two writers",
    "to discard its files": "no advice, but what deleting does",
    "decompress it if you trust it": "tests/interop/test_tables_of_others.py has such a file",
    "save it again": "what Hugging Face's library does",
    "use tfrtool convert for other columns": "tests/interop/test_tables_of_others.py converts them",
    "pass label_feature=NAME to choose the label": "tests/examples/test_guessed_labels.py",
    "try again": "tests/process/test_die_anywhere.py reads again",
    "use --weights none to start from random weights": "below",
    "use --rescale unit for 0..1": "below",
    "remove --precision": "below",
    "print model.summary() of its Keras model to list them": "below",
    "run again when it is readable": "no advice",
}
"""Hints that no row above can bring about, and where they are tested or why they need not be."""


class Row(NamedTuple):
    """One row of the tables above."""

    before: list[str]
    command: str
    code: int
    hint: str
    follow: list[tuple[str, int]]


def rows(text: str) -> Iterator[Row]:
    """Read the tables above."""
    text = text.replace("FORMAT_NAMES", FORMAT_NAMES)
    text = re.sub(r"\n    +(?=\S)", " ", text.strip())  # lines that go on
    for block in re.findall(r"(?:\$ .*\n)*\S.*(?:\n  .*)+", text):
        lines = block.splitlines()
        first = next(line for line in lines if line[0] not in "$ ")
        command, _, code = first.rpartition(" | ")
        follow = [re.fullmatch(r"  > (.*?)(?: \| (\d))?", line) for line in lines]
        yield Row(
            before=[line[2:] for line in lines if line.startswith("$")],
            command=command,
            code=int(code),
            hint=" ".join(line[4:] for line in lines if line.startswith("  ?")),
            follow=[(match[1], int(match[2] or 0)) for match in follow if match],
        )


ALL = [*rows(ROWS), *rows(SLOW)]
