"""A sink of files in Azure Blob Storage."""

from streamrt.connectors.file_sinks.azure_file_sink import (
    AzureContainerAccessDeniedError,
    AzureContainerNotFoundError,
    AzureFileSink,
)

__all__ = ["AzureContainerAccessDeniedError", "AzureContainerNotFoundError", "AzureFileSink"]
