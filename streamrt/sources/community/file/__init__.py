"""Sources of files."""

from streamrt.connectors import AzureFileSource, FileSource, LocalFileSource, S3FileSource

__all__ = ["AzureFileSource", "FileSource", "LocalFileSource", "S3FileSource"]
