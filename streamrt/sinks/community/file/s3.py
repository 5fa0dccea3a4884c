"""A sink of files in Amazon S3."""

from streamrt.connectors.file_sinks.s3_file_sink import S3BucketAccessDeniedError, S3BucketNotFoundError, S3FileSink

__all__ = ["S3BucketAccessDeniedError", "S3BucketNotFoundError", "S3FileSink"]
