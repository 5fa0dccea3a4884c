"""A source of files in Amazon S3."""

from streamrt.connectors.sources.s3_files import MissingS3Bucket, S3FileSource

__all__ = ["MissingS3Bucket", "S3FileSource"]
