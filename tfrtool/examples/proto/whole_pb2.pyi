from tfrtool.examples.proto import example_pb2 as _example_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WholeEntry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: _example_pb2.Feature
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[_Union[_example_pb2.Feature, _Mapping]] = ...) -> None: ...

class WholeFeatures(_message.Message):
    __slots__ = ("feature",)
    FEATURE_FIELD_NUMBER: _ClassVar[int]
    feature: _containers.RepeatedCompositeFieldContainer[WholeEntry]
    def __init__(self, feature: _Optional[_Iterable[_Union[WholeEntry, _Mapping]]] = ...) -> None: ...

class WholeListEntry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: _example_pb2.FeatureList
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[_Union[_example_pb2.FeatureList, _Mapping]] = ...) -> None: ...

class WholeFeatureLists(_message.Message):
    __slots__ = ("feature_list",)
    FEATURE_LIST_FIELD_NUMBER: _ClassVar[int]
    feature_list: _containers.RepeatedCompositeFieldContainer[WholeListEntry]
    def __init__(self, feature_list: _Optional[_Iterable[_Union[WholeListEntry, _Mapping]]] = ...) -> None: ...

class WholeExample(_message.Message):
    __slots__ = ("features",)
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    features: WholeFeatures
    def __init__(self, features: _Optional[_Union[WholeFeatures, _Mapping]] = ...) -> None: ...

class WholeSequence(_message.Message):
    __slots__ = ("context", "feature_lists")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LISTS_FIELD_NUMBER: _ClassVar[int]
    context: WholeFeatures
    feature_lists: WholeFeatureLists
    def __init__(self, context: _Optional[_Union[WholeFeatures, _Mapping]] = ..., feature_lists: _Optional[_Union[WholeFeatureLists, _Mapping]] = ...) -> None: ...

class ExampleBatch(_message.Message):
    __slots__ = ("example",)
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    example: _containers.RepeatedCompositeFieldContainer[WholeExample]
    def __init__(self, example: _Optional[_Iterable[_Union[WholeExample, _Mapping]]] = ...) -> None: ...

class SequenceBatch(_message.Message):
    __slots__ = ("example",)
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    example: _containers.RepeatedCompositeFieldContainer[WholeSequence]
    def __init__(self, example: _Optional[_Iterable[_Union[WholeSequence, _Mapping]]] = ...) -> None: ...
