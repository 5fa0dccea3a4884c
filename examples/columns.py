"""A tour of columns: arithmetic, conditions, missing values, and a table of the results.

Reads `rides`, such as {"city": "Lyon", "km": 12.0, "fare": 24.0, "tip": None, "paid_by": "card"}.

    STREAMRT_BROKER_ADDRESS=localhost:9092 python examples/columns.py
"""

from streamrt import Application, StreamingDataFrame

PER_KM = 1.5
CARDLESS = ("cash", "voucher")


def build(app: Application) -> StreamingDataFrame:
    """Add the dataframe of this example to an application."""
    rides = app.topic("rides")
    priced = app.topic("rides-priced")

    sdf = app.dataframe(rides)
    # Keep the rides that have the values that the rest needs.
    sdf = sdf[sdf.contains(["km", "fare"])]
    sdf = sdf[sdf["km"].notnull() & sdf["fare"].notnull()]
    # A missing tip and a tip of None become 0; a missing note becomes None.
    sdf.fill("note", tip=0, paid_by="cash")

    # Columns and plain values mix, on either side of an operator.
    sdf["total"] = sdf["fare"] + sdf["tip"]
    sdf["per_km"] = (sdf["fare"] / sdf["km"]).round(2)
    sdf["expected"] = 3 + PER_KM * sdf["km"]
    sdf["tip_percent"] = (100 * sdf["tip"] // sdf["fare"]).apply(int)
    sdf["off_by"] = abs(-sdf["expected"] + sdf["fare"])

    # Conditions combine by & | ~ and are columns, too.
    sdf["long"] = sdf["km"] >= 10
    sdf["cardless"] = sdf["paid_by"].isin(CARDLESS)
    sdf["generous"] = (sdf["tip_percent"] > 15) | (sdf["long"] & ~sdf["cardless"] & (sdf["tip"] > 0))
    sdf["airport"] = sdf["city"].contains("Airport")
    # A condition may also be a function of the whole value.
    sdf = sdf[sdf.apply(lambda ride: ride["total"] > 0)]

    sdf.drop("expected")
    sdf.drop(["driver", "plate"], errors="ignore")
    sdf.print_table(size=5, title="Rides", metadata=False, columns=["city", "km", "total", "per_km", "generous"])
    return sdf.to_topic(priced)


if __name__ == "__main__":
    app = Application(consumer_group="columns", auto_offset_reset="earliest")
    build(app)
    app.run()
