"""What verify finds in one shard, whatever stands around it."""

from __future__ import annotations

from tfrtool.inspection.profile import ProfileRequest, ShardProfile, profile_shard
from tfrtool.inspection.verify.verify import verify
from tfrtool.records.stream import Location


def verify_shard(shard: Location, *, images: bool = False) -> ShardProfile:
    """Return the profile of one shard."""
    if not images:
        return profile_shard(shard, ProfileRequest(parsing=True))
    (profile,) = verify(shard, images=True, workers=1).shards
    return profile
