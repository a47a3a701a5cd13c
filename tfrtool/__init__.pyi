"""Public names for type checkers; ``__init__.py`` has the same at run time."""

from tfrtool.convert.append import append as append
from tfrtool.convert.diff import diff as diff
from tfrtool.convert.edit import edit as edit
from tfrtool.convert.filter_records import filter_records as filter_records
from tfrtool.convert.formats.conversion import convert as convert
from tfrtool.convert.reshard import reshard as reshard
from tfrtool.errors import ClusterError as ClusterError
from tfrtool.errors import CorruptShardError as CorruptShardError
from tfrtool.errors import DatasetError as DatasetError
from tfrtool.errors import SchemaError as SchemaError
from tfrtool.errors import ShardError as ShardError
from tfrtool.errors import SourceError as SourceError
from tfrtool.errors import TfrtoolError as TfrtoolError
from tfrtool.errors import TrainingError as TrainingError
from tfrtool.errors import UsageError as UsageError
from tfrtool.errors import WeightsError as WeightsError
from tfrtool.errors import WriteError as WriteError
from tfrtool.examples.example import encode_example as encode_example
from tfrtool.examples.schema import FeatureSpec as FeatureSpec
from tfrtool.examples.schema import Schema as Schema
from tfrtool.inspection.dataset.croissant import croissant as croissant
from tfrtool.inspection.dataset.dataset_summary import inspect_dataset as inspect_dataset
from tfrtool.inspection.extract.extract import extract as extract
from tfrtool.inspection.pictures.contact_sheet import contact_sheet as contact_sheet
from tfrtool.inspection.pictures.record_gallery import show as show
from tfrtool.inspection.rows.decoded_records import open_records as open_records
from tfrtool.inspection.rows.parsed_examples import parse_example as parse_example
from tfrtool.inspection.rows.read_rows import read as read
from tfrtool.inspection.rows.read_rows import read_records as read_records
from tfrtool.inspection.rows.read_rows import read_table as read_table
from tfrtool.inspection.schema.features_of import Features as Features
from tfrtool.inspection.schema.shard_schema import infer_schema as infer_schema
from tfrtool.inspection.stats.stats import stats as stats
from tfrtool.inspection.summary.shard_summary import inspect_shard as inspect_shard
from tfrtool.inspection.verify.verify import verify as verify
from tfrtool.loading.bench import bench as bench
from tfrtool.loading.dataset import Dataset as Dataset
from tfrtool.loading.dataset_facts import Split as Split
from tfrtool.loading.open_dataset import open_dataset
from tfrtool.records.count import count_records
from tfrtool.records.framing import Fault as Fault
from tfrtool.records.framing import Record as Record
from tfrtool.records.random_access import Records as Records
from tfrtool.records.repair import repair_shard
from tfrtool.records.shards import Shard as Shard
from tfrtool.records.shards import find_shards as find_shards
from tfrtool.training.evaluation import evaluate as evaluate
from tfrtool.training.prediction import predict as predict
from tfrtool.training.saved_model import load_model as load_model
from tfrtool.training.train import train as train
from tfrtool.view.report import report as report
from tfrtool.writing.write import write as write

__version__: str
__all__: list[str]
_HOME_OF: dict[str, tuple[str, str]]

count = count_records
dataset = open_dataset
filter = filter_records  # noqa: A001
open = open_records  # noqa: A001
repair = repair_shard
