"""A source of files in Amazon S3."""

from streamrt.connectors.file_sources.s3_file_source import MissingS3Bucket, S3FileSource

__all__ = ["MissingS3Bucket", "S3FileSource"]
