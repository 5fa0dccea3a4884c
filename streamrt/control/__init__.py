"""Control of a running application over HTTP: the server of an application, and a client for it.

The server needs the extra `control`; `Application(control=...)` starts it.
"""

from streamrt.control.client import Client
from streamrt.control.rights import TokenRights

__all__ = ["Client", "TokenRights"]
