"""A sink of files in Amazon S3."""

from streamrt.connectors.sinks.s3_files import S3BucketAccessDeniedError, S3BucketNotFoundError, S3FileSink

__all__ = ["S3BucketAccessDeniedError", "S3BucketNotFoundError", "S3FileSink"]
