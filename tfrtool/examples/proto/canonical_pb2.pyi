from tfrtool.examples.proto import example_pb2 as _example_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CanonicalEntry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: _example_pb2.Feature
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[_Union[_example_pb2.Feature, _Mapping]] = ...) -> None: ...

class CanonicalFeatures(_message.Message):
    __slots__ = ("feature",)
    FEATURE_FIELD_NUMBER: _ClassVar[int]
    feature: _containers.RepeatedCompositeFieldContainer[CanonicalEntry]
    def __init__(self, feature: _Optional[_Iterable[_Union[CanonicalEntry, _Mapping]]] = ...) -> None: ...

class CanonicalListEntry(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: _example_pb2.FeatureList
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[_Union[_example_pb2.FeatureList, _Mapping]] = ...) -> None: ...

class CanonicalFeatureLists(_message.Message):
    __slots__ = ("feature_list",)
    FEATURE_LIST_FIELD_NUMBER: _ClassVar[int]
    feature_list: _containers.RepeatedCompositeFieldContainer[CanonicalListEntry]
    def __init__(self, feature_list: _Optional[_Iterable[_Union[CanonicalListEntry, _Mapping]]] = ...) -> None: ...

class CanonicalExample(_message.Message):
    __slots__ = ("context",)
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    context: CanonicalFeatures
    def __init__(self, context: _Optional[_Union[CanonicalFeatures, _Mapping]] = ...) -> None: ...

class CanonicalSequenceExample(_message.Message):
    __slots__ = ("context", "feature_lists")
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LISTS_FIELD_NUMBER: _ClassVar[int]
    context: CanonicalFeatures
    feature_lists: CanonicalFeatureLists
    def __init__(self, context: _Optional[_Union[CanonicalFeatures, _Mapping]] = ..., feature_lists: _Optional[_Union[CanonicalFeatureLists, _Mapping]] = ...) -> None: ...

class ExampleBatch(_message.Message):
    __slots__ = ("example",)
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    example: _containers.RepeatedCompositeFieldContainer[CanonicalExample]
    def __init__(self, example: _Optional[_Iterable[_Union[CanonicalExample, _Mapping]]] = ...) -> None: ...

class SequenceExampleBatch(_message.Message):
    __slots__ = ("example",)
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    example: _containers.RepeatedCompositeFieldContainer[CanonicalSequenceExample]
    def __init__(self, example: _Optional[_Iterable[_Union[CanonicalSequenceExample, _Mapping]]] = ...) -> None: ...
