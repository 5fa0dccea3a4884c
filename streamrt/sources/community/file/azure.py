"""A source of files in Azure Blob Storage."""

from streamrt.connectors.sources.azure_files import AzureFileSource, MissingAzureContainer

__all__ = ["AzureFileSource", "MissingAzureContainer"]
