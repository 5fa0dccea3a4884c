"""Takes events of an HTTP stream, and sends them to a queue of Amazon SQS.

An event is such as `data: {"id": 1}`. The ids of events are kept, so a restart asks for those after the last
one. The queue is a FIFO queue: the id of the ride is the message group.

    RIDES_URL=http://localhost:8080/rides JOBS_QUEUE=jobs.fifo AWS_REGION=eu-west-1 python examples/endpoints_sse.py
"""

import os

from streamrt import Application
from streamrt.tables import HTTPSSE, AWSConnection, Catalog, MemoryCatalog, SQSQueue

# The program says itself what its tables are, at each start. KafkaCatalog() would keep them for other programs, too.
SETTINGS = {"catalog": Catalog(store=MemoryCatalog())}


def build(app: Application) -> None:
    """Add tables and dataframe of this example to an application."""
    catalog = app.catalog
    catalog.create_database("city", if_exists="ignore")
    catalog.create_database("ops", if_exists="ignore")
    catalog.add_connection("aws", AWSConnection(region=os.environ.get("AWS_REGION", "eu-west-1")), if_exists="replace")
    rides = catalog.create_table(
        "city.rides",
        "id BIGINT NOT NULL",
        connector=HTTPSSE(os.environ.get("RIDES_URL", "http://localhost:8080/rides")),
        key=["id"],
        if_exists="replace",
    )
    catalog.create_table(
        "ops.jobs",
        "id BIGINT NOT NULL",
        connector=SQSQueue(os.environ.get("JOBS_QUEUE", "jobs.fifo"), connection="aws", fifo=True),
        key=["id"],
        if_exists="replace",
    )
    app.dataframe(rides).to_table("ops.jobs")


if __name__ == "__main__":
    app = Application(consumer_group="rides", auto_offset_reset="earliest", catalog=SETTINGS["catalog"])
    build(app)
    app.run()
