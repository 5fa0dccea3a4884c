"""A sink of files in Azure Blob Storage."""

from streamrt.connectors.sinks.azure_files import (
    AzureContainerAccessDeniedError,
    AzureContainerNotFoundError,
    AzureFileSink,
)

__all__ = ["AzureContainerAccessDeniedError", "AzureContainerNotFoundError", "AzureFileSink"]
