"""Uploads in parts that were begun and not ended: obstore aborts its own, and lists no others."""

import contextlib
import os
from importlib.util import find_spec
from itertools import chain

from tfrtool.storage.remote_path import RemotePath

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


def abort_uploads(folder: RemotePath) -> None:
    """Abort uploads below a folder of S3's that a killed process has left, where boto3 is there.

    Else they stay, and are paid for, until a rule of the bucket's deletes them. That these requests
    are refused, or fail, is no error.
    """
    if not str(folder).startswith("s3://") or find_spec("boto3") is None:
        return
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    endpoint, region = (
        next(filter(None, map(os.environ.get, names)), None) for names in (_ENDPOINTS, _REGIONS)
    )
    bucket, prefix = folder.parts[1], f"{folder.key}/".lstrip("/")
    with contextlib.suppress(BotoCoreError, ClientError, ValueError):
        client = boto3.client("s3", endpoint_url=endpoint, region_name=region)
        pages = client.get_paginator("list_multipart_uploads").paginate(
            Bucket=bucket, Prefix=prefix
        )
        for one in chain.from_iterable(page.get("Uploads", ()) for page in pages):
            with contextlib.suppress(ClientError):
                client.abort_multipart_upload(
                    Bucket=bucket, Key=one["Key"], UploadId=one["UploadId"]
                )
