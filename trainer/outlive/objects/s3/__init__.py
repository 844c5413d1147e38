"""Buckets that speak S3. Importing this costs 12 MB, so nobody does before a bucket is named."""

from outlive.objects.s3.store import S3Store
from outlive.objects.s3.watchdog import Patience

__all__ = ["Patience", "S3Store"]
