"""gcp-storage-emulator with what it leaves out of Google Cloud Storage: `ifGenerationMatch`, generations of downloads.

Names of buckets choose a behaviour: `plain-...` has none of this, `refused-...` gives access to no one, and `busy-...`
gets too many requests. Run as a program, in a process that has nothing but the emulator.
"""

import functools
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from gcp_storage_emulator.handlers import objects  # type: ignore[import-untyped]
from gcp_storage_emulator.storage import Storage  # type: ignore[import-untyped]

Handler = Callable[..., None]


def guarded(handler: Handler) -> Handler:
    """Let a handler answer only if the bucket and the condition of the request allow it."""

    @functools.wraps(handler)
    def handle(request: Any, response: Any, storage: Any, *args: Any, **kwargs: Any) -> None:
        # A body that is left unread would break the connection.
        data = request.data if request.method != "GET" else None
        bucket = request.params["bucket_name"]
        expected = request.query.get("ifGenerationMatch", [None])[0]
        if bucket.startswith("refused-"):
            status = HTTPStatus.FORBIDDEN
        elif bucket.startswith("busy-"):
            status = HTTPStatus.TOO_MANY_REQUESTS
        elif (
            expected is not None
            and not bucket.startswith("plain-")
            and expected != generation(storage, bucket, object_name(request, storage, data))
        ):
            status = HTTPStatus.PRECONDITION_FAILED
        else:
            handler(request, response, storage, *args, **kwargs)
            return
        response.status = status
        response.json({"error": {"code": status.value, "message": status.phrase}})

    return handle


def object_name(request: Any, storage: Any, data: Any) -> str:
    """Return the name of the object that a request reads or writes."""
    if "object_id" in request.params:
        return str(request.params["object_id"])
    if "upload_id" in request.query:
        return str(storage.get_resumable_file_obj(request.query["upload_id"][0])["name"])
    return str(data.get("meta", data)["name"])


def generation(storage: Any, bucket: str, name: str) -> str:
    """Return the generation of an object; 0 if there is none."""
    return str(storage.objects.get(bucket, {}).get(name, {}).get("generation", 0))


def download(request: Any, response: Any, storage: Any, *args: Any, **kwargs: Any) -> None:
    """Answer with the generation of an object as well."""
    bucket = request.params["bucket_name"]
    if not bucket.startswith("plain-"):
        response["X-Goog-Generation"] = generation(storage, bucket, request.params["object_id"])
    downloaded(request, response, storage, *args, **kwargs)


if __name__ == "__main__":
    downloaded = objects.download
    objects.download = guarded(download)
    for name in ("insert", "upload_partial", "ls"):
        setattr(objects, name, guarded(getattr(objects, name)))
    # It is in memory, and would be written after each request.
    Storage._write_config_to_file = lambda self: None

    # The server keeps the handlers that it finds when it is imported.
    from gcp_storage_emulator.__main__ import main  # type: ignore[import-untyped]

    main()
