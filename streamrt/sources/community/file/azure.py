"""A source of files in Azure Blob Storage."""

from streamrt.connectors.file_sources.azure_file_source import AzureFileSource, MissingAzureContainer

__all__ = ["AzureFileSource", "MissingAzureContainer"]
